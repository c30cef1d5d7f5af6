package document_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/feed/document"
)

// webstore returns the products of the WebStore as they stand in its file, or
// skips the test.
func webstore(tb testing.TB) [][]byte {
	tb.Helper()
	dir := os.Getenv("MILLRACE_WEBSTORE")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data", "webstore")
	}
	file, err := os.ReadFile(filepath.Join(dir, "product.json"))
	if err != nil {
		tb.Skipf("no WebStore (set MILLRACE_WEBSTORE to its directory): %v", err)
	}
	var products [][]byte
	document.Elements(file, func(_ int, raw []byte) bool {
		products = append(products, raw)
		return true
	})
	return products
}

// TestWebStore renames every category and every tag in the products, and takes
// the renames back.
func TestWebStore(t *testing.T) {
	products := webstore(t)
	if len(products) == 0 {
		t.Fatal("the WebStore has no products")
	}
	array, err := document.ParseField("tags")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := document.ParseField("tags[*].id")
	if err != nil {
		t.Fatal(err)
	}
	category, err := document.NewSetter(fields(t, `categoryName:="Renamed \"category\""`))
	if err != nil {
		t.Fatal(err)
	}
	for _, product := range products {
		if err := document.Check(product); err != nil {
			t.Fatalf("%v: %s", err, product)
		}
		before := string(product)
		after, undo, changed, err := category.Apply(product)
		if err != nil || !changed {
			t.Fatalf("%s: changed %v, %v", product, changed, err)
		}
		checkUndo(t, before, product, after, undo)
		document.Walk(product, ids, func(id []byte, _ int) bool {
			tag, err := document.NewEachSetter(array, fields(t, "id:="+string(id)), fields(t, `name:="Renamed"`), false)
			if err != nil {
				t.Fatal(err)
			}
			after, undo, changed, err := tag.Apply(product)
			if err != nil || !changed || bytes.Count(after, []byte(`"Renamed"`)) != 1 {
				t.Fatalf("%s: changed %v, %v", after, changed, err)
			}
			checkUndo(t, before, product, after, undo)
			return true
		})
	}
}
