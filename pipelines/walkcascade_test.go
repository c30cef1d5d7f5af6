package pipelines_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
)

const cascadesOverALongLog = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: names}
spec:
  source: {container: category}
  cascade:
    into: product
    match: {categoryId: id}
    set: {categoryName: name}
    onSourceDelete: clear
`

// TestI6_ACascadeOverALongLogWalks registers a cascade of which a source was written many
// times, while products change: what was there is set by a walk, and shown as a backfill;
// nothing is read of the source's log.
func TestI6_ACascadeOverALongLogWalks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, tenantContainers))
	// Letters drawn at random, which the log does not compress: it is to be long.
	dice, letters := rand.New(rand.NewPCG(1, 1)), make([]byte, 700<<10)
	for i := range letters {
		letters[i] = byte('a' + dice.IntN(26))
	}
	fill := string(letters)
	for i := range 3 {
		n.put(t, "category", fmt.Sprintf(`{"id":"c","name":"name %d","fill":"%s"}`, i, fill))
	}
	n.put(t, "category", `{"id":"d","name":"other"}`)
	var items []string
	for i := range 1500 {
		items = append(items, fmt.Sprintf(`{"id":"p%d","tenant":"t%d","categoryId":"%c","categoryName":"old"}`, i, i%5, "cde"[i%3]))
	}
	n.put(t, "product", items...)
	n.apply(t, decode(t, cascadesOverALongLog))
	rec := n.record(t, "names")
	if diff := cmp.Diff(rec.Heads, rec.From); diff != "" || rec.Backfills != 1 || len(rec.Starts) != 2 {
		t.Errorf("it begins as %+v", rec)
	}
	for i := range 100 { // while it walks
		n.put(t, "product", fmt.Sprintf(`{"id":"q%d","tenant":"t%d","categoryId":"c","categoryName":"older"}`, i, i%5))
	}
	n.put(t, "category", `{"id":"c","name":"last"}`)
	check := func(what string) {
		t.Helper()
		n.idle(t)
		var names []string
		for _, body := range n.bodies(t, "product") {
			for _, name := range []string{"last", "other", "old", "older"} {
				if strings.Contains(string(body), fmt.Sprintf(`"categoryName":%q`, name)) {
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		count := map[string]int{}
		for _, name := range names {
			count[name]++
		}
		if diff := cmp.Diff(map[string]int{"last": 600, "other": 500, "old": 500}, count); diff != "" { // e never was
			t.Errorf("%s: copies (-want +got):\n%s", what, diff)
		}
		if r, by := n.verify(t, verify.Config{}); by["names"].Copies != 1100 || by["names"].Dangling != 500 {
			t.Errorf("%s:\n%s", what, text(r))
		}
	}
	check("a new cascade")
	again, err := n.registry.Rewind(t.Context(), "default", "names", registry.RewindTo{}, leases.DefaultBucket)
	if err != nil || again.Generation != 2 || again.Backfills != 1 {
		t.Fatalf("rewound: %+v, %v", again, err)
	}
	check("rewound")
}
