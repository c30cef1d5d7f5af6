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
	want := []string{
		`{
			"source": {"container": "customer", "where": "type = \"salesOrder\""},
			"aggregate": {
				"into": "customer", "match": {"customerId": "customerId"}, "where": "type = \"customer\"",
				"set": {
					"salesOrderCount": {"count": true},
					"lifetimeValue":   {"sum": "price * quantity", "each": "details"},
					"lastOrderDate":   {"max": "orderDate"},
					"recentOrders":    {"latest": 3, "by": "orderDate", "fields": ["id", "orderDate"]}
				},
				"consistency": "transactional"
			}
		}`,
		`{
			"source": {"container": "customer"},
			"project": {
				"sink": {"parquet": {"path": "./analytics", "commitInterval": "5s"}},
				"onExpire": "keep",
				"tables": {
					"customers": {"where": "type = \"customer\"", "key": ["id"], "columns": {
						"id": "id", "name": "CONCAT(firstName, \" \", lastName)", "city": "addresses[0].city", "orders": "salesOrderCount"
					}},
					"orders": {"where": "type = \"salesOrder\"", "key": ["id"], "columns": {
						"id": "id", "customerId": "customerId", "orderDate": {"expr": "orderDate", "type": "timestamp"}
					}},
					"orderItems": {"where": "type = \"salesOrder\"", "each": "details", "key": ["orderId", "line"], "columns": {
						"orderId": "item.id", "line": "index", "sku": "sku", "price": {"expr": "price", "type": "decimal(12,2)"}, "quantity": "quantity"
					}}
				}
			}
		}`,
	}
	for i := range want {
		if diff := cmp.Diff(specOf(t, want[i]), r.Pipelines[i].Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Pipelines[i].Metadata, diff)
		}
	}
}

// specOf reads a spec as the registry does.
func specOf(t *testing.T, text string) (s spec.PipelineSpec) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}
