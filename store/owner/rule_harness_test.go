package owner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// totals is the aggregate of the store: what customers say of their orders.
func totals() accumulator.Spec {
	return accumulator.Spec{
		SourceWhere: `type = "salesOrder"`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
		TargetWhere: `type = "customer"`,
		Set: []accumulator.Field{
			{Path: "lastOrderDate", Func: accumulator.Max, Expr: "orderDate"},
			{Path: "lifetimeValue", Func: accumulator.Sum, Expr: "price * quantity", Each: "details"},
			{Path: "recentOrders", Func: accumulator.Latest, N: 3, By: "orderDate", Fields: []string{"id", "orderDate"}},
			{Path: "salesOrderCount", Func: accumulator.Count},
		},
	}
}

// byID is totals with a target whose id is known, and made if it is missing.
func byID() accumulator.Spec {
	s := totals()
	s.Match = append(s.Match, accumulator.Pair{Target: "id", Source: "customerId"})
	s.Create = true
	return s
}

const rulePipeline = "customer-totals"

// ruled returns a wish for one rule.
func ruled(spec accumulator.Spec, source, published bool) store.RuleWish {
	return store.RuleWish{Pipeline: rulePipeline, Generation: 1, Spec: spec, Source: source, Published: published}
}

// shop is a partition of customers and their orders.
type shop struct {
	*node
	t *testing.T
}

var byCustomer = store.ContainerSpec{PartitionKey: []string{"/customerId"}, TTL: -1}

// newShop starts a partition with a rule.
func newShop(t *testing.T, wishes ...store.RuleWish) *shop {
	t.Helper()
	w := newWorld(t, byCustomer)
	s := &shop{w.start(t.TempDir()), t}
	s.wish(wishes...)
	return s
}

// wish puts rules in force.
func (s *shop) wish(wishes ...store.RuleWish) {
	s.t.Helper()
	s.w.info.Rules = wishes
	if err := s.reconcileSettings(s.t.Context(), &s.w.info); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) key(customer string) feed.PartitionKey {
	s.t.Helper()
	return pk(s.t, customer)
}

func customer(id string) string {
	return fmt.Sprintf(`{"id":%q,"customerId":%q,"type":"customer","name":"N"}`, id, id)
}

// order is an order on a day with lines that each cost so many cents.
func order(id, customer string, day int, cents ...int) string {
	lines := make([]string, len(cents))
	for i, c := range cents {
		lines[i] = fmt.Sprintf(`{"sku":"s%d","price":%d.%02d,"quantity":1}`, i, c/100, c%100)
	}
	return fmt.Sprintf(`{"id":%q,"customerId":%q,"type":"salesOrder","orderDate":"2024-01-%02d","details":[%s]}`,
		id, customer, day, strings.Join(lines, ","))
}

func remove(id string) store.Operation { return store.Operation{Kind: store.OpDelete, ID: id} }

// do runs one operation on an item of a customer.
func (s *shop) do(customer string, op store.Operation) {
	s.t.Helper()
	s.mustOne(s.key(customer), op)
}

type line struct {
	Price    json.Number `json:"price"`
	Quantity int         `json:"quantity"`
}

type recentOrder struct {
	ID        string `json:"id"`
	OrderDate string `json:"orderDate,omitempty"`
}

// shopItem is a customer or an order.
type shopItem struct {
	ID            string        `json:"id"`
	CustomerID    string        `json:"customerId"`
	Type          string        `json:"type"`
	OrderDate     string        `json:"orderDate,omitempty"`
	Details       []line        `json:"details,omitempty"`
	Count         *int          `json:"salesOrderCount,omitempty"`
	Value         json.Number   `json:"lifetimeValue,omitempty"`
	LastOrderDate string        `json:"lastOrderDate,omitempty"`
	Recent        []recentOrder `json:"recentOrders,omitempty"`
}

// fields are those of a customer that the rule sets.
type fields struct {
	Count  int
	Cents  int
	Last   string
	Recent []recentOrder
}

func cents(n json.Number) int {
	whole, part, _ := strings.Cut(n.String(), ".")
	negative := strings.HasPrefix(whole, "-")
	part = (part + "00")[:2]
	var w, p int
	_, _ = fmt.Sscan(strings.TrimPrefix(whole, "-"), &w)
	_, _ = fmt.Sscan(strings.TrimLeft(part, "0")+"", &p)
	if negative {
		return -(100*w + p)
	}
	return 100*w + p
}

// scan returns all items in one consistent view.
func (s *shop) scan(scope store.Scope) []shopItem {
	s.t.Helper()
	r := s.ask(&store.Request{Scan: &store.Scan{Scope: scope, ItemsMax: 1000}})
	if r.Err != nil || r.Scan.Cursor != nil {
		s.t.Fatalf("scan: %v", r.Err)
	}
	items := make([]shopItem, len(r.Scan.Items))
	for i := range items {
		if err := json.Unmarshal(r.Scan.Items[i].Body, &items[i]); err != nil {
			s.t.Fatal(err)
		}
	}
	return items
}

// recount computes from orders what their customers must say.
func recount(items []shopItem) map[string]fields {
	orders := map[string][]shopItem{}
	for _, item := range items {
		if item.Type == "salesOrder" {
			orders[item.CustomerID] = append(orders[item.CustomerID], item)
		}
	}
	all := map[string]fields{}
	for id, own := range orders {
		f := fields{Count: len(own)}
		var dated []shopItem
		for _, o := range own {
			for _, l := range o.Details {
				f.Cents += cents(l.Price) * l.Quantity
			}
			f.Last = max(f.Last, o.OrderDate)
			if o.OrderDate != "" {
				dated = append(dated, o)
			}
		}
		slices.SortFunc(dated, func(a, b shopItem) int {
			return cmp.Or(-strings.Compare(a.OrderDate, b.OrderDate), strings.Compare(a.ID, b.ID))
		})
		for _, o := range dated[:min(len(dated), 3)] {
			f.Recent = append(f.Recent, recentOrder{o.ID, o.OrderDate})
		}
		all[id] = f
	}
	return all
}

// said is what a customer says.
func said(c *shopItem) fields {
	f := fields{Cents: cents(c.Value), Last: c.LastOrderDate, Recent: c.Recent}
	if len(f.Recent) == 0 {
		f.Recent = nil
	}
	if c.Count != nil {
		f.Count = *c.Count
	} else {
		f.Count = -1 // there is no such field
	}
	return f
}

// check compares every customer with a recount, and returns the differences.
func differences(items []shopItem) string {
	want, got := map[string]fields{}, map[string]fields{}
	counted := recount(items)
	for i := range items {
		if items[i].Type == "customer" {
			id := items[i].CustomerID + "/" + items[i].ID
			want[id], got[id] = counted[items[i].CustomerID], said(&items[i])
		}
	}
	return gocmp.Diff(want, got)
}

func (s *shop) check(when string) {
	s.t.Helper()
	if diff := differences(s.scan(store.Scope{})); diff != "" {
		s.t.Errorf("%s, customers differ from their orders (-want +got):\n%s", when, diff)
	}
}

// restart stops the partition and opens it again, on a new engine if dir is.
func (s *shop) restart(dir string) {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.node = s.w.start(dir)
}

// rebuilt compares the engine with one that is built from the log alone.
func (s *shop) rebuilt() {
	s.t.Helper()
	lsn := s.state.Load().lsn
	want, err := s.engine.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.state.Load().lsn != lsn {
		s.t.Fatal("the partition is not at rest")
	}
	if got := s.w.openAt(s.t.TempDir(), lsn); got != want {
		s.t.Errorf("digest of an engine rebuilt from the log is %x, of the other %x", got, want)
	}
}

// random does steps of everything that clients do to customers and orders.
func (s *shop) random(rng *rand.Rand, steps int) {
	s.t.Helper()
	for range steps {
		c := fmt.Sprint("c", rng.IntN(4))
		id := fmt.Sprint("o", rng.IntN(12))
		var ops []store.Operation
		for range 1 + rng.IntN(3) {
			ops = append(ops, s.operation(rng, c, id))
			id = fmt.Sprint("o", rng.IntN(12))
		}
		if _, err := s.batch(s.key(c), ops...); err != nil {
			s.t.Fatal(err)
		}
		s.w.clock.Add(int64(rng.IntN(300)))
	}
}

func (s *shop) operation(rng *rand.Rand, c, id string) store.Operation {
	amounts := make([]int, rng.IntN(4))
	for i := range amounts {
		amounts[i] = rng.IntN(1_000_00)
	}
	body := order(id, c, 1+rng.IntN(9), amounts...)
	switch rng.IntN(12) {
	case 0, 1, 2:
		return upsert(body)
	case 3:
		return upsert(strings.Replace(body, "{", `{"ttl":1,`, 1))
	case 4:
		return upsert(strings.Replace(body, "salesOrder", "draft", 1))
	case 5, 6:
		return remove(id)
	case 7:
		return patch(id, set("/orderDate", fmt.Sprintf(`"2024-01-%02d"`, 1+rng.IntN(9))))
	case 8:
		return patch(id, set("/type", fmt.Sprintf("%q", []string{"draft", "salesOrder"}[rng.IntN(2)])))
	case 9:
		return remove(c)
	case 10:
		return patch(c, set("/salesOrderCount", fmt.Sprint(rng.IntN(9))), document.Op{Kind: "set", Path: "/name", Value: []byte(`"M"`)})
	}
	return upsert(strings.Replace(customer(c), "{", fmt.Sprintf(`{"salesOrderCount":%d,`, rng.IntN(9)), 1))
}

// expired waits until the clock has passed every time to live and the deletes are
// in the log.
func (s *shop) expired() {
	s.t.Helper()
	s.w.clock.Add(5000)
	deadline := time.Now().Add(time.Minute)
	for {
		left := 0
		for _, item := range s.scanAll() {
			if _, ok := item["ttl"]; ok {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d items do not expire", left)
		}
	}
}

// scanAll reads what the engine holds, expired or not.
func (s *shop) scanAll() []map[string]any {
	s.t.Helper()
	snap := s.engine.Snapshot()
	defer snap.Close()
	var all []map[string]any
	for v, err := range snap.Items(nil, nil) {
		if err != nil {
			s.t.Fatal(err)
		}
		var item map[string]any
		if err := json.Unmarshal(v.Body, &item); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, item)
	}
	return all
}

// folds are the transactions of the log that have a fold of the rule.
func (s *shop) folds() (n int) {
	s.t.Helper()
	for _, c := range s.w.commits() {
		for i := range c.Transactions {
			if slices.ContainsFunc(c.Transactions[i].Folds, func(f feed.Fold) bool { return f.Pipeline == rulePipeline }) {
				n++
			}
		}
	}
	return n
}
