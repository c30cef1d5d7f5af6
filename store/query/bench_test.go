package query_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/store/query"
)

// product is an item of 500 bytes whose type stands first or last.
func product(typeFirst bool) []byte {
	rest := `"id":"027D0B9A-F9D9-4C96-8213-C8546C4AAE71","categoryId":"26C74104-40BC-4541-8EF5-9892F7F03D72",` +
		`"categoryName":"Components, Saddles","sku":"SE-R581","name":"LL Road Seat/Saddle","price":27.12,` +
		`"tags":[{"id":"0573D684-9140-4DEE-89AF-4E4A90E65666","name":"Tag-113"},{"id":"6C2F05C8-1E61-4912-BE1A-C67A378429BB","name":"Tag-5"}]`
	body := `{"type":"category",` + rest
	if !typeFirst {
		body = `{` + rest + `,"type":"category"`
	}
	return []byte(body + `,"description":"` + strings.Repeat("x", max(0, 500-len(body)-17)) + `"}`)
}

func BenchmarkTrue(b *testing.B) {
	for _, c := range []struct {
		name, text string
		first      bool
	}{
		{"equal/type=first", `type = "category"`, true},
		{"equal/type=last", `type = "category"`, false},
		{"and", `type = "category" AND price > 20 AND NOT sku LIKE "X%"`, true},
		{"contains", `ARRAY_CONTAINS(tags, {"id": "6C2F05C8-1E61-4912-BE1A-C67A378429BB"}, true)`, true},
	} {
		b.Run("expr="+c.name, func(b *testing.B) {
			e, err := query.ParseExpr(c.text)
			if err != nil {
				b.Fatal(err)
			}
			item := product(c.first)
			b.ReportAllocs()
			for b.Loop() {
				if !e.True(item) {
					b.Fatal("not true")
				}
			}
		})
	}
}

func BenchmarkEval(b *testing.B) {
	for name, text := range map[string]string{
		"path": `categoryName`, "concat": `CONCAT(sku, " ", name)`, "product": `price * 3`,
	} {
		b.Run("expr="+name, func(b *testing.B) {
			e, err := query.ParseExpr(text)
			if err != nil {
				b.Fatal(err)
			}
			item := product(true)
			b.ReportAllocs()
			for b.Loop() {
				if e.Eval(item).Type() == query.Undefined {
					b.Fatal("undefined")
				}
			}
		})
	}
}

// BenchmarkTrueIn reads an element of 40 bytes, the item that it is in and its
// index, from roots that are used again.
func BenchmarkTrueIn(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"element", `name = "Tag-5"`},
		{"item", `item.type = "category"`},
		{"index", `index = 1`},
		{"and", `name = "Tag-5" AND item.type = "category" AND index > 0`},
	} {
		b.Run("expr="+c.name, func(b *testing.B) {
			e, err := query.ParseScoped(c.text, elementRoots)
			if err != nil {
				b.Fatal(err)
			}
			item := product(true)
			roots := [][]byte{[]byte(`{"id":"6C2F05C8","name":"Tag-5"}`), item, item, []byte(`1`), nil}
			b.ReportAllocs()
			for b.Loop() {
				if !e.TrueIn(roots...) {
					b.Fatal("not true")
				}
			}
		})
	}
}

func BenchmarkParseExpr(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := query.ParseExpr(`type = "category" AND price > 20 AND NOT sku LIKE "X%"`); err != nil {
			b.Fatal(err)
		}
	}
}
