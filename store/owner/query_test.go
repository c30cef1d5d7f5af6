package owner_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// shelf is a container of random items, and what is in it.
type shelf struct {
	*cluster
	ct    *store.Container
	items map[string][]byte // by cursor
}

// shelfSpec has indexes for every access path.
func shelfSpec(partitions int) store.ContainerSpec {
	return store.ContainerSpec{
		PartitionKey: []string{"/shop"}, Partitions: partitions,
		Indexes: []string{"/kind", "/price", "/name", "/tags/*/id", "/odd"},
	}
}

func newShelf(t testing.TB, spec store.ContainerSpec, n int) *shelf {
	t.Helper()
	s := &shelf{cluster: newCluster(t), items: map[string][]byte{}}
	s.cfg.QueryTime = time.Minute // a busy machine reads slowly; it is no limit that a shelf tests
	if _, err := s.catalog.Create(t.Context(), "default", "shelf", spec); err != nil {
		t.Fatal(err)
	}
	s.ct = s.container(s.process("a", t.TempDir()).client, "shelf")
	r := rand.New(rand.NewPCG(5, 5))
	for i := range n {
		s.put(t, shelfItem(r, i))
	}
	return s
}

func (s *shelf) put(t testing.TB, body []byte) {
	t.Helper()
	item, err := s.ct.Upsert(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	s.items[string(store.AppendCursor(nil, item.Key, item.ID))] = body
}

// shelfItem returns a random item. odd is of any type, and name long sometimes.
func shelfItem(r *rand.Rand, i int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":"i%d","shop":"s%d","kind":%q,"price":%d.%d`, i, r.IntN(9), []string{"book", "game", "toy"}[r.IntN(3)], r.IntN(40)-5, r.IntN(3))
	if r.IntN(4) > 0 {
		fmt.Fprintf(&b, `,"stock":%d`, r.IntN(20))
	}
	if r.IntN(3) > 0 {
		fmt.Fprintf(&b, `,"name":"%s%d"`, []string{"an", "be", "ca"}[r.IntN(3)], r.IntN(50))
	}
	if n := r.IntN(8); n > 0 {
		long := `"` + strings.Repeat("long", 140) + fmt.Sprint(r.IntN(4)) + `"`
		fmt.Fprintf(&b, `,"odd":%s`, []string{"null", "true", "7", `"7"`, "[1]", `{"a":1}`, long}[n-1])
	}
	b.WriteString(`,"tags":[`)
	for j := range r.IntN(4) {
		if j > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"t%d","n":%d}`, r.IntN(8), j)
	}
	return []byte(b.String() + "]}")
}

// pages returns all rows of a query by pages of random sizes, and how they were found.
func (s *shelf) pages(t testing.TB, r *rand.Rand, req store.QueryRequest) (rows []string, access string) {
	t.Helper()
	for n := 0; ; n++ {
		req.RowsMax = 1 + r.IntN(40)
		page, err := s.ct.Query(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: page %d: %v", req.Text, n, err)
		}
		if len(page.Rows) > req.RowsMax {
			t.Fatalf("%s: a page has %d rows, more than %d", req.Text, len(page.Rows), req.RowsMax)
		}
		for _, row := range page.Rows {
			rows = append(rows, string(row))
		}
		if n == 0 {
			access = page.Metrics.Access
		}
		if req.Continuation = page.Continuation; req.Continuation == "" {
			return rows, access
		}
		if len(req.Continuation) > store.QueryTokenMax {
			t.Fatalf("%s: the continuation has %d bytes", req.Text, len(req.Continuation))
		}
		if n > 10_000 {
			t.Fatalf("%s: pages do not end", req.Text)
		}
	}
}

// naive returns what a query comes to over all items at once, without anything of the
// store. Items that are equal in ORDER BY stand in the order of their keys, or the
// other way round if that descends.
func (s *shelf) naive(t testing.TB, text string, shop string) []string {
	t.Helper()
	q, err := query.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	run, err := q.Run(query.RunConfig{})
	if err != nil {
		t.Fatal(err)
	}
	order := q.Order()
	down := len(order) > 0 && order[0].Desc
	names := make([]string, 0, len(s.items))
	for name := range s.items {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if shop != "" && !bytes.Contains(s.items[name], fmt.Appendf(nil, `"shop":%q`, shop)) {
			continue
		}
		if down {
			i = len(names) - i
		}
		if err := run.Item(s.items[name], binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	page, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range page.Rows {
		rows = append(rows, string(row))
	}
	return rows
}

// shelfQueries are queries for every access path, and what it begins with.
var shelfQueries = []struct{ access, text string }{
	{"scan", `SELECT * FROM c`},
	{"scan", `SELECT VALUE c.id FROM c WHERE c.stock > 10`},
	{"scan", `SELECT c.id, t.id AS tag FROM c JOIN t IN c.tags WHERE c.stock > 3`},
	{"scan", `SELECT c.id FROM c OFFSET 37 LIMIT 55`},
	{"scan", `SELECT TOP 5 c.id FROM c WHERE c.stock = 3 AND c.kind != "toy"`},
	{"scan", `SELECT VALUE COUNT(1) FROM c`},
	{"scan", `SELECT c.stock, COUNT(1) AS n, SUM(c.price) AS total, MIN(c.name) AS least FROM c GROUP BY c.stock`},
	{"scan", `SELECT DISTINCT c.kind, c.stock FROM c`},
	{"scan", `SELECT DISTINCT VALUE c.stock FROM c ORDER BY c.stock DESC`},
	{"scan", `SELECT c.id, c.stock FROM c ORDER BY c.stock`},
	{"scan", `SELECT c.id, c.stock FROM c ORDER BY c.stock DESC OFFSET 11 LIMIT 60`},
	{"scan", `SELECT c.id FROM c ORDER BY c.kind, c.price DESC`},
	{"scan", `SELECT c.id, c.odd FROM c ORDER BY c.odd`},
	{"scan", `SELECT TOP 30 c.id, t.n FROM c JOIN t IN c.tags ORDER BY t.n DESC`},
	{"logical partition", `SELECT c.id FROM c WHERE c.shop = "s3" AND c.price > 3`},
	{"logical partition", `SELECT c.id, c.price FROM c WHERE c.shop = "s3" ORDER BY c.price DESC`},
	{"", `SELECT c.id FROM c WHERE c.shop IN ("s1", "s2", "none")`},
	{"", `SELECT c.id FROM c WHERE c.shop = "s3" AND c.id IN ("i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8")`},
	{"index /kind = \"book\"", `SELECT c.id FROM c WHERE c.kind = "book"`},
	{"index /kind = \"book\"", `SELECT VALUE COUNT(1) FROM c WHERE c.kind = "book"`},
	{"index /price = 3.00", `SELECT c.price, COUNT(1) AS n FROM c WHERE c.price = 3.00 GROUP BY c.price`},
	{"index /price = 3.00", `SELECT VALUE COUNT(1) FROM c WHERE c.price = 3.00`},
	{"index /tags/*/id = \"t3\"", `SELECT VALUE COUNT(1) FROM c WHERE c.tags["*"].id = "t3"`},
	{"index /kind = \"toy\"", `SELECT MAX(c.price) AS most, AVG(c.stock) AS mean FROM c WHERE c.kind = "toy"`},
	{"index /kind, 2 values", `SELECT c.id FROM c WHERE c.kind IN ("book", "toy", "book") AND c.stock < 5`},
	{"index /price, a range", `SELECT c.id, c.price FROM c WHERE c.price > 3 AND c.price <= 17.1`},
	{"index /price, a range", `SELECT c.id FROM c WHERE c.price BETWEEN -2 AND 2 OFFSET 3 LIMIT 20`},
	{"index /price, a range", `SELECT DISTINCT VALUE c.price FROM c WHERE c.price < 0`},
	{"index /name, a range", `SELECT c.id FROM c WHERE STARTSWITH(c.name, "be2")`},
	{"index /name, a range", `SELECT c.id FROM c WHERE c.name LIKE "ca%" AND c.stock > 2`},
	{"index /odd, a range", `SELECT c.id, c.odd FROM c WHERE c.odd >= "7"`},
	{"index /odd = [1]", `SELECT c.id FROM c WHERE c.odd = [1]`},
	{"index /odd = null", `SELECT c.id FROM c WHERE c.odd = null`},
	{"index /tags/*/id = \"t3\"", `SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.tags, {"id": "t3"}, true)`},
	{"index /tags/*/id = \"t3\"", `SELECT c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.id = "t3")`},
	{"index /tags/*/id, 2 values", `SELECT c.id, t.n FROM c JOIN t IN c.tags WHERE t.id IN ("t3", "t4")`},
	{"index /tags/*/id, a range", `SELECT c.id, t.n FROM c JOIN t IN c.tags WHERE t.id >= "t3" AND t.id < "t7"`},
	{"index /tags/*/id, a range", `SELECT c.id FROM c JOIN t IN c.tags WHERE t.id >= "t3" ORDER BY c.stock DESC`},
	{"index /price, ascending", `SELECT c.id, c.price FROM c ORDER BY c.price`},
	{"index /price, descending", `SELECT TOP 10 c.id, c.price FROM c WHERE c.kind != "toy" ORDER BY c.price DESC`},
	{"index /price, descending", `SELECT c.id FROM c WHERE c.price < 10 ORDER BY c.price DESC`},
	{"index /price, ascending", `SELECT c.id, t.id AS tag FROM c JOIN t IN c.tags ORDER BY c.price`},
	{"index /name, descending", `SELECT c.id, c.name FROM c ORDER BY c.name DESC`},
	{"index /name, ascending", `SELECT c.id, c.name FROM c WHERE c.stock > 4 ORDER BY c.name`},
	{"index /name, ascending", `SELECT c.id, c.name FROM c WHERE c.name != null ORDER BY c.name OFFSET 10 LIMIT 100`},
	{"scan", `SELECT c.id, c.odd FROM c WHERE c.odd != null`},
	{"scan", `SELECT c.id, c.odd FROM c WHERE c.odd != "7" AND NOT (c.odd = 7)`},
	{"scan", `SELECT c.id, c.odd FROM c WHERE c.odd != 7 ORDER BY c.odd`},
	{"index /price, ascending", `SELECT c.id, c.price FROM c WHERE c.price != "3" ORDER BY c.price`},
	{"index /odd, 3 values", `SELECT c.id FROM c WHERE c.odd IN ("7", null, 7)`},
	{"scan", `SELECT c.id FROM c WHERE c.odd NOT IN ("7", null)`},
	{"nothing", `SELECT c.id FROM c WHERE c.kind = "book" AND c.kind = "toy"`},
	{"nothing", `SELECT COUNT(1) AS n FROM c WHERE c.kind = "a" AND c.kind = "b"`},
	{"", `SELECT 1 AS one`},
}

// TestQueriesGiveWhatTheirItemsDo holds queries by pages, from one partition and from
// four, against a run over all items at once.
func TestQueriesGiveWhatTheirItemsDo(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			t.Parallel()
			s := newShelf(t, shelfSpec(partitions), 400)
			r := rand.New(rand.NewPCG(1, uint64(partitions)))
			for _, c := range shelfQueries {
				want := s.naive(t, c.text, "")
				got, access := s.pages(t, r, store.QueryRequest{Text: c.text})
				if partitions == 1 && !strings.HasPrefix(access, c.access) {
					t.Errorf("%s: access %q, want %q", c.text, access, c.access)
				}
				compareRows(t, c.text, want, got)
			}
			for _, text := range []string{`SELECT c.id FROM c WHERE c.kind = "toy"`, `SELECT c.id FROM c ORDER BY c.price DESC`, `SELECT COUNT(1) AS n FROM c`} {
				got, _ := s.pages(t, r, store.QueryRequest{Text: text, Key: shopKey(t, "s4")})
				compareRows(t, text+" of s4", s.naive(t, text, "s4"), got)
			}
		})
	}
}

// compareRows compares rows: in order, if the query has one.
func compareRows(t *testing.T, text string, want, got []string) {
	t.Helper()
	if !strings.Contains(text, "ORDER BY") {
		if strings.Contains(text, "OFFSET") || strings.Contains(text, "TOP") {
			if len(want) != len(got) {
				t.Errorf("%s: %d rows, want %d", text, len(got), len(want))
			}
			return
		}
		slices.Sort(want)
		slices.Sort(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%.1500s", text, diff)
	}
}

func TestAContinuationIsOfItsQuery(t *testing.T) {
	t.Parallel()
	s := newShelf(t, shelfSpec(1), 30)
	first := store.QueryRequest{Text: `SELECT c.id FROM c WHERE c.price > @low`, Params: []store.QueryParam{{Name: "low", Value: []byte("0")}}, RowsMax: 3}
	page, err := s.ct.Query(t.Context(), first)
	if err != nil || page.Continuation == "" {
		t.Fatal(page, err)
	}
	for name, change := range map[string]func(r *store.QueryRequest){
		"another text":      func(r *store.QueryRequest) { r.Text += " " },
		"another parameter": func(r *store.QueryRequest) { r.Params = []store.QueryParam{{Name: "low", Value: []byte("1")}} },
		"another key":       func(r *store.QueryRequest) { r.Key = shopKey(t, "s1") },
		"a cut one":         func(r *store.QueryRequest) { r.Continuation = r.Continuation[:len(r.Continuation)-2] },
		"no base64url":      func(r *store.QueryRequest) { r.Continuation = "+" + r.Continuation[1:] },
		"another version":   func(r *store.QueryRequest) { r.Continuation = "_" + r.Continuation[1:] },
		"none at all":       func(r *store.QueryRequest) { r.Continuation = "nonsense" },
	} {
		next := first
		next.Continuation = page.Continuation
		if _, err := s.ct.Query(t.Context(), next); err != nil {
			t.Fatalf("the continuation itself: %v", err)
		}
		change(&next)
		if _, err := s.ct.Query(t.Context(), next); !errors.Is(err, store.ErrBadRequest) {
			t.Errorf("%s: %v, want 400", name, err)
		}
	}
}

func TestAWrongQueryIsRefusedWithItsPlace(t *testing.T) {
	s := newShelf(t, shelfSpec(1), 1)
	_, err := s.ct.Query(t.Context(), store.QueryRequest{Text: "SELECT *\nFROM c WHERE c.a = = 1"})
	var syntax *query.SyntaxError
	if !errors.As(err, &syntax) || syntax.Line != 2 || !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("%v, want the place of the second =", err)
	}
	if _, err := s.ct.Query(t.Context(), store.QueryRequest{Text: `SELECT * FROM c WHERE c.a = @x`}); !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("a parameter without a value: %v", err)
	}
}

func shopKey(t testing.TB, shop string) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(shop)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
