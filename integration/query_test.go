package integration_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/store"
)

// shopItem is what the queries are held against.
type shopItem struct {
	ID              string `json:"id"`
	Type            string `json:"type"`
	CategoryID      string `json:"categoryId"`
	CustomerID      string `json:"customerId"`
	SalesOrderCount *int   `json:"salesOrderCount"`
	text            string
}

// TestQueries_OfTheArticles asks the five queries for which the WebStore was designed,
// by the command line, and holds their rows against the items.
func TestQueries_OfTheArticles(t *testing.T) {
	t.Parallel()
	s := webstore.New(webstore.Config{Seed: 4, Categories: 6, Tags: 12, Products: 60, Customers: 150})
	files := map[string][]string{}
	for c := range 6 {
		files["productMeta"] = append(files["productMeta"], string(webstore.JSON(s.Category(c+1, nil))))
	}
	for n := range 12 {
		files["productMeta"] = append(files["productMeta"], string(webstore.JSON(s.Tag(n+1, nil))))
	}
	for p := range 60 {
		files["product"] = append(files["product"], string(webstore.JSON(s.Product(p+1, nil))))
	}
	for c := range 150 {
		files["customer"] = append(files["customer"], string(webstore.JSON(s.Customer(c+1))))
		for _, o := range s.Orders(c + 1) {
			files["customer"] = append(files["customer"], string(webstore.JSON(o)))
		}
	}
	server := upOnce(t)
	dir := t.TempDir()
	items := map[string][]shopItem{}
	for container, lines := range files {
		mustRun(t, server, "apply", "-f", "../configs/webstore/"+container+".yaml")
		file := filepath.Join(dir, container+".ndjson")
		writeFile(t, file, strings.Join(lines, "\n")+"\n")
		mustRun(t, server, "import", container, file)
		for _, line := range lines {
			items[container] = append(items[container], shopItemOf(t, line))
		}
	}
	askArticles(t, server, items, s.CustomerID(7), s.CategoryID(2))
}

func shopItemOf(t *testing.T, line string) shopItem {
	t.Helper()
	it := shopItem{text: line}
	if err := json.Unmarshal([]byte(line), &it); err != nil {
		t.Fatal(err)
	}
	return it
}

// askArticles asks the queries for a customer and a category.
func askArticles(t *testing.T, server string, items map[string][]shopItem, customer, category string) {
	t.Helper()
	for _, c := range []struct {
		container, text string
		args            []string
		access          string
		want            func(shopItem) bool
	}{
		{
			"customer", `SELECT * FROM c WHERE c.id = @id`,
			[]string{"--key", customer, "--param", "id=" + customer},
			"point read of one item",
			func(it shopItem) bool { return it.ID == customer },
		},
		{
			"productMeta", `SELECT * FROM c WHERE c.type = 'category'`,
			[]string{"--key", "category"},
			`logical partition ["category"]`,
			func(it shopItem) bool { return it.Type == "category" },
		},
		{
			"product", `SELECT * FROM c WHERE c.categoryId = @id`,
			[]string{"--param", "id=" + category},
			`logical partition ["` + category + `"]`,
			func(it shopItem) bool { return it.CategoryID == category },
		},
		{
			"customer", `SELECT * FROM c WHERE c.customerId = @id`,
			[]string{"--param", "id=" + customer},
			`logical partition ["` + customer + `"]`,
			func(it shopItem) bool { return it.CustomerID == customer },
		},
	} {
		var want []string
		for _, it := range items[c.container] {
			if c.want(it) {
				want = append(want, it.text)
			}
		}
		args := append([]string{"query", c.text, "-c", c.container}, c.args...)
		got := strings.Split(strings.TrimSpace(mustRun(t, server, append(args, "-o", "ndjson")...)), "\n")
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%.1000s", c.text, diff)
		}
		if out := mustRun(t, server, append(args, "--explain")...); !strings.HasPrefix(out, c.access+"\n") {
			t.Errorf("%s is answered by %s, want %s", c.text, out, c.access)
		}
	}
	askBusiest(t, server, items["customer"])
}

// askBusiest asks for the customers with the most orders: ten of an index, without a
// scan, and all of them in order.
func askBusiest(t *testing.T, server string, items []shopItem) {
	t.Helper()
	var counts []int
	for _, it := range items {
		if it.Type == "customer" {
			counts = append(counts, *it.SalesOrderCount)
		}
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	const text = `SELECT * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC`
	ct := open(t, dial(t, server), "customer")
	page, err := ct.Query(t.Context(), store.QueryRequest{Text: strings.Replace(text, "SELECT", "SELECT TOP 10", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if got := countsOf(t, page.Rows); !slices.Equal(counts[:10], got) || page.Continuation != "" {
		t.Errorf("the ten busiest have %v orders, want %v", got, counts[:10])
	}
	// Each partition reads ten, and no more than a few that it does not need.
	if m := page.Metrics; m.Index != "/salesOrderCount" || m.Items > int64(12*page.Partitions) {
		t.Errorf("%d items were read by %q in %d partitions", m.Items, m.Access, page.Partitions)
	}
	var all []int
	for next := ""; ; {
		page, err := ct.Query(t.Context(), store.QueryRequest{Text: text, Continuation: next, RowsMax: 1000})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, countsOf(t, page.Rows)...)
		if next = page.Continuation; next == "" {
			break
		}
	}
	if !slices.Equal(counts, all) {
		t.Errorf("%d customers in pages, want %d in order", len(all), len(counts))
	}
}

func countsOf(t *testing.T, rows [][]byte) (counts []int) {
	t.Helper()
	for _, row := range rows {
		counts = append(counts, *shopItemOf(t, string(row)).SalesOrderCount)
	}
	return counts
}

// TestQueries_OfAllCustomers asks them of the whole data set.
func TestQueries_OfAllCustomers(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	f, err := os.Open(webstoreFile(t, "customer-full.ndjson.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it is only read
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	items := map[string][]shopItem{}
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, store.ItemBytesMax)
	for lines.Scan() {
		items["customer"] = append(items["customer"], shopItemOf(t, lines.Text()))
	}
	if err := lines.Err(); err != nil || len(items["customer"]) != fullCustomers+fullOrders {
		t.Fatalf("%d items, %v", len(items["customer"]), err)
	}
	server := upOnce(t)
	containers := []string{"productMeta", "product", "customer"}
	for i, file := range []string{"productMeta.json", "product.json", "customer-full.ndjson.gz"} {
		mustRun(t, server, "apply", "-f", "../configs/webstore/"+containers[i]+".yaml")
		mustRun(t, server, "import", containers[i], webstoreFile(t, file), "--timeout", "60s")
		if i < 2 {
			for _, raw := range webstoreItems[json.RawMessage](t, webstoreFile(t, file)) {
				items[containers[i]] = append(items[containers[i]], shopItemOf(t, compact(t, raw)))
			}
		}
	}
	askArticles(t, server, items, items["customer"][0].ID, items["product"][0].CategoryID)
}

func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(json.RawMessage(raw)); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// TestCLI_QueriesPrint shows the forms in which rows are printed, and what a wrong
// query is told.
func TestCLI_QueriesPrint(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	file := filepath.Join(t.TempDir(), "things.ndjson")
	writeFile(t, file, `{"id":"1","name":"a, \"b\"","n":1.50}
{"id":"2","name":"c","tags":[1,{"x":2}]}
`)
	mustRun(t, server, "import", "things", file, "--partition-key", "/id")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{`SELECT c.name, c.n FROM things c ORDER BY c.id`}, "NAME    N\na, \"b\"  1.50\nc\n"},
		{[]string{`SELECT c.id, c.tags FROM c ORDER BY c.id`, "-o", "csv"}, "id,tags\n1,\n2,\"[1,{\"\"x\"\":2}]\"\n"},
		{[]string{`SELECT VALUE c.n FROM c`, "-o", "json"}, "[\n  1.50\n]\n"},
		{[]string{`SELECT c.id FROM c WHERE c.n > 2`, "-o", "json"}, "[]\n"},
		{[]string{`SELECT c.id FROM c WHERE c.n > 2`}, "no rows\n"},
		{[]string{`SELECT c.name FROM c ORDER BY c.id`, "-o", "ndjson", "--limit", "1"}, `{"name":"a, \"b\""}` + "\n"},
		{[]string{`SELECT VALUE c.id FROM c WHERE c.name = @n`, "--param", "n=c"}, "VALUE\n2\n"},
		{[]string{`SELECT VALUE c.id FROM c WHERE c.id = @n`, "--param", `n="2"`, "-c", "things", "--explain"}, "point read of one item\nasks 1 partition\n"},
	} {
		if out := mustRun(t, server, append([]string{"query"}, c.args...)...); out != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.args, out, c.want)
		}
	}
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"SELECT *\nFROM c WHERE c.a = = 1"}, 2, "  FROM c WHERE c.a = = 1\n                     ^"},
		{[]string{`SELECT * FROM c WHERE c.a = @x`}, 2, "parameter @x has no value"},
		{[]string{`SELECT * FROM c`, "-c", "nosuch"}, 1, "container default/nosuch does not exist"},
		{[]string{`SELECT * FROM c`, "--param", "x"}, 2, "name=value is expected"},
		{[]string{`SELECT * FROM c`, "--key", `["a","b"]`}, 2, "has 2 components"},
	} {
		_, errs, exit := command(t, "", nil, append([]string{"query", "--server", server}, c.args...)...)
		if exit != c.exit || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit %d, want %d\n%s\nwant\n%s", c.args, exit, c.exit, errs, c.want)
		}
	}
}
