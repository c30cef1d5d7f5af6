package project

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// slowSink buffers, and takes its time to make durable what it has.
type slowSink struct {
	Sink
	took  time.Duration
	fails error
	taken feed.Position
}

func (s *slowSink) Open(context.Context, *Schema, Term) (Writer, feed.Position, error) {
	return &slowWriter{s: s}, feed.Position{}, nil
}

type slowWriter struct {
	Writer
	s *slowSink
}

func (w *slowWriter) Write(_ context.Context, b *Batch) (Written, error) {
	w.s.taken = b.UpTo
	return Written{}, nil
}

func (w *slowWriter) Flush(ctx context.Context) (feed.Position, error) {
	at := w.s.taken
	select {
	case <-ctx.Done():
		return feed.Position{}, context.Cause(ctx)
	case <-time.After(w.s.took):
		return at, w.s.fails
	}
}

func (w *slowWriter) Close() error { return nil }

// patience is a context that ends when progress was not called for 30s, as that of a retry does.
func patience(ctx context.Context) (patient context.Context, progress, end func()) {
	patient, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(30*time.Second, func() { cancel(errors.New("no progress")) })
	return patient, func() { timer.Reset(30 * time.Second) }, func() { timer.Stop(); cancel(nil) }
}

// A retry waits until its rows are durable, however long the sink takes, and ends neither that nor
// what else is made durable with them. A flush that fails ends the retry, and so does one without an end.
func TestARetryWaitsForASlowFlush(t *testing.T) {
	for name, c := range map[string]struct {
		took  time.Duration
		fails error
		want  string // in the error of the retry
	}{
		"the sink is slow":          {40 * time.Second, nil, ""},
		"the sink fails":            {40 * time.Second, errors.New("the disk is full"), "the disk is full"},
		"the sink does not come to": {1000 * time.Hour, nil, "no progress"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &slowSink{took: c.took, fails: c.fails}
				r := (&Projection{declaration: &declaration{}, cfg: Config{Sink: sink, OnExpire: Delete}, limits: Limits{FlushInterval: time.Hour, FlushRowsMax: 1000, FlushBytesMax: 1 << 20}}).
					Rows(feed.Partition{}).(*RowWriter)
				r.term = &processors.Term{Resource: r.p.Resource(feed.Partition{}), Epoch: 1, Logger: slog.New(slog.DiscardHandler)}
				ran := make(chan error, 1)
				term, stop := context.WithCancel(t.Context())
				go func() { ran <- r.Run(term) }()

				ctx, progress, end := patience(term)
				defer end()
				g := newCoalescer(r.p, false)
				g.setReject(&Reject{Source: "c/[1]/o"}, true)
				began := time.Now()
				err := r.writeBetween(ctx, g, progress)
				if err != nil {
					err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
				}
				switch {
				case c.want == "" && (err != nil || r.recorded != sink.taken):
					t.Errorf("after %s: %v; recorded is %s of %s", time.Since(began), err, r.recorded, sink.taken)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("after %s: %v, want %s", time.Since(began), err, c.want)
				}
				if err := r.acquire(t.Context()); err != nil {
					t.Error(err)
				}
				r.release()
				stop()
				if err := <-ran; err != nil {
					t.Errorf("the term ended with %v", err)
				}
			})
		})
	}
}
