package webstore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/millrace/webstore"
)

func TestStore_EqualSeedsGiveEqualStores(t *testing.T) {
	digest := func(seed uint64) string {
		s := webstore.New(webstore.Config{Seed: seed, Customers: 50})
		sum := sha256.New()
		for c := 1; c <= s.Config().Categories; c++ {
			sum.Write(webstore.JSON(s.Category(c, nil)))
		}
		for p := 1; p <= s.Config().Products; p++ {
			sum.Write(webstore.JSON(s.Product(p, nil)))
		}
		for c := 1; c <= s.Config().Customers; c++ {
			sum.Write(webstore.JSON(s.Customer(c)))
			sum.Write(webstore.JSON(s.Orders(c)))
		}
		return hex.EncodeToString(sum.Sum(nil)[:8])
	}
	// A store of an earlier release must come out alike: its runs are compared
	// with later ones.
	const golden = "a96e519c139a6ebd"
	if got := digest(1); got != golden {
		t.Errorf("the store of seed 1 has digest %s, want %s", got, golden)
	}
	if digest(2) == golden {
		t.Error("seeds 1 and 2 give the same store")
	}
}

func TestStore_SizesAreTheMeasuredOnes(t *testing.T) {
	s := webstore.New(webstore.Scale(7, 10))
	cfg := s.Config()
	means := map[string][]float64{}
	add := func(what string, n int) { means[what] = append(means[what], float64(n)) }
	for c := 1; c <= cfg.Categories; c++ {
		meta := s.Category(c, nil)
		add("category", len(webstore.JSON(meta)))
		if n := utf8.RuneCountInString(meta.Name); n < 14 || n > 30 {
			t.Errorf("category name %q has %d characters, want 14 to 30", meta.Name, n)
		}
	}
	for n := 1; n <= cfg.Tags; n++ {
		add("tag", len(webstore.JSON(s.Tag(n, nil))))
	}
	for p := 1; p <= cfg.Products; p++ {
		product := s.Product(p, nil)
		add("product", len(webstore.JSON(product)))
		add("tags of a product", len(product.Tags))
		if n := utf8.RuneCountInString(product.Name); n < 5 || n > 32 {
			t.Errorf("product name %q has %d characters, want 5 to 32", product.Name, n)
		}
		if product.Price < 200 || product.Price > 400_000 {
			t.Errorf("product %d costs %d cents", p, product.Price)
		}
	}
	for c := 1; c <= 20_000; c++ {
		customer := s.Customer(c)
		size := len(webstore.JSON(customer))
		add("customer", size)
		if most := 486 + 8 + 180*(len(customer.Addresses)-1); size < 486-8 || size > most {
			t.Errorf("customer %d has %d bytes, want 478 to %d", c, size, most)
		}
		if !customer.Shop {
			add("orders of a person", customer.SalesOrderCount)
		} else {
			add("orders of a shop", customer.SalesOrderCount)
		}
		for _, order := range s.Orders(c) {
			if customer.Shop {
				add("lines of a shop's order", len(order.Details))
			} else {
				add("lines of a person's order", len(order.Details))
				add("order of a person", len(webstore.JSON(order)))
			}
		}
	}
	for _, want := range []struct {
		what      string
		mean, off float64 // off: share by which the mean may differ
	}{
		{"tag", 74, 0.03},
		{"category", 93, 0.05},
		{"product", 433, 0.05},
		{"tags of a product", 2.6, 0.05},
		{"customer", 486, 0.005},
		{"orders of a person", 1.50, 0.03},
		{"orders of a shop", 5.98, 0.05},
		{"lines of a person's order", 2.18, 0.02},
		{"lines of a shop's order", 16.0, 0.07},
		{"order of a person", 361, 0.05},
	} {
		got := mean(means[want.what])
		t.Logf("%s: %.2f (measured %.2f)", want.what, got, want.mean)
		if math.Abs(got/want.mean-1) > want.off {
			t.Errorf("%s: mean %.2f, measured %.2f", want.what, got, want.mean)
		}
	}
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

func TestStore_EveryReferenceNamesSomething(t *testing.T) {
	s := webstore.New(webstore.Config{Seed: 3, Categories: 20, Tags: 30, Products: 200, Customers: 300})
	categories, tags, products, ids := map[string]string{}, map[string]string{}, map[string]string{}, map[string]bool{}
	see := func(id string) {
		if ids[id] {
			t.Errorf("id %s is there twice", id)
		}
		ids[id] = true
	}
	for c := 1; c <= 20; c++ {
		m := s.Category(c, nil)
		categories[m.ID] = m.Name
		see(m.ID)
	}
	for n := 1; n <= 30; n++ {
		m := s.Tag(n, nil)
		tags[m.ID] = m.Name
		see(m.ID)
	}
	used := map[string]int{}
	for n := 1; n <= 200; n++ {
		p := s.Product(n, nil)
		see(p.ID)
		used[p.CategoryID]++
		if products[p.SKU] != "" {
			t.Errorf("sku %s is there twice", p.SKU)
		}
		products[p.SKU] = p.Name
		if categories[p.CategoryID] != p.CategoryName {
			t.Errorf("product %d: category %q, copied as %q", n, categories[p.CategoryID], p.CategoryName)
		}
		seen := map[string]bool{}
		for _, tag := range p.Tags {
			if tags[tag.ID] != tag.Name || seen[tag.ID] {
				t.Errorf("product %d: tag %q, copied as %q", n, tags[tag.ID], tag.Name)
			}
			seen[tag.ID] = true
		}
	}
	if len(used) != 20 {
		t.Errorf("%d of 20 categories have a product", len(used))
	}
	for n := 1; n <= 300; n++ {
		c, orders := s.Customer(n), s.Orders(n)
		see(c.ID)
		if c.SalesOrderCount != len(orders) {
			t.Errorf("customer %d counts %d orders and has %d", n, c.SalesOrderCount, len(orders))
		}
		for _, o := range orders {
			see(o.ID)
			if o.CustomerID != c.ID || o.OrderDate < c.CreationDate || o.ShipDate < o.OrderDate || len(o.Details) == 0 {
				t.Errorf("customer %d: order %+v", n, o)
			}
			for i, line := range o.Details {
				again := slices.ContainsFunc(o.Details[:i], func(l webstore.Line) bool { return l.SKU == line.SKU })
				if products[line.SKU] != line.Name || again || line.Quantity < 1 || line.Price <= 0 {
					t.Errorf("customer %d: line %+v", n, line)
				}
			}
		}
	}
}

func TestStore_RenamesSayWhatCopiesMustBe(t *testing.T) {
	s := webstore.New(webstore.Config{Seed: 4})
	var names webstore.Names
	for n := 1; n <= 50; n++ {
		names.Apply(webstore.Rename{Number: s.Product(n, nil).Category})
		names.Apply(webstore.Rename{Tag: true, Number: n})
	}
	renamed := 0
	for n := 1; n <= s.Config().Products; n++ {
		before, after := s.Product(n, nil), s.Product(n, &names)
		want := s.Category(after.Category, &names)
		if after.CategoryName != want.Name {
			t.Errorf("product %d has category name %q, want %q", n, after.CategoryName, want.Name)
		}
		if before.CategoryName != after.CategoryName {
			renamed++
		}
		for i, tag := range after.Tags {
			if want := s.Tag(after.TagNumbers[i], &names); tag.Name != want.Name {
				t.Errorf("product %d has tag %q, want %q", n, tag.Name, want.Name)
			}
		}
		before.CategoryName, before.Tags = after.CategoryName, after.Tags
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("a rename changed more than copies of product %d:\n%s", n, diff)
		}
	}
	if renamed < 100 {
		t.Errorf("fifty renames of categories by weight reached only %d products", renamed)
	}
}

func TestStore_ArrivalsAreAllOrdersInOrderOfDate(t *testing.T) {
	s := webstore.New(webstore.Config{Seed: 5, Customers: 500})
	all := s.Arrivals(1, 500)
	orders := 0
	for c := 1; c <= 500; c++ {
		orders += len(s.Orders(c))
	}
	if len(all) != orders {
		t.Errorf("%d arrivals, want %d", len(all), orders)
	}
	for i, a := range all {
		if i > 0 && a.Day < all[i-1].Day {
			t.Fatalf("arrival %d on day %d comes after day %d", i, a.Day, all[i-1].Day)
		}
		if got := s.Orders(a.Customer)[a.Order].Day; got != a.Day {
			t.Errorf("arrival %+v is an order of day %d", a, got)
		}
	}
	// The last year holds three quarters of what was sold.
	late := 0
	for _, a := range all {
		if a.Day >= 762 { // 2013-07-01
			late++
		}
	}
	if share := float64(late) / float64(orders); share < 0.68 || share > 0.80 {
		t.Errorf("%.2f of the orders lie in the last year, measured 0.74", share)
	}
}

func TestMoney_HasNoZerosAtItsEnd(t *testing.T) {
	for cents, want := range map[webstore.Money]string{238407: "2384.07", 3500: "35", 2810: "28.1", 5: "0.05", 0: "0"} {
		if got, err := json.Marshal(cents); err != nil || string(got) != want {
			t.Errorf("%d cents are %s, %v; want %s", int64(cents), got, err, want)
		}
	}
}

func BenchmarkProduct(b *testing.B) {
	s := webstore.New(webstore.Scale(1, 100))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = n%s.Config().Products + 1
		b.SetBytes(int64(len(webstore.JSON(s.Product(n, nil)))))
	}
}
