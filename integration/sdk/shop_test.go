package sdk_test

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// webstore asks the five queries on the whole data set.
var webstore = flag.Bool("webstore", false, "ask the shop's queries on the data set of which MILLRACE_WEBSTORE names the directory")

// shop is the web shop of the articles on modelling data for Azure Cosmos DB:
// customers with their orders, products with the name of their category, and
// categories.
type shop struct {
	t                         *testing.T
	db                        *azcosmos.DatabaseClient
	customers, products, meta *azcosmos.ContainerClient
}

func newShop(t *testing.T) *shop {
	t.Helper()
	db := database(t)
	return &shop{
		t: t, db: db,
		customers: container(t, db, azcosmos.ContainerProperties{ID: "customer", IndexingPolicy: &azcosmos.IndexingPolicy{
			Automatic: true, IndexingMode: azcosmos.IndexingModeConsistent,
			IncludedPaths: []azcosmos.IncludedPath{{Path: "/salesOrderCount/?"}}, ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/*"}},
		}}, "/customerId"),
		products: container(t, db, azcosmos.ContainerProperties{ID: "product"}, "/categoryId"),
		meta:     container(t, db, azcosmos.ContainerProperties{ID: "productMeta"}, "/type"),
	}
}

// batch stores items of one key, at most 100 in a batch.
func (s *shop) batch(c *azcosmos.ContainerClient, key string, items [][]byte) error {
	for part := range slices.Chunk(items, 100) {
		b := c.NewTransactionalBatch(pk(key))
		for _, item := range part {
			b.UpsertItem(item, nil)
		}
		resp, err := c.ExecuteTransactionalBatch(s.t.Context(), b, nil)
		if err == nil && !resp.Success {
			err = fmt.Errorf("batch of %s: %+v", key, resp.OperationResults)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stock makes a small shop: customer i has i orders.
func (s *shop) stock(customers int) {
	s.t.Helper()
	for i := range customers {
		id := fmt.Sprintf("c%03d", i)
		items := [][]byte{object{"id": id, "type": "customer", "customerId": id, "firstName": fmt.Sprint("Ann ", i), "salesOrderCount": i}.json()}
		for j := range i {
			items = append(items, object{"id": fmt.Sprintf("o%03d-%03d", i, j), "type": "salesOrder", "customerId": id, "orderDate": fmt.Sprintf("2026-01-%02d", 1+j%28)}.json())
		}
		must(s.t, s.batch(s.customers, id, items))
	}
	var categories [][]byte
	for i := range 5 {
		id := fmt.Sprint("cat", i)
		categories = append(categories, object{"id": id, "type": "category", "name": fmt.Sprint("Category ", i)}.json())
		var products [][]byte
		for j := range 4 {
			products = append(products, object{"id": fmt.Sprintf("p%d-%d", i, j), "categoryId": id, "categoryName": fmt.Sprint("Category ", i)}.json())
		}
		must(s.t, s.batch(s.products, id, products))
	}
	must(s.t, s.batch(s.meta, "category", categories))
}

// fields prints some fields of each result.
func fields(t *testing.T, results [][]byte, names ...string) []string {
	t.Helper()
	var lines []string
	for _, r := range results {
		o := parse(t, r)
		var values []string
		for _, name := range names {
			values = append(values, fmt.Sprint(o[name]))
		}
		lines = append(lines, strings.Join(values, " "))
	}
	return lines
}

// The five queries of the articles.
func TestGo_QueriesOfTheShop(t *testing.T) {
	s := newShop(t)
	s.stock(25)
	got := fields(t, query(t, s.customers, pk("c007"), "SELECT * FROM c WHERE c.id = @id", 0, azcosmos.QueryParameter{Name: "@id", Value: "c007"}), "id", "salesOrderCount")
	if !slices.Equal(got, []string{"c007 7"}) {
		t.Errorf("a customer by id: %v", got)
	}
	if got := query(t, s.meta, pk("category"), "SELECT * FROM c WHERE c.type = 'category'", 0); len(got) != 5 {
		t.Errorf("%d categories, want 5", len(got))
	}
	if got := query(t, s.products, pk("cat3"), "SELECT * FROM c WHERE c.categoryId = 'cat3'", 0); len(got) != 4 {
		t.Errorf("%d products of a category, want 4", len(got))
	}
	if got := query(t, s.customers, pk("c012"), "SELECT * FROM c WHERE c.customerId = 'c012'", 0); len(got) != 13 {
		t.Errorf("a customer with 12 orders is %d items", len(got))
	}
	var want []string
	for i := 24; i >= 0; i-- {
		want = append(want, fmt.Sprintf("c%03d %d", i, i))
	}
	all := fields(t, query(t, s.customers, pk(), "SELECT * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", 4), "id", "salesOrderCount")
	if !slices.Equal(all, want) {
		t.Errorf("customers by their number of orders: %v", all)
	}
	top := fields(t, query(t, s.customers, pk(), "SELECT TOP 10 * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", 0), "id", "salesOrderCount")
	if !slices.Equal(top, want[:10]) {
		t.Errorf("the top ten: %v", top)
	}
}

// TestGo_QueriesOfTheShopInFull asks them of the data set.
func TestGo_QueriesOfTheShopInFull(t *testing.T) {
	if !*webstore {
		t.Skip("it loads 50,574 items: run it with -webstore")
	}
	file, err := os.Open(filepath.Join(os.Getenv("MILLRACE_WEBSTORE"), "customer-full.ndjson.gz"))
	must(t, err)
	defer func() { must(t, file.Close()) }()
	unzipped, err := gzip.NewReader(file)
	must(t, err)
	byCustomer, counts, n := map[string][][]byte{}, map[string]int{}, 0
	for lines := bufio.NewScanner(unzipped); lines.Scan(); n++ {
		var item struct{ CustomerID, Type string }
		must(t, json.Unmarshal(lines.Bytes(), &item))
		byCustomer[item.CustomerID] = append(byCustomer[item.CustomerID], slices.Clone(lines.Bytes()))
		if item.Type == "salesOrder" {
			counts[item.CustomerID]++
		}
	}
	s := newShop(t)
	began := time.Now()
	work := make(chan string)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for id := range work {
				if err := s.batch(s.customers, id, byCustomer[id]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for id := range byCustomer {
		work <- id
	}
	close(work)
	workers.Wait()
	t.Logf("%d items of %d customers loaded in %s", n, len(byCustomer), time.Since(began).Round(time.Millisecond))
	var want []int
	most := ""
	for id, count := range counts {
		if want = append(want, count); most == "" || count > counts[most] {
			most = id
		}
	}
	slices.SortFunc(want, func(a, b int) int { return b - a })
	timed := func(what string, ask func() int) {
		t.Helper()
		best := time.Hour
		results := 0
		for range 20 {
			began := time.Now()
			results = ask()
			best = min(best, time.Since(began))
		}
		t.Logf("%s: %d results, %s at best of 20", what, results, best.Round(10*time.Microsecond))
	}
	timed("a customer with all orders", func() int {
		got := query(t, s.customers, pk(most), "SELECT * FROM c WHERE c.customerId = @id", 0, azcosmos.QueryParameter{Name: "@id", Value: most})
		if len(got) != counts[most]+1 {
			t.Errorf("customer %s has %d items, want %d", most, len(got), counts[most]+1)
		}
		return len(got)
	})
	timed("a customer by id", func() int { return len(query(t, s.customers, pk(most), "SELECT * FROM c WHERE c.id = '"+most+"'", 0)) })
	timed("the top ten", func() int {
		got := query(t, s.customers, pk(), "SELECT TOP 10 * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", 0)
		if a, b := fmt.Sprint(fields(t, got, "salesOrderCount")), fmt.Sprint(want[:10]); a != b {
			t.Errorf("the top ten have %s orders, want %s", a, b)
		}
		return len(got)
	})
	pager := s.customers.NewQueryItemsPager("SELECT TOP 10 * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", pk(), &azcosmos.QueryOptions{PopulateIndexMetrics: true})
	page, err := pager.NextPage(t.Context())
	must(t, err)
	if page.IndexMetrics == nil {
		t.Fatal("no index metrics came")
	}
	metrics, err := base64.StdEncoding.DecodeString(*page.IndexMetrics)
	if err != nil || !strings.Contains(string(metrics), "/salesOrderCount") {
		t.Errorf("the top ten do not say that they use the index: %s, %v", *page.IndexMetrics, err)
	}
	t.Logf("the top ten are charged %v and use %s", page.RequestCharge, metrics)
	srv, err := shared()
	must(t, err)
	asked, err := json.Marshal(map[string]any{"id": most, "orders": counts[most], "top": want[:10]})
	must(t, err)
	t.Logf("in JavaScript:\n%s", node(t, srv, []string{"MILLRACE_DATABASE=" + s.db.ID(), "MILLRACE_WANT=" + string(asked)}, "webstore.js"))
	all := fields(t, query(t, s.customers, pk(), "SELECT * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", 1000), "salesOrderCount")
	if !slices.IsSortedFunc(all, func(a, b string) int { return len(b)*1000 + strings.Compare(b, a) - len(a)*1000 }) || len(all) != len(byCustomer) {
		t.Errorf("%d customers by their number of orders, of %d", len(all), len(byCustomer))
	}
}

// orders places and cancels an order with the customer's count in one batch, as
// the articles do.
func (s *shop) order(customer, order string, place bool) error {
	for {
		read, err := s.customers.ReadItem(s.t.Context(), pk(customer), customer, nil)
		if err != nil {
			return err
		}
		c := parse(s.t, read.Value)
		b := s.customers.NewTransactionalBatch(pk(customer))
		if place {
			c["salesOrderCount"] = c["salesOrderCount"].(float64) + 1
			b.CreateItem(object{"id": order, "type": "salesOrder", "customerId": customer}.json(), nil)
		} else {
			c["salesOrderCount"] = c["salesOrderCount"].(float64) - 1
			b.DeleteItem(order, nil)
		}
		b.ReplaceItem(customer, c.json(), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &read.ETag})
		resp, err := s.customers.ExecuteTransactionalBatch(s.t.Context(), b, nil)
		if err != nil {
			return err
		}
		if resp.Success {
			return nil
		}
		if last := resp.OperationResults[1].StatusCode; last != http.StatusPreconditionFailed && last != http.StatusFailedDependency {
			return fmt.Errorf("order %s: %d", order, last)
		}
	}
}

// The operations of the shop, and what its change feed shows of them.
func TestGo_OperationsOfTheShop(t *testing.T) {
	s := newShop(t)
	s.stock(3)
	feed := follow(t, s.customers, azcosmos.ChangeFeedOptions{MaxItemCount: 1})
	for len(feed.page()) > 0 {
	}
	must(t, s.order("c001", "new", true))
	page := feed.page()
	if len(page) != 2 || page[0]["id"] != "new" || page[1]["salesOrderCount"] != 2.0 || page[0]["_lsn"] != page[1]["_lsn"] {
		t.Errorf("the feed shows an order as %v", page)
	}
	must(t, s.order("c001", "new", false))
	if page := feed.page(); len(page) != 1 || page[0]["salesOrderCount"] != 1.0 {
		t.Errorf("the feed shows a cancelled order as %v", page)
	}
	if page := feed.page(); len(page) != 0 {
		t.Errorf("and then %v", page)
	}

	// Orders that race: the counts are right in the end.
	var racing sync.WaitGroup
	for i := range 8 {
		racing.Go(func() {
			if err := s.order("c002", fmt.Sprint("race", i), true); err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()
	read, err := s.customers.ReadItem(t.Context(), pk("c002"), "c002", nil)
	must(t, err)
	if n := parse(t, read.Value)["salesOrderCount"]; n != 10.0 {
		t.Errorf("after 8 more orders c002 has %v, want 10", n)
	}

	// A category is renamed; a processor of the change feed renames it in its
	// products, as the articles' function does, beginning anew where it stopped.
	changes := azcosmos.ChangeFeedOptions{}
	process := func() (seen []string) {
		f := follow(t, s.meta, changes)
		for {
			page := f.page()
			for _, category := range page {
				seen = append(seen, category["name"].(string))
				for _, p := range query(t, s.products, pk(category["id"]), "SELECT * FROM c", 0) {
					product := parse(t, p)
					product["categoryName"] = category["name"]
					_, err := s.products.ReplaceItem(t.Context(), pk(category["id"]), product["id"].(string), product.json(), nil)
					must(t, err)
				}
			}
			changes = f.o
			if len(page) == 0 {
				return seen
			}
		}
	}
	if seen := process(); len(seen) != 5 {
		t.Errorf("from its start the processor sees %v", seen)
	}
	var rename azcosmos.PatchOperations
	rename.AppendSet("/name", "Renamed")
	_, err = s.meta.PatchItem(t.Context(), pk("category"), "cat2", rename, nil)
	must(t, err)
	if seen := process(); !slices.Equal(seen, []string{"Renamed"}) {
		t.Errorf("after a rename the processor sees %v", seen)
	}
	if seen := process(); len(seen) != 0 {
		t.Errorf("with nothing new the processor sees %v", seen)
	}
	for _, name := range fields(t, query(t, s.products, pk("cat2"), "SELECT c.categoryName FROM c", 0), "categoryName") {
		if name != "Renamed" {
			t.Errorf("a product of the renamed category says %s", name)
		}
	}
}

// status is the one of an SDK's error, 0 for another.
func status(err error) int {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return response.StatusCode
	}
	return 0
}
