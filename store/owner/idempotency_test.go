package owner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	send := func(key string, ops ...store.Operation) *store.Response {
		return n.ask(&store.Request{Transact: &store.Transact{Key: k, Ops: ops, IdempotencyKey: key, Batch: true}})
	}
	ops := []store.Operation{create(`{"id":"1","a":"x","n":1}`), patch("1", document.Op{Kind: "incr", Path: "/n", Value: []byte("1")})}
	ops[0].ID = "1"
	first := send("once", ops...)
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	strip := func(r *store.Response) *store.TransactResult {
		out := *r.Transact
		out.Results = append([]store.OpResult(nil), out.Results...)
		for i := range out.Results {
			it := &out.Results[i].Item
			it.Body, it.Modified, it.Written = nil, 0, 0
		}
		return &out
	}
	again := send("once", ops...)
	if diff := cmp.Diff(strip(first), strip(again), cmp.Comparer(func(a, b feed.PartitionKey) bool { return a == b })); diff != "" {
		t.Errorf("the repetition was answered otherwise:\n%s", diff)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.start(dir)
	if r := send("once", ops...); r.Err != nil || r.Transact.Failed {
		t.Errorf("after a restart: %+v", r)
	}
	if got := n.read(k, "1"); got != `{"id":"1","a":"x","n":2}` {
		t.Errorf("item %s", got)
	}
	w.clock.Add(2 * idempotencyWindow.Milliseconds())
	n.mustOne(k, upsert(`{"id":"2","a":"x"}`))
	if r := send("once", ops...); !r.Transact.Failed || r.Transact.Results[0].Status != store.StatusConflict {
		t.Errorf("after the window: %+v", r.Transact)
	}
}
