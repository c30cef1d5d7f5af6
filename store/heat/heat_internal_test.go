package heat

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/feed"
)

func key(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// seeded is a meter whose sample is the same each time.
func seeded(seed uint64) *Meter {
	m := New()
	m.random = rand.New(rand.NewPCG(seed, 1)).Uint64
	return m
}

// ask counts a request of one key that took so long.
func (m *Meter) ask(c Class, k feed.PartitionKey, bytes int, took time.Duration) {
	m.End(m.Begin(c, false), Work{Class: c, Bytes: bytes, Took: took, Keys: Only(k)})
}

// TestSketch_HoldsItsBounds gives sketches loads of keys by many distributions, and compares
// each counter with an exact count.
func TestSketch_HoldsItsBounds(t *testing.T) {
	hashes := maphash.MakeSeed()
	keys := make([]feed.PartitionKey, 6000)
	texts := make([]string, len(keys))
	for i := range keys {
		keys[i] = key(t, fmt.Sprint("key ", i))
		texts[i] = keys[i].String()
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		// From a few keys to very many, from evenly to one key that has nearly all.
		zipf := rand.NewZipf(random, 1.01+2*random.Float64(), 1, 20+random.Uint64N(5000))
		exact, requests := map[string]uint64{}, map[string]uint64{}
		var s sketch
		var total uint64
		for range 500 + random.IntN(10000) {
			n := zipf.Uint64()
			if random.IntN(4) == 0 {
				n = random.Uint64N(1000)
			}
			k := keys[n]
			load := Load{1, random.Uint64N(100), time.Duration(random.Uint64N(200_000))}
			s.add(maphash.String(hashes, k.Encoded()), k, Class(random.IntN(int(classes))), load)
			exact[texts[n]] += load.weight()
			requests[texts[n]]++
			total += load.weight()
		}
		if s.total != total {
			t.Fatalf("seed %d: the sketch has %d in all, it was given %d", seed, s.total, total)
		}
		has := map[string]bool{}
		for i := range s.n {
			slot := &s.slots[i]
			has[slot.shown()] = true
			if true, least := exact[slot.shown()], s.loads[i]-slot.error; true < least || true > s.loads[i] {
				t.Errorf("seed %d: %s has %d, and is said to have %d to %d", seed, slot.shown(), true, least, s.loads[i])
			}
			if slot.error > total/slotsMax {
				t.Errorf("seed %d: the error of %s is %d of %d, more than one in %d", seed, slot.shown(), slot.error, total, slotsMax)
			}
			if n := slot.counts[Read].Requests + slot.counts[Write].Requests; n > requests[slot.shown()] || slot.error == 0 && n != requests[slot.shown()] {
				t.Errorf("seed %d: %s had %d requests, %d are told of", seed, slot.shown(), requests[slot.shown()], n)
			}
		}
		for k, load := range exact {
			if !has[k] && (load > total/slotsMax || load > s.free()) {
				t.Errorf("seed %d: %s has %d of %d and no counter; those without have %d at most", seed, k, load, total, s.free())
			}
		}
	}
}

// TestReport_TellsOfHotKeys asks for keys unevenly, with so many requests that few of them are
// in the sample, and expects the keys that have much in the order of what they have.
func TestReport_TellsOfHotKeys(t *testing.T) {
	for seed := range uint64(8) {
		m := seeded(seed)
		random := rand.New(rand.NewPCG(seed, 3))
		const requests = 300_000
		hot, cold := []int{30, 15, 5}, 0 // of a hundred
		keys := make([]feed.PartitionKey, 2000)
		for i := range keys {
			keys[i] = key(t, fmt.Sprint("k", i))
		}
		for range requests {
			at := random.IntN(100)
			i := 0
			for i < len(hot) && at >= hot[i] {
				at -= hot[i]
				i++
			}
			if i == len(hot) {
				cold++
				i += random.IntN(len(keys) - len(hot))
			}
			m.ask(Read, keys[i], 10, time.Microsecond)
		}
		r := m.Report()
		if r.Reads.Requests != requests || r.Reads.Bytes != 10*requests || r.Writes != (Load{}) {
			t.Fatalf("seed %d: %+v", seed, r)
		}
		if got := float64(r.Reads.Time) / float64(requests*time.Microsecond); math.Abs(got-1) > 0.05 {
			t.Errorf("seed %d: the time is estimated %.2f times what it was", seed, got)
		}
		if len(r.Keys) != len(hot) {
			t.Fatalf("seed %d: keys %+v", seed, r.Keys)
		}
		for i, k := range r.Keys {
			want := float64(hot[i]) / 100
			if k.Key != keys[i].String() || k.Share > want*1.15 || k.ShareMax < want*0.85 || k.ShareMax-k.Share > 1.0/slotsMax {
				t.Errorf("seed %d: %d of 100 are of %s; told is %+v", seed, hot[i], keys[i], k)
			}
			if got := float64(k.Reads.Requests) / requests; math.Abs(got-want) > 0.15*want {
				t.Errorf("seed %d: %s has %.3f of the requests, told is %.3f", seed, keys[i], want, got)
			}
		}
	}
}

// TestReport_NoKeyIsHotWhereAllAreAlike asks for many keys as often.
func TestReport_NoKeyIsHotWhereAllAreAlike(t *testing.T) {
	m := seeded(1)
	for i := range 20_000 {
		m.ask(Write, key(t, i%5000), 1, time.Microsecond)
	}
	if r := m.Report(); len(r.Keys) != 0 || r.Writes.Requests != 20_000 {
		t.Errorf("%+v", r)
	}
}

// TestReport_AKeyWithFewLongRequestsIsHot has one key with one request in a hundred, which takes
// longer than all others.
func TestReport_AKeyWithFewLongRequestsIsHot(t *testing.T) {
	m := seeded(1)
	for i := range 3000 {
		k, took := key(t, "short", i%300), time.Microsecond
		if i%100 == 0 {
			k, took = key(t, "long"), 20*time.Millisecond
		}
		m.ask(Read, k, 1, took)
	}
	r := m.Report()
	if len(r.Keys) == 0 || r.Keys[0].Key != `["long"]` || r.Keys[0].Share < 0.7 || r.Keys[0].Reads.Requests != 30 || r.Keys[0].Reads.Time != 600*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

// TestEnd_SpreadsARequestOverItsKeys counts pages of items of several keys.
func TestEnd_SpreadsARequestOverItsKeys(t *testing.T) {
	m := seeded(1)
	of := func(n int, at func(i int) any) Work {
		return Work{Class: Write, Bytes: 1000, Took: time.Second, Keys: Keys{N: n, At: func(i int) feed.PartitionKey { return key(t, at(i)) }}}
	}
	m.End(m.Begin(Write, true), of(100, func(i int) any { return i >= 25 })) // 25 false, 75 true
	r := m.Report()
	if len(r.Keys) != 2 || r.Keys[0].Key != "[true]" || r.Keys[0].Writes != (Load{1, 750, 750 * time.Millisecond}) || r.Keys[1].Writes != (Load{1, 250, 250 * time.Millisecond}) {
		t.Errorf("%+v", r)
	}
	if r.Writes != (Load{1, 1000, time.Second}) {
		t.Errorf("%+v", r.Writes)
	}
	// More runs than are attributed: some stand for the others, and together they are the whole.
	m = seeded(2)
	for range 100 {
		m.End(m.Begin(Write, true), of(997, func(i int) any { return i }))
	}
	total := float64(100 * (time.Second + 997*requestCost))
	if got := float64(m.window.Load().sketch.total); math.Abs(got/total-1) > 0.02 {
		t.Errorf("%.3f of the load was attributed", got/total)
	}
	// What is of no key adds to the whole, of which keys have a share.
	m = seeded(3)
	m.ask(Read, key(t, "k"), 1, time.Second)
	m.End(m.Begin(Read, true), Work{Class: Read, Took: time.Second})
	m.End(m.Begin(Read, true), of(0, nil))
	if r := m.Report(); len(r.Keys) != 1 || math.Abs(r.Keys[0].Share-1.0/3) > 0.001 {
		t.Errorf("%+v", r.Keys)
	}
}

// TestMeter_AsksNobodyToWait counts from many goroutines while reports are made: totals are
// exact, and each load is in the sketch or among what was missed.
func TestMeter_AsksNobodyToWait(t *testing.T) {
	m := New()
	m.at(0) // who comes while another begins the first window is in no window
	const workers, each = 8, 3000
	keys := []feed.PartitionKey{key(t, "a"), key(t, "b")}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	reporting := make(chan struct{})
	go func() {
		defer close(reporting)
		for {
			select {
			case <-stop:
				return
			default:
				m.Report()
			}
		}
	}()
	for w := range workers {
		wg.Go(func() {
			for range each {
				m.End(m.Begin(Class(w%2), true), Work{Class: Class(w % 2), Bytes: 3, Took: time.Microsecond, Keys: Only(keys[w/4])})
			}
		})
	}
	wg.Wait()
	close(stop)
	<-reporting
	want := Load{workers / 2 * each, 3 * workers / 2 * each, workers / 2 * each * time.Microsecond}
	if got := [2]Load{m.Take(Read), m.Take(Write)}; got != [2]Load{want, want} {
		t.Errorf("%+v", got)
	}
	w := m.window.Load()
	all := w.sketch.total + w.missed.Load()
	if w.last != nil {
		all += w.last.sketch.total + w.last.missed.Load()
	}
	if want := want.Plus(want); all != want.weight() {
		t.Errorf("%d of %d are counted or missed", all, want.weight())
	}
	// While the sketch is locked nobody waits, and each upper bound has what was missed.
	m = New()
	m.ask(Read, keys[0], 1, time.Millisecond)
	w = m.window.Load()
	w.sketch.mu.Lock()
	m.ask(Read, keys[1], 1, time.Millisecond)
	w.sketch.mu.Unlock()
	if r := m.Report(); len(r.Keys) != 1 || r.Keys[0].Share != 0.5 || r.Keys[0].ShareMax != 1 {
		t.Errorf("%+v", r)
	}
}

// TestReport_ShowsKeysCut shows keys of two kilobytes in little room, and valid text.
func TestReport_ShowsKeysCut(t *testing.T) {
	m := New()
	m.ask(Read, key(t, strings.Repeat("é", 1000)+"a"), 1, time.Millisecond)
	m.ask(Read, key(t, strings.Repeat("é", 1000)+"b"), 1, time.Millisecond)
	r := m.Report()
	if len(r.Keys) != 2 {
		t.Fatalf("keys that begin alike are one: %+v", r)
	}
	for _, k := range r.Keys {
		if len(k.Key) > keyShown+len("…") || !utf8.ValidString(k.Key) || !strings.HasSuffix(k.Key, "…") {
			t.Errorf("%q", k.Key)
		}
	}
}

// TestMeter_Nil measures nothing.
func TestMeter_Nil(t *testing.T) {
	var m *Meter
	m.ask(Read, key(t, 1), 1, time.Second)
	if m.Report() != nil || m.Take(Read) != (Load{}) {
		t.Error("a nil meter has measured something")
	}
}

// BenchmarkMeter measures what measuring a request costs.
func BenchmarkMeter(b *testing.B) {
	keys := make([]feed.PartitionKey, 10_000)
	for i := range keys {
		keys[i] = key(b, fmt.Sprint("key-", i))
	}
	for _, kind := range []string{"alike", "one"} {
		for _, weight := range []string{"all", "sampled"} {
			b.Run("keys="+kind+"/"+weight, func(b *testing.B) {
				m := New()
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					i++
					k := keys[0]
					if kind == "alike" {
						k = keys[i%len(keys)]
					}
					m.End(m.Begin(Read, weight == "all"), Work{Class: Read, Bytes: 100, Keys: Only(k)})
				}
			})
		}
	}
}
