package integration_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// What the published file of all customers and orders holds.
const (
	fullCustomers = 19_119
	fullOrders    = 31_455
	fullLines     = 121_253
)

// fullItem is a customer or an order of that file.
type fullItem struct {
	ID              string      `json:"id"`
	Type            string      `json:"type"`
	CustomerID      string      `json:"customerId"`
	SalesOrderCount int         `json:"salesOrderCount"`
	LifetimeValue   json.Number `json:"lifetimeValue"`
	LastOrderDate   string      `json:"lastOrderDate"`
	OrderDate       string      `json:"orderDate"`
	RecentOrders    []struct {
		ID        string `json:"id"`
		OrderDate string `json:"orderDate"`
	} `json:"recentOrders"`
	Details []struct {
		Price    json.Number `json:"price"`
		Quantity json.Number `json:"quantity"`
	} `json:"details"`
}

// wantedTotals is what a customer must say of its orders.
type wantedTotals struct {
	count int // as the file says
	seen  int // as its orders say
	worth *big.Rat
	last  string
}

// readFull reads the file and adds its orders up, independently of Millrace.
func readFull(t *testing.T, file string) map[string]*wantedTotals {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*wantedTotals{}
	of := func(id string) *wantedTotals {
		if all[id] == nil {
			all[id] = &wantedTotals{worth: new(big.Rat)}
		}
		return all[id]
	}
	lines := bufio.NewReaderSize(unzipped, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			var it fullItem
			if err := json.Unmarshal(line, &it); err != nil {
				t.Fatal(err)
			}
			w := of(it.CustomerID)
			if it.Type == "customer" {
				w.count = it.SalesOrderCount
			} else {
				w.seen++
				w.last = max(w.last, it.OrderDate)
				w.worth.Add(w.worth, worthOf(t, &it))
			}
		}
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func worthOf(t *testing.T, order *fullItem) *big.Rat {
	t.Helper()
	sum := new(big.Rat)
	for _, d := range order.Details {
		price, ok := new(big.Rat).SetString(d.Price.String())
		quantity, ok2 := new(big.Rat).SetString(d.Quantity.String())
		if !ok || !ok2 {
			t.Fatalf("order %s has a line of %q times %q", order.ID, d.Price, d.Quantity)
		}
		sum.Add(sum, price.Mul(price, quantity))
	}
	return sum
}

// TestWebStore_EveryKindOfCopy runs all sample pipelines on the whole data set:
// registered before the data, after it, and in the middle of its import. Counts,
// sums and dates equal an independent recomputation, the tables have the rows that
// they must have, and verify agrees.
func TestWebStore_EveryKindOfCopy(t *testing.T) {
	t.Parallel()
	file := webstoreFile(t, "customer-full.ndjson.gz")
	onlyLong(t)
	want := readFull(t, file)
	for _, when := range []string{"before the data", "after the data", "in the middle"} {
		t.Run(when, func(t *testing.T) {
			port := strconv.Itoa(freePort(t))
			server := "nats://127.0.0.1:" + port
			spawn(t, "up", "--dir", t.TempDir(), "--port", port, "--listen", "off")
			samples, err := filepath.Glob("../configs/webstore/*.yaml")
			if err != nil {
				t.Fatal(err)
			}
			declare := func() { mustRun(t, server, "apply", "-f", "../configs/webstore") }
			for _, sample := range samples {
				if r, err := spec.Load(sample); err == nil && len(r.Pipelines) == 0 {
					mustRun(t, server, "apply", "-f", sample)
				}
			}
			if when == "before the data" {
				declare()
			}
			mustRun(t, server, "import", "productMeta", webstoreFile(t, "productMeta.json"))
			mustRun(t, server, "import", "product", webstoreFile(t, "product.json"))
			var importing sync.WaitGroup
			importing.Go(func() { mustRun(t, server, "import", "customer", file, "--timeout", "60s") })
			if when == "in the middle" {
				customers := open(t, dial(t, server), "customer")
				poll.Until(t, func() error {
					return poll.Unless(countOf(t, customers) > fullCustomers/2, "the import has not come half-way")
				})
				declare()
			}
			importing.Wait()
			if when == "after the data" {
				declare()
			}
			began := time.Now()
			r := verifyCopies(t, server, "--settle", "240s")
			r.equal(t, "loaded", map[string]int64{
				"customer-totals": fullCustomers, "analytics": fullCustomers + fullOrders + fullLines, "line-categories": fullLines,
			})
			t.Logf("all equal after another %s", time.Since(began).Round(time.Second))
			compareTotals(t, open(t, dial(t, server), "customer"), want)
		})
	}
}

func countOf(t *testing.T, c *store.Container) (n int) {
	t.Helper()
	for _, p := range c.Partitions() {
		of, err := c.Count(t.Context(), p, store.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		n += of
	}
	return n
}

// compareTotals compares what customers say of their orders with what was added up.
func compareTotals(t *testing.T, customers *store.Container, want map[string]*wantedTotals) {
	t.Helper()
	compared := 0
	for _, p := range customers.Partitions() {
		for cursor := []byte(nil); ; {
			page, err := customers.Scan(t.Context(), p, store.Scan{After: cursor, ItemsMax: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Items {
				var c fullItem
				if err := json.Unmarshal(page.Items[i].Body, &c); err != nil {
					t.Fatal(err)
				}
				if c.Type != "customer" {
					continue
				}
				compared++
				w := want[c.CustomerID]
				worth, ok := new(big.Rat).SetString(c.LifetimeValue.String())
				if c.SalesOrderCount != w.count || c.SalesOrderCount != w.seen || !ok || worth.Cmp(w.worth) != 0 || c.LastOrderDate != w.last ||
					len(c.RecentOrders) != min(w.seen, 3) || w.seen > 0 && c.RecentOrders[0].OrderDate != w.last {
					t.Errorf("customer %s: %d orders worth %s, last %q, recent %v; the file says %d, its orders %d worth %s, last %q",
						c.ID, c.SalesOrderCount, c.LifetimeValue, c.LastOrderDate, c.RecentOrders, w.count, w.seen, w.worth.FloatString(4), w.last)
				}
			}
			if cursor = page.Cursor; cursor == nil {
				break
			}
		}
	}
	if compared != fullCustomers {
		t.Errorf("%d customers were compared, want %d", compared, fullCustomers)
	}
}
