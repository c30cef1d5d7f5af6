//go:build unix

package engine_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// load fills a partition with n items of 1 KiB in 1000 logical partitions.
func load(b *testing.B, n int, schema *engine.Schema) *engine.Partition {
	b.Helper()
	db, err := engine.Open(b.TempDir(), engine.Config{}, quiet)
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	p := openPartition(b, db, partA)
	keys := make([]feed.PartitionKey, 1000)
	for i := range keys {
		keys[i] = keyOf(b, i)
	}
	batch := p.NewBatch(schema)
	for i := range n {
		must(b, batch.Put(kib(keys[i%len(keys)], i), nil))
		if i%500 == 499 {
			must(b, batch.Commit())
		}
	}
	must(b, batch.Commit())
	must(b, engine.Flatten(db))
	return p
}

// BenchmarkCommit writes commits of bodies alone, as a fan-out does, and of puts
// with four indexes, as clients do.
func BenchmarkCommit(b *testing.B) {
	const n = 200_000
	schema := schemaOf(b, "/categoryId", "/group", "/flag", "/tags/*/id")
	p := load(b, n, schema)
	for _, size := range []int{1, 36, 500} {
		items := make([]*engine.Item, n)
		for i := range items {
			items[i] = kib(keyOf(b, i%1000), i)
		}
		for _, kind := range []string{"body", "put"} {
			b.Run(fmt.Sprintf("%s/items=%d", kind, size), func(b *testing.B) {
				b.ReportAllocs()
				start := cpuTime()
				b.SetBytes(int64(size) << 10)
				batch := p.NewBatch(schema)
				r := rand.New(rand.NewPCG(1, 2))
				next := 0
				for b.Loop() {
					for range size {
						if kind == "body" {
							must(b, batch.PutBody(items[next%n]))
							next++
							continue
						}
						it := items[r.IntN(n)]
						must(b, batch.Put(it, it))
					}
					must(b, batch.Commit())
				}
				report(b, size*b.N, start)
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	const n = 1_000_000
	schema := schemaOf(b, "/categoryId", "/group", "/flag")
	p := load(b, n, schema)
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime()
		r := rand.New(rand.NewPCG(1, 2))
		s := p.Snapshot()
		defer s.Close()
		keys := make([]feed.PartitionKey, 1000)
		for i := range keys {
			keys[i] = keyOf(b, i)
		}
		for b.Loop() {
			i := r.IntN(n)
			_, ok, err := s.Get(keys[i%1000], fmt.Sprintf("item-%08d", i))
			if must(b, err); !ok {
				b.Fatal("item is missing")
			}
		}
		report(b, b.N, start)
	})
	b.Run("snapshot", func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime()
		for b.Loop() {
			p.Snapshot().Close()
		}
		report(b, b.N, start)
	})
	b.Run("items", func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime()
		seen := 0
		for b.Loop() {
			s := p.Snapshot()
			for v, err := range s.Items(nil, nil) {
				if must(b, err); len(v.Body) > 0 {
					seen++
				}
			}
			s.Close()
		}
		report(b, seen, start)
	})
	b.Run("logical", func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime()
		seen := 0
		prefix := engine.LogicalPrefix(keyOf(b, 7))
		for b.Loop() {
			s := p.Snapshot()
			for _, err := range s.Items(nil, prefix) {
				must(b, err)
				seen++
			}
			s.Close()
		}
		report(b, seen, start)
	})
	for index, name := range []string{"1in40", "1in10", "1in2"} {
		b.Run("index/"+name, func(b *testing.B) {
			b.ReportAllocs()
			start := cpuTime()
			seen := 0
			value := []byte("3")
			switch index {
			case 0:
				value = []byte(`"category-07"`)
			case 2:
				value = []byte("1")
			}
			for b.Loop() {
				s := p.Snapshot()
				for _, err := range s.IndexItems(uint32(index+1), value, nil) {
					must(b, err)
					seen++
				}
				s.Close()
			}
			report(b, seen, start)
		})
	}
	b.Run("entries", func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime()
		seen := 0
		for b.Loop() {
			s := p.Snapshot()
			for _, err := range s.IndexEntries(2, []byte("3"), nil) {
				must(b, err)
				seen++
			}
			s.Close()
		}
		report(b, seen, start)
	})
}

// cpuTime returns the processor time that the process has used. On a machine that is
// shared it says more than the time that passed.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// report adds rates of what was done n times.
func report(b *testing.B, n int, start time.Duration) {
	b.Helper()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(n), "cpu-ns/item")
}

// BenchmarkLoad loads dumps of items of 1 KiB: without an index, and with four, whose
// entries are in the dump.
func BenchmarkLoad(b *testing.B) {
	const n = 200_000
	for name, schema := range map[string]*engine.Schema{"plain": {}, "indexes=4": schemaOf(b, "/categoryId", "/group", "/flag", "/tags/*/id")} {
		from := load(b, n, schema)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, err := engine.Open(b.TempDir(), engine.Config{}, quiet)
				must(b, err)
				to := openPartition(b, db, partA)
				s := from.Snapshot()
				state := engine.State{Applied: 7}
				start := cpuTime()
				b.StartTimer()
				must(b, to.Load(b.Context(), state, s.Dump(), engine.LoadOptions{}))
				b.ReportMetric(float64(cpuTime()-start)/n, "cpu-ns/item")
				b.StopTimer()
				s.Close()
				must(b, db.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
		})
	}
}

// BenchmarkTrailers compares reads with those that believe what Badger shows. A part of the
// items was written again since all tables were merged, so they are in several levels.
func BenchmarkTrailers(b *testing.B) {
	const n = 100_000
	db, err := engine.Open(b.TempDir(), engine.Config{}, quiet)
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	p := openPartition(b, db, partA)
	keys := make([]feed.PartitionKey, 1000)
	for i := range keys {
		keys[i] = keyOf(b, i)
	}
	batch := p.NewBatch(schemaOf(b))
	for round, step := range []int{1, 5} {
		for i := 0; i < n; i += step {
			must(b, batch.Put(kib(keys[i%len(keys)], i), nil))
			if i%500 == 0 {
				must(b, batch.Commit())
			}
		}
		must(b, batch.Commit())
		if round == 0 {
			must(b, engine.Flatten(db))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	ways := []struct {
		name string
		read func(s *engine.Snapshot) int
	}{
		{"get", func(s *engine.Snapshot) int {
			i := r.IntN(n)
			_, ok, err := s.Get(keys[i%1000], fmt.Sprintf("item-%08d", i))
			if must(b, err); !ok {
				b.Fatal("item is missing")
			}
			return 1
		}},
		{"missing", func(s *engine.Snapshot) int {
			i := r.IntN(n)
			_, _, err := s.Get(keys[i%1000], fmt.Sprintf("item-%08d-", i))
			must(b, err)
			return 1
		}},
		{"page of 5", func(s *engine.Snapshot) int {
			seen := 0
			for _, err := range s.Items(nil, engine.LogicalPrefix(keys[r.IntN(1000)])) {
				must(b, err)
				if seen++; seen == 5 {
					break
				}
			}
			return 1
		}},
		{"all", func(s *engine.Snapshot) (seen int) {
			for _, err := range s.Items(nil, nil) {
				must(b, err)
				seen++
			}
			return seen
		}},
	}
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			s := p.Snapshot()
			defer s.Close()
			// In turns, so that whatever else the machine does falls on both.
			var spent [2]time.Duration
			var seen [2]int
			for b.Loop() {
				for way := range spent {
					undo := func() {}
					if way == 1 {
						undo = engine.Unchecked(db)
					}
					start, begun := cpuTime(), seen[way]
					for seen[way] < begun+500 {
						seen[way] += w.read(s)
					}
					spent[way] += cpuTime() - start
					undo()
				}
			}
			checked := float64(spent[0].Nanoseconds()) / float64(seen[0])
			unchecked := float64(spent[1].Nanoseconds()) / float64(seen[1])
			b.ReportMetric(checked, "checked-cpu-ns/item")
			b.ReportMetric(unchecked, "unchecked-cpu-ns/item")
			b.ReportMetric(checked/unchecked, "ratio")
		})
	}
}
