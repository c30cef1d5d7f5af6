package owner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// What a page makes a target of an aggregate stands in the log with what it was.
func TestPagesThatMakeTargets(t *testing.T) {
	const customers = 200
	s := newShop(t, ruled(totals(), true, true))
	was := map[string]string{}
	for i := range customers {
		c := fmt.Sprint("c", i)
		s.do("c", create(strings.Replace(fmt.Sprintf(`{"id":%q,"customerId":"c","type":"customer","name":"N%0*d"}`, c, i, i), `"customer"`, `"nobody"`, 1)))
		was[c] = s.read(s.key("c"), c)
	}
	f := newFan(t, s.node, store.Scope{Key: s.key("c")})
	f.req.Position, f.req.ItemsMax = feed.Position{LSN: 10}, 1000
	f.req.Copy = store.Copy{Action: store.CopySet, Set: []store.Field{{Path: "type", Value: []byte(`"customer"`)}}}
	f.finish()
	if f.patched != customers {
		t.Errorf("%d items were patched", f.patched)
	}
	s.check("targets now")
	seen := 0
	for _, c := range s.w.commits() {
		for i := range c.Transactions {
			for j := range c.Transactions[i].Changes {
				ch := &c.Transactions[i].Changes[j]
				if ch.Op != feed.OpReplace {
					continue
				}
				seen++
				if before, err := ch.BeforeBody(); err != nil || string(before) != was[ch.ID] {
					t.Fatalf("%s was %s, %v; the log says %s", ch.ID, was[ch.ID], err, before)
				}
			}
		}
	}
	if seen != customers {
		t.Errorf("the log has %d of %d changes", seen, customers)
	}
	s.rebuilt()
}
