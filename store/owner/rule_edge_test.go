package owner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// A target that create has made is made again when it goes while it has members,
// in whatever way it goes.
func TestI6_ACreatedTargetThatGoesIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t, ruled(byID(), true, true))
	s.do("c1", create(order("o1", "c1", 1, 100)))
	s.do("c1", create(order("o2", "c1", 2, 100)))
	made := func(when string) {
		t.Helper()
		s.check(when)
		if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"salesOrderCount":2`) {
			t.Errorf("%s, the target is %q", when, body)
		}
	}
	s.do("c1", remove("c1"))
	made("deleted")
	if r, err := s.batch(s.key("c1"), remove("c1"), remove("o2"), create(order("o3", "c1", 3, 100))); err != nil || r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	made("deleted with a member")
	s.do("c1", upsert(strings.Replace(customer("c1"), "{", `{"ttl":1,`, 1)))
	s.expired()
	made("expired")
	if r, err := s.batch(s.key("c1"), remove("c1"), create(strings.Replace(customer("c1"), `"N"`, `"M"`, 1))); err != nil || r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	made("made again by the client")
	if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"M"`) {
		t.Errorf("the client's own is %s", body)
	}
	// Where it cannot be made, the client's write stands.
	if r, err := s.batch(s.key("c1"), remove("c1"), create(`{"id":"c1","customerId":"c1","type":"other"}`)); err != nil || r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	s.do("c1", remove("c1"))
	s.do("c1", remove("o1"))
	s.check("made when its group changes")
	s.do("c1", remove("o3"))
	s.do("c1", remove("c1"))
	if body := s.read(s.key("c1"), "c1"); body != "" {
		t.Errorf("a target without members was made: %s", body)
	}
	s.rebuilt()
}

// A rule whose targets are found by what another one sets, in either order.
func TestTransactional_ARuleThatMatchesWhatAnotherSets(t *testing.T) {
	t.Parallel()
	tier := accumulator.Spec{
		SourceWhere: `type = "salesOrder"`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}}, TargetWhere: `type = "customer"`,
		Set: []accumulator.Field{{Path: "tier", Func: accumulator.Max, Expr: "tier"}},
	}
	gifts := accumulator.Spec{
		SourceWhere: `type = "gift"`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}, {Target: "tier", Source: "tier"}},
		Set:         []accumulator.Field{{Path: "gifts", Func: accumulator.Count}},
	}
	rules := []store.RuleWish{
		{Pipeline: "gifts", Generation: 1, Spec: gifts, Source: true, Published: true},
		{Pipeline: "tier", Generation: 1, Spec: tier, Source: true, Published: true},
	}
	for name, wishes := range map[string][]store.RuleWish{"reader first": rules, "writer first": {rules[1], rules[0]}} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, wishes...)
			for i := range 3 {
				s.do("c", create(fmt.Sprintf(`{"id":"g%d","customerId":"c","type":"gift","tier":%d}`, i, min(i, 1))))
			}
			s.do("c", create(`{"id":"o0","customerId":"c","type":"salesOrder","tier":0}`))
			s.do("c", create(customer("c")))
			for _, want := range []string{`"gifts":1`, `"gifts":2`} {
				if body := s.read(s.key("c"), "c"); !strings.Contains(body, want) {
					t.Errorf("the customer is %s, want %s", body, want)
				}
				s.do("c", upsert(`{"id":"o1","customerId":"c","type":"salesOrder","tier":1}`))
			}
			s.do("c", create(`{"id":"g3","customerId":"c","type":"gift","tier":1}`))
			if body := s.read(s.key("c"), "c"); !strings.Contains(body, `"gifts":3`) {
				t.Errorf("the customer is %s", body)
			}
			s.rebuilt()
		})
	}
}

// A reader in the very transaction that writes an order sees it counted.
func TestTransactional_ABatchReadsWhatFollowsFromIt(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	s.do("c1", create(customer("c1")))
	read := store.Operation{Kind: store.OpRead, ID: "c1"}
	r, err := s.batch(s.key("c1"), create(order("o1", "c1", 1, 100)), read, create(order("o2", "c1", 2, 100)))
	if err != nil || r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	stored := s.mustOne(s.key("c1"), read)
	if got := r.Results[1].Item; got.ETag != stored.ETag || string(got.Body) != string(stored.Body) {
		t.Errorf("the transaction read %s %s, the store has %s %s", got.ETag, got.Body, stored.ETag, stored.Body)
	}
}

// What a page makes a target of an aggregate stands in the log with what it was.
func TestPagesThatMakeTargets(t *testing.T) {
	t.Parallel()
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

// A page whose consequences do not fit into one commit becomes smaller.
func TestTransactional_APageWithMuchToFollow(t *testing.T) {
	t.Parallel()
	const customers, pad = 9, 800_000
	s := newShop(t, ruled(totals(), true, true))
	for i := range customers {
		c := fmt.Sprint("c", i)
		s.do(c, create(strings.Replace(customer(c), "{", fmt.Sprintf(`{"pad":%q,`, strings.Repeat("x", pad)), 1)))
		s.do(c, create(order("o", c, 1, 10)))
	}
	f := newFan(t, s.node, store.Scope{})
	f.req.Position, f.req.ItemsMax = feed.Position{LSN: 10}, 1000
	f.req.Copy = store.Copy{Where: `type = "salesOrder"`, Action: store.CopySet, Set: []store.Field{{Path: "orderDate", Value: []byte(`"2025-01-01"`)}}}
	f.finish()
	if f.patched != customers {
		t.Errorf("%d items were patched", f.patched)
	}
	for i := range customers {
		c := fmt.Sprint("c", i)
		if body := s.read(s.key(c), c); !strings.Contains(body, `"lastOrderDate":"2025-01-01"`) {
			t.Errorf("%s: %s", c, body[max(0, len(body)-200):])
		}
	}
}

// What follows from the fields that a sweep sets may be more than a commit takes.
func TestPublishedLater_WithMuchToFollow(t *testing.T) {
	t.Parallel()
	const customers, pad = 9, 800_000
	named := accumulator.Spec{
		SourceWhere: `type = "customer"`,
		Match:       []accumulator.Pair{{Target: "id", Source: "name"}, {Target: "customerId", Source: "customerId"}},
		Set:         []accumulator.Field{{Path: "orders", Func: accumulator.Sum, Expr: "salesOrderCount"}},
	}
	follows := store.RuleWish{Pipeline: "named", Generation: 1, Spec: named, Source: true, Published: true}
	s := newShop(t, follows)
	for i := range customers {
		c := fmt.Sprint("c", i)
		s.do(c, create(customer(c)))
		s.do(c, create(order("o", c, 1, 10)))
		s.do(c, create(fmt.Sprintf(`{"id":"N","customerId":%q,"pad":%q}`, c, strings.Repeat("x", pad))))
	}
	s.wish(follows, ruled(totals(), true, false))
	for i := range customers {
		c := fmt.Sprint("c", i)
		s.do(c, upsert(order("p", c, 1, 10)))
	}
	s.wish(follows, ruled(totals(), true, true))
	for i := range customers {
		c := fmt.Sprint("c", i)
		if body := s.read(s.key(c), "N"); !strings.Contains(body, `"orders":1`) {
			t.Errorf("%s: %s", c, body[max(0, len(body)-100):])
		}
	}
}
