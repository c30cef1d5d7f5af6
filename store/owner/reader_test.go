package owner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// TestRead_OnASubjectOfItsOwn asks for items on the subject that readers may
// publish to, and tries to write there.
func TestRead_OnASubjectOfItsOwn(t *testing.T) {
	c := newCluster(t)
	if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	c.process("one", t.TempDir())
	ct := c.container(store.NewClient(c.conn(), c.catalog, store.ClientConfig{}), "things")
	if _, err := ct.Upsert(t.Context(), []byte(`{"id": "x", "a": "1"}`)); err != nil {
		t.Fatal(err)
	}
	key, err := feed.NewPartitionKey("1")
	if err != nil {
		t.Fatal(err)
	}
	p := ct.PartitionFor(key)
	write := &store.Transact{Key: key, Ops: []store.Operation{{Kind: store.OpDelete, ID: "x"}}}
	reader := c.conn()

	// What the client refuses by itself, the owner refuses too.
	if _, err := store.NewClient(reader, c.catalog, store.ClientConfig{ReadOnly: true}).Do(t.Context(), &store.Request{Partition: p, Transact: write}); !errors.Is(err, store.ErrForbidden) {
		t.Errorf("a write of a client for reading: %v, want 403", err)
	}
	producer := feed.Producer{Pipeline: "p", Source: "s"}
	for name, r := range map[string]*store.Request{
		"delete": {Transact: write},
		"mixed":  {Transact: &store.Transact{Key: key, Ops: []store.Operation{{Kind: store.OpRead, ID: "x"}, write.Ops[0]}, Batch: true}},
		"patch":  {PatchMany: &store.PatchMany{Producer: producer, Epoch: 1, Plant: true}},
		"repair": {Repair: &store.Repair{Producer: producer, Epoch: 1}},
		"fold":   {Fold: &store.FoldMany{Producer: producer, Epoch: 1}},
		"rows":   {PutRows: &store.PutRows{Producer: producer, Epoch: 1}},
	} {
		r.Partition = p
		m, err := reader.Request(store.ReadSubject(p), store.AppendRequest(nil, r), 30*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp, err := store.DecodeResponse(m.Data)
		if err != nil || resp.Err == nil || resp.Err.Status != store.StatusForbidden {
			t.Errorf("%s on the subject of reads: %v, %v; want 403", name, resp.Err, err)
		}
	}

	// An answer is not sent to a subject that the asker chose.
	spy, err := reader.SubscribeSync("$KV.some.key")
	if err != nil {
		t.Fatal(err)
	}
	read := store.AppendRequest(nil, &store.Request{Partition: p, Read: &store.ReadItems{Refs: []store.ItemRef{{Key: key, ID: "x"}}}})
	if err := reader.PublishRequest(store.ReadSubject(p), "$KV.some.key", read); err != nil {
		t.Fatal(err)
	}
	m, err := reader.Request(store.ReadSubject(p), read, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := store.DecodeResponse(m.Data); err != nil || resp.Err != nil || len(resp.Read) != 1 || resp.Read[0].ETag == (store.ETag{}) {
		t.Errorf("read on the subject of reads: %+v, %v; want the item", resp, err)
	}
	if n, _, err := spy.Pending(); n != 0 || err != nil {
		t.Errorf("%d answers went to a subject that is no inbox", n)
	}
	// Clients of an earlier version ask on the subject of writes.
	if m, err := reader.Request(store.RequestSubject(p), read, 30*time.Second); err != nil || len(m.Data) == 0 {
		t.Errorf("read on the subject of writes: %v, %v", m, err)
	}
}
