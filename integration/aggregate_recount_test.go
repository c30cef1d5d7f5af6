package integration_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

type mallLine struct {
	Category string      `json:"category"`
	Price    json.Number `json:"price"`
	Quantity int64       `json:"quantity"`
}

// mallOrder is an order, or the draft of one.
type mallOrder struct {
	ID         string     `json:"id"`
	CustomerID string     `json:"customerId"`
	Type       string     `json:"type"`
	Day        *int       `json:"day,omitempty"`
	Details    []mallLine `json:"details"`
	TTL        int        `json:"ttl,omitempty"`
}

type recentOrder struct {
	ID    string      `json:"id"`
	Day   int         `json:"day,omitempty"`
	Price json.Number `json:"price,omitempty"`
}

type recentLine struct {
	Item  struct{ ID string } `json:"item"`
	ID    string              `json:"id"`
	Price json.Number         `json:"price"`
}

type orderTotals struct {
	Average json.Number   `json:"average"`
	First   *int          `json:"first"`
	Last    *int          `json:"last"`
	Orders  json.Number   `json:"orders"`
	Recent  []recentOrder `json:"recent"`
	Value   json.Number   `json:"value"`
}

type mallCustomer struct {
	ID         string      `json:"id"`
	CustomerID string      `json:"customerId"`
	Type       string      `json:"type"`
	Region     string      `json:"region"`
	Totals     orderTotals `json:"totals"`
}

type mallCategory struct {
	ID      string       `json:"id"`
	Bulk    json.Number  `json:"bulk"`
	Dearest json.Number  `json:"dearest"`
	Lines   json.Number  `json:"lines"`
	Recent  []recentLine `json:"recent"`
	Sales   json.Number  `json:"sales"`
}

type mallRegion struct {
	ID        string      `json:"id"`
	Area      string      `json:"area"`
	Customers json.Number `json:"customers"`
	Orders    json.Number `json:"orders"`
}

// rational is a number of JSON, and of a field that is absent: "none".
func rational(n json.Number) string {
	if n == "" {
		return "none"
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return "no number: " + n.String()
	}
	return r.RatString()
}

// rounded compares averages, which are rounded to 17 digits.
func rounded(n json.Number, want *big.Rat) string {
	if want == nil || n == "" {
		return fmt.Sprintf("average %q, wanted: %v", n, want != nil)
	}
	got, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return "no number: " + n.String()
	}
	off := new(big.Rat).Sub(got, want)
	limit := new(big.Rat).Mul(want, big.NewRat(1, 1e16))
	if off.Abs(off).Cmp(limit.Abs(limit)) > 0 {
		return fmt.Sprintf("average %s, want %s", n, want.FloatString(20))
	}
	return ""
}

func number(n int) json.Number { return json.Number(fmt.Sprint(n)) }

func (l *mallLine) value() *big.Rat {
	price, _ := new(big.Rat).SetString(l.Price.String())
	return price.Mul(price, big.NewRat(l.Quantity, 1))
}

// recount is what everybody must say, computed from the items alone.
type recount struct {
	t      testing.TB
	orders map[string][]mallOrder // by customer
}

func (r *recount) customer(c *mallCustomer) string {
	own := slices.Clone(r.orders[c.CustomerID])
	slices.SortFunc(own, func(a, b mallOrder) int { return strings.Compare(a.ID, b.ID) })
	value, lines := new(big.Rat), int64(0)
	var first, last *int
	var dated []mallOrder
	for i := range own {
		for j := range own[i].Details {
			value.Add(value, own[i].Details[j].value())
			lines++
		}
		day := own[i].Day
		if day == nil {
			continue
		}
		dated = append(dated, own[i])
		if first == nil || *day < *first {
			first = day
		}
		if last == nil || *day > *last {
			last = day
		}
	}
	slices.SortStableFunc(dated, func(a, b mallOrder) int { return *b.Day - *a.Day })
	recent := []recentOrder{}
	for _, o := range dated[:min(3, len(dated))] {
		recent = append(recent, recentOrder{ID: o.ID, Day: *o.Day})
	}
	var average *big.Rat
	if lines > 0 {
		average = new(big.Rat).Quo(value, big.NewRat(lines, 1))
	}
	type said struct {
		Orders, Value string
		First, Last   *int
		Recent        []recentOrder
	}
	want := said{fmt.Sprint(len(own)), value.RatString(), first, last, recent}
	got := said{rational(c.Totals.Orders), rational(c.Totals.Value), c.Totals.First, c.Totals.Last, c.Totals.Recent}
	diff := gocmp.Diff(want, got)
	if average != nil || c.Totals.Average != "" {
		diff += rounded(c.Totals.Average, average)
	}
	return diff
}

func (r *recount) category(c *mallCategory) string {
	type line struct {
		mallLine
		order *mallOrder
		by    int
	}
	var lines, dated []line
	for customer := range r.orders {
		for i := range r.orders[customer] {
			o := &r.orders[customer][i]
			for j, l := range o.Details {
				if l.Category != c.ID {
					continue
				}
				lines = append(lines, line{l, o, 0})
				if o.Day != nil {
					dated = append(dated, line{l, o, *o.Day*100 + j})
				}
			}
		}
	}
	slices.SortFunc(dated, func(a, b line) int {
		return cmp.Or(b.by-a.by, strings.Compare(keyOf(r.t, a.order.CustomerID).Encoded(), keyOf(r.t, b.order.CustomerID).Encoded()),
			strings.Compare(a.order.ID, b.order.ID))
	})
	sales, bulk := new(big.Rat), 0
	var dearest *big.Rat
	for i := range lines {
		sales.Add(sales, lines[i].value())
		if lines[i].Quantity > 1 {
			bulk++
		}
		if price, _ := new(big.Rat).SetString(lines[i].Price.String()); dearest == nil || price.Cmp(dearest) > 0 {
			dearest = price
		}
	}
	type said struct {
		Bulk, Dearest, Lines, Sales string
		Recent                      []string
	}
	want := said{Bulk: fmt.Sprint(bulk), Dearest: "none", Lines: fmt.Sprint(len(lines)), Sales: sales.RatString()}
	if dearest != nil {
		want.Dearest = dearest.RatString()
	}
	for _, l := range dated[:min(2, len(dated))] {
		want.Recent = append(want.Recent, l.order.ID+" "+rational(l.Price))
	}
	got := said{rational(c.Bulk), rational(c.Dearest), rational(c.Lines), rational(c.Sales), nil}
	for _, l := range c.Recent {
		got.Recent = append(got.Recent, l.ID+l.Item.ID+" "+rational(l.Price))
	}
	return gocmp.Diff(want, got)
}

// compare compares, at rest, everybody with a recount.
func (m *mall) compare() {
	t := m.t
	t.Helper()
	r := &recount{t: t, orders: map[string][]mallOrder{}}
	for _, o := range scanAll[mallOrder](t, m.customer) {
		if o.Type == "order" {
			r.orders[o.CustomerID] = append(r.orders[o.CustomerID], o)
		}
	}
	regions := map[string][2]int{} // customers, orders
	customers := 0
	for _, c := range scanAll[mallCustomer](t, m.customer) {
		if c.Type != "customer" {
			continue
		}
		customers++
		if diff := r.customer(&c); diff != "" {
			t.Errorf("customer %s differs from its orders (-want +got):\n%s", c.CustomerID, diff)
		}
		if c.Region != "" {
			n := regions[c.Region]
			regions[c.Region] = [2]int{n[0] + 1, n[1] + len(r.orders[c.CustomerID])}
		}
	}
	categories := map[string]bool{}
	for _, c := range scanAll[mallCategory](t, m.category) {
		categories[c.ID] = true
		if diff := r.category(&c); diff != "" {
			t.Errorf("category %s differs from its lines (-want +got):\n%s", c.ID, diff)
		}
	}
	for customer := range r.orders {
		for _, o := range r.orders[customer] {
			for _, l := range o.Details {
				if l.Category != "" && !categories[l.Category] {
					t.Errorf("category %s was not made, for order %s", l.Category, o.ID)
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, g := range scanAll[mallRegion](t, m.region) {
		seen[g.ID] = true
		if want := regions[g.ID]; rational(g.Customers) != fmt.Sprint(want[0]) || rational(g.Orders) != fmt.Sprint(want[1]) {
			t.Errorf("region %s says %s customers and %s orders, want %d and %d", g.ID, g.Customers, g.Orders, want[0], want[1])
		}
	}
	for id := range regions {
		if !seen[id] {
			t.Errorf("region %s was not made", id)
		}
	}
	for _, cfg := range m.configs {
		if deadLetters, err := m.DeadLetters.List(t.Context(), cfg.Pipeline, 1); err != nil || len(deadLetters) > 0 {
			t.Errorf("dead letters: %+v, %v", deadLetters, err)
		}
	}
	if customers == 0 || len(categories) == 0 || len(seen) == 0 {
		t.Errorf("%d customers, %d categories and %d regions were compared", customers, len(categories), len(seen))
	}
}

// settled waits until everything that is to expire has expired.
func (m *mall) settled() {
	m.t.Helper()
	poll.Until(m.t, func() error {
		there, mortal := 0, 0
		for _, p := range m.customer.Partitions() {
			n, err := m.customer.Count(m.t.Context(), p, store.Scope{})
			if err != nil {
				m.t.Fatal(err)
			}
			there += n
		}
		shown := scanAll[mallOrder](m.t, m.customer)
		for i := range shown {
			if shown[i].TTL > 0 {
				mortal++
			}
		}
		return poll.Unless(there == len(shown) && mortal == 0, fmt.Sprintf("%d items, %d shown, %d of them mortal", there, len(shown), mortal))
	})
}
