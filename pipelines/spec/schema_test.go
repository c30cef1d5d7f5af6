package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/integration/storetest"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const schemaFile = "../../configs/millrace.schema.json"

// TestSchema holds the JSON Schema for editors equal to the Go types and their
// comments; -update writes it anew.
func TestSchema(t *testing.T) {
	storetest.Golden(t, schemaFile, string(schema(t)))
}

// TestSchemaAgreesWithDecode validates what Load accepts, and sees that the
// schema refuses what only a schema can know to be wrong.
func TestSchemaAgreesWithDecode(t *testing.T) {
	compiled := compileSchema(t)
	var good []string
	for _, pattern := range []string{"../../configs/*/*.yaml", "../../configs/*/tests/*.yaml", "testdata/good/*.yaml", "../testdata/tests/*.yaml", "../testdata/tests/tests/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		good = append(good, files...)
	}
	for _, file := range good {
		for _, doc := range documents(t, file) {
			if err := compiled.Validate(doc); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	for i, doc := range documents(t, "../testdata/tests-broken/broken.yaml") {
		if compiled.Validate(doc) == nil {
			t.Errorf("tests-broken: document %d is valid for the schema", i)
		}
	}
	for _, name := range []string{
		"all-missing", "cascade-fields", "kind-misspelt", "unknown-fields", "version-unknown", "wrong-types", "names",
		"aggregate-unknown-fields", "aggregate-functions", "aggregate-consistency", "kinds-two", "on-error",
		"project-empty", "project-on-expire", "project-types", "sink", "sink-s3", "aggregate-count",
	} {
		for i, doc := range documents(t, "testdata/broken/"+name+".yaml") {
			if compiled.Validate(doc) == nil {
				t.Errorf("%s: document %d is valid for the schema", name, i)
			}
		}
	}
}

func compileSchema(t *testing.T) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(schema(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("millrace.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("millrace.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// documents returns the documents of a YAML file as JSON values.
func documents(t *testing.T, file string) []any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, doc)
	}
}
