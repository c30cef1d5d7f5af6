package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// splitWorld is a gateway before a container of one partition, which split splits. Its items are in another store: in a
// container of one partition, and in one of two with the same.
type splitWorld struct {
	*world
	local *store.Local
	info  store.ContainerInfo
	halves,
	whole *store.Container
	back      *store.Client
	forgotten bool // the parent, when it is split: its log is deleted
}

func newSplitWorld(t *testing.T) *splitWorld {
	t.Helper()
	behind, front := storetest.Start(t), storetest.System(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 1}
	w := &splitWorld{world: &world{t: t, keys: gateway.NewKeys(), catalog: front.Client.Catalog()}, local: &store.Local{}, back: behind.Client}
	w.key, w.whole = w.keys.Primary, behind.Container(t, "whole", spec)
	spec.Partitions = 2
	w.halves = behind.Container(t, "halves", spec)
	for i := range 20 {
		for _, c := range []*store.Container{w.whole, w.halves} {
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","k":"k%d"}`, i, i%7)); err != nil {
				t.Fatal(err)
			}
		}
	}
	spec.Partitions = 1
	var err error
	if w.info, err = w.catalog.Create(t.Context(), "shop", "things", spec); err != nil {
		t.Fatal(err)
	}
	w.local.Add(feed.Partition{Container: w.info.ID}, storetest.Instead{Client: w.back, Of: w.whole.Partitions()[0]})
	w.client, w.js = store.NewClient(front.NC, w.catalog, store.ClientConfig{Local: w.local}), front.JS
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if w.gateway, err = gateway.New(w.client, ring, gateway.Config{Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	w.web = httptest.NewServer(w.gateway) // without Run: each request reads the catalog
	t.Cleanup(w.web.Close)
	return w
}

// split writes what a split leaves in the catalog.
func (w *splitWorld) split() {
	w.t.Helper()
	info := w.info
	info.Former = []store.FormerPartition{{PartitionInfo: info.Partitions[0], Last: 10, First: 1 << 20, Children: []uint32{5, 6}}}
	info.Partitions = slices.Clone(w.halves.Info().Partitions)
	for i := range info.Partitions {
		info.Partitions[i].Number = uint32(5 + i)
		w.local.Add(feed.Partition{Container: info.ID, Number: uint32(5 + i)}, storetest.Instead{Client: w.back, Of: w.halves.Partitions()[i]})
	}
	w.local.Add(feed.Partition{Container: info.ID}, leaving{})
	if w.forgotten {
		info.Former = nil
	}
	data, err := json.Marshal(info)
	if err != nil {
		w.t.Fatal(err)
	}
	kv, err := w.js.KeyValue(w.t.Context(), store.CatalogBucket)
	if err == nil {
		_, err = kv.Put(w.t.Context(), store.CatalogKey("shop", "things"), data)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// leaving is an owner whose partition was split.
type leaving struct{}

func (leaving) Handle(context.Context, *store.Request) *store.Response {
	return &store.Response{Err: &store.Error{Status: store.StatusGone, Message: "was split", RetryAfter: 1}}
}

// Clients ask for the ranges again where one is gone, and know the children by their parents.
func TestPKRanges_NameTheParentsOfChildren(t *testing.T) {
	t.Parallel()
	w := newSplitWorld(t)
	before := w.ask("GET", "/dbs/shop/colls/things/pkranges", "").is(200)
	item := selfOf(t, w.ask("GET", "/dbs/shop/colls/things/docs/1", "", keyHeader, `["k1"]`).is(200).body)
	container := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	w.split()
	var list struct {
		Ranges []struct {
			ID      string
			Parents []string
		} `json:"PartitionKeyRanges"`
	}
	w.ask("GET", "/dbs/shop/colls/things/pkranges", "", "If-None-Match", before.header.Get("etag")).is(200).into(&list)
	got := map[string][]string{}
	for _, r := range list.Ranges {
		got[r.ID] = r.Parents
	}
	if diff := cmp.Diff(map[string][]string{"5": {"0"}, "6": {"0"}}, got); diff != "" {
		t.Errorf("parents (-want +got):\n%s", diff)
	}
	for _, with := range []headers{{rangeHeader, "0"}, {rangeHeader, "0", "A-IM", "Incremental Feed"}} {
		w.ask("GET", "/dbs/shop/colls/things/docs", "", with...).is(410, "1002")
	}
	w.ask("GET", "/dbs/shop/colls/things/docs/1", "", keyHeader, `["k1"]`).is(200)
	w.follow("GET", container.in("pkranges"), "").is(200) // links hold
	w.follow("GET", item, "", keyHeader, `["k1"]`).is(200)
}

// A read feed that has come half way goes on in the children: of the whole container, and of a child with the continuation
// of its parent, also when nobody knows the parent any more.
func TestReadFeed_GoesOnThroughASplit(t *testing.T) {
	t.Parallel()
	for page := range 6 {
		w := newSplitWorld(t)
		w.forgotten = page%2 == 1
		var seen []string
		read := func(token string, with ...string) string {
			var list struct {
				Documents []struct{ ID string }
			}
			if token != "" {
				with = append(with, goOn, token)
			}
			a := w.ask("GET", "/dbs/shop/colls/things/docs", "", append(with, pageItems, "3")...).is(200).into(&list)
			for _, d := range list.Documents {
				seen = append(seen, d.ID)
			}
			return a.header.Get(goOn)
		}
		whole, part := "", ""
		for range page {
			whole = read(whole)
		}
		first := slices.Clone(seen)
		for range page {
			part = read(part, rangeHeader, "0")
		}
		w.split()
		seen = first
		for more := true; more; more = whole != "" {
			whole = read(whole)
		}
		if got := slices.Compact(slices.Sorted(slices.Values(seen))); len(seen) != 20 || len(got) != 20 {
			t.Errorf("split behind page %d: %d items came, %d of them different, want 20", page, len(seen), len(got))
		}
		seen = slices.Clone(first)
		for _, child := range []string{"5", "6"} {
			at := part
			for more := true; more; more = at != "" {
				at = read(at, rangeHeader, child)
			}
		}
		if got := slices.Compact(slices.Sorted(slices.Values(seen))); len(seen) != 20 || len(got) != 20 {
			t.Errorf("each child, split behind page %d: %d items came, %d of them different, want 20", page, len(seen), len(got))
		}
	}
}

// Of a query that has come half way in a range, each child has the rest of what lies in it, also when nobody knows the parent
// any more. A continuation of something else is none.
func TestQuery_OfARangeGoesOnInEachChild(t *testing.T) {
	t.Parallel()
	for n, text := range []string{"SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.k", "SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.k"} {
		w := newSplitWorld(t)
		w.forgotten = n >= 2
		var seen []string
		ask := func(token, of string) string {
			var list struct{ Documents []string }
			with := []string{isQuery, "true", "Content-Type", "application/query+json", rangeHeader, of, pageItems, "3"}
			if token != "" {
				with = append(with, goOn, token)
			}
			a := w.ask("POST", "/dbs/shop/colls/things/docs", fmt.Sprintf(`{"query":%q}`, text), with...).is(200).into(&list)
			seen = append(seen, list.Documents...)
			return a.header.Get(goOn)
		}
		at := ask(ask("", "0"), "0")
		w.split()
		for _, child := range []string{"5", "6"} {
			of := at
			for more := true; more; more = of != "" {
				of = ask(of, child)
			}
		}
		if got := slices.Compact(slices.Sorted(slices.Values(seen))); len(seen) != 20 || len(got) != 20 {
			t.Errorf("%s, the parent forgotten: %t: %d rows came, %d of them different, want 20", text, w.forgotten, len(seen), len(got))
		}
		w.ask("POST", "/dbs/shop/colls/things/docs", `{"query":"SELECT * FROM c"}`,
			isQuery, "true", "Content-Type", "application/query+json", rangeHeader, "5", goOn, at).is(400)
	}
}

// Writes that meet a split go on in the children, and their session tokens are of those.
func TestItems_AreWrittenThroughASplit(t *testing.T) {
	t.Parallel()
	w := newSplitWorld(t)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := range 5 {
				if i == 0 && n == 2 {
					w.split()
				}
				body := fmt.Sprintf(`{"id":"w%d-%d","k":"k%d"}`, i, n, i)
				w.ask("POST", "/dbs/shop/colls/things/docs", body, keyHeader, fmt.Sprintf(`["k%d"]`, i)).is(201)
			}
		})
	}
	running.Wait()
	a := w.ask("POST", "/dbs/shop/colls/things/docs", `{"id":"last","k":"k1"}`, keyHeader, `["k1"]`).is(201)
	if token := a.header.Get("x-ms-session-token"); token == "" || token[:2] != "5:" && token[:2] != "6:" {
		t.Errorf("the session token of a write is %q, want one of a child", token)
	}
}
