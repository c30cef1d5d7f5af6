package gateway_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// Names decide the resource ids of databases that nobody created, by 32 bits of a hash: these two share one. What is not
// clear is refused, and neither is deleted.
func TestByRID_OfTwoDatabases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	for _, name := range []string{"costarring", "liquid"} {
		if _, err := w.catalog.Create(t.Context(), name, "things", store.ContainerSpec{PartitionKey: []string{"/pk"}}); err != nil {
			t.Fatal(err)
		}
	}
	one, other := selfOf(t, w.ask("GET", "/dbs/costarring", "").is(200).body), selfOf(t, w.ask("GET", "/dbs/liquid", "").is(200).body)
	if one != other {
		t.Fatalf("%v and %v: two that share a resource id are expected", one, other)
	}
	if a := w.follow("GET", one, "").is(409); !strings.Contains(string(a.body), "2 databases") {
		t.Errorf("%s", a.body)
	}
	w.follow("DELETE", one, "").is(409)
	w.follow("GET", one.in("colls"), "").is(409)
	for _, name := range []string{"costarring", "liquid"} {
		w.ask("GET", "/dbs/"+name, "").is(200)
		w.follow("GET", selfOf(t, w.ask("GET", "/dbs/"+name+"/colls/things", "").is(200).body), "").is(200)
	}
}

// So it is with containers, whether the gateway follows the catalog or not.
func TestByRID_OfTwoContainers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	self := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	w.follow("GET", self, "").is(200)
	info, err := w.catalog.Get(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	info.Name = "twin"
	if _, err := w.catalog.RestoreContainer(t.Context(), info, "backup"); err != nil { // which keeps the resource id
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		a := w.follow("GET", self, "")
		return poll.Unless(a.status == 409 && strings.Contains(string(a.body), "2 containers"), fmt.Sprintf("%d %s", a.status, a.body))
	})
	w.follow("DELETE", self, "").is(409)
	w.serve(gateway.Config{})
	w.follow("DELETE", self, "").is(409)
	w.follow("GET", self.in("docs"), "").is(409)
	w.ask("GET", "/dbs/shop/colls/things", "").is(200)
}

// A process of an earlier release writes a record without the resource id in it: the gateway goes by the record.
func TestByRID_OfARecordThatHasLostIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	before := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	w.ask("GET", docs, "").is(200)
	kv, err := w.js.KeyValue(t.Context(), store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	w.dropRID(kv, store.CatalogKey("shop", "things"))
	after := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	if before == after {
		t.Fatalf("the record still has the resource id: %v", before)
	}
	poll.Until(t, func() error {
		var items struct {
			RID string `json:"_rid"`
		}
		w.ask("GET", docs, "").is(200).into(&items)
		return poll.Unless(strings.EqualFold(items.RID, after.signed), items.RID+", and the container's is "+after.signed)
	})
}

// An item is found behind more items of its key than a page of a query has, and what is no item's resource id needs no
// look at all: nobody is asked for it.
func TestByRID_OfAnItemAmongMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	key := []string{keyHeader, `["a"]`}
	w.container("things", byPK)
	container := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	for i := range store.QueryRowsMax/100 + 1 {
		var batch []string
		for j := range 100 {
			batch = append(batch, fmt.Sprintf(`{"operationType":"Create","resourceBody":{"id":"%04d","pk":"a"}}`, 100*i+j))
		}
		w.ask("POST", docs, "["+strings.Join(batch, ",")+"]", keyHeader, `["a"]`, isBatch, "True", atomic, "True").is(200)
	}
	item := selfOf(t, w.ask("POST", docs, `{"id":"last","pk":"a"}`, key...).is(201).body)
	w.follow("GET", item, "", key...).is(200)
	w.follow("DELETE", item, "", key...).is(204)
	w.follow("GET", item, "", key...).is(404)
	of := selfOf(t, w.ask("GET", "/dbs/shop/colls/things/pkranges/0", "").is(200).body)
	w.stopOwners()
	w.ask("GET", container.path+"/docs"+of.path[strings.LastIndexByte(of.path, '/'):], "", key...).is(404)
}

func (w *world) dropRID(kv jetstream.KeyValue, key string) {
	w.t.Helper()
	entry, err := kv.Get(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	const member = `"rid":"`
	at := bytes.Index(entry.Value(), []byte(member))
	if at < 0 {
		w.t.Fatalf("no resource id: %s", entry.Value())
	}
	end := at + len(member) + bytes.IndexByte(entry.Value()[at+len(member):], '"') + 1
	without := bytes.Replace(append(bytes.Clone(entry.Value()[:at]), entry.Value()[end:]...), []byte(",,"), []byte(","), 1)
	without = bytes.Replace(without, []byte(",}"), []byte("}"), 1)
	if _, err := kv.Update(w.t.Context(), key, without, entry.Revision()); err != nil {
		w.t.Fatal(err)
	}
}
