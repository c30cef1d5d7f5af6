package cascade

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// products are a page of changes to n products of about 450 bytes, as the store
// has them.
func products(b *testing.B, n int) []feed.Change {
	b.Helper()
	changes := make([]feed.Change, n)
	for i := range changes {
		body := fmt.Appendf(nil, `{"id":"08225A9E-%04d","categoryId":"75BF1ACB-168D-469C-9AA3-1FD26BB4EA4C","categoryName":"Bikes, Touring Bikes",`+
			`"sku":"BK-T79U-50","name":"Touring-1000 Blue, 50","description":"The product called \"Touring-1000 Blue, 50\"","price":2384.07,`+
			`"tags":[{"id":"27B7F8D5-%03d","name":"Tag-61"},{"id":"51CD93BF-098C-4C25-9829-4AD42046D038","name":"Tag-25"}]}`, i, i%200)
		changes[i] = feed.Change{Op: feed.OpReplace, Key: key(b, "75BF1ACB"), ID: fmt.Sprint(i), After: body}
	}
	return changes
}

// What a check costs for each item, but for the read of the sources.
func BenchmarkCheckItems(b *testing.B) {
	const n = 1000
	for name, c := range map[string]*Cascade{"category": compile(b, nil), "tags": compile(b, tagged)} {
		changes := products(b, n)
		b.Run("cascade="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := newRound(c)
				for i := range changes {
					item := &store.Item{Body: changes[i].After, ETag: store.ETag{LSN: 1, Index: uint32(i)}}
					r.addItem(store.ItemRef{Key: changes[i].Key, ID: changes[i].ID}, item, "")
				}
				for i := range r.sources {
					r.sources[i].v = version{set: []store.Field{{Path: "name", Value: []byte(`"Tag-61"`)}}}
					r.sources[i].v.gone = i%2 == 1
				}
				r.compare()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/item")
		})
	}
}

// What a check costs for a page of the cascade's own fan-out, and for a client's
// patches of places that the cascade does not look at.
func BenchmarkCheckIsLeftOut(b *testing.B) {
	const n = 2000
	c := compile(b, tagged)
	changes := products(b, n)
	for i := range changes {
		changes[i].Undo = []document.Splice{{Path: "/description", Old: []byte("x")}}
	}
	own := feed.Producer{Pipeline: "category-names", Generation: 1, Source: "target:aaaaaaaa/0"}
	page := feed.Transaction{
		Effect: &feed.Effect{Producer: own}, Page: &feed.Page{Source: `["tag"]/T-5`, Action: uint8(store.CopySet), Paths: []string{"/tags/*/name"}},
		Changes: changes,
	}
	patches := feed.Transaction{Changes: changes}
	for name, t := range map[string]*feed.Transaction{"page": &page, "patches": &patches} {
		b.Run("of="+name, func(b *testing.B) {
			k := &Checker{c: c, fanOuts: own}
			part := processors.Part{Commit: &feed.Commit{LSN: 1}, Transaction: t, Changes: changes}
			b.ReportAllocs()
			for b.Loop() {
				r := newRound(c)
				switch interestIn(t, &k.fanOuts) {
				case checkNothing:
				case checkOnce:
					r.addPage(t.Page)
				case checkEach:
					for i := range changes {
						k.addChange(r, &part, i)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/item")
		})
	}
}

func BenchmarkRelevance(b *testing.B) {
	c := compile(b, nil)
	for name, ch := range map[string]feed.Change{
		"rename": {
			Op: feed.OpReplace, Before: []byte(`{"id":"1","type":"category","name":"Bikes, Touring Bikes"}`),
			After: []byte(`{"id":"1","type":"category","name":"Bikes, Touring"}`),
		},
		"other patch": {Op: feed.OpReplace, Undo: []document.Splice{{Path: "/colour"}}, After: []byte(`{}`)},
	} {
		b.Run("change="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.relevance(&ch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
