package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
)

// product is a product of the WebStore with tags, padded to about size bytes by
// its description. The fields of the store's copies stand in their usual places.
func product(tags, size int) []byte {
	var b strings.Builder
	b.WriteString(`{"id":"027D0B9A-F9D9-4C96-8213-C8546C4AAE71","categoryId":"26C74104-40BC-4541-8EF5-9892F7F03D72",` +
		`"categoryName":"Components, Saddles","sku":"SE-R581","name":"LL Road Seat/Saddle","price":27.12,"tags":[`)
	for i := range tags {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"%08X-A8AC-483A-9ABD-4A008D2B72B2","name":"Tag-%d"}`, i, i)
	}
	b.WriteString(`],"description":"`)
	b.WriteString(strings.Repeat("x", max(0, size-b.Len()-2)))
	b.WriteString(`"}`)
	return []byte(b.String())
}

func BenchmarkCheck(b *testing.B) {
	for _, size := range []int{512, 1024, 65536} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			body := product(size/128, size)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := document.Check(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	body := product(5, 1024)
	for _, field := range []string{"id", "categoryName", "tags[4].name", `tags[id = "00000004-A8AC-483A-9ABD-4A008D2B72B2"].name`, "description", "missing"} {
		b.Run("field="+field[:min(12, len(field))], func(b *testing.B) {
			p, err := document.ParseField(field)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				document.Get(body, p)
			}
		})
	}
}

type appender interface {
	Append(dst []byte, undo []document.Splice, body []byte) ([]byte, []document.Splice, bool, error)
	Apply(body []byte) ([]byte, []document.Splice, bool, error)
	Holds(body []byte) (bool, error)
}

func BenchmarkSetter(b *testing.B) {
	body := product(5, 1024)
	array, err := document.ParseField("tags")
	if err != nil {
		b.Fatal(err)
	}
	field, err := document.NewSetter(fields(b, `categoryName:="Components, Seats"`))
	if err != nil {
		b.Fatal(err)
	}
	missing, err := document.NewSetter(fields(b, `categoryTitle:="Components, Seats"`))
	if err != nil {
		b.Fatal(err)
	}
	element, err := document.NewEachSetter(array, fields(b, `id:="00000004-A8AC-483A-9ABD-4A008D2B72B2"`), fields(b, `name:="Sale"`), false)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		setter appender
	}{{"field", field}, {"missing", missing}, {"element", element}} {
		b.Run("what="+c.name+"/do=append", func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			var undo []document.Splice
			for b.Loop() {
				var changed bool
				if dst, undo, changed, err = c.setter.Append(dst[:0], undo[:0], body); err != nil || !changed {
					b.Fatal(changed, err)
				}
			}
		})
		b.Run("what="+c.name+"/do=apply", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, changed, err := c.setter.Apply(body); err != nil || !changed {
					b.Fatal(changed, err)
				}
			}
		})
		b.Run("what="+c.name+"/do=nothing", func(b *testing.B) {
			after, _, _, err := c.setter.Apply(body)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if holds, err := c.setter.Holds(after); err != nil || !holds {
					b.Fatal(holds, err)
				}
			}
		})
	}
}

// BenchmarkNewSetter compiles what a repair, and each publication of an aggregate, compiles.
func BenchmarkNewSetter(b *testing.B) {
	for name, text := range map[string]string{
		"what=field": `name:="Sale"`, "what=five": `orders:=1,first:=2,last:=3,total:=4.5,lines:=[1]`, "what=inside": `stats.orders:=1,stats.first:=2,stats.last:=3`,
	} {
		list := fields(b, strings.Split(text, ",")...)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := document.NewSetter(list); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPatch(b *testing.B) {
	body := product(5, 1024)
	for name, ops := range map[string]string{
		"one":   `[{"op":"set","path":"/categoryName","value":"x"}]`,
		"by-id": `[{"op":"set","path":"/tags/[id=\"00000004-A8AC-483A-9ABD-4A008D2B72B2\"]/name","value":"x"}]`,
		"three": `[{"op":"set","path":"/categoryName","value":"x"},{"op":"incr","path":"/price","value":1},{"op":"add","path":"/tags/-","value":{}}]`,
	} {
		b.Run("ops="+name, func(b *testing.B) {
			p, err := compile(b, ops)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := p.Apply(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEqual(b *testing.B) {
	x := product(5, 1024)
	y := append([]byte(" "), x...)
	y[len(y)-1] = ' '
	y = append(y, '}')
	b.ReportAllocs()
	for b.Loop() {
		if !document.Equal(x, y) {
			b.Fatal("not equal")
		}
	}
}

func BenchmarkAppendCanonical(b *testing.B) {
	var dst []byte
	for _, raw := range []string{`"26C74104-40BC-4541-8EF5-9892F7F03D72"`, "27.12"} {
		b.Run("value="+raw[:4], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst = document.AppendCanonical(dst[:0], []byte(raw))
			}
		})
	}
}
