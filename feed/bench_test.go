package feed_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/natsd"
)

// page is a commit as a fan-out makes it: n items of 1 KiB in one transaction,
// each with the undo of its patch.
func page(tb testing.TB, n int) *feed.Commit {
	tb.Helper()
	c := &feed.Commit{ID: feed.NewCommitID(), Log: feed.NewLogID(), Owner: "node-1/2", Epoch: 4, Time: 1_700_000_000_000}
	key, err := feed.NewPartitionKey("26C74104-40BC-4541-8EF5-9892F7F03D72")
	if err != nil {
		tb.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"id":"x","categoryName":"Components, Road Frames","description":%q}`, bytes.Repeat([]byte("lorem ipsum "), 78))
	t := feed.Transaction{
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Effect:      &feed.Effect{Producer: feed.Producer{Pipeline: "category-names", Generation: 1, Source: "c7k2x4ab/0"}, Epoch: 3},
		Page:        &feed.Page{Source: "category-1", Cursor: []byte("cursor"), Paths: []string{"/categoryName"}},
	}
	for i := range n {
		t.Changes = append(t.Changes, feed.Change{
			Op: feed.OpReplace, Key: key, ID: fmt.Sprintf("027D0B9A-F9D9-4C96-8213-%012d", i), After: body,
			Undo: []document.Splice{{Path: "/categoryName", Offset: 26, Len: 23, Old: []byte(`Components`)}},
			Prev: feed.Position{LSN: 77, Index: uint32(i)}, PrevModified: c.Time - 5000, Modified: c.Time - 5000, Written: 77,
		})
	}
	c.Transactions = []feed.Transaction{t}
	return c
}

func BenchmarkAppendCommit(b *testing.B) {
	for _, n := range []int{1, 500, 5000} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			c := page(b, n)
			buf := feed.AppendCommit(nil, c)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf = feed.AppendCommit(buf[:0], c)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

func BenchmarkDecodeCommit(b *testing.B) {
	for _, n := range []int{1, 500, 5000} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			data := feed.AppendCommit(nil, page(b, n))
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := feed.DecodeCommit(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// patched is a change that gave an item of 4 KiB new values in n places.
func patched(tb testing.TB, n int) *feed.Change {
	tb.Helper()
	after := bytes.Repeat([]byte("x"), 4096)
	c := &feed.Change{Op: feed.OpReplace, ID: "x", After: after}
	for i := range n {
		offset := len(after) - (i+1)*len(after)/(n+1)
		c.Undo = append(c.Undo, document.Splice{Path: "/name", Offset: uint32(offset), Len: 10, Old: []byte("Components")})
	}
	return c
}

func BenchmarkChange_BeforeBody(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("splices=%d", n), func(b *testing.B) {
			c := patched(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.BeforeBody(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHash(b *testing.B) {
	key, err := feed.NewPartitionKey("26C74104-40BC-4541-8EF5-9892F7F03D72")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if key.Hash() == "" {
			b.Fatal("no hash")
		}
	}
}

// BenchmarkLog appends commits, one in flight, and follows them with a tail:
// the path of every change.
func BenchmarkLog(b *testing.B) {
	for _, n := range []int{1, 100, 500, 5000} {
		for _, s2 := range []bool{false, true} {
			for _, sync := range []time.Duration{0, 2 * time.Minute} {
				if s2 && n != 500 {
					continue
				}
				b.Run(fmt.Sprintf("items=%d/s2=%v/sync=%v", n, s2, sync), func(b *testing.B) {
					benchmarkLog(b, n, feed.LogConfig{Compression: s2}, sync)
				})
			}
		}
	}
}

func benchmarkLog(b *testing.B, n int, cfg feed.LogConfig, sync time.Duration) {
	b.Helper()
	bed := newBedWith(b, cfg, natsd.Config{SyncInterval: sync})
	l := bed.log(b)
	tail := mustTail(b, l, 1, feed.TailOptions{})
	c := page(b, n)
	c.Log = bed.id
	var buf []byte
	last, prev := feed.LSN(0), feed.Checksum(0)
	one := func() {
		c.ID, c.Prev = feed.NewCommitID(), prev
		buf = feed.AppendCommit(buf[:0], c)
		lsn, err := l.Append(b.Context(), last, c.ID, buf)
		if err != nil {
			b.Fatal(err)
		}
		last, prev = lsn, c.Sum
	}
	one()
	if _, err := tail.Next(b.Context()); err != nil {
		b.Fatal(err)
	}
	var appended time.Duration
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		one()
		appended += time.Since(start)
		if _, err := tail.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
	b.ReportMetric(float64(appended.Microseconds())/float64(b.N), "append-µs")
}

// BenchmarkLogOf appends commits of orders, plain and compressed, and follows them with a tail.
// Its CPU is that of the process, the server's included.
func BenchmarkLogOf(b *testing.B) {
	for _, x := range []struct{ orders, hot int }{{1, 0}, {4, 0}, {50, 0}, {50, 47}} {
		for _, sync := range []time.Duration{0, 2 * time.Minute} {
			for _, form := range []string{"plain", "compressed"} {
				b.Run(fmt.Sprintf("orders=%d/hot=%d/sync=%v/%s", x.orders, x.hot, sync, form), func(b *testing.B) {
					benchmarkOrders(b, orders(b, x.orders, x.hot), sync, form == "compressed")
				})
			}
		}
	}
}

func benchmarkOrders(b *testing.B, c *feed.Commit, sync time.Duration, compress bool) {
	b.Helper()
	bed := newBedWith(b, feed.LogConfig{}, natsd.Config{SyncInterval: sync})
	l := bed.log(b)
	tail := mustTail(b, l, 1, feed.TailOptions{})
	c.Log = bed.id
	var buf []byte
	last := feed.LSN(0)
	one := func() {
		c.ID = feed.NewCommitID()
		if compress {
			buf = feed.AppendCompressed(buf[:0], c, 0)
		} else {
			buf = feed.AppendCommit(buf[:0], c)
		}
		lsn, err := l.Append(b.Context(), last, c.ID, buf)
		if err != nil {
			b.Fatal(err)
		}
		last, c.Prev = lsn, c.Sum
		if _, err := tail.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	one()
	n := float64(len(c.Transactions))
	before := processorTime(b)
	for b.Loop() {
		one()
	}
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/1e3/float64(b.N)/n, "CPU-µs/order")
	b.ReportMetric(float64(len(buf))/n, "B/order")
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

// processorTime is what this process has used of processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTail reads a log from its start, as a reader does that catches up.
func BenchmarkTail(b *testing.B) {
	for _, n := range []int{1, 500, 5000} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			bed := newBedWith(b, feed.LogConfig{}, natsd.Config{SyncInterval: time.Minute})
			l := bed.log(b)
			c := page(b, n)
			c.Log = bed.id
			commits := feed.LSN(max(20, min(20_000, 40_000/n)))
			for lsn := range commits {
				c.ID = feed.NewCommitID()
				data := feed.AppendCommit(nil, c)
				c.Prev = c.Sum
				if _, err := l.Append(b.Context(), lsn, c.ID, data); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(data)) * int64(commits))
			}
			b.ReportAllocs()
			for b.Loop() {
				tail, err := l.Tail(b.Context(), 1, feed.TailOptions{})
				if err != nil {
					b.Fatal(err)
				}
				expect(b, tail, 1, commits)
				tail.Close()
			}
			b.ReportMetric(float64(n)*float64(commits)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}
