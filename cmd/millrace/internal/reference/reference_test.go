package reference_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/millrace/internal/reference"
	"github.com/millrace/millrace/configs"
)

func tree(t testing.TB) *reference.Tree {
	t.Helper()
	tree, err := reference.New(configs.Schema)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestKeys_AreAllExplained sees that every key of every kind has a type and words, and
// that none of the words is a name of Go that documents do not have.
func TestKeys_AreAllExplained(t *testing.T) {
	n := 0
	for _, kind := range tree(t).Kinds {
		for k := range kind.All() {
			n++
			if k.Type == "" || !strings.HasSuffix(k.Text, ".") {
				t.Errorf("%s is %q: %q", k.Path, k.Type, k.Text)
			}
			first, _, _ := strings.Cut(k.Text, " ")
			if first != k.Name() {
				t.Errorf("%s begins with %q", k.Path, first)
			}
		}
	}
	if n < 80 {
		t.Errorf("there are %d keys", n)
	}
}

func TestKeys_SayWhatTheSchemaSays(t *testing.T) {
	for path, want := range map[string]reference.Key{
		"pipeline.spec.cascade.onSourceDelete":              {Type: "string", Default: "keep", Values: []string{"keep", "clear", "delete"}},
		"pipeline.spec.cascade.match":                       {Type: "map of fields or lists of fields", Required: true, Limits: []string{"1 to 32 entries"}},
		"pipeline.spec.aggregate.set.latest":                {Type: "integer", Limits: []string{"1 to 1000", "needs by", "needs fields"}},
		"pipeline.spec.project.sink.parquet":                {Type: "object", Limits: []string{"exactly one of path and s3"}},
		"pipeline.spec.project.sink.parquet.s3.bucket":      {Type: "string", Required: true},
		"pipeline.spec.project.sink.parquet.commitInterval": {Type: "duration", Default: "5s", Example: "5s"},
		"pipeline.spec.project.tables.columns":              {Type: "map of expressions or numbers or booleans or objects", Required: true, Limits: []string{"1 to 1000 entries"}},
		"container.spec.ttl":                                {Type: "off or on or duration or seconds", Default: "off", Example: "36h"},
		"container.spec.partitions":                         {Type: "integer", Default: "1", Limits: []string{"1 to 256"}},
		"container.metadata.database":                       {Type: "string", Default: "default"},
	} {
		k, err := tree(t).Find(path)
		if err != nil {
			t.Error(err)
			continue
		}
		want.Path = path
		got := *k
		got.Text, got.Keys = "", nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestFind(t *testing.T) {
	for asked, want := range map[string]string{
		"pipeline":       "pipeline",
		"Pipelines.spec": "pipeline.spec",
		"pipeline.spec.project.tables.columns.type":  "pipeline.spec.project.tables.columns.type",
		"pipeline.spec.project.tables.*.columns":     "pipeline.spec.project.tables.columns",
		"spec.project.tables.orders.columns.id.type": "pipeline.spec.project.tables.columns.type",
		"spec.cascade.match":                         "pipeline.spec.cascade.match",
		"spec.partitionKey":                          "container.spec.partitionKey",
		"spec.steps.expect":                          "test.spec.steps.expect",
	} {
		k, err := tree(t).Find(asked)
		if err != nil {
			t.Error(err)
		} else if k.Path != want {
			t.Errorf("%s is %s, not %s", asked, k.Path, want)
		}
	}
	for asked, want := range map[string]string{
		"pipelin.spec":                         "there is no kind pipelin; did you mean pipeline?",
		"topic":                                "there is no kind topic; there are container, pipeline, test",
		"pipeline.spec.casacde.match":          "pipeline.spec has no key casacde; did you mean pipeline.spec.cascade.match?",
		"pipeline.spec.cascade.zzzzzzzz":       "pipeline.spec.cascade has no key zzzzzzzz; it has into, each, match, where, set, onSourceDelete",
		"spec.casacde":                         "pipeline.spec has no key casacde; did you mean pipeline.spec.cascade?",
		"spec.partitionkey":                    "container.spec has no key partitionkey; did you mean container.spec.partitionKey?",
		"spec.project.tables.colums":           "pipeline.spec.project.tables has no key colums; did you mean pipeline.spec.project.tables.columns?",
		"pipeline.spec.cascade.into.container": "pipeline.spec.cascade.into holds no keys, so container is nothing of it",
	} {
		k, err := tree(t).Find(asked)
		if err == nil {
			t.Errorf("%s is %s", asked, k.Path)
		} else if err.Error() != want {
			t.Errorf("%s: %s\nwant %s", asked, err, want)
		}
	}
}
