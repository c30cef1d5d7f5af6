package owner

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// guarded sends a guarded transaction.
func (n *node) guarded(k feed.PartitionKey, since feed.LSN, ops ...store.Operation) *store.Response {
	return n.ask(&store.Request{Transact: &store.Transact{Key: k, Guarded: true, Since: since, Batch: true, Ops: ops}})
}

// beginGuarded returns the LSN with which a guarded transaction begins.
func (n *node) beginGuarded(k feed.PartitionKey) feed.LSN {
	n.w.t.Helper()
	r := n.guarded(k, 0)
	if r.Err != nil || r.Transact.LSN == 0 {
		n.w.t.Fatalf("begin: %+v", r)
	}
	return r.Transact.LSN
}

// TestI3_GuardRefusesWhatWasDecidedSince: whatever changed the logical partition, and only that.
func TestI3_GuardRefusesWhatWasDecidedSince(t *testing.T) {
	spec := byA
	spec.TTL = -1
	w := newWorld(t, spec)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	for name, c := range map[string]struct {
		ready   []store.Operation // before the transaction begins
		between []store.Operation
	}{
		"a create of another id": {nil, []store.Operation{create(`{"id":"new","a":"x"}`)}},
		"a replace":              {[]store.Operation{upsert(`{"id":"1","a":"x"}`)}, []store.Operation{upsert(`{"id":"1","a":"x","n":1}`)}},
		"a delete":               {[]store.Operation{upsert(`{"id":"2","a":"x"}`)}, []store.Operation{{Kind: store.OpDelete, ID: "2"}}},
		"a patch": {
			[]store.Operation{upsert(`{"id":"3","a":"x","n":1}`)},
			[]store.Operation{patch("3", document.Op{Kind: "incr", Path: "/n", Value: []byte("1")})},
		},
	} {
		for i := range c.ready {
			n.mustOne(k, c.ready[i])
		}
		since := n.beginGuarded(k)
		for i := range c.between {
			n.mustOne(k, c.between[i])
		}
		r := n.guarded(k, since, upsert(`{"id":"late","a":"x"}`))
		if r.Err == nil || r.Err.Status != store.StatusPreconditionFailed {
			t.Errorf("%s: %+v", name, r)
		}
		if r := n.guarded(k, since); r.Err == nil || r.Err.Status != store.StatusPreconditionFailed {
			t.Errorf("%s, asked without operations: %+v", name, r)
		}
		if n.read(k, "late") != "" {
			t.Fatalf("%s: what was refused was written", name)
		}
	}
	since := n.beginGuarded(k)
	n.mustOne(k, store.Operation{Kind: store.OpRead, ID: "1"})
	if r := n.guarded(k, since, create(`{"id":"read only between","a":"x"}`)); r.Err != nil || r.Transact.Failed {
		t.Errorf("after a read alone: %+v", r)
	}
	if r := n.guarded(k, since); r.Err == nil {
		t.Error("the guarded transaction itself is not known to the next one")
	}
	// Logical partitions share places, so one of many may be refused for another's sake.
	taken := 0
	for i := range 20 {
		since := n.beginGuarded(k)
		n.mustOne(pk(t, "other"+strconv.Itoa(i)), upsert(`{"id":"1","a":"other`+strconv.Itoa(i)+`"}`))
		if r := n.guarded(k, since); r.Err == nil {
			taken++
		}
	}
	if taken < 15 {
		t.Errorf("%d of 20 were taken, between writes of others", taken)
	}
	// Expiry.
	n.mustOne(k, upsert(`{"id":"short","a":"x","ttl":10}`))
	since = n.beginGuarded(k)
	w.clock.Add(20_000)
	for wait := n.changed.wait(); n.guarded(k, since).Err == nil; wait = n.changed.wait() { // until the sweep has come
		select {
		case <-wait:
		case <-t.Context().Done():
			t.Fatal("no sweep")
		}
	}
}

// TestI1_GuardOfAFormerOwner: what was read at one owner is not guarded by the next one, which does not know what was
// decided before it opened, unless it opened with just that.
func TestI1_GuardOfAFormerOwner(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	since := n.beginGuarded(k)
	n.mustOne(k, upsert(`{"id":"1","a":"x"}`))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.start(dir)
	if r := n.guarded(k, since, upsert(`{"id":"2","a":"x"}`)); r.Err == nil || r.Err.Status != store.StatusPreconditionFailed {
		t.Errorf("the next owner took it: %+v", r)
	}
	if r := n.guarded(k, n.beginGuarded(k), upsert(`{"id":"2","a":"x"}`)); r.Err != nil {
		t.Error(r.Err)
	}
}

// TestI3_GuardedCountersLoseNothing: read, then write guarded, many at a time and beside writers that are not guarded.
func TestI3_GuardedCountersLoseNothing(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	const keys, each = 3, 60
	for i := range keys {
		n.mustOne(pk(t, strconv.Itoa(i)), create(fmt.Sprintf(`{"id":"n","a":"%d","n":0}`, i)))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, 2))
			for range each {
				i := random.IntN(keys)
				k := pk(t, strconv.Itoa(i))
				for {
					since := n.beginGuarded(k)
					var count int
					if _, err := fmt.Sscanf(n.read(k, "n"), fmt.Sprintf(`{"id":"n","a":"%d","n":%%d}`, i), &count); err != nil {
						t.Error(err)
						return
					}
					r := n.guarded(k, since, upsert(fmt.Sprintf(`{"id":"n","a":"%d","n":%d}`, i, count+1)))
					if r.Err == nil {
						break
					}
					if r.Err.Status != store.StatusPreconditionFailed {
						t.Error(r.Err)
						return
					}
				}
			}
		})
		wg.Go(func() {
			for i := range each {
				n.mustOne(pk(t, strconv.Itoa(i%keys)), patch("n", document.Op{Kind: "incr", Path: "/n", Value: []byte("1")}))
			}
		})
	}
	wg.Wait()
	sum := 0
	for i := range keys {
		var count int
		if _, err := fmt.Sscanf(n.read(pk(t, strconv.Itoa(i)), "n"), fmt.Sprintf(`{"id":"n","a":"%d","n":%%d}`, i), &count); err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	if sum != 8*each {
		t.Errorf("the counters are %d together, of %d increments", sum, 8*each)
	}
}
