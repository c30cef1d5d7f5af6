package dataset_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/bench/dataset"
)

func set(t *testing.T, products int, one bool) *dataset.Set {
	t.Helper()
	s, err := dataset.New(dataset.Config{Seed: 1, Products: products, OneCategory: one})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryProductIsInTheCategoryThatListsIt(t *testing.T) {
	for _, one := range []bool{false, true} {
		s := set(t, 12_345, one)
		seen := make([]int, s.Products())
		for c := range s.Categories() {
			n := 0
			for p := range s.InCategory(c) {
				if got := s.CategoryOf(p); got != c {
					t.Fatalf("product %d is listed in category %d and says %d", p, c, got)
				}
				seen[p]++
				n++
			}
			if i := c - s.Singles(); i >= 0 && i < len(s.Sizes()) && n != s.Sizes()[i] {
				t.Errorf("category %d has %d products, want %d", c, n, s.Sizes()[i])
			}
		}
		if i := slices.IndexFunc(seen, func(n int) bool { return n != 1 }); i >= 0 {
			t.Errorf("product %d is listed %d times", i, seen[i])
		}
	}
}

func TestSizesAreATenthAHundredthAndSoOn(t *testing.T) {
	for products, want := range map[int][]int{1_000_000: {1000, 10_000, 100_000}, 10_000: {100, 1000}, 1000: {10, 100}} {
		if diff := cmp.Diff(want, set(t, products, false).Sizes()); diff != "" {
			t.Errorf("%d products: %s", products, diff)
		}
	}
	if diff := cmp.Diff([]int{5000}, set(t, 5000, true).Sizes()); diff != "" {
		t.Error(diff)
	}
}

func TestProductIsJSONOfOneKiB(t *testing.T) {
	s := set(t, 1000, false)
	hot := 0
	for p := range s.Products() {
		data := s.AppendProduct(nil, p)
		if len(data) != dataset.ItemBytes {
			t.Fatalf("product %d has %d bytes", p, len(data))
		}
		var item struct {
			ID, CategoryID, CategoryName string
			Tags                         []struct{ ID, Name string }
		}
		if err := json.Unmarshal(data, &item); err != nil {
			t.Fatal(err)
		}
		if want := s.Category(s.CategoryOf(p), 0); item.CategoryID != want.ID || item.CategoryName != want.Name {
			t.Fatalf("product %d copies %q of %q, want %q", p, item.CategoryName, item.CategoryID, want.Name)
		}
		if item.Tags[0].ID == s.Tag(0, 0).ID {
			hot++
		}
		if item.Tags[0].ID == item.Tags[1].ID {
			t.Fatalf("product %d has a tag twice", p)
		}
	}
	if hot != s.HotTagProducts() {
		t.Errorf("%d products have the hot tag, want %d", hot, s.HotTagProducts())
	}
}

func TestColdProductsAreNeverRenamed(t *testing.T) {
	s := set(t, 2000, false)
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		p := s.Cold(r)
		if s.HasHotTag(p) || s.CategoryOf(p) < s.Singles()+len(s.Sizes()) {
			t.Fatalf("product %d is not left alone", p)
		}
	}
}

func TestShopIsJSON(t *testing.T) {
	s := dataset.NewShop(1, 100)
	for c := range s.Customers() {
		var customer struct{ ID, Type, CustomerID string }
		body := s.AppendCustomer(nil, c)
		if err := json.Unmarshal(body, &customer); err != nil {
			t.Fatalf("customer %d: %v: %s", c, err, body)
		}
		if id := s.CustomerID(c); len(body) != dataset.CustomerBytes || customer.ID != id || customer.CustomerID != id || customer.Type != "customer" {
			t.Errorf("customer %d has %d bytes: %s", c, len(body), body)
		}
	}
	ids := map[string]bool{}
	for n := range 1000 {
		o := s.Order(s.Drawn(n), n)
		ids[o.ID] = true
		var order struct {
			ID, Type, CustomerID string
			Details              []struct {
				SKU, Name string
				Price     json.Number
				Quantity  int64
			}
		}
		body := o.AppendJSON(nil)
		if err := json.Unmarshal(body, &order); err != nil {
			t.Fatalf("order %d: %v: %s", n, err, body)
		}
		if order.ID != o.ID || order.CustomerID != o.CustomerID || order.Type != "salesOrder" || len(order.Details) != dataset.OrderLines {
			t.Errorf("order %d: %s", n, body)
		}
		if len(body) < 550 || len(body) > 600 {
			t.Fatalf("order %d has %d bytes", n, len(body))
		}
		for i, d := range order.Details {
			want := o.Lines[i]
			if price := fmt.Sprintf("%d.%02d", want.Cents/100, want.Cents%100); d.SKU != want.SKU || d.Name != want.Name || d.Quantity != want.Quantity || d.Price.String() != price {
				t.Errorf("order %d, line %d: %+v, want %+v", n, i, d, want)
			}
		}
	}
	if len(ids) != 1000 {
		t.Errorf("1000 orders have %d ids", len(ids))
	}
}
