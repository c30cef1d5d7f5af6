package spec_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

func TestLoadWebStore(t *testing.T) {
	r, err := spec.Load("../../configs/webstore")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(spec.Existing{}); err != nil {
		t.Errorf("on an empty system: %v", err)
	}
	if err := r.Check(shop(t)); err != nil {
		t.Errorf("applied again: %v", err)
	}
	want := specOf(t, `{
		"source": {"container": "productMeta", "where": "type = \"tag\""},
		"cascade": {"into": "product", "each": "tags", "match": {"id": "id"}, "set": {"name": "name"}, "onSourceDelete": "clear"}
	}`)
	found := false
	for _, p := range r.Pipelines {
		if p.Metadata.Name == "tag-names" {
			found = true
			if diff := cmp.Diff(want, p.Spec); diff != "" {
				t.Errorf("tag-names (-want +got):\n%s", diff)
			}
		}
	}
	if !found {
		t.Error("there is no pipeline tag-names")
	}
}

// TestDocumentsAreReadBack writes what is there as an operator would declare it.
func TestDocumentsAreReadBack(t *testing.T) {
	info := store.ContainerInfo{Database: "shop", Name: "orders", Spec: store.ContainerSpec{
		PartitionKey: []string{"/customerId", "/year"}, Partitions: 8, Indexes: []string{"/lines/*/sku"},
		UniqueKeys: [][]string{{"/number"}}, TTL: 36 * 3600, ChangeFeed: store.ChangeFeedSpec{Retention: new(store.Retention(90 * time.Minute))},
	}}
	rec := registry.Record{Database: "shop", Name: "names", Spec: specOf(t, `{
		"source": {"container": "people", "where": "type = 'person: \"x\"'"},
		"cascade": {
			"into": "orders", "where": "true", "match": {"customerId": ["customerId", "id"], "year": "year"},
			"set": {"customer.name": "name"}, "onSourceDelete": "delete"
		}
	}`)}
	container, pipeline := registry.ContainerDocument(&info), rec.Document()
	var text strings.Builder
	enc := yaml.NewEncoder(&text)
	for _, doc := range []any{container, pipeline} {
		if err := enc.Encode(doc); err != nil {
			t.Fatal(err)
		}
	}
	got, err := spec.Decode("get.yaml", []byte(text.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	want := &spec.Resources{Containers: []spec.Container{container}, Pipelines: []spec.Pipeline{pipeline}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(spec.Container{}, spec.Pipeline{})); diff != "" {
		t.Errorf("read back (-want +got):\n%s\n%s", diff, &text)
	}
}

func TestLoadWithoutDeclarations(t *testing.T) {
	empty, comments := t.TempDir(), filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(comments, []byte("# to be written\n---\n---\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"a directory without YAML", empty, "holds no .yaml files"},
		{"a file of comments", comments, "nothing is declared"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := spec.Load(c.path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := spec.Load(filepath.Join(empty, "absent.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

// TestLoadManyFiles reports what is wrong with all files at once, in order.
func TestLoadManyFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":   "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: same}\nspec: {partitionKey: [/id]}\n",
		"a.yml":    "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: same}\nspec: {partitionKey: [/id], replicas: 3}\n",
		"note.txt": "not: read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := spec.Load(dir)
	findings, ok := errors.AsType[spec.Findings](err)
	if !ok || len(findings) != 2 {
		t.Fatalf("%v", err)
	}
	if !strings.HasSuffix(findings[0].Place.File, "a.yml") || !strings.Contains(findings[1].Message, "declared twice") {
		t.Errorf("%v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"../../configs/webstore/*.yaml", "testdata/good/*.yaml", "testdata/broken/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := spec.Decode("f.yaml", data)
		lines := strings.Count(string(data), "\n") + 1
		findings, ok := errors.AsType[spec.Findings](err)
		if err != nil && !ok {
			t.Fatalf("%T: %v", err, err)
		}
		for _, finding := range findings {
			if p := finding.Place; p.Line < 1 || p.Line > lines+1 || p.Column < 1 {
				t.Errorf("%s lies outside of %d lines", finding, lines)
			}
		}
		if err == nil {
			_ = r.Check(spec.Existing{})
		}
	})
}
