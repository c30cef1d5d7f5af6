package owner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/rid"
)

// TestPagesShowWhatDoesNotChangeOnce reads queries by pages while other items come, go
// and change: every item that is left alone is in one page exactly, and every page is
// in order behind the one before.
func TestPagesShowWhatDoesNotChangeOnce(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			s := newShelf(t, shelfSpec(partitions), 0)
			quietItems := s.fill(t, 240)
			ctx, stop := context.WithCancel(t.Context())
			var writers errgroup.Group
			for w := range uint64(2) {
				writers.Go(func() error { return s.disturb(ctx, w) })
			}
			for i, text := range []string{
				`SELECT c.id, c.price, c.quiet FROM c`,
				`SELECT c.id, c.price, c.quiet FROM c WHERE c.kind = "book"`,
				`SELECT c.id, c.price, c.quiet FROM c WHERE c.kind IN ("book", "toy")`,
				`SELECT c.id, c.price, c.quiet FROM c WHERE c.price >= 2 AND c.price < 30`,
				`SELECT c.id, c.price, c.quiet FROM c ORDER BY c.price`,
				`SELECT c.id, c.price, c.quiet FROM c WHERE c.kind != "toy" ORDER BY c.price DESC`,
				`SELECT c.id, c.stock AS price, c.quiet FROM c ORDER BY c.stock DESC`,
			} {
				r := rand.New(rand.NewPCG(uint64(i), uint64(partitions)))
				rows, _ := s.pages(t, r, store.QueryRequest{Text: text})
				got := ordered(t, text, rows)
				all := s.items
				s.items = quietItems
				want := ordered(t, text, s.naive(t, text, ""))
				s.items = all
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(want, got) {
					t.Errorf("%s: %d items that did not change, want %d:\n%v\n%v", text, len(got), len(want), got, want)
				}
			}
			stop()
			if err := writers.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// fill puts items that stay as they are.
func (s *shelf) fill(t *testing.T, n int) map[string][]byte {
	t.Helper()
	r := rand.New(rand.NewPCG(8, 8))
	for i := range n {
		body := shelfItem(r, i)
		s.put(t, append(body[:len(body)-1], `,"quiet":true}`...))
	}
	return s.items
}

// disturb creates, changes and deletes items until ctx ends.
func (s *shelf) disturb(ctx context.Context, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 99))
	for ctx.Err() == nil {
		body := shelfItem(r, 1000+int(seed)*1000+r.IntN(300))
		key, err := s.ct.KeyOf(body)
		if err != nil {
			return err
		}
		if r.IntN(3) > 0 {
			_, err = s.ct.Upsert(ctx, body)
		} else {
			var it struct{ ID string }
			if err := json.Unmarshal(body, &it); err != nil {
				return err
			}
			err = s.ct.Delete(ctx, key, it.ID)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// ordered returns the ids of quiet rows, and checks that rows are in order if the
// query has one.
func ordered(t *testing.T, text string, rows []string) []string {
	t.Helper()
	var ids []string
	last := 0.0
	for i, row := range rows {
		var it struct {
			ID    string
			Price *float64
			Quiet bool
		}
		if err := json.Unmarshal([]byte(row), &it); err != nil {
			t.Fatal(err)
		}
		price := -100.0 // undefined comes before all
		if it.Price != nil {
			price = *it.Price
		}
		if strings.Contains(text, "DESC") {
			price = -price
		}
		if strings.Contains(text, "ORDER BY") && i > 0 && price < last {
			t.Fatalf("%s: row %d, %s, comes behind a greater one", text, i, row)
		}
		last = price
		if it.Quiet {
			ids = append(ids, it.ID)
		}
	}
	return ids
}

// TestAContinuationOutlivesItsOwner goes on with pages after the process that gave the
// first of them stopped, at another one.
// TestQueriesWhileAnIndexGoes drops and declares an index under queries that it
// serves: they find every item with it and without.
func TestQueriesWhileAnIndexGoes(t *testing.T) {
	t.Parallel()
	const items = 2000
	s := newShelf(t, shelfSpec(1), 0)
	for i := 0; i < items; i += store.BatchOpsMax {
		var ops []store.Operation
		for n := range store.BatchOpsMax {
			ops = append(ops, store.Operation{Kind: store.OpCreate, Body: fmt.Appendf(nil, `{"id":"i%d","shop":"s1","kind":"book"}`, i+n)})
		}
		if result, err := s.ct.Batch(t.Context(), shopKey(t, "s1"), ops, ""); err != nil || result.Failed {
			t.Fatal(result, err)
		}
	}
	ask := func(explain bool) (*store.QueryPage, error) {
		return s.ct.Query(t.Context(), store.QueryRequest{Text: `SELECT VALUE COUNT(1) FROM c WHERE c.kind = "book"`, Explain: explain})
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers errgroup.Group
	for range 2 {
		readers.Go(func() error {
			for ctx.Err() == nil {
				page, err := ask(false)
				if err != nil {
					return err
				}
				if got := string(page.Rows[0]); got != fmt.Sprint(items) {
					return fmt.Errorf("%s items by %s, want %d", got, page.Metrics.Access, items)
				}
			}
			return nil
		})
	}
	with, without := shelfSpec(1), shelfSpec(1)
	without.Indexes = without.Indexes[1:]
	for i := range 8 {
		spec, want := without, ""
		if i%2 > 0 {
			spec, want = with, "/kind"
		}
		if _, err := s.catalog.Update(t.Context(), "default", "shelf", spec); err != nil {
			t.Fatal(err)
		}
		for index := "?"; index != want; {
			page, err := ask(true)
			if err != nil {
				t.Fatal(err)
			}
			index = page.Metrics.Index
		}
	}
	stop()
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAContinuationOutlivesItsOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if _, err := c.catalog.Create(t.Context(), "default", "shelf", shelfSpec(4)); err != nil {
		t.Fatal(err)
	}
	first := c.process("a", t.TempDir())
	s := &shelf{cluster: c, ct: c.container(first.client, "shelf"), items: map[string][]byte{}}
	s.fill(t, 120)
	pages := map[string]*store.QueryPage{}
	texts := []string{
		`SELECT c.id FROM c`, `SELECT c.id FROM c WHERE c.price > 4`, `SELECT c.id FROM c ORDER BY c.price DESC`,
		`SELECT c.kind, COUNT(1) AS n FROM c GROUP BY c.kind`, `SELECT DISTINCT c.stock FROM c`,
	}
	for _, text := range texts {
		page, err := s.ct.Query(t.Context(), store.QueryRequest{Text: text, RowsMax: 2})
		if err != nil || page.Continuation == "" {
			t.Fatal(page, err)
		}
		pages[text] = page
	}
	first.stop()
	s.ct = c.container(c.process("b", t.TempDir()).client, "shelf")
	for _, text := range texts {
		var got []string
		for _, row := range pages[text].Rows {
			got = append(got, string(row))
		}
		rest, _ := s.pages(t, rand.New(rand.NewPCG(1, 1)), store.QueryRequest{Text: text, Continuation: pages[text].Continuation})
		compareRows(t, text, s.naive(t, text, ""), append(got, rest...))
	}
}

func TestQueriesOfHierarchicalKeys(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/region", "/shop"}, Partitions: 3, Indexes: []string{"/n"}}
	if _, err := c.catalog.Create(t.Context(), "default", "shelf", spec); err != nil {
		t.Fatal(err)
	}
	s := &shelf{cluster: c, ct: c.container(c.process("a", t.TempDir()).client, "shelf"), items: map[string][]byte{}}
	for i := range 90 {
		s.put(t, fmt.Appendf(nil, `{"id":"i%d","region":"r%d","shop":%d,"n":%d}`, i, i%3, i%5, i))
	}
	all := s.items
	s.items = map[string][]byte{}
	for name, body := range all {
		if strings.Contains(string(body), `"region":"r1"`) {
			s.items[name] = body
		}
	}
	for _, text := range []string{`SELECT c.id FROM c`, `SELECT c.id FROM c WHERE c.n > 40`, `SELECT c.id FROM c ORDER BY c.n DESC`, `SELECT VALUE COUNT(1) FROM c`} {
		rows, access := s.pages(t, rand.New(rand.NewPCG(1, 1)), store.QueryRequest{Text: text, Key: shopKey(t, "r1")})
		compareRows(t, text, s.naive(t, text, ""), rows)
		t.Log(access)
	}
	s.items = all
	for _, text := range []string{
		`SELECT c.id FROM c WHERE c.region = "r1" AND c.shop = 3`, `SELECT c.id FROM c WHERE c.shop = 3 AND c.region IN ("r0", "r2")`,
		`SELECT c.n FROM c WHERE c.region = "r1" AND c.shop = 3 AND c.id = "i13"`, `SELECT c.id FROM c WHERE c.region = "r1"`,
	} {
		rows, access := s.pages(t, rand.New(rand.NewPCG(1, 1)), store.QueryRequest{Text: text})
		compareRows(t, text, s.naive(t, text, ""), rows)
		t.Log(access)
	}
	both, err := feed.NewPartitionKey("r1", 3, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ct.Query(t.Context(), store.QueryRequest{Text: `SELECT 1`, Key: both}); !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("a key of too many levels: %v", err)
	}
}

func TestQueriesReadSystemProperties(t *testing.T) {
	s := newShelf(t, shelfSpec(2), 20)
	item, err := s.ct.Read(t.Context(), shopKey(t, "s1"), s.anID(t, "s1"))
	if err != nil {
		t.Fatal(err)
	}
	info := s.ct.Info()
	own := rid.Item(info.RID(), item.Key, item.ID)
	whole := string(store.AppendSystem(nil, item.Body, own.String(), own.ItemSelf(), item.ETag, item.Modified))
	etag := strings.Trim(fmt.Sprintf("%q", `"`+item.ETag.String()+`"`), " ")
	for text, want := range map[string]string{
		`SELECT * FROM c WHERE c.id = "` + item.ID + `"`:                                     whole,
		`SELECT VALUE c._etag FROM c WHERE c.id = "` + item.ID + `"`:                         etag,
		`SELECT c._rid FROM c WHERE c._ts > 1600000000 AND c._rid = "` + own.String() + `"`:  `{"_rid":"` + own.String() + `"}`,
		`SELECT VALUE c.shop FROM c WHERE c._rid = "` + own.String() + `"`:                   `"s1"`,
		`SELECT * FROM c WHERE c.id = "` + item.ID + `" AND c.price < GetCurrentTimestamp()`: whole,
	} {
		page, err := s.ct.Query(t.Context(), store.QueryRequest{Text: text, System: true})
		if err != nil || len(page.Rows) != 1 || string(page.Rows[0]) != want {
			t.Errorf("%s: %s, %v; want %s", text, page.Rows, err, want)
		}
	}
	page, err := s.ct.Query(t.Context(), store.QueryRequest{Text: `SELECT VALUE c._ts FROM c`})
	if err != nil || len(page.Rows) != 0 {
		t.Errorf("system properties that nobody asked for: %s, %v", page.Rows, err)
	}
}

// anID returns the id of an item of a shop.
func (s *shelf) anID(t *testing.T, shop string) string {
	t.Helper()
	for _, body := range s.items {
		var it struct{ ID, Shop string }
		if err := json.Unmarshal(body, &it); err != nil {
			t.Fatal(err)
		}
		if it.Shop == shop {
			return it.ID
		}
	}
	t.Fatalf("no item of %s", shop)
	return ""
}

// TestPagesAreBoundedInBytes reads items of which few fit into a page, in whatever
// order: no page is larger than it may be, and memory stays below what all items take.
func TestPagesAreBoundedInBytes(t *testing.T) {
	s := newShelf(t, store.ContainerSpec{PartitionKey: []string{"/shop"}, Partitions: 2, Indexes: []string{"/price"}}, 0)
	pad := strings.Repeat("p", 700<<10)
	for i := range 24 {
		s.put(t, fmt.Appendf(nil, `{"id":"i%d","shop":"s%d","price":%d,"pad":%q}`, i, i%5, i*7%24, pad))
	}
	for _, text := range []string{
		`SELECT * FROM c`, `SELECT * FROM c ORDER BY c.price DESC`, `SELECT * FROM c ORDER BY c.id`, `SELECT * FROM c WHERE c.price >= 0`,
		`SELECT VALUE REPLICATE("p", 700000 + c.price) FROM c GROUP BY c.price`,
	} { // made when the parts are merged
		r := store.QueryRequest{Text: text, RowsMax: 1000}
		rows := 0
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for {
			page, err := s.ct.Query(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, row := range page.Rows {
				size += len(row)
			}
			if rows += len(page.Rows); size > store.QueryBytesMax {
				t.Errorf("%s: a page of %d rows has %d bytes", text, len(page.Rows), size)
			}
			if r.Continuation = page.Continuation; r.Continuation == "" {
				break
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if rows != 24 {
			t.Errorf("%s: %d rows, want 24", text, rows)
		}
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
			t.Errorf("%s: %d bytes are held behind the last page", text, grown)
		}
	}
}

// fill has a query hold nearly all of a room of 8 MiB, until release.
func fill(t *testing.T, room *query.Room) (release func()) {
	t.Helper()
	q, err := query.ParseQuery(`SELECT VALUE REPLICATE(c.a, 3900000) FROM c`)
	if err != nil {
		t.Fatal(err)
	}
	share := room.Share()
	run, err := q.Run(query.RunConfig{Share: share})
	if err == nil {
		err = run.Item([]byte(`{"a":"x"}`), []byte("1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return share.Free
}

// The queries of a process share what they may hold in memory. Who finds no room is to come again; who
// needs more than there is for all gets 400; one that holds little goes on beside.
func TestQueriesShareTheMemoryThatTheyMayHold(t *testing.T) {
	s := &shelf{cluster: newCluster(t), items: map[string][]byte{}}
	room := query.NewRoom(8 << 20)
	s.cfg.QueryTime, s.cfg.Queries = time.Minute, room
	if _, err := s.catalog.Create(t.Context(), "default", "shelf", shelfSpec(1)); err != nil {
		t.Fatal(err)
	}
	s.ct = s.container(s.process("a", t.TempDir()).client, "shelf")
	s.put(t, []byte(`{"id":"x","shop":"s"}`))
	ask := func(text string) *store.Error {
		t.Helper()
		_, err := s.ct.Query(t.Context(), store.QueryRequest{Text: text})
		if err == nil {
			return &store.Error{Status: store.StatusOK}
		}
		refusal, ok := errors.AsType[*store.Error](err)
		if !ok {
			t.Fatal(err)
		}
		return refusal
	}
	const large = `SELECT VALUE LENGTH(REPLICATE(c.id, 1000000)) FROM c`
	release := fill(t, room)
	if e := ask(large); e.Status != store.StatusTooManyRequests || e.RetryAfter <= 0 || !strings.Contains(e.Message, "store.queriesBytesMax") {
		t.Errorf("while another holds nearly all: %v, again after %s; want 429", e, e.RetryAfter)
	}
	if e := ask(`SELECT * FROM c`); e.Status != store.StatusOK {
		t.Errorf("a query that holds little: %v", e)
	}
	release()
	if e := ask(large); e.Status != store.StatusOK {
		t.Errorf("when it has ended: %v", e)
	}
	const most = `SELECT VALUE LENGTH(REPLICATE(c.id, 4000000)) + LENGTH(REPLICATE(c.id, 3999999)) + LENGTH(REPLICATE(c.id, 3999998)) FROM c`
	if e := ask(most); e.Status != store.StatusBadRequest || !strings.Contains(e.Message, "store.queriesBytesMax") {
		t.Errorf("one that needs more than all may hold: %v; want 400", e)
	}
	if taken := room.Taken(); taken != 0 {
		t.Errorf("%d bytes are taken when all have ended", taken)
	}
}

// Whoever merges the rows of partitions counts those that it holds, though each partition sends few.
func TestQueriesCountTheRowsThatAreMerged(t *testing.T) {
	t.Parallel()
	s := newShelf(t, shelfSpec(4), 0)
	const rows = 12
	for i := range rows {
		s.put(t, fmt.Appendf(nil, `{"id":"%d","shop":"shop %d","name":"n%d","text":%q}`, i, i, i, strings.Repeat("x", 300_000)))
	}
	for bytes, want := range map[int64]store.Status{1 << 20: store.StatusBadRequest, 16 << 20: store.StatusOK} {
		room := query.NewRoom(bytes)
		c, err := store.NewClient(s.conn(), s.catalog, store.ClientConfig{Timeout: time.Minute, Queries: room}).Open(s.ct.Info())
		if err != nil {
			t.Fatal(err)
		}
		got, found := store.StatusOK, 0
		for after := ""; ; {
			page, err := c.Query(t.Context(), store.QueryRequest{Text: `SELECT * FROM c ORDER BY c.name`, Continuation: after})
			if refusal, ok := errors.AsType[*store.Error](err); ok && strings.Contains(refusal.Message, "store.queriesBytesMax") {
				got = refusal.Status
				break
			}
			if err != nil {
				t.Fatalf("%d bytes for all: %v", bytes, err)
			}
			found += len(page.Rows) // a slow machine has several pages
			if after = page.Continuation; after == "" {
				break
			}
		}
		if got == store.StatusOK && found != rows {
			t.Errorf("%d bytes for all: %d rows, want %d", bytes, found, rows)
		}
		if got != want || room.Taken() != 0 {
			t.Errorf("%d bytes for all: %d, and %d bytes are taken then; want %d", bytes, got, room.Taken(), want)
		}
	}
}
