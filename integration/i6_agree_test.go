package integration_test

import (
	"fmt"

	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// disagreements lists the copies that are not what their sources, or the tombstones of
// these, say.
func (w *cascadeWorld) disagreements(cas *cascade.Cascade) (lines []string) {
	w.t.Helper()
	for _, p := range cas.Target().Partitions() {
		for scan := (store.Scan{ItemsMax: 500, Barrier: true}); ; {
			page, err := cas.Target().Scan(w.t.Context(), p, scan)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range page.Items {
				lines = append(lines, w.disagrees(cas, &page.Items[i])...)
			}
			if scan.After = page.Cursor; scan.After == nil {
				break
			}
		}
	}
	return lines
}

func (w *cascadeWorld) disagrees(cas *cascade.Cascade, item *store.Item) (lines []string) {
	w.t.Helper()
	refs := cas.Expected(item.Body)
	for i := range refs {
		if !refs[i].Possible {
			continue
		}
		origins, err := cas.Origins(w.t.Context(), []store.ItemRef{refs[i].Source})
		if err != nil {
			w.t.Fatal(err)
		}
		if cas.Compare(&refs[i], &origins[0], item.Modified) == cascade.Drift {
			lines = append(lines, fmt.Sprintf("%s is %s, written at %d, and its source %s (deleted: %t, at %s) wants %+v",
				store.ItemRef{Key: item.Key, ID: item.ID}, item.Body, item.Modified, refs[i].Source, origins[0].Deleted(), origins[0].Position(),
				cas.Wanted(&origins[0])))
		}
	}
	return lines
}
