package demo

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFromDir_SaysWhatIsWrongWithTheFiles before anything is loaded.
func TestFromDir_SaysWhatIsWrongWithTheFiles(t *testing.T) {
	t.Parallel()
	const category, tag = `{"id":"c1","name":"Bikes","type":"category"}`, `{"id":"t1","name":"new","type":"tag"}`
	for name, c := range map[string]struct{ metas, want string }{
		"right":              {"[" + category + ",\n" + tag + "]", ""},
		"a file cut off":     {"[" + category + ",\n" + tag, "DIR/productMeta.json: line 2: the file ends inside the array; what stands before was read"},
		"an item without id": {"[" + category + ",\n{}]", "DIR/productMeta.json:2: an item without an id"},
		"tags alone":         {"[" + tag + "]", "DIR has no category or no product; the demo renames categories, and their copies are in products"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"productMeta.json": c.metas, "product.json": `[{"id":"p1","categoryId":"c1"}]`, "customer.json": "[]",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		if _, err := fromDir(dir); err != nil {
			got = "DIR" + err.Error()[min(len(dir), len(err.Error())):]
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
