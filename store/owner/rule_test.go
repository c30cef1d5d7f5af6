package owner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// Each of the things that may happen to a customer and its orders, one by one.
func TestTransactional_FieldsFollowEveryWrite(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]accumulator.Spec{"target by index": totals(), "target by id": byID()} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, ruled(spec, true, true))
			s.do("c1", create(customer("c1")))
			s.check("no order yet")
			steps := []struct {
				when string
				op   store.Operation
			}{
				{"an order", create(order("o1", "c1", 5, 1010, 20))},
				{"a second", create(order("o2", "c1", 7, 333))},
				{"an order replaced", upsert(order("o2", "c1", 3, 111, 222))},
				{"the same again", upsert(order("o2", "c1", 3, 111, 222))},
				{"four in all", create(order("o3", "c1", 9))},
				{"five in all", create(order("o4", "c1", 1, 5))},
				{"a patch of what is read", patch("o4", set("/orderDate", `"2024-01-30"`))},
				{"a patch of what is not", patch("o4", set("/note", `"x"`))},
				{"a patch of a line", patch("o1", set("/details/0/price", "7.5"))},
				{"a line more", patch("o1", document.Op{Kind: "add", Path: "/details/-", Value: []byte(`{"price":0.01,"quantity":3}`)})},
				{"no date any more", patch("o3", document.Op{Kind: "remove", Path: "/orderDate"})},
				{"no order any more", patch("o2", set("/type", `"draft"`))},
				{"an order again", patch("o2", set("/type", `"salesOrder"`))},
				{"the newest goes", remove("o4")},
				{"a client writes an old count back", upsert(strings.Replace(customer("c1"), "{", `{"salesOrderCount":99,"recentOrders":[],`, 1))},
				{"a client patches the count", patch("c1", set("/salesOrderCount", "7"))},
				{"a client removes a field", patch("c1", document.Op{Kind: "remove", Path: "/recentOrders"})},
				{"the customer is no customer for a while", patch("c1", set("/type", `"gone"`))},
				{"an order meanwhile", create(order("o5", "c1", 8, 1))},
				{"a customer again", patch("c1", set("/type", `"customer"`))},
				{"the customer goes", remove("c1")},
				{"an order without a customer", create(order("o6", "c1", 2, 2))},
				{"the customer comes again", upsert(customer("c1"))},
				{"an order more", upsert(order("o5", "c1", 8, 1))},
				{"all orders go", remove("o1")},
				{"", remove("o2")},
				{"", remove("o3")},
				{"", remove("o5")},
				{"the last one", remove("o6")},
			}
			for _, step := range steps {
				if spec.Create && step.when == "an order meanwhile" {
					continue // another item has the id of the customer to make
				}
				if step.op.Kind == store.OpDelete && s.read(s.key("c1"), step.op.ID) == "" {
					continue
				}
				s.do("c1", step.op)
				s.check(step.when)
			}
			s.rebuilt()
		})
	}
}

// A group that begins with orders, and whose customer comes later.
func TestTransactional_ATargetMadeAfterItsMembers(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	for i := range 5 {
		s.do("c1", create(order(fmt.Sprint("o", i), "c1", i+1, 100*i)))
	}
	s.do("c1", create(customer("c1")))
	s.check("made late")
	got := s.scan(store.Scope{})
	if n := len(got); n != 6 {
		t.Fatalf("%d items", n)
	}
}

// An order is decided while its customer, or a change by which it became one, is on
// its way to the log.
func TestTransactional_ATargetInFlight(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]accumulator.Spec{"by index": totals(), "by id": byID()} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, ruled(spec, true, true))
			s.do("c2", create(strings.Replace(customer("c2"), `"customer"`, `"nobody"`, 1)))
			for c, op := range map[string]store.Operation{"c1": create(customer("c1")), "c2": patch("c2", set("/type", `"customer"`))} {
				arrived, release := s.log.hold()
				var wg sync.WaitGroup
				send := func(op store.Operation) {
					wg.Go(func() {
						if _, err := s.one(s.key(c), op); err != nil {
							t.Error(err)
						}
					})
				}
				send(op)
				<-arrived
				for i := range 5 {
					send(create(order(fmt.Sprint("o", i), c, i+1, 10)))
				}
				s.decided(5)
				send(remove("o4")) // the newest, so that the list is read anew
				s.decided(6)
				release()
				wg.Wait()
				s.check(c)
			}
			s.rebuilt()
		})
	}
}

// An append that did not happen takes the shares of its orders with it.
func TestTransactional_AnAppendThatDidNotHappen(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	s.do("c1", create(customer("c1")))
	s.do("c1", create(order("o1", "c1", 1, 10)))
	s.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) { return 0, feed.ErrStorage })
	if _, err := s.one(s.key("c1"), create(order("o2", "c1", 2, 10))); err == nil {
		t.Fatal("the order was taken")
	}
	s.check("not appended")
	s.do("c1", create(order("o3", "c1", 3, 10)))
	s.check("the next one")
	s.rebuilt()
}

// What a cascade writes into members counts too, in the commit of its page.
func TestTransactional_PagesOfACascade(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	s.do("c1", create(customer("c1")))
	for i := range 25 {
		s.do("c1", create(order(fmt.Sprintf("o%02d", i), "c1", i%9+1, 10)))
	}
	f := newFan(t, s.node, store.Scope{Key: s.key("c1")})
	f.req.Position = feed.Position{LSN: 10}
	f.req.Copy = store.Copy{Where: `type = "salesOrder"`, Action: store.CopySet, Set: []store.Field{{Path: "orderDate", Value: []byte(`"2025-01-01"`)}}}
	for done := false; !done; {
		done = f.page().Done
		s.check("a page")
	}
	if f.patched != 25 {
		t.Errorf("%d items were patched", f.patched)
	}
	s.rebuilt()
}

// With create the order makes its customer; a second one finds it.
func TestTransactional_CreateMakesTheTarget(t *testing.T) {
	s := newShop(t, ruled(byID(), true, true))
	s.do("c1", create(order("o1", "c1", 1, 100)))
	s.do("c1", create(order("o2", "c1", 2, 100)))
	s.check("made")
	if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"salesOrderCount":2`) || !strings.Contains(body, `"type":"customer"`) {
		t.Errorf("the target is %s", body)
	}
	s.do("c1", remove("c1"))
	s.do("c1", create(order("o3", "c1", 3, 100)))
	s.check("made again")
	if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"salesOrderCount":3`) {
		t.Errorf("the target made again is %s", body)
	}
	// An item of another kind has the id.
	s.do("c2", create(`{"id":"c2","customerId":"c2","type":"other"}`))
	if _, err := s.one(s.key("c2"), create(order("o1", "c2", 1))); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an order whose customer cannot be made: %v", err)
	}
	if s.read(s.key("c2"), "o1") != "" {
		t.Error("the refused order is there")
	}
}

// Several operations in one transaction, on members and target at once.
func TestTransactional_Batches(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	k := s.key("c1")
	r, err := s.batch(k,
		create(order("o1", "c1", 1, 100)), create(customer("c1")), create(order("o2", "c1", 2, 50)),
		patch("o1", set("/orderDate", `"2024-01-09"`)), remove("o2"), create(order("o3", "c1", 3)),
		store.Operation{Kind: store.OpRead, ID: "o1"})
	if err != nil || r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	s.check("a batch")
	// The answer shows the customer as the transaction leaves it.
	stored := s.mustOne(k, store.Operation{Kind: store.OpRead, ID: "c1"})
	if got := r.Results[1].Item; got.ETag != stored.ETag || string(got.Body) != string(stored.Body) {
		t.Errorf("the answer shows %s %s, the store %s %s", got.ETag, got.Body, stored.ETag, stored.Body)
	}
	if _, err := s.one(k, store.Operation{Kind: store.OpReplace, ID: "c1", Body: []byte(customer("c1")), IfMatch: r.Results[1].Item.ETag}); err != nil {
		t.Errorf("a replace with the ETag of the answer: %v", err)
	}
	s.check("replaced with that ETag")

	before := s.folds()
	if r, err := s.batch(k, create(order("o9", "c1", 9)), remove("o9")); err != nil || r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := s.folds() - before; n != 0 {
		t.Errorf("an order that came and went made %d folds", n)
	}
	if r, err := s.batch(k, create(order("o8", "c1", 8)), create(order("o3", "c1", 1))); err != nil || !r.Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	s.check("a batch that failed")
	s.rebuilt()
}

// Members expire, and so does a target.
func TestTransactional_Expiry(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	s.do("c1", create(customer("c1")))
	for i := range 6 {
		body := order(fmt.Sprint("o", i), "c1", i+1, 10)
		if i%2 == 0 {
			body = strings.Replace(body, "{", `{"ttl":1,`, 1)
		}
		s.do("c1", create(body))
	}
	s.check("before")
	s.expired()
	s.check("half of the orders have expired")
	s.do("c2", create(strings.Replace(customer("c2"), "{", `{"ttl":1,`, 1)))
	s.do("c2", create(order("o1", "c2", 1, 5)))
	s.w.clock.Add(5000)
	s.do("c2", create(order("o2", "c2", 2, 5))) // its customer has expired, whether or not it was deleted
	s.expired()
	s.do("c2", create(customer("c2")))
	s.check("the customer had expired")
	s.rebuilt()
}

// So many items expire at once that what follows does not fit into one commit.
func TestTransactional_ExpiriesThatFillACommit(t *testing.T) {
	t.Parallel()
	s := newShop(t, ruled(totals(), true, true))
	const customers, pad = 9, 800_000
	for i := range customers {
		c := fmt.Sprint("c", i)
		s.do(c, create(strings.Replace(customer(c), "{", fmt.Sprintf(`{"pad":%q,`, strings.Repeat("x", pad)), 1)))
		s.do(c, create(strings.Replace(order("o", c, 1, 10), "{", `{"ttl":1,`, 1)))
	}
	s.expired()
	for i := range customers {
		c := fmt.Sprint("c", i)
		if body := s.read(s.key(c), c); !strings.Contains(body, `"salesOrderCount":0`) {
			t.Fatalf("%s: %s", c, body[len(body)-200:])
		}
	}
}

// A reader that looks at any moment sees as many orders as the customer counts.
func TestTransactional_EverySnapshotAgrees(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 40
	s := newShop(t, ruled(totals(), true, true))
	s.do("c", create(customer("c")))
	var writing, reading sync.WaitGroup
	var done atomic.Bool
	for range 2 {
		reading.Go(func() {
			for looked := 0; !done.Load() || looked == 0; looked++ {
				if diff := differences(s.scan(store.Scope{Key: s.key("c")})); diff != "" {
					t.Errorf("a snapshot disagrees (-want +got):\n%s", diff)
					return
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range each {
				id := fmt.Sprintf("o%d-%d", w, i)
				ops := []store.Operation{create(order(id, "c", 1+rng.IntN(28), rng.IntN(1000)))}
				if i > 2 && rng.IntN(2) == 0 {
					ops = append(ops, upsert(order(fmt.Sprintf("o%d-%d", w, rng.IntN(i)), "c", 1+rng.IntN(28), 7)))
				}
				if rng.IntN(3) == 0 {
					ops = append(ops, remove(id))
				}
				if _, err := s.batch(s.key("c"), ops...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
	s.check("at last")
	s.rebuilt()
}

// A repetition is answered as the first time, also where a rule has changed the
// item once more in the same transaction.
func TestTransactional_IdempotencyKey(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	k := s.key("c1")
	send := func() *store.TransactResult {
		t.Helper()
		r := s.ask(&store.Request{Transact: &store.Transact{Key: k, Batch: true, IdempotencyKey: "once", Ops: []store.Operation{
			create(customer("c1")), create(order("o1", "c1", 1, 5)), patch("c1", set("/name", `"X"`)), create(order("o2", "c1", 2, 5)),
		}}})
		if r.Err != nil || r.Transact.Failed {
			t.Fatalf("%v %+v", r.Err, r.Transact)
		}
		for i := range r.Transact.Results {
			it := &r.Transact.Results[i].Item
			it.Body, it.Modified, it.Written = nil, 0, 0
		}
		return r.Transact
	}
	first := send()
	same := cmp.Comparer(func(a, b feed.PartitionKey) bool { return a == b })
	if diff := cmp.Diff(first, send(), same); diff != "" {
		t.Errorf("before it is applied, the repetition was answered otherwise (-first +again):\n%s", diff)
	}
	s.restart(t.TempDir())
	if diff := cmp.Diff(first, send(), same); diff != "" {
		t.Errorf("after a restart, the repetition was answered otherwise (-first +again):\n%s", diff)
	}
	if now := s.mustOne(k, store.Operation{Kind: store.OpRead, ID: "c1"}); now.ETag != first.Results[2].Item.ETag {
		t.Errorf("the answer has ETag %s, the customer %s", first.Results[2].Item.ETag, now.ETag)
	}
	s.check("done once")
}

// A transaction whose target would be too large is refused whole, and nothing of it
// is left.
func TestTransactional_ATargetThatWouldBeTooLarge(t *testing.T) {
	t.Parallel()
	s := newShop(t, ruled(totals(), true, true))
	empty := customer("c1")
	s.do("c1", create(empty))
	now := s.read(s.key("c1"), "c1")
	pad := strings.Repeat("x", store.ItemBytesMax-len(now)-len(`,"pad":""`)-40)
	s.do("c1", upsert(strings.Replace(empty, "{", fmt.Sprintf(`{"pad":%q,`, pad), 1)))
	_, err := s.one(s.key("c1"), create(order("an-order-with-a-long-id-indeed", "c1", 1, 5)))
	if !errors.Is(err, store.ErrTooLarge) {
		t.Fatalf("the order was answered %v", err)
	}
	if s.read(s.key("c1"), "an-order-with-a-long-id-indeed") != "" {
		t.Error("the refused order is there")
	}
	s.check("refused")
	if _, err := s.one(s.key("c1"), upsert(strings.Replace(empty, "{", `{"pad":"",`, 1))); err != nil {
		t.Fatal(err)
	}
	s.do("c1", create(order("an-order-with-a-long-id-indeed", "c1", 1, 5)))
	s.check("there is room again")
	s.rebuilt()
}

// A target where the place of a field is taken says so.
func TestTransactional_ATargetWithoutPlace(t *testing.T) {
	spec := totals()
	spec.Set = []accumulator.Field{{Path: "totals.count", Func: accumulator.Count}}
	s := newShop(t, ruled(spec, true, true))
	_, err := s.one(s.key("c1"), create(strings.Replace(customer("c1"), "{", `{"totals":"none",`, 1)))
	if !errors.Is(err, store.ErrBadRequest) || !strings.Contains(err.Error(), "totals") {
		t.Errorf("answered %v", err)
	}
	s.do("c1", create(customer("c1")))
	if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"totals":{"count":0}`) {
		t.Errorf("the customer is %s", body)
	}
}

// A rule that is published later sets the fields of all targets that are there,
// and makes the missing ones.
func TestPublishedLater(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]accumulator.Spec{"by index": totals(), "by id": byID()} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			for i := range 300 {
				c := fmt.Sprint("c", i)
				s.do(c, create(strings.Replace(customer(c), "{", `{"salesOrderCount":99,`, 1)))
			}
			s.wish(ruled(spec, true, false))
			for i := range 400 { // a hundred have no customer
				c := fmt.Sprint("c", i)
				s.do(c, create(order("o", c, 1, i)))
			}
			if body := s.read(s.key("c5"), "c5"); !strings.Contains(body, `"salesOrderCount":99`) {
				t.Errorf("before the rule is published the customer is %s", body)
			}
			s.wish(ruled(spec, true, true))
			s.check("published")
			r := s.ask(&store.Request{Status: &store.StatusRequest{}})
			if r.Err != nil || len(r.Status.Rules) != 1 || !r.Status.Rules[0].Swept || !r.Status.Rules[0].Folds || !r.Status.Rules[0].Active {
				t.Errorf("status: %v %+v", r.Err, r.Status)
			}
			made := s.read(s.key("c350"), "c350")
			if want := spec.Create; want != (made != "") {
				t.Errorf("the missing customer is %q", made)
			}
			lsn := s.state.Load().lsn
			s.wish(ruled(spec, true, true))
			if got := s.state.Load().lsn; got != lsn {
				t.Errorf("the same wish again made %d commits", got-lsn)
			}
			s.rebuilt()
		})
	}
}

// A rule that is dropped leaves the fields and takes its accumulators.
func TestDroppedRule(t *testing.T) {
	s := newShop(t, ruled(totals(), true, true))
	s.do("c1", create(customer("c1")))
	s.do("c1", create(order("o1", "c1", 1, 5)))
	s.wish()
	s.do("c1", create(order("o2", "c1", 2, 5)))
	if body := s.read(s.key("c1"), "c1"); !strings.Contains(body, `"salesOrderCount":1`) {
		t.Errorf("the customer is %s", body)
	}
	snap := s.engine.Snapshot()
	defer snap.Close()
	for r, err := range snap.Records(recordAccumulator, nil) {
		t.Errorf("there is a record %x left, %v", r.Key, err)
	}
	s.rebuilt()
}

// Two rules, of which one counts what the other makes.
func TestTransactional_RulesThatFollowEachOther(t *testing.T) {
	active := accumulator.Spec{
		SourceWhere: `type = "customer" AND salesOrderCount > 0`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}}, TargetWhere: `type = "summary"`,
		Set: []accumulator.Field{{Path: "active", Func: accumulator.Count}, {Path: "orders", Func: accumulator.Sum, Expr: "salesOrderCount"}},
	}
	s := newShop(t, ruled(totals(), true, true), store.RuleWish{Pipeline: "active", Generation: 1, Spec: active, Source: true, Published: true})
	s.do("g", create(`{"id":"s","customerId":"g","type":"summary"}`))
	for i := range 3 {
		s.do("g", create(strings.Replace(customer("g"), `"id":"g"`, fmt.Sprintf(`"id":"g%d"`, i), 1)))
	}
	for i := range 4 {
		s.do("g", create(order(fmt.Sprint("o", i), "g", 1)))
	}
	if body := s.read(s.key("g"), "s"); !strings.Contains(body, `"active":3`) || !strings.Contains(body, `"orders":12`) {
		t.Errorf("the summary is %s", body)
	}
	s.do("g", remove("g1"))
	if body := s.read(s.key("g"), "s"); !strings.Contains(body, `"active":2`) || !strings.Contains(body, `"orders":8`) {
		t.Errorf("the summary is %s", body)
	}
	s.check("both")
	s.rebuilt()
}

// Rules that feed each other without end are refused, and do nothing.
func TestTransactional_RulesThatDoNotRest(t *testing.T) {
	grow := func(field, other string) accumulator.Spec {
		return accumulator.Spec{
			Match: []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
			Set:   []accumulator.Field{{Path: field, Func: accumulator.Sum, Expr: other + " + 1"}},
		}
	}
	s := newShop(t,
		store.RuleWish{Pipeline: "a", Generation: 1, Spec: grow("a", "b"), Source: true, Published: true},
		store.RuleWish{Pipeline: "b", Generation: 1, Spec: grow("b", "a"), Source: true, Published: true})
	if _, err := s.one(s.key("c"), create(`{"id":"1","customerId":"c"}`)); statusOf(t, err) != store.StatusInternal {
		t.Errorf("answered %v", err)
	}
	if s.read(s.key("c"), "1") != "" {
		t.Error("the item is there")
	}
}

// Whatever clients do, fields are exact, and the engine is what the log says.
func TestI3_TransactionalModel(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]accumulator.Spec{"by index": totals(), "by id": byID()} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, ruled(spec, true, true))
			rng := rand.New(rand.NewPCG(7, uint64(len(name))))
			for round := range 6 {
				s.random(rng, 80)
				s.expired()
				s.check(fmt.Sprint("round ", round))
				s.rebuilt()
				s.restart(t.TempDir())
			}
		})
	}
}
