package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// everySku is a row of the projection of products.
type everySku struct {
	ID         string `json:"id"`
	ProductID  string `json:"productId"`
	CategoryID string `json:"categoryId"`
}

type everyCategory struct {
	metaItem
	LinesSold json.Number `json:"linesSold"`
	UnitsSold json.Number `json:"unitsSold"`
	Sales     json.Number `json:"sales"`
}

// rest waits until what is to expire has expired and nothing is left to be done.
func (m *everyModel) rest() {
	m.t.Helper()
	poll.Until(m.t, func() error {
		there, err := 0, error(nil)
		for _, p := range m.customer.Partitions() {
			n, failed := m.customer.Count(m.t.Context(), p, store.Scope{})
			there, err = there+n, errors.Join(err, failed)
		}
		shown := scanAll[everyOrder](m.t, m.customer)
		mortal := slices.ContainsFunc(shown, func(o everyOrder) bool { return o.TTL > 0 })
		if err == nil && there == len(shown) && !mortal {
			return nil
		}
		return fmt.Errorf("%d items, %d shown, some of them mortal: %t, %w", there, len(shown), mortal, err)
	})
	m.settle("productMeta", "product", "customer", "sku", "region")
}

// settle waits until no split is under way, all pipelines are idle and the logs of containers are no
// longer than before.
func (w *town) settle(containers ...string) {
	w.t.Helper()
	// Who asked for a split may have been told no more than that it is planned. A verification that meets it says that it
	// could not judge.
	poll.Until(w.t, func() error {
		for _, name := range containers {
			switch info, err := w.Client().Catalog().Get(w.t.Context(), "default", name); {
			case err != nil:
				return err
			case len(info.Splits) > 0:
				return fmt.Errorf("%s is being split: %+v", name, info.Splits)
			}
		}
		return nil
	})
	for {
		before := w.ends(containers...)
		w.idle()
		if maps.Equal(before, w.ends(containers...)) {
			return
		}
	}
}

// compare compares everything with a recomputation from what clients wrote, and
// from what the store holds of that.
func (m *everyModel) compare() {
	m.t.Helper()
	skus := m.compareProducts()
	orders := m.compareOrders(skus)
	m.compareCategories(orders)
	customers := m.compareCustomers(orders)
	m.compareTables(customers, orders)
}

// compareProducts compares products and their skus, which it returns.
func (m *everyModel) compareProducts() map[string]everySku {
	m.t.Helper()
	claims := map[string]map[string]string{} // products by sku, and their categories
	products := scanAll[everyProduct](m.t, m.product)
	for i := range products {
		p := &products[i]
		want := m.products[p.ID]
		if p.CategoryID != want.CategoryID || p.SKU != want.SKU || p.N != want.N {
			m.t.Errorf("product %+v, want %+v", p, want)
		}
		if c, ok := m.metas["category/"+p.CategoryID]; ok && p.CategoryName != c.Name {
			m.t.Errorf("product %s says category %q, want %q", p.ID, p.CategoryName, c.Name)
		}
		m.compareTags(p.Tags, want.Tags, p.ID)
		if claims[p.SKU] == nil {
			claims[p.SKU] = map[string]string{}
		}
		claims[p.SKU][p.ID] = p.CategoryID
	}
	if len(products) != len(m.products) {
		m.t.Errorf("%d products, want %d", len(products), len(m.products))
	}
	skus := map[string]everySku{}
	for _, s := range scanAll[everySku](m.t, open(m.t, m.Client(), "sku")) {
		skus[s.ID] = s
		if category, ok := claims[s.ID][s.ProductID]; !ok || category != s.CategoryID {
			m.t.Errorf("row %+v of products %v", s, claims[s.ID])
		}
	}
	if len(skus) != len(claims) {
		m.t.Errorf("%d rows of %d skus: %v of %v", len(skus), len(claims), skus, claims)
	}
	return skus
}

// compareTags compares the tags that a product has with those that were written:
// none is missing but what was deleted at some time.
func (m *everyModel) compareTags(got, want []tagItem, product string) {
	m.t.Helper()
	rest := want
	for _, tag := range got {
		i := slices.IndexFunc(rest, func(x tagItem) bool { return x.ID == tag.ID })
		if i < 0 {
			m.t.Errorf("product %s has tags %+v, want %+v", product, got, want)
			return
		}
		rest = rest[i+1:]
		if source, ok := m.metas["tag/"+tag.ID]; ok && tag.Name != source.Name {
			m.t.Errorf("product %s has tag %+v, want %q", product, tag, source.Name)
		}
	}
	for _, tag := range want {
		if !m.removed[tag.ID] && !slices.ContainsFunc(got, func(x tagItem) bool { return x.ID == tag.ID }) {
			m.t.Errorf("product %s lost tag %s", product, tag.ID)
		}
	}
}

// compareOrders compares orders with what their writers wrote, and the category of
// each line with its sku's. It returns them as they are.
func (m *everyModel) compareOrders(skus map[string]everySku) (orders []everyOrder) {
	m.t.Helper()
	for _, o := range scanAll[everyOrder](m.t, m.customer) {
		if o.Type != "salesOrder" {
			continue
		}
		orders = append(orders, o)
		want, ok := m.orders[o.name()]
		if !ok {
			m.t.Errorf("order %s should not be there", o.name())
			continue
		}
		want.Details = slices.Clone(want.Details)
		for i := range min(len(o.Details), len(want.Details)) {
			want.Details[i].CategoryID = o.Details[i].CategoryID
			if s, ok := skus[o.Details[i].SKU]; ok {
				want.Details[i].CategoryID = s.CategoryID
			}
		}
		if diff := gocmp.Diff(want, o); diff != "" {
			m.t.Errorf("order %s (-want +got):\n%s", o.name(), diff)
		}
	}
	if len(orders) != len(m.orders) {
		m.t.Errorf("%d orders, want %d", len(orders), len(m.orders))
	}
	return orders
}

// units is a quantity, nil if it is no number.
func (l *everyLine) units() *big.Rat {
	n, ok := new(big.Rat).SetString(string(l.Quantity))
	if !ok {
		return nil
	}
	return n
}

// sold are the lines of some orders, added up.
type sold struct {
	lines        int
	units, value *big.Rat
}

func (s *sold) add(l *everyLine) {
	if s.units == nil {
		s.units, s.value = new(big.Rat), new(big.Rat)
	}
	s.lines++
	if units := l.units(); units != nil {
		price, _ := new(big.Rat).SetString(l.Price.String())
		s.units.Add(s.units, units)
		s.value.Add(s.value, price.Mul(price, units))
	}
}

func (s *sold) String() string {
	if s == nil || s.units == nil {
		return "0, 0, 0"
	}
	return fmt.Sprintf("%d, %s, %s", s.lines, s.units.RatString(), s.value.RatString())
}

// compareCategories compares categories and tags, and what categories say of sales.
func (m *everyModel) compareCategories(orders []everyOrder) {
	m.t.Helper()
	by := map[string]*sold{}
	for i := range orders {
		for j := range orders[i].Details {
			l := &orders[i].Details[j]
			if by[l.CategoryID] == nil {
				by[l.CategoryID] = &sold{}
			}
			by[l.CategoryID].add(l)
		}
	}
	metas := map[string]metaItem{}
	for _, c := range scanAll[everyCategory](m.t, m.meta) {
		metas[c.Type+"/"+c.ID] = c.metaItem
		said := fmt.Sprintf("%s, %s, %s", c.LinesSold, rational(c.UnitsSold), rational(c.Sales))
		if c.Type == "category" && said != by[c.ID].String() {
			m.t.Errorf("category %s has sold %s, want %s", c.ID, said, by[c.ID])
		}
	}
	if diff := gocmp.Diff(m.metas, metas); diff != "" {
		m.t.Errorf("categories and tags (-want +got):\n%s", diff)
	}
}

// compareCustomers compares what customers say of their orders, and regions of
// their customers. It returns the customers as they are.
func (m *everyModel) compareCustomers(orders []everyOrder) (customers []everyCustomer) {
	m.t.Helper()
	people, ordered, there := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, c := range scanAll[everyCustomer](m.t, m.customer) {
		if c.Type != "customer" {
			continue
		}
		customers = append(customers, c)
		own := slices.DeleteFunc(slices.Clone(orders), func(o everyOrder) bool { return o.CustomerID != c.ID })
		want := m.customers[c.ID]
		if c.Name != want.Name || c.Region != want.Region {
			m.t.Errorf("customer %+v, want %+v", c, want)
		}
		if said, right := c.totals(), totalsOf(own); said != right {
			m.t.Errorf("customer %s says %s\nwant %s", c.ID, said, right)
		}
		people[c.Region]++
		ordered[c.Region] += len(own)
	}
	if len(customers) != len(m.customers) {
		m.t.Errorf("%d customers, want %d", len(customers), len(m.customers))
	}
	for _, r := range scanAll[mallRegion](m.t, m.region) {
		there[r.ID] = true
		if rational(r.Customers) != fmt.Sprint(people[r.ID]) || rational(r.Orders) != fmt.Sprint(ordered[r.ID]) {
			m.t.Errorf("region %s says %s customers and %s orders, want %d and %d", r.ID, r.Customers, r.Orders, people[r.ID], ordered[r.ID])
		}
	}
	for id, n := range people {
		if !there[id] {
			m.t.Errorf("region %s of %d customers is not there", id, n)
		}
	}
	return customers
}

func (c *everyCustomer) totals() string {
	var recent []string
	for _, o := range c.RecentOrders {
		recent = append(recent, o.ID+" "+o.OrderDate)
	}
	return fmt.Sprintf("%s orders, %s, last %q, recent %q", c.SalesOrderCount, rational(c.LifetimeValue), c.LastOrderDate, recent)
}

func totalsOf(orders []everyOrder) string {
	slices.SortFunc(orders, func(a, b everyOrder) int {
		if a.OrderDate != b.OrderDate {
			return strings.Compare(b.OrderDate, a.OrderDate)
		}
		return strings.Compare(a.ID, b.ID)
	})
	all, last, recent := sold{units: new(big.Rat), value: new(big.Rat)}, "", []string(nil)
	for i := range orders {
		last = max(last, orders[i].OrderDate)
		if i < 3 {
			recent = append(recent, orders[i].ID+" "+orders[i].OrderDate)
		}
		for j := range orders[i].Details {
			all.add(&orders[i].Details[j])
		}
	}
	return fmt.Sprintf("%d orders, %s, last %q, recent %q", len(orders), all.value.RatString(), last, recent)
}

// compareTables compares the tables of files with the items. Of those that claim one
// key, as orders of one number of several customers do, one has it.
func (m *everyModel) compareTables(customers []everyCustomer, orders []everyOrder) {
	m.t.Helper()
	claims := map[string]map[string][]string{"customers": {}, "orders": {}, "lines": {}} // rows by table and key
	claim := func(table, key, format string, args ...any) {
		claims[table][key] = append(claims[table][key], fmt.Sprintf(format, args...))
	}
	for i := range customers {
		c := &customers[i]
		claim("customers", c.ID, "id=%s name=%s orders=%s", c.ID, c.Name, c.SalesOrderCount)
	}
	for i := range orders {
		o := &orders[i]
		claim("orders", o.ID, "customerId=%s id=%s orderDate=%s", o.CustomerID, o.ID, o.OrderDate)
		for j := range o.Details {
			l := &o.Details[j]
			if l.units() == nil {
				continue // rejected
			}
			cents, _ := new(big.Rat).SetString(l.Price.String())
			cents.Mul(cents, big.NewRat(100, 1))
			claim("lines", fmt.Sprint(o.ID, "/", j), "categoryId=%s line=%d orderId=%s price=%s quantity=%s sku=%s",
				l.CategoryID, j, o.ID, cents.RatString(), l.Quantity, l.SKU)
		}
	}
	for table, want := range claims {
		poll.Until(m.t, func() error {
			got, err := fileRows(filepath.Join(m.files, table))
			if err != nil {
				return err
			}
			if diff := gocmp.Diff(chosen(want, got), got); diff != "" {
				return errors.New("table " + table + " (-want +got):\n" + diff)
			}
			return nil
		})
	}
}

// chosen are the rows that a table must have: of each key one, that which it has if
// it has one of them.
func chosen(claims map[string][]string, got []string) (rows []string) {
	for _, each := range claims {
		i := slices.IndexFunc(each, func(row string) bool {
			_, there := slices.BinarySearch(got, row)
			return there
		})
		rows = append(rows, each[max(i, 0)])
	}
	slices.Sort(rows)
	return rows
}

// fileRows reads the rows of a table as any reader of Parquet does.
func fileRows(dir string) (all []string, err error) {
	names, err := deltaFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		rows, err := oneFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	slices.Sort(all)
	return all, nil
}

func oneFile(name string) (all []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	columns := file.Schema().Columns()
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		for buffer := make([]parquet.Row, 64); ; {
			n, err := rows.ReadRows(buffer)
			for _, row := range buffer[:n] {
				all = append(all, rowText(row, columns))
			}
			if errors.Is(err, io.EOF) || err == nil && n == 0 {
				break
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", name, err), rows.Close())
			}
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// rowText prints the declared columns of a row, in the order of their names.
func rowText(row parquet.Row, columns [][]string) string {
	var fields []string
	for _, v := range row {
		if name := columns[v.Column()][0]; !strings.HasPrefix(name, "_") && !v.IsNull() {
			fields = append(fields, name+"="+v.String())
		}
	}
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

// idle waits until no pipeline has anything left to do.
func (w *town) idle() {
	w.t.Helper()
	awaitIdle(w.t.(*testing.T), w.Node)
}
