package owner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// An item whose copy no commit takes, since what aggregates make of it is too much, is refused like one
// that would be too large itself: the fan-out goes on, and ends. Whether the items change or go.
func TestI6_APageGoesOnBehindACopyThatFitsIntoNoCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]store.Copy{
		"set":    {Where: `type = "salesOrder"`, Action: store.CopySet, Set: []store.Field{{Path: "orderDate", Value: []byte(`"2025-01-01"`)}}},
		"delete": {Where: `type = "salesOrder"`, Action: store.CopyDelete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, ruled(totals(), true, true))
			const customers = 4
			var want []string
			for i := range customers {
				c := fmt.Sprint("c", i)
				s.do(c, create(customer(c)))
				s.do(c, create(order("o", c, 1, 10)))
				if i%2 == 0 {
					continue
				}
				want = append(want, fmt.Sprintf(`["%s"]/o`, c))
				for j := range 4 { // 7.6 MB
					s.do(c, create(fmt.Sprintf(`{"id":"large%d","customerId":%q,"type":"customer","fill":%q}`, j, c, strings.Repeat("x", 1_900_000))))
				}
			}
			f := newFan(t, s.node, store.Scope{})
			f.req.Position, f.req.ItemsMax, f.req.Copy = feed.Position{LSN: 10}, 1000, c
			var got []string
			for done := false; !done; {
				page := f.page()
				for _, r := range page.Refused {
					if got = append(got, r.Ref.String()); r.Status != store.StatusTooLarge || r.Reason == "" {
						t.Errorf("refusal %+v", r)
					}
				}
				if done = page.Done; f.pages > 20 {
					t.Fatal("the fan-out does not end")
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			if f.patched != customers-len(want) {
				t.Errorf("%d items were patched, want %d", f.patched, customers-len(want))
			}
		})
	}
}
