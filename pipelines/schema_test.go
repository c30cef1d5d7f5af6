package pipelines_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/store"
)

const schemaFile = "../configs/millrace.schema.json"

// TestSchema holds the JSON Schema for editors equal to the Go types and their
// comments; -update writes it anew.
func TestSchema(t *testing.T) {
	golden(t, schemaFile, string(schema(t)))
}

// TestSchemaAgreesWithDecode validates what Load accepts, and sees that the
// schema refuses what only a schema can know to be wrong.
func TestSchemaAgreesWithDecode(t *testing.T) {
	compiled := compileSchema(t)
	good, err := filepath.Glob("../configs/webstore/*.yaml")
	if err != nil || len(good) == 0 {
		t.Fatal(good, err)
	}
	for _, file := range good {
		for _, doc := range documents(t, file) {
			if err := compiled.Validate(doc); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	for _, name := range []string{"all-missing", "cascade-fields", "kind-misspelt", "unknown-fields", "version-unknown", "wrong-types", "names"} {
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

// schema generates the schema from the types of the documents.
func schema(t *testing.T) []byte {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, Mapper: mapType}
	for _, dir := range []string{".", "../store"} {
		if err := r.AddGoComments("github.com/millrace/millrace/pipelines", dir, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	lines := regexp.MustCompile(`\s*\n\s*`)
	for key, text := range r.CommentMap {
		r.CommentMap[key] = lines.ReplaceAllString(text, " ")
	}
	root := &jsonschema.Schema{
		Version: jsonschema.Version, Title: "Millrace", Description: "A document that millrace apply reads: a container or a pipeline.",
		Definitions: jsonschema.Definitions{},
	}
	for _, kind := range []struct {
		name     string
		document any
	}{{pipelines.KindContainer, pipelines.Container{}}, {pipelines.KindPipeline, pipelines.Pipeline{}}} {
		s := r.Reflect(kind.document)
		maps.Copy(root.Definitions, s.Definitions)
		def := root.Definitions[kind.name]
		set(t, def, "apiVersion", func(p *jsonschema.Schema) { p.Const = pipelines.APIVersion })
		set(t, def, "kind", func(p *jsonschema.Schema) { p.Const = kind.name })
		root.OneOf = append(root.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + kind.name})
	}
	name := `^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`
	set(t, root.Definitions["Metadata"], "name", func(p *jsonschema.Schema) { p.Pattern = name })
	set(t, root.Definitions["Metadata"], "database", func(p *jsonschema.Schema) { p.Pattern = name })
	one := uint64(1)
	for _, field := range []string{"match", "set"} {
		set(t, root.Definitions["Cascade"], field, func(p *jsonschema.Schema) { p.MinProperties = &one })
	}
	three, most := uint64(store.PartitionKeyPathsMax), json.Number(strconv.Itoa(store.PartitionsMax))
	set(t, root.Definitions["ContainerSpec"], "partitionKey", func(p *jsonschema.Schema) { p.MinItems, p.MaxItems = &one, &three })
	set(t, root.Definitions["ContainerSpec"], "partitions", func(p *jsonschema.Schema) { p.Minimum, p.Maximum = "1", most })
	root.Definitions["PipelineSpec"].Required = append(root.Definitions["PipelineSpec"].Required, "cascade")
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

// set changes a property.
func set(t *testing.T, s *jsonschema.Schema, name string, change func(*jsonschema.Schema)) {
	t.Helper()
	p, ok := s.Properties.Get(name)
	if !ok {
		t.Fatalf("there is no property %s", name)
	}
	change(p)
}

// mapType says how types are written whose Go kind does not tell.
func mapType(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+$`, Examples: []any{"168h"}}
	case reflect.TypeFor[store.TTL]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Enum: []any{"off", "on"}},
			{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s))+$`, Examples: []any{"36h"}},
			{Type: "integer", Minimum: "1"},
		}}
	case reflect.TypeFor[pipelines.OnSourceDelete]():
		return &jsonschema.Schema{Type: "string", Enum: []any{string(pipelines.Keep), string(pipelines.Clear), string(pipelines.Delete)}, Default: string(pipelines.Keep)}
	}
	return nil
}
