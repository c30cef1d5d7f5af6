package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/pipelines/spec"
)

// TestGoodFiles loads each kind of pipeline in all its forms, and reads back what
// is written of it, for operators as YAML and in the registry as JSON.
func TestGoodFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			r := decodeFile(t, file)
			if err := r.Check(shop(t)); err != nil {
				t.Errorf("checked: %v", err)
			}
			if diff := cmp.Diff(r, readBack(t, r), cmpopts.IgnoreUnexported(spec.Container{}, spec.Pipeline{})); diff != "" {
				t.Errorf("YAML read back (-want +got):\n%s", diff)
			}
			for _, p := range r.Pipelines {
				data, err := json.Marshal(p.Spec)
				if err != nil {
					t.Fatal(err)
				}
				var spec spec.PipelineSpec
				if err := json.Unmarshal(data, &spec); err != nil {
					t.Fatalf("%v: %s", err, data)
				}
				if diff := cmp.Diff(p.Spec, spec); diff != "" {
					t.Errorf("%s: JSON read back (-want +got):\n%s", p.Metadata, diff)
				}
			}
		})
	}
}

func decodeFile(t *testing.T, file string) *spec.Resources {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := spec.Decode(file, data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readBack writes documents as millrace get does, and reads them.
func readBack(t *testing.T, r *spec.Resources) *spec.Resources {
	t.Helper()
	var text strings.Builder
	enc := yaml.NewEncoder(&text)
	for _, c := range r.Containers {
		if err := enc.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range r.Pipelines {
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	again, err := spec.Decode("get.yaml", []byte(text.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	return again
}

// TestLoadDesign holds what the design's samples mean, the expression with commas
// inside { } included.
func TestLoadDesign(t *testing.T) {
	r := decodeFile(t, "testdata/good/design.yaml")
	want := []spec.PipelineSpec{
		{
			Source: spec.Source{Container: "customer", Where: `type = "salesOrder"`},
			Aggregate: &spec.Aggregate{
				Into: "customer", Match: map[string]string{"customerId": "customerId"}, Where: `type = "customer"`,
				Set: map[string]spec.AggregateField{
					"salesOrderCount": {Count: true},
					"lifetimeValue":   {Sum: "price * quantity", Each: "details"},
					"lastOrderDate":   {Max: "orderDate"},
					"recentOrders":    {Latest: 3, By: "orderDate", Fields: []string{"id", "orderDate"}},
				},
				Consistency: spec.Transactional,
			},
		},
		{
			Source: spec.Source{Container: "customer"},
			Project: &spec.Project{
				Sink:     spec.Sink{Parquet: &spec.ParquetSink{Path: "./analytics", CommitInterval: spec.Duration(spec.CommitIntervalDefault)}},
				OnExpire: spec.KeepRows,
				Tables: spec.Tables{
					{Name: "customers", Table: spec.Table{Where: `type = "customer"`, Key: []string{"id"}, Columns: columns(
						"id", "id", "", "name", `CONCAT(firstName, " ", lastName)`, "", "city", "addresses[0].city", "", "orders", "salesOrderCount", "",
					)}},
					{Name: "orders", Table: spec.Table{Where: `type = "salesOrder"`, Key: []string{"id"}, Columns: columns(
						"id", "id", "", "customerId", "customerId", "", "orderDate", "orderDate", "timestamp",
					)}},
					{Name: "orderItems", Table: spec.Table{Where: `type = "salesOrder"`, Each: "details", Key: []string{"orderId", "line"}, Columns: columns(
						"orderId", "item.id", "", "line", "index", "", "sku", "sku", "", "price", "price", "decimal(12,2)", "quantity", "quantity", "",
					)}},
				},
			},
		},
	}
	for i := range want {
		if diff := cmp.Diff(want[i], r.Pipelines[i].Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Pipelines[i].Metadata, diff)
		}
	}
}

// columns makes columns of names, expressions and types.
func columns(texts ...string) spec.Columns {
	var all spec.Columns
	for i := 0; i < len(texts); i += 3 {
		all = append(all, spec.NamedColumn{Name: texts[i], Column: spec.Column{Expr: texts[i+1], Type: texts[i+2]}})
	}
	return all
}
