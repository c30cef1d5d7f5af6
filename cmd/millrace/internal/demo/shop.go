package demo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/cmd/millrace/internal/ingest"
	"github.com/millrace/millrace/cmd/millrace/webstore"
)

// meta is a category or a tag, whose name products copy.
type meta struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"` // category or tag; the partition key

	revision int
	products int // that copy its name
}

// product is the part of a product's JSON that names it, and its copies.
type product struct {
	ID           string `json:"id"`
	CategoryID   string `json:"categoryId"`
	CategoryName string `json:"categoryName"`
	Name         string `json:"name"`
	Tags         []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"tags"`
}

// item is one item to write.
type item struct {
	container string
	id        string
	body      []byte
}

// shop is the data of a demo: the items that are loaded, and those that are written
// while names change.
type shop struct {
	from       string // where it comes from, for people
	metas      []*meta
	first      []item // what is loaded: everything but orders and the new products
	orders     []item
	new        []item // products that are written while names change
	products   int    // those in first and those in new
	customers  int
	categories int
	tags       int
}

// newEvery says which products are written while names change: each newEvery-th.
const newEvery = 10

// generated returns the shop that the generator makes.
func generated(cfg webstore.Config) (*shop, error) {
	s := webstore.New(cfg)
	cfg = s.Config()
	out := &shop{from: fmt.Sprintf("generated from seed %d", cfg.Seed)}
	for c := 1; c <= cfg.Categories; c++ {
		if err := out.add(webstore.ContainerProductMeta, webstore.JSON(s.Category(c, nil))); err != nil {
			return nil, err
		}
	}
	for t := 1; t <= cfg.Tags; t++ {
		if err := out.add(webstore.ContainerProductMeta, webstore.JSON(s.Tag(t, nil))); err != nil {
			return nil, err
		}
	}
	for p := 1; p <= cfg.Products; p++ {
		if err := out.add(webstore.ContainerProduct, webstore.JSON(s.Product(p, nil))); err != nil {
			return nil, err
		}
	}
	for c := 1; c <= cfg.Customers; c++ {
		if err := out.add(webstore.ContainerCustomer, webstore.JSON(s.Customer(c))); err != nil {
			return nil, err
		}
	}
	// Orders come in the order of their dates, so those of a customer are spread over all. They are
	// made at once, when the first of them is due.
	byCustomer := make([][]webstore.Order, cfg.Customers+1)
	for _, a := range s.Arrivals(1, cfg.Customers) {
		if byCustomer[a.Customer] == nil {
			byCustomer[a.Customer] = s.Orders(a.Customer)
		}
		if err := out.add(webstore.ContainerCustomer, webstore.JSON(byCustomer[a.Customer][a.Order])); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// files are those of a WebStore directory. Where a container has several names, the first
// file that is there is read.
var files = []struct {
	container string
	names     []string
}{
	{webstore.ContainerProductMeta, []string{"productMeta.json"}},
	{webstore.ContainerProduct, []string{"product.json"}},
	{webstore.ContainerCustomer, []string{"customer-full.ndjson.gz", "customer.json"}},
}

// fromDir returns the shop whose files lie in dir.
func fromDir(dir string) (*shop, error) {
	out := &shop{from: "from " + dir}
	for _, f := range files {
		name := ""
		for _, n := range f.names {
			if _, err := os.Stat(filepath.Join(dir, n)); err == nil {
				name = filepath.Join(dir, n)
				break
			} else if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if name == "" {
			return nil, fmt.Errorf("%s has no %s: %w; a WebStore has productMeta.json, product.json and customer.json",
				dir, f.names[len(f.names)-1], fs.ErrNotExist)
		}
		if err := out.read(name, f.container); err != nil {
			return nil, err
		}
	}
	if len(out.ofType("category")) == 0 || out.products == 0 {
		return nil, fmt.Errorf("%s has no category or no product; the demo renames categories, and their copies are in products", dir)
	}
	return out, nil
}

func (s *shop) read(name, container string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	r, err := ingest.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err) // which names the line
		}
		if err = rec.Err; err == nil {
			err = s.add(container, rec.Body)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, rec.Line, err)
		}
	}
}

// add puts an item among those that are loaded or those that are written later, and
// counts it.
func (s *shop) add(container string, body []byte) error {
	var m meta
	if err := json.Unmarshal(body, &m); err != nil {
		return err
	}
	if m.ID == "" {
		return errors.New("an item without an id")
	}
	it := item{container: container, id: m.ID, body: body}
	switch {
	case container == webstore.ContainerProductMeta:
		s.metas = append(s.metas, &m)
		s.first = append(s.first, it)
		if m.Type == "tag" {
			s.tags++
		} else {
			s.categories++
		}
	case container == webstore.ContainerProduct:
		// Every tenth is kept back. Written while its category is renamed, it is what a fan-out can
		// miss: it was not there when the fan-out began.
		s.products++
		if s.products%newEvery == 0 {
			s.new = append(s.new, it)
		} else {
			s.first = append(s.first, it)
		}
	case m.Type == "salesOrder":
		s.orders = append(s.orders, it)
	default:
		s.customers++
		s.first = append(s.first, it)
	}
	return nil
}

// count fills in how many products copy each category and tag, and orders metas:
// the most copied first.
func (s *shop) count() error {
	byID := map[string]*meta{}
	for _, m := range s.metas {
		byID[m.ID] = m
	}
	// With those that are written later: when the last copy is awaited they are there.
	for _, it := range slices.Concat(s.first, s.new) {
		if it.container != webstore.ContainerProduct {
			continue
		}
		var p product
		if err := json.Unmarshal(it.body, &p); err != nil {
			return fmt.Errorf("product %s: %w", it.id, err)
		}
		if m := byID[p.CategoryID]; m != nil {
			m.products++
		}
		for _, tag := range p.Tags {
			if m := byID[tag.ID]; m != nil {
				m.products++
			}
		}
	}
	// Stable, so that one shop is shown by the same names each time.
	slices.SortStableFunc(s.metas, func(a, b *meta) int { return cmp.Compare(b.products, a.products) })
	return nil
}

// ofType returns the metas of a type, the most copied first.
func (s *shop) ofType(typ string) []*meta {
	var found []*meta
	for _, m := range s.metas {
		if m.Type == typ {
			found = append(found, m)
		}
	}
	return found
}
