package spec_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/spec"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// TestBrokenFiles shows what an operator reads for each way to be wrong: one line
// for each finding, and the same file as it was.
func TestBrokenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := spec.Decode(filepath.Base(file), data)
			if err == nil {
				err = r.Check(shop(t))
			}
			if err == nil {
				t.Fatal("nothing was found wrong")
			}
			storetest.Golden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

// shop is a world with three of the WebStore's containers and its category-names.
func shop(t *testing.T) spec.Existing {
	t.Helper()
	r, err := spec.Load("../../configs/webstore")
	if err != nil {
		t.Fatal(err)
	}
	var w spec.Existing
	for _, c := range r.Containers {
		if !slices.Contains([]string{"customer", "product", "productMeta"}, c.Metadata.Name) {
			continue
		}
		w.Containers = append(w.Containers, store.ContainerInfo{
			Database: c.Metadata.Database, Name: c.Metadata.Name, ID: feed.ResourceID("c7k2x4a" + c.Metadata.Name[:1]), State: store.ContainerReady, Spec: c.Spec,
		})
	}
	w.Containers = append(w.Containers, store.ContainerInfo{
		Database: "default", Name: "leaving", ID: "c7k2x4az", State: store.ContainerDeleting,
		Spec: store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 1},
	})
	for _, p := range r.Pipelines {
		if p.Metadata.Name == "category-names" {
			w.Pipelines = append(w.Pipelines, spec.Pipeline{
				Metadata: p.Metadata, Spec: p.Spec,
			})
		}
	}
	return w
}
