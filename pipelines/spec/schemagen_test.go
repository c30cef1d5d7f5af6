package spec_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// schema generates the schema from the types of the documents.
func schema(t *testing.T) []byte {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, Mapper: mapType}
	for _, dir := range []string{".", "../../store"} {
		if err := r.AddGoComments("github.com/millrace/millrace/pipelines/spec", dir, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	lines := regexp.MustCompile(`\s*\n\s*`)
	for key, text := range r.CommentMap {
		r.CommentMap[key] = lines.ReplaceAllString(text, " ")
	}
	root := &jsonschema.Schema{
		Version: jsonschema.Version, Title: "Millrace", Description: "A document that millrace apply reads, a container or a pipeline, or a test that millrace test runs.",
		Definitions: jsonschema.Definitions{},
	}
	for _, kind := range []struct {
		name     string
		document any
	}{
		{spec.KindContainer, spec.Container{}}, {spec.KindPipeline, spec.Pipeline{}}, {spec.KindTest, spec.Test{}},
	} {
		maps.Copy(root.Definitions, r.Reflect(kind.document).Definitions)
		def := root.Definitions[kind.name]
		set(t, def, "apiVersion", func(p *jsonschema.Schema) { p.Const = spec.APIVersion })
		set(t, def, "kind", func(p *jsonschema.Schema) { p.Const = kind.name })
		root.OneOf = append(root.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + kind.name})
	}
	// These are reached through mappings whose Go types are lists.
	for _, of := range []any{spec.Table{}, spec.Column{}, spec.AggregateField{}, spec.TestChange{}} {
		maps.Copy(root.Definitions, r.Reflect(of).Definitions)
	}
	refineContainers(t, root.Definitions)
	refinePipelines(t, root.Definitions)
	refineSinks(t, root.Definitions)
	refineTests(t, root.Definitions)
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

var one = uint64(1)

// refineContainers says what the Go types of containers do not.
func refineContainers(t *testing.T, defs jsonschema.Definitions) {
	t.Helper()
	name := `^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`
	set(t, defs["Metadata"], "name", func(p *jsonschema.Schema) { p.Pattern = name })
	set(t, defs["Metadata"], "database", func(p *jsonschema.Schema) { p.Pattern = name })
	three := uint64(store.PartitionKeyPathsMax)
	set(t, defs["ContainerSpec"], "partitionKey", func(p *jsonschema.Schema) { p.MinItems, p.MaxItems = &one, &three })
	set(t, defs["ContainerSpec"], "partitions", func(p *jsonschema.Schema) { p.Minimum, p.Maximum = "1", number(store.PartitionsMax) })
	set(t, defs["ContainerSpec"], "standbys", func(p *jsonschema.Schema) { p.Minimum, p.Maximum = "0", number(store.StandbysMax) })
}

// refinePipelines says what the Go types of pipelines do not.
func refinePipelines(t *testing.T, defs jsonschema.Definitions) {
	t.Helper()
	oneRequired(defs["PipelineSpec"], "cascade", "aggregate", "project")
	for _, field := range []string{"match", "set"} {
		set(t, defs["Cascade"], field, func(p *jsonschema.Schema) { p.MinProperties, p.MaxProperties = &one, new(uint64(cascade.PairsMax)) })
	}
	set(t, defs["Aggregate"], "match", func(p *jsonschema.Schema) { p.MaxProperties = new(uint64(accumulator.PairsMax)) })
	set(t, defs["Aggregate"], "set", func(p *jsonschema.Schema) {
		p.MinProperties, p.MaxProperties = &one, new(uint64(accumulator.FieldsMax))
	})
	field := defs["AggregateField"]
	oneRequired(field, "count", "sum", "min", "max", "avg", "latest")
	field.DependentRequired = map[string][]string{"latest": {"by", "fields"}, "by": {"latest"}, "fields": {"latest"}}
	set(t, field, "count", func(p *jsonschema.Schema) { p.Const = true })
	set(t, field, "latest", func(p *jsonschema.Schema) { p.Minimum, p.Maximum = "1", number(accumulator.LatestMax) })
	set(t, field, "fields", func(p *jsonschema.Schema) { p.MinItems = &one })
	set(t, defs["Project"], "tables", func(p *jsonschema.Schema) { p.MaxProperties = new(uint64(project.TablesMax)) })
	set(t, defs["Table"], "key", func(p *jsonschema.Schema) { p.MinItems, p.MaxItems = &one, new(uint64(project.KeyMax)) })
	set(t, defs["Table"], "columns", func(p *jsonschema.Schema) { p.MaxProperties = new(uint64(project.ColumnsMax)) })
	set(t, defs["Table"], "index", func(p *jsonschema.Schema) {
		p.MaxItems, p.Items.MaxItems = new(uint64(project.IndexesMax)), new(uint64(project.KeyMax))
	})
	set(t, defs["Column"], "type", func(p *jsonschema.Schema) {
		p.Pattern = `^\s*(string|int64|double|bool|timestamp|date|json|decimal\s*\(\s*[0-9]+\s*,\s*[0-9]+\s*\))\s*$`
	})
}

// refineSinks says what the Go types of sinks do not.
func refineSinks(t *testing.T, defs jsonschema.Definitions) {
	t.Helper()
	oneRequired(defs["Sink"], "container", "parquet", "postgres")
	oneRequired(defs["ParquetSink"], "path", "s3")
	defs["S3"].DependentRequired = map[string][]string{"accessKeyEnv": {"secretKeyEnv"}, "secretKeyEnv": {"accessKeyEnv"}}
	for of, field := range map[string]string{"S3": "accessKeyEnv", "PostgresSink": "dsnEnv"} {
		set(t, defs[of], field, func(p *jsonschema.Schema) { p.Pattern = `^[A-Za-z_][A-Za-z0-9_]*$` })
	}
	set(t, defs["S3"], "secretKeyEnv", func(p *jsonschema.Schema) { p.Pattern = `^[A-Za-z_][A-Za-z0-9_]*$` })
	set(t, defs["S3"], "endpoint", func(p *jsonschema.Schema) { p.Pattern = `^[^/ ]+$` })
}

// refineTests says what the Go types of tests do not.
func refineTests(t *testing.T, defs jsonschema.Definitions) {
	t.Helper()
	set(t, defs["TestSpec"], "steps", func(p *jsonschema.Schema) { p.MinItems = &one })
	for _, name := range []string{"change", "expect", "absent", "expectRows"} {
		defs["TestStep"].AnyOf = append(defs["TestStep"].AnyOf, &jsonschema.Schema{Required: []string{name}})
	}
	defs["TestChange"].MinProperties = &one
}

// listsOf is a mapping of names to lists of objects.
func listsOf(object *jsonschema.Schema, min *uint64) *jsonschema.Schema {
	object.Type = "object"
	return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: &jsonschema.Schema{Type: "array", MinItems: min, Items: object}}
}

// oneRequired says that exactly one of some properties is expected.
func oneRequired(s *jsonschema.Schema, names ...string) {
	for _, name := range names {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{name}})
	}
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// set changes a property.
func set(t *testing.T, s *jsonschema.Schema, name string, change func(*jsonschema.Schema)) {
	t.Helper()
	p, ok := s.Properties.Get(name)
	if !ok {
		t.Fatalf("there is no property %s", name)
	}
	change(p)
}

// titleDuration is what a string with a unit of time is called.
const titleDuration = "duration"

// fieldSchema is the path of a field. Titles tell strings apart, for those who read.
func fieldSchema() *jsonschema.Schema { return &jsonschema.Schema{Title: "field", Type: "string"} }

func expressionSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Title: "expression", Type: "string"}
}

// mapType says how types are written whose Go kind does not tell.
func mapType(t reflect.Type) *jsonschema.Schema {
	duration := &jsonschema.Schema{Title: titleDuration, Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+$`}
	switch t {
	case reflect.TypeFor[time.Duration]():
		duration.Examples = []any{"168h"}
		return duration
	case reflect.TypeFor[store.Retention]():
		duration.Examples = []any{"24h"}
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Enum: []any{"forever"}}, duration}}
	case reflect.TypeFor[spec.Duration]():
		duration.Examples = []any{"5s"}
		return duration
	case reflect.TypeFor[store.TTL]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Enum: []any{"off", "on"}},
			{Title: titleDuration, Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s))+$`, Examples: []any{"36h"}},
			{Title: "seconds", Type: "integer", Minimum: "1"},
		}}
	case reflect.TypeFor[document.Field]():
		return fieldSchema()
	case reflect.TypeFor[spec.Expression]():
		return expressionSchema()
	case reflect.TypeFor[spec.ByField[document.Field]]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: fieldSchema()}
	case reflect.TypeFor[spec.ByField[spec.AggregateField]]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Ref: "#/$defs/AggregateField"}}
	case reflect.TypeFor[spec.ByField[spec.SourceFields]]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			fieldSchema(),
			{Type: "array", MinItems: &one, Items: fieldSchema(), Examples: []any{[]any{"customerId", "id"}}},
		}}}
	case reflect.TypeFor[spec.OnSourceDelete]():
		return enum(spec.Keep, spec.Clear, spec.Delete)
	case reflect.TypeFor[spec.OnError]():
		return enum(spec.Park, spec.Halt)
	case reflect.TypeFor[spec.Consistency]():
		return enum(spec.Eventual, spec.Transactional)
	case reflect.TypeFor[spec.OnExpire]():
		return enum(spec.KeepRows, spec.DeleteRows)
	case reflect.TypeFor[spec.Tables]():
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: &jsonschema.Schema{Ref: "#/$defs/Table"}}
	case reflect.TypeFor[spec.TestItems]():
		return listsOf(&jsonschema.Schema{Required: []string{"id"}}, &one)
	case reflect.TypeFor[spec.TestRows]():
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: listsOf(&jsonschema.Schema{}, nil)}
	case reflect.TypeFor[spec.TestChanges]():
		change := &jsonschema.Schema{Ref: "#/$defs/TestChange"}
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{change, {Type: "array", MinItems: &one, Items: change}}}
	case reflect.TypeFor[spec.Columns]():
		return &jsonschema.Schema{Type: "object", MinProperties: &one, AdditionalProperties: &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			expressionSchema(),
			{Type: "number"},
			{Type: "boolean"},
			{Ref: "#/$defs/Column"},
			{Type: "null"}, // the pieces of an expression that commas cut up inside { }
		}}}
	}
	return nil
}

// enum is one of some texts, the first by default.
func enum[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Default: string(values[0])}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}
