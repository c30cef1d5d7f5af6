package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// TestStitch puts expressions together that YAML cuts up at commas.
func TestStitch(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing to do", `{a: x, b: y}`, []string{"a", "x", "b", "y"}},
		{"in the middle", `{a: F(x, " ", y), b: z}`, []string{"a", `F(x, " ", y)`, "b", "z"}},
		{"at the end", `{a: x, b: F(x, y)}`, []string{"a", "x", "b", "F(x, y)"}},
		{"one in another", `{a: F(G(x, y), H(y, z)) + 1, b: y}`, []string{"a", "F(G(x, y), H(y, z)) + 1", "b", "y"}},
		{"two", `{a: F(x, y), b: F(y, x)}`, []string{"a", "F(x, y)", "b", "F(y, x)"}},
		{"over lines", "{a: F(x,\n    y),\n b: z}", []string{"a", "F(x,\n    y)", "b", "z"}},
		{"an object inside", `{a: F(x, {"p": 1}, y), b: z}`, []string{"a", `F(x, {"p": 1}, y)`, "b", "z"}},
		{"a parenthesis in quotes", `{a: F(x, "(", y), b: z}`, []string{"a", `F(x, "(", y)`, "b", "z"}},
		{"quoted is left alone", `{a: "F(x", b: y}`, []string{"a", "F(x", "b", "y"}},
		{"never closed", `{a: F(x, y, b: z}`, []string{"a", "F(x", "b", "z"}},
		{"outside of { }", "a: F(x, y)\nb: z", []string{"a", "F(x, y)", "b", "z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(c.text), &doc); err != nil {
				t.Fatal(err)
			}
			d := &Decoder{File: "f.yaml", lines: strings.Split(c.text, "\n")}
			d.stitch(doc.Content[0])
			var got []string
			for _, n := range doc.Content[0].Content {
				got = append(got, n.Value)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
