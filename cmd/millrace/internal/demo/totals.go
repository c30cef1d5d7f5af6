package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

// total is the sum of a customer's orders.
type total struct {
	count  int
	worth  *big.Rat
	newest string // date
}

// order is the part of an order's JSON that totals are made of.
type order struct {
	CustomerID string `json:"customerId"`
	OrderDate  string `json:"orderDate"`
	Details    []struct {
		Price    json.Number `json:"price"`
		Quantity json.Number `json:"quantity"`
	} `json:"details"`
}

// customer is the part of a customer's JSON that names it, and the fields of its total.
type customer struct {
	ID            string      `json:"id"`
	Type          string      `json:"type"`
	CustomerID    string      `json:"customerId"`
	FirstName     string      `json:"firstName"`
	LastName      string      `json:"lastName"`
	Orders        int         `json:"salesOrderCount"`
	LifetimeValue json.Number `json:"lifetimeValue"`
	LastOrderDate string      `json:"lastOrderDate"`
}

// addUp returns the total of every customer who has orders.
func (s *shop) addUp() (map[string]*total, error) {
	totals := map[string]*total{}
	for _, it := range s.orders {
		var o order
		if err := json.Unmarshal(it.body, &o); err != nil {
			return nil, fmt.Errorf("order %s: %w", it.id, err)
		}
		t := totals[o.CustomerID]
		if t == nil {
			t = &total{worth: new(big.Rat)}
			totals[o.CustomerID] = t
		}
		t.count++
		// Dates of one form are ordered as texts are.
		t.newest = max(t.newest, o.OrderDate)
		for _, line := range o.Details {
			// Fractions, not doubles: the fields are to be right to the cent, and a sum of doubles is not.
			price, ok := new(big.Rat).SetString(line.Price.String())
			quantity, ok2 := new(big.Rat).SetString(line.Quantity.String())
			if !ok || !ok2 {
				return nil, fmt.Errorf("order %s: a line costs %q times %q", it.id, line.Price, line.Quantity)
			}
			t.worth.Add(t.worth, price.Mul(price, quantity))
		}
	}
	return totals, nil
}

// totals compares the fields of all customers with their orders, added up again,
// and shows what categories sold.
func (d *demo) totals(ctx context.Context) error {
	began := time.Now()
	want, err := d.shop.addUp()
	if err != nil {
		return err
	}
	var best customer
	checked := 0
	err = d.each(ctx, d.customers, func(_ string, body []byte) error {
		var c customer
		if err := json.Unmarshal(body, &c); err != nil {
			return err
		}
		// Orders are in the container too.
		if c.Type != "customer" {
			return nil
		}
		checked++
		if c.Orders > best.Orders {
			best = c
		}
		// nil for one without orders, which compare takes for a total of nothing.
		return want[c.CustomerID].compare(&c)
	})
	if err != nil {
		return err
	}
	d.report.Totals = checked
	d.cfg.Screen.Step("Totals", format.Count(checked)+" customers, each with the count, the worth and the date of its orders to the cent, as added up here", time.Since(began))
	lines := []string{fmt.Sprintf("  customer %s %s: %d orders worth %s, the last on %s",
		best.FirstName, best.LastName, best.Orders, best.LifetimeValue, day(best.LastOrderDate))}
	sales, err := d.sales(ctx)
	if err != nil {
		return err
	}
	d.cfg.Screen.Say(append(append([]string{""}, append(lines, sales...)...), "")...)
	return nil
}

// compare says how the fields of a customer differ from t; nil is a customer without
// orders.
func (t *total) compare(c *customer) error {
	if t == nil {
		t = &total{worth: new(big.Rat)}
	}
	worth, ok := new(big.Rat).SetString(cmp.Or(c.LifetimeValue.String(), "missing"))
	switch {
	case c.Orders != t.count:
		return fmt.Errorf("customer %s counts %d orders, there are %d", c.ID, c.Orders, t.count)
	case !ok || worth.Cmp(t.worth) != 0:
		return fmt.Errorf("customer %s has orders worth %q, they come to %s", c.ID, c.LifetimeValue, t.worth.FloatString(4))
	case c.LastOrderDate != t.newest:
		return fmt.Errorf("customer %s ordered last on %q, the newest order is of %q", c.ID, c.LastOrderDate, t.newest)
	}
	return nil
}

// day is the date of a timestamp.
func day(timestamp string) string {
	if len(timestamp) >= len("2006-01-02") {
		return timestamp[:len("2006-01-02")]
	}
	return timestamp
}

// salesRows is how many categories are shown.
const salesRows = 3

// sales tells which categories sold most.
func (d *demo) sales(ctx context.Context) ([]string, error) {
	key, err := feed.NewPartitionKey("category")
	if err != nil {
		return nil, err
	}
	type category struct {
		Name  string      `json:"name"`
		Sales json.Number `json:"sales"`
		Units json.Number `json:"unitsSold"`
		value float64
	}
	var all []category
	request := store.Scan{Scope: store.Scope{Key: key}, ItemsMax: 1000}
	for {
		page, err := d.meta.Scan(ctx, d.meta.PartitionFor(key), request)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			var c category
			if err := json.Unmarshal(page.Items[i].Body, &c); err != nil {
				return nil, err
			}
			c.value, _ = c.Sales.Float64() // one without sales comes last
			all = append(all, c)
		}
		if request.After = page.Cursor; request.After == nil {
			break
		}
	}
	slices.SortFunc(all, func(a, b category) int { return cmp.Compare(b.value, a.value) })
	var lines []string
	for _, c := range all[:min(salesRows, len(all))] {
		lines = append(lines, fmt.Sprintf("  category %-34q sold %s units for %s", c.Name, c.Units, c.Sales))
	}
	return lines, nil
}

// each calls f with the id and the body of every item of a container.
func (d *demo) each(ctx context.Context, c *store.Container, f func(id string, body []byte) error) error {
	for _, partition := range c.Partitions() {
		request := store.Scan{ItemsMax: 1000}
		for {
			page, err := c.Scan(ctx, partition, request)
			if err != nil {
				return err
			}
			for i := range page.Items {
				if err := f(page.Items[i].ID, page.Items[i].Body); err != nil {
					return err
				}
			}
			if request.After = page.Cursor; request.After == nil {
				break
			}
		}
	}
	return nil
}
