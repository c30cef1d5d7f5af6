package spec

import (
	"strings"
	"testing"
)

const meant = `
  source: {container: customer, where: type = "salesOrder"}
  %s
`

// TestSameMeaning shows what is a change of meaning, and what is spelling.
func TestSameMeaning(t *testing.T) {
	const (
		aggregate = `aggregate: {into: customer, match: {customerId: customerId}, where: type = "customer", set: {n: {sum: a + b, each: details}, m: {latest: 3, by: d, fields: [id]}}}`
		parquet   = `project: {sink: {parquet: {path: ./out}}, tables: {a: {key: [id], columns: {id: id, n: n + 1}}, b: {each: lines, where: type = "x", key: [id], columns: {id: id}}}}`
		bucket    = `project: {sink: {parquet: {s3: {bucket: abc, prefix: x}}}, tables: {a: {key: [id], columns: {id: id}}}}`
	)
	for _, c := range []struct {
		name, one, old, new string
		same                bool
	}{
		{"white space", aggregate, "a + b", "(a  +  b)", true},
		{"names of the item", aggregate, "match: {customerId: customerId}", "match: {customerId: item.customerId}", true},
		{"names of the element", aggregate, "a + b", "element.a + b", true},
		{"an element is not the item", aggregate, "a + b", "item.a + b", false},
		{"another array", aggregate, "each: details", "each: lines", false},
		{"another function", aggregate, "sum:", "avg:", false},
		{"a copied field", aggregate, "fields: [id]", "fields: [item.id]", true},
		{"another copied field", aggregate, "fields: [id]", "fields: [sku]", false},
		{"the default consistency", aggregate, "aggregate: {", "aggregate: {consistency: eventual, ", true},
		{"the default on error", aggregate, "aggregate:", "onError: park\n  aggregate:", true},
		{"another on error", aggregate, "aggregate:", "onError: halt\n  aggregate:", false},
		{"create", aggregate, "into: customer", "create: false, into: customer", true},
		{"the path of a directory", parquet, "./out", "out/", true},
		{"another directory", parquet, "./out", "./other", false},
		{"the default interval", parquet, "path: ./out", "path: ./out, commitInterval: 5s", true},
		{
			"the order of tables", parquet, `tables: {a: {key: [id], columns: {id: id, n: n + 1}}, b: {each: lines, where: type = "x", key: [id], columns: {id: id}}}`,
			`tables: {b: {each: lines, where: type = "x", key: [id], columns: {id: id}}, a: {key: [id], columns: {id: id, n: n + 1}}}`, true,
		},
		{"the item in where", parquet, `where: type = "x"`, `where: item.type = "x"`, true},
		{"the element in where", parquet, `where: type = "x"`, `where: element.type = "x"`, false},
		{"a type", parquet, "n: n + 1", "n: {expr: n + 1, type: int64}", false},
		{"the order of columns", parquet, "id: id, n: n + 1", "n: n + 1, id: id", false},
		{"the long form of a column", parquet, "n: n + 1", "n: {expr: n+1}", true},
		{"on expire", parquet, "project: {", "project: {onExpire: keep, ", true},
		{"delete on expire", parquet, "project: {", "project: {onExpire: delete, ", false},
		{"slashes around a prefix", bucket, "prefix: x", "prefix: /x/", true},
		{"the default endpoint", bucket, "bucket: abc", "bucket: abc, endpoint: s3.amazonaws.com, secure: true", true},
		{"another endpoint", bucket, "bucket: abc", "bucket: abc, endpoint: minio", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := strings.Replace(c.one, c.old, c.new, 1)
			if other == c.one {
				t.Fatalf("%q is not in %s", c.old, c.one)
			}
			a, b := specOf(t, c.one), specOf(t, other)
			if got := a.SameMeaning(b); got != c.same {
				t.Errorf("means the same: %t, want %t\n%s\n%s", got, c.same, a.meaning().JSON(), b.meaning().JSON())
			}
		})
	}
}

// specOf decodes what stands below the source of a pipeline.
func specOf(t *testing.T, kind string) *PipelineSpec {
	t.Helper()
	text := "apiVersion: millrace/v1\nkind: Pipeline\nmetadata: {name: p}\nspec:" + strings.Replace(meant, "%s", kind, 1)
	r, err := Decode("f.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return &r.Pipelines[0].Spec
}

// TestMeaningKeepsTheSpec sees that asking for the meaning changes nothing.
func TestMeaningKeepsTheSpec(t *testing.T) {
	s := specOf(t, `project: {sink: {container: {}}, tables: {b: {key: [id], columns: {id: (id)}}, a: {key: [id], columns: {id: ( id )}}}}`)
	before := string(s.JSON())
	_ = s.meaning()
	if after := string(s.JSON()); after != before {
		t.Errorf("was %s, is %s", before, after)
	}
}
