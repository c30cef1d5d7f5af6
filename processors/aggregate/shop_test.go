package aggregate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/owner"
)

// shop has orders in one container and customers in another, or both in one.
type shop struct {
	*world
	cfg aggregate.Config
}

// byCustomer is what customers say of their orders.
func byCustomer() accumulator.Spec {
	return accumulator.Spec{
		SourceWhere: `type = "order"`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}, {Target: "id", Source: "customerId"}},
		TargetWhere: `type = "customer"`,
		Create:      true,
		Set: []accumulator.Field{
			{Path: "last", Func: accumulator.Max, Expr: "day"},
			{Path: "orders", Func: accumulator.Count},
			{Path: "recent", Func: accumulator.Latest, N: 2, By: "day", Fields: []string{"id", "day"}},
			{Path: "total", Func: accumulator.Sum, Expr: "cents"},
		},
	}
}

// newShop has three partitions of orders, by their id, and three of customers. The
// rule is in force.
func newShop(t *testing.T, tune ...func(*owner.Config)) *shop {
	t.Helper()
	s := &shop{world: newWorld(t, tune...)}
	s.cfg = aggregate.Config{
		Pipeline: "by-customer", Generation: 1, Spec: byCustomer(),
		Source: s.container("order", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 3, TTL: -1}),
		Target: s.container("customer", store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: 3}),
	}
	s.want(s.cfg, false, true)
	return s
}

// newShopByDay is newShop with a group for each customer and day. Their targets want the customer's id, which one
// of them gets.
func newShopByDay(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	spec := byCustomer()
	spec.Match = append(spec.Match, accumulator.Pair{Target: "day", Source: "day"})
	s.cfg.Pipeline, s.cfg.Spec = "by-customer-and-day", spec
	s.want(s.cfg, false, true)
	return s
}

// newLocal has orders beside their customer, in two partitions.
func newLocal(t *testing.T, tune ...func(*owner.Config)) *shop {
	t.Helper()
	s := &shop{world: newWorld(t, tune...)}
	both := s.container("customer", store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: 2, TTL: -1})
	s.cfg = aggregate.Config{Pipeline: "by-customer", Generation: 1, Spec: byCustomer(), Source: both, Target: both}
	s.want(s.cfg, false, true)
	return s
}

type member struct {
	ID       string `json:"id"`
	Customer string `json:"customerId"`
	Type     string `json:"type"`
	Day      int    `json:"day"`
	Cents    int    `json:"cents"`
	TTL      int    `json:"ttl,omitempty"`
}

type recent struct {
	ID  string `json:"id"`
	Day int    `json:"day"`
}

// said is what a customer says.
type said struct {
	Orders int      `json:"orders"`
	Total  int      `json:"total"`
	Last   int      `json:"last"`
	Recent []recent `json:"recent"`
}

func order(id, customer string, day, cents int) member {
	return member{ID: id, Customer: customer, Type: "order", Day: day, Cents: cents}
}

func (s *shop) put(c *store.Container, item any) {
	s.t.Helper()
	if err := put(s.t.Context(), c, item); err != nil {
		s.t.Fatal(err)
	}
}

func put(ctx context.Context, c *store.Container, item any) error {
	body, err := json.Marshal(item)
	if err != nil {
		return err
	}
	_, err = c.Upsert(ctx, body)
	return err
}

// order puts an order.
func (s *shop) order(id, customer string, day, cents int) {
	s.t.Helper()
	s.put(s.cfg.Source, order(id, customer, day, cents))
}

func (s *shop) remove(c *store.Container, id string, key ...any) {
	s.t.Helper()
	if err := c.Delete(s.t.Context(), keyOf(s.t, key...), id); err != nil {
		s.t.Fatal(err)
	}
}

func keyOf(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// scan calls visit with each item of a container.
func (s *shop) scan(c *store.Container, visit func(body []byte)) {
	s.t.Helper()
	for _, p := range c.Partitions() {
		for scan := (store.Scan{ItemsMax: 1000, Barrier: true}); ; {
			r, err := c.Scan(s.t.Context(), p, scan)
			if err != nil {
				s.t.Fatal(err)
			}
			for i := range r.Items {
				visit(r.Items[i].Body)
			}
			if scan.After = r.Cursor; scan.After == nil {
				break
			}
		}
	}
}

// recount computes from the orders what each customer must say.
func recount(orders []member) map[string]said {
	slices.SortFunc(orders, func(a, b member) int { return cmp.Or(b.Day-a.Day, strings.Compare(a.ID, b.ID)) })
	all := map[string]said{}
	for _, o := range orders {
		s := all[o.Customer]
		s.Orders++
		s.Total += o.Cents
		s.Last = max(s.Last, o.Day)
		if len(s.Recent) < 2 {
			s.Recent = append(s.Recent, recent{o.ID, o.Day})
		}
		all[o.Customer] = s
	}
	return all
}

// state is what orders there are and what customers say.
func (s *shop) state() (orders []member, customers map[string]said) {
	s.t.Helper()
	customers = map[string]said{}
	visit := func(body []byte) {
		var m member
		if err := json.Unmarshal(body, &m); err != nil {
			s.t.Fatal(err)
		}
		switch m.Type {
		case "order":
			orders = append(orders, m)
		case "customer":
			var c said
			if err := json.Unmarshal(body, &c); err != nil {
				s.t.Fatal(err)
			}
			if len(c.Recent) == 0 {
				c.Recent = nil
			}
			customers[m.Customer] = c
		}
	}
	s.scan(s.cfg.Source, visit)
	if s.cfg.Target.Info().ID != s.cfg.Source.Info().ID {
		s.scan(s.cfg.Target, visit)
	}
	return orders, customers
}

// check compares what customers say with their orders. A customer without orders
// may be there or not.
func (s *shop) check(when string) {
	s.t.Helper()
	orders, customers := s.state()
	want := recount(orders)
	for id := range customers {
		if _, ok := want[id]; !ok {
			want[id] = said{}
		}
	}
	if diff := gocmp.Diff(want, customers); diff != "" {
		s.t.Errorf("%s, customers differ from their orders (-want +got):\n%s", when, diff)
	}
}

// changes counts the changes in the customers' logs behind some LSNs.
func (s *shop) changes(after map[feed.Partition]feed.LSN) (n int) {
	s.t.Helper()
	for _, p := range s.cfg.Target.Partitions() {
		for lsn := after[p] + 1; lsn <= s.End(p); lsn++ {
			c, err := s.Log(p).Read(s.t.Context(), lsn)
			if err != nil {
				s.t.Fatal(err)
			}
			n += c.ChangeCount()
		}
	}
	return n
}

func (s *shop) ends() map[feed.Partition]feed.LSN {
	s.t.Helper()
	ends := map[feed.Partition]feed.LSN{}
	for _, p := range s.cfg.Target.Partitions() {
		ends[p] = s.End(p)
	}
	return ends
}

// hammer writes orders of a few customers until stop is closed: creates, replaces,
// moves between customers, patches, deletes, batches, expiries, and customers that
// go and come. The returned function waits.
func (s *shop) hammer(writers int, seed uint64, stop <-chan struct{}) (wait func()) {
	var wg sync.WaitGroup
	for n := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.write(rng, n); err != nil {
					s.t.Errorf("writer %d: %v", n, err)
					return
				}
			}
		})
	}
	return wg.Wait
}

// write does one thing to the orders of one writer.
func (s *shop) write(rng *rand.Rand, writer int) error {
	ctx := context.Background()
	c := fmt.Sprint("c", rng.IntN(5))
	// No id begins with another: of two orders of one day the encoded keys decide, in which the longer
	// one would come first.
	o := order(fmt.Sprintf("o%d-%02d", writer, rng.IntN(12)), c, 1+rng.IntN(30), rng.IntN(10_000))
	key := func(m member) feed.PartitionKey {
		k, _ := s.cfg.Source.KeyOf(fmt.Appendf(nil, `{"id":%q,"customerId":%q}`, m.ID, m.Customer))
		return k
	}
	switch rng.IntN(10) {
	case 0:
		o.TTL = 1
		return put(ctx, s.cfg.Source, o)
	case 1, 2:
		return missing(s.cfg.Source.Delete(ctx, key(o), o.ID))
	case 3:
		body, err := json.Marshal(order(o.ID, c, 7, 7))
		if err != nil {
			return err
		}
		_, err = s.cfg.Source.Batch(ctx, key(o), []store.Operation{
			{Kind: store.OpUpsert, Body: body}, {Kind: store.OpDelete, ID: o.ID}, {Kind: store.OpUpsert, Body: body},
		}, "")
		return err
	case 4:
		return missing(s.cfg.Target.Delete(ctx, keyOf(s.t, c), c))
	case 5:
		return put(ctx, s.cfg.Target, map[string]any{"id": c, "customerId": c, "type": "customer", "orders": 99, "total": -1})
	}
	return put(ctx, s.cfg.Source, o)
}

func missing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// settle waits until what expires has expired, and puts a customer for each group:
// one that was deleted stays away until its group changes.
func (s *shop) settle(workers ...*storetest.Worker) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		there, shown := 0, 0
		for _, p := range s.cfg.Source.Partitions() {
			n, err := s.cfg.Source.Count(s.t.Context(), p, store.Scope{})
			if err != nil {
				s.t.Fatal(err)
			}
			there += n
		}
		mortal := false
		s.scan(s.cfg.Source, func(body []byte) {
			shown++
			mortal = mortal || strings.Contains(string(body), `"ttl":`)
		})
		return poll.Unless(there == shown && !mortal, fmt.Sprintf("%d items, %d shown", there, shown))
	})
	s.Quiet(workers...)
	for n := range 5 {
		c := fmt.Sprint("c", n)
		s.put(s.cfg.Target, map[string]any{"id": c, "customerId": c, "type": "customer"})
	}
	s.Quiet(workers...)
}

// written waits until clients have made n more commits: so much has happened.
func (s *shop) written(n int) {
	s.t.Helper()
	total := func() (commits int) {
		for _, p := range s.cfg.Source.Partitions() {
			commits += int(s.End(p))
		}
		return commits
	}
	enough := total() + n
	poll.Until(s.t, func() error { return poll.Unless(total() >= enough, "clients write nothing") })
}

// recorded waits until every partition has recorded how far its sources were read.
func (s *shop) recorded(k *storetest.Worker) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		for _, l := range k.Leases {
			if cp := s.checkpoint(l.Resource); cp.Recorded != cp.Position || cp.Position.LSN < s.End(l.Resource.Partition) {
				return fmt.Errorf("%s: recorded %s, at %s", l.Resource, cp.Recorded, cp.Position)
			}
		}
		return nil
	})
}
