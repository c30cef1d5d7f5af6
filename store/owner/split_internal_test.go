package owner

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// blank is an empty engine of a partition.
func (w *world) blank() *engine.Partition {
	w.t.Helper()
	db, err := engine.Open(w.t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = db.Close() })
	part, err := db.Partition(w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	return part
}

// heirAt is an engine with what an engine at LSN cut holds of a range, brought to the end of the log by its commits.
func (w *world) heirAt(commits []*feed.Commit, cut int, within feed.Range) *engine.Partition {
	w.t.Helper()
	parent := &applier{p: w.blank(), log: slog.New(slog.DiscardHandler)}
	for _, c := range commits[:cut] {
		if err := parent.apply(c); err != nil {
			w.t.Fatal(err)
		}
	}
	child := &applier{p: w.blank(), log: parent.log, schema: parent.schema, last: parent.last}
	levels := 1
	if cut > 0 {
		snap := parent.p.Snapshot()
		defer snap.Close()
		levels = len(parent.schema.key)
		snap.Only(shareOf(within, levels, func() *schema { return parent.schema }))
		state, err := parent.p.State()
		if err != nil {
			w.t.Fatal(err)
		}
		if err := child.p.Load(w.t.Context(), state, snap.Dump(), engine.LoadOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	child.p.SetShare(shareOf(within, levels, func() *schema { return child.schema }))
	for _, c := range commits[cut:] {
		for range 2 { // twice is harmless
			if err := child.apply(c); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return child.p
}

// sharesAgree checks that what two children get of a partition does not depend on when their seeds were taken, and that
// together they have each of its entries once, or twice if it belongs to no item. There must be entries of the kinds wants.
func (w *world) sharesAgree(wants ...string) {
	w.t.Helper()
	commits := w.commits()
	var at feed.EPK
	middle := [store.BoundaryBytes]byte{0x20}
	at = feed.EPK(middle[:])
	whole := w.heirAt(commits, len(commits), feed.Range{Max: feed.EPKMax})
	have := map[string]int{}
	for _, within := range []feed.Range{{Max: at}, {Min: at, Max: feed.EPKMax}} {
		digests := map[uint64]int{}
		for _, cut := range []int{len(commits), 1, len(commits) / 3, len(commits) * 2 / 3} {
			p := w.heirAt(commits, cut, within)
			d, err := p.Digest()
			if err != nil {
				w.t.Fatal(err)
			}
			digests[d] = cut
			if cut == len(commits) {
				for _, key := range w.entries(p) {
					have[key]++
				}
			}
		}
		if len(digests) != 1 {
			w.t.Errorf("%s: digests by when the seed was taken: %x", within, digests)
		}
	}
	keys, kinds := w.entries(whole), map[string]int{}
	for _, key := range keys {
		want, kind := 1, key[:1]
		if kind == "r" {
			kind = key[:2]
			if key[1] != recordAccumulator { // what is known of producers and clients is known in both
				want = 2
			}
		}
		kinds[kind]++
		if have[key] != want {
			w.t.Errorf("%d children have the entry %q, want %d", have[key], key, want)
		}
		delete(have, key)
	}
	if len(have) > 0 {
		w.t.Errorf("the children have %d entries that the partition has not", len(have))
	}
	w.t.Logf("entries by kind: %v", kinds)
	for _, kind := range wants {
		if kinds[kind] == 0 {
			w.t.Errorf("there are no entries of the kind %s", kind)
		}
	}
}

// entries are the keys of all that an engine has of a partition.
func (w *world) entries(p *engine.Partition) (keys []string) {
	w.t.Helper()
	snap := p.Snapshot()
	defer snap.Close()
	for e, err := range snap.Dump() {
		if err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, string(e.Key))
	}
	return keys
}

// A child's state is a function of logs: whenever its seed was taken, and for every kind of entry.
func TestI3_AShareIsAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	t.Run("items", func(t *testing.T) {
		w := newWorld(t, store.ContainerSpec{
			PartitionKey: []string{"/a"}, Indexes: []string{"/tags/*/id", "/n"}, UniqueKeys: [][]string{{"/u"}}, TTL: -1,
		})
		n := w.start(t.TempDir())
		newModel(t, n, 3).run(150)
		// In chunks, and of another logical partition.
		large := `{"id":"large","a":"b7","text":"` + strings.Repeat("x", 1200<<10) + `"}`
		n.mustOne(pk(t, "b7"), create(large))
		n.mustOne(pk(t, "b8"), create(`{"id":"ends","a":"b8","ttl":1000}`))
		keyed := &store.Transact{Key: pk(t, "b9"), Ops: []store.Operation{create(`{"id":"keyed","a":"b9","name":"old"}`)}, IdempotencyKey: "k"}
		if r := n.ask(&store.Request{Transact: keyed}); r.Err != nil {
			t.Fatal(r.Err)
		}
		if r := n.ask(&store.Request{PatchMany: &store.PatchMany{
			Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}, Epoch: 4, Source: "c", Position: feed.Position{LSN: 1}, Scope: store.Scope{Key: pk(t, "b9")},
			Copy: store.Copy{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(`"new"`)}}},
		}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		w.sharesAgree("b", "e", "i", "u", "x", "rP", "rF", "rI", "rJ")
	})
	t.Run("sums", func(t *testing.T) {
		s := newShop(t, ruled(totals(), true, true))
		s.random(rand.New(rand.NewPCG(9, 9)), 120)
		s.w.sharesAgree("i", "rA")
	})
}
