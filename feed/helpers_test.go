package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
)

// bed is an embedded server with one log.
type bed struct {
	server *natsd.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	p      feed.Partition
	id     feed.LogID
	cache  *feed.TailCache // of all that log opens; nil unless a test sets it
}

// newBed has a server that does not wait for the disk: nobody takes the power away.
func newBed(tb testing.TB) *bed {
	tb.Helper()
	return newBedWith(tb, feed.LogConfig{}, natsd.Config{SyncInterval: time.Minute})
}

func newBedWith(tb testing.TB, cfg feed.LogConfig, server natsd.Config) *bed {
	tb.Helper()
	server.Dir, server.DontListen, server.Log = tb.TempDir(), true, slog.New(slog.DiscardHandler)
	b := &bed{p: feed.Partition{Container: feed.NewResourceID()}, id: feed.NewLogID()}
	var err error
	if b.server, err = natsd.Open(tb.Context(), server); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.server.Close)
	b.nc, b.js = b.connect(tb)
	if err := feed.CreateLog(tb.Context(), b.js, b.p, b.id, cfg); err != nil {
		tb.Fatal(err)
	}
	return b
}

// connect opens another connection to the server.
func (b *bed) connect(tb testing.TB) (*nats.Conn, jetstream.JetStream) {
	tb.Helper()
	nc, err := b.server.Conn()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return nc, js
}

// api returns JetStream with serve before it. serve gets the requests, one at a time, and what each
// asks, such as STREAM.INFO.NAME; it calls forward for what JetStream is to answer.
func (b *bed) api(tb testing.TB, serve func(nc *nats.Conn, m *nats.Msg, question string)) jetstream.JetStream {
	tb.Helper()
	nc, _ := b.connect(tb)
	prefix := nats.NewInbox()
	if _, err := nc.Subscribe(prefix+".>", func(m *nats.Msg) { serve(nc, m, m.Subject[len(prefix)+1:]) }); err != nil {
		tb.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		tb.Fatal(err)
	}
	js, err := jetstream.NewWithAPIPrefix(b.nc, prefix)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// forward has the answer to m come from who listens to a subject.
func forward(tb testing.TB, nc *nats.Conn, m *nats.Msg, subject string) {
	tb.Helper()
	if err := nc.PublishRequest(subject, m.Reply, m.Data); err != nil && !nc.IsClosed() {
		tb.Error(err)
	}
}

func (b *bed) log(tb testing.TB) *feed.Log {
	tb.Helper()
	return b.logWith(tb, feed.LogConfig{Cache: b.cache})
}

func (b *bed) logWith(tb testing.TB, cfg feed.LogConfig) *feed.Log {
	tb.Helper()
	l, err := feed.OpenLog(tb.Context(), b.js, b.p, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}

// writer appends commits that form a chain.
type writer struct {
	t    testing.TB
	l    *feed.Log
	last feed.LSN
	sum  feed.Checksum
	time int64
	// trimmed is the trim point of the commits that come.
	trimmed feed.LSN
}

func newWriter(tb testing.TB, l *feed.Log) *writer {
	tb.Helper()
	return &writer{t: tb, l: l, time: 1_700_000_000_000}
}

// commit makes the next commit, with n changes, and its bytes.
func (w *writer) commit(n int) (*feed.Commit, []byte) {
	w.t.Helper()
	w.time += 1000
	c := &feed.Commit{ID: feed.NewCommitID(), Log: w.l.ID(), Prev: w.sum, Epoch: 1, Owner: "node-1/a", Time: w.time, Trimmed: w.trimmed}
	key, err := feed.NewPartitionKey("category-1")
	if err != nil {
		w.t.Fatal(err)
	}
	tx := feed.Transaction{}
	for i := range n {
		tx.Changes = append(tx.Changes, feed.Change{
			Op: feed.OpCreate, Key: key, ID: fmt.Sprintf("item-%d-%d", w.last+1, i),
			After: []byte(`{"id":"x"}`), Modified: w.time, Written: w.last + 1,
		})
	}
	c.Transactions = append(c.Transactions, tx)
	return c, feed.AppendCommit(nil, c)
}

// append appends the next n commits.
func (w *writer) append(n int) {
	w.t.Helper()
	for range n {
		c, data := w.commit(1)
		lsn, err := w.l.Append(w.t.Context(), w.last, c.ID, data)
		if err != nil {
			w.t.Fatal(err)
		}
		if lsn != w.last+1 {
			w.t.Fatalf("appended at %d, want %d", lsn, w.last+1)
		}
		w.last, w.sum = lsn, c.Sum
	}
}

// nexter is a Tail or a Reader.
type nexter interface {
	Next(ctx context.Context) (*feed.Commit, error)
}

// expect reads the commits from first to last, in order.
func expect(tb testing.TB, r nexter, first, last feed.LSN) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for lsn := first; lsn <= last; lsn++ {
		c, err := r.Next(ctx)
		if err != nil {
			tb.Fatalf("commit %d: %v", lsn, err)
		}
		if c.LSN != lsn {
			tb.Fatalf("commit %d, want %d", c.LSN, lsn)
		}
	}
}

// fails reads until an error comes.
func fails(tb testing.TB, r nexter) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := r.Next(ctx); err != nil {
			return err
		}
	}
}

func mustTail(tb testing.TB, l *feed.Log, from feed.LSN, opt feed.TailOptions) *feed.Tail {
	tb.Helper()
	tail, err := l.Tail(tb.Context(), from, opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(tail.Close)
	return tail
}
