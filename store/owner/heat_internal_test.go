package owner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/heat"
)

// heatOf asks for the heat of a partition, by key, without times and shares, which differ each
// time.
func (n *node) heatOf() (reads, writes heat.Load, keys map[string][2]heat.Load) {
	n.w.t.Helper()
	resp := n.ask(&store.Request{Status: &store.StatusRequest{}})
	if resp.Err != nil || resp.Status.Heat == nil {
		n.w.t.Fatalf("%+v", resp)
	}
	keys = map[string][2]heat.Load{}
	for _, k := range resp.Status.Heat.Keys {
		keys[k.Key] = [2]heat.Load{k.Reads, k.Writes}
	}
	return resp.Status.Heat.Reads, resp.Status.Heat.Writes, keys
}

// TestHeat_IsOfWhatWasAsked asks a partition for something of each kind, and expects it to count
// for the keys that it names or changes, and for the partition alone where it names none.
func TestHeat_IsOfWhatWasAsked(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	var wantReads, wantWrites heat.Load
	keys := map[string][2]heat.Load{}
	expect := func(what string) {
		t.Helper()
		reads, writes, got := n.heatOf()
		if reads.Time <= 0 && wantReads.Requests > 0 || writes.Time <= 0 && wantWrites.Requests > 0 {
			t.Errorf("%s took no time: %+v %+v", what, reads, writes)
		}
		untimed := cmpopts.IgnoreFields(heat.Load{}, "Time")
		if diff := cmp.Diff(
			[]any{wantReads.Requests, wantReads.Bytes, wantWrites.Requests, keys},
			[]any{reads.Requests, reads.Bytes, writes.Requests, got}, untimed, cmpopts.IgnoreFields(heat.Load{}, "Bytes"), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
		if writes.Bytes < wantWrites.Bytes {
			t.Errorf("%s: %d bytes were written, at least %d are expected", what, writes.Bytes, wantWrites.Bytes)
		}
	}
	asked := func(key string, c heat.Class) {
		of := keys[key]
		of[c].Requests++
		keys[key] = of
	}
	expect("a status, which counts for nothing")

	x, y := pk(t, "x"), pk(t, "y")
	body := `{"id":"1","a":"x","pad":"` + strings.Repeat("p", 100) + `"}`
	n.mustOne(x, create(body))
	n.mustOne(y, create(strings.ReplaceAll(body, `"x"`, `"y"`)))
	asked(`["x"]`, heat.Write)
	asked(`["y"]`, heat.Write)
	wantWrites = heat.Load{Requests: 2, Bytes: uint64(2 * len(body))}
	expect("two creates")

	if _, err := n.one(x, create(body)); err == nil {
		t.Fatal("an item was created twice")
	}
	asked(`["x"]`, heat.Write)
	wantWrites.Requests++
	expect("a refusal")

	n.read(x, "1")
	n.read(x, "none")
	asked(`["x"]`, heat.Read)
	asked(`["x"]`, heat.Read)
	wantReads = heat.Load{Requests: 2, Bytes: uint64(len(body))}
	expect("two reads, one of an item that is not there")

	ask := func(r *store.Request) *store.Response {
		t.Helper()
		resp := n.ask(r)
		if resp.Err != nil {
			t.Fatal(resp.Err)
		}
		return resp
	}
	ask(&store.Request{Read: &store.ReadItems{Barrier: true, Refs: []store.ItemRef{{Key: x, ID: "1"}, {Key: x, ID: "2"}, {Key: y, ID: "1"}}}})
	asked(`["x"]`, heat.Read)
	asked(`["y"]`, heat.Read)
	wantReads = wantReads.Plus(heat.Load{Requests: 1, Bytes: uint64(2 * len(body))})
	expect("a read of items of two keys")

	ask(&store.Request{Scan: &store.Scan{}})
	wantReads = wantReads.Plus(heat.Load{Requests: 1, Bytes: uint64(2 * len(body))})
	expect("a scan of the partition")
	ask(&store.Request{Scan: &store.Scan{Scope: store.Scope{Key: y}}})
	asked(`["y"]`, heat.Read)
	wantReads = wantReads.Plus(heat.Load{Requests: 1, Bytes: uint64(len(body))})
	expect("a scan of a key")
	ask(&store.Request{Count: &store.Scope{}})
	wantReads.Requests++
	expect("a count")

	ask(&store.Request{Query: &store.Query{Text: "SELECT VALUE 1 FROM c"}})
	wantReads = wantReads.Plus(heat.Load{Requests: 1, Bytes: 2})
	expect("a query of the partition")
	ask(&store.Request{Query: &store.Query{Text: "SELECT VALUE 1 FROM c", Key: y}})
	asked(`["y"]`, heat.Read)
	wantReads = wantReads.Plus(heat.Load{Requests: 1, Bytes: 1})
	expect("a query of a key")

	ask(&store.Request{PatchMany: &store.PatchMany{
		Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s"}, Epoch: 1, Source: "c", Position: feed.Position{LSN: 1},
		Copy: store.Copy{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(`"n"`)}}},
	}})
	asked(`["x"]`, heat.Write)
	asked(`["y"]`, heat.Write)
	wantWrites.Requests++
	expect("a page of a fan-out")
}

// TestHeat_FindsTheHotKey writes and reads one key among hundreds more often than all others,
// from many goroutines.
func TestHeat_FindsTheHotKey(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "hot"), create(`{"id":"1","a":"hot"}`))
	var wg sync.WaitGroup
	const each = 100
	for g := range 8 {
		wg.Go(func() {
			for i := range each {
				key := "hot"
				if i%4 == 0 {
					key = fmt.Sprint("cold ", g, i)
				}
				k, _ := feed.NewPartitionKey(key)
				if _, err := n.one(k, upsert(fmt.Sprintf(`{"id":"1","a":"%s"}`, key))); err != nil {
					t.Error(err)
				}
				n.read(k, "1")
			}
		})
	}
	wg.Wait()
	resp := n.ask(&store.Request{Status: &store.StatusRequest{}})
	h := resp.Status.Heat
	if h.Reads.Requests != 8*each || h.Writes.Requests != 8*each+1 {
		t.Errorf("reads %d, writes %d", h.Reads.Requests, h.Writes.Requests)
	}
	// By its load it may be behind one whose request met a pause of the machine.
	i := slices.IndexFunc(h.Keys, func(k heat.Key) bool { return k.Key == `["hot"]` })
	if i < 0 || h.Keys[i].Reads.Requests+h.Keys[i].Writes.Requests < 10*each {
		t.Errorf("%+v", h.Keys)
	}
}

// BenchmarkHeat measures acknowledged writes, and reads, with and without the heat being
// measured, in turns: the metric ratio is the median of how many there are with it, of those
// without.
func BenchmarkHeat(b *testing.B) {
	for _, what := range []string{"write", "read"} {
		b.Run(what, func(b *testing.B) {
			w := newWorld(b, byA)
			n := w.start(b.TempDir())
			pad := strings.Repeat("p", 960)
			keys, bodies := make([]feed.PartitionKey, 1000), make([]store.Operation, 1000)
			for i := range keys {
				a := fmt.Sprint("a", i)
				keys[i] = pk(b, a)
				bodies[i] = upsert(fmt.Sprintf(`{"id":"item","a":"%s","pad":"%s"}`, a, pad))
				n.mustOne(keys[i], bodies[i])
			}
			round := func(many int) time.Duration {
				began := time.Now()
				var wg sync.WaitGroup
				writers := 64
				if what == "read" {
					writers = 2
				}
				for g := range writers {
					wg.Go(func() {
						for i := g; i < many; i += writers {
							op := bodies[i%1000]
							if what == "read" {
								op = store.Operation{Kind: store.OpRead, ID: "item"}
							}
							if _, err := n.one(keys[i%1000], op); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(began)
			}
			many := 640
			if what == "read" {
				many = 10_000
			}
			meter := n.heat
			var ratios []float64
			var with time.Duration
			b.ResetTimer()
			for i := range b.N {
				turn := func(m *heat.Meter) time.Duration {
					n.heat = m // nobody asks meanwhile
					return round(many)
				}
				var on, off time.Duration
				if i%2 == 0 {
					on, off = turn(meter), turn(nil)
				} else {
					off, on = turn(nil), turn(meter)
				}
				with += on
				ratios = append(ratios, float64(off)/float64(on))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(float64(b.N*many)/with.Seconds(), what+"s/s")
		})
	}
}
