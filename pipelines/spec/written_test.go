package spec_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
)

// TestWrittenForm keeps what is written of a declaration, byte by byte: JSON in the
// registry and under -o json, YAML for operators, and the hash of a plan that does it.
func TestWrittenForm(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../configs/*/*.yaml", "testdata/good/*.yaml", "../testdata/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, found, err)
		}
		files = append(files, found...)
	}
	var out strings.Builder
	for _, file := range files {
		r, err := spec.Load(file)
		if err != nil {
			continue // one that is broken on purpose, or holds tests alone
		}
		out.WriteString("# " + file + " " + registry.PlanHash(r, registry.World{}) + "\n")
		for i := range r.Pipelines {
			data, err := json.Marshal(&r.Pipelines[i].Spec)
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(&r.Pipelines[i].Spec)
			if err != nil {
				t.Fatal(err)
			}
			out.WriteString(string(data) + "\n" + string(text))
		}
	}
	storetest.Golden(t, "testdata/written.golden", out.String())
}
