package project_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// gate is a Memory that buffers, whose flushes wait until they are let through.
type gate struct {
	*sinktest.Memory
	flushes chan chan struct{} // one for each flush that waits, closed to let it through
	written chan int           // rows of each write
}

func newGate(disk *sinktest.Disk) *gate {
	return &gate{Memory: sinktest.NewMemory(disk, true), flushes: make(chan chan struct{}), written: make(chan int, 100)}
}

func (s *gate) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	w, at, err := s.Memory.Open(ctx, schema, t)
	return &gated{w, s}, at, err
}

type gated struct {
	project.Writer
	gate *gate
}

func (w *gated) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	written, err := w.Writer.Write(ctx, b)
	w.gate.written <- b.Len()
	return written, err
}

func (w *gated) Flush(ctx context.Context) (feed.Position, error) {
	through := make(chan struct{})
	select {
	case w.gate.flushes <- through:
	case <-ctx.Done():
		return feed.Position{}, context.Cause(ctx)
	}
	select {
	case <-through:
	case <-ctx.Done():
		return feed.Position{}, context.Cause(ctx)
	}
	return w.Writer.Flush(ctx)
}

// flushing waits for a flush.
func (s *gate) flushing(t *testing.T) (through chan struct{}) {
	t.Helper()
	select {
	case through = <-s.flushes:
	case <-time.After(time.Minute):
		t.Fatal("nothing is flushed")
	}
	return through
}

// wrote waits for the write of so many rows.
func (s *gate) wrote(t *testing.T, rows int) {
	t.Helper()
	select {
	case n := <-s.written:
		if n != rows {
			t.Fatalf("%d rows were written, want %d", n, rows)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing is written")
	}
}

// While a flush is under way the next batches are taken, twice what the sink may hold
// and no more. The checkpoint stays behind what is durable all the while, so that
// a process that ends in it loses nothing.
func TestI5_BatchesAreTakenBesideAFlush(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	sink := newGate(disk)
	cfg.Sink, cfg.FlushInterval, cfg.FlushRowsMax = sink, time.Hour, 6
	p := compile(t, cfg)
	l := newLease()
	stop := s.run(l, p)
	for i, id := range []string{"o1", "o2", "o3", "o4"} { // three rows each
		s.append(set{id: id, body: orderItem(id, day, "a", "b")})
		sink.wrote(t, 3)
		if i == 1 {
			sink.flushing(t) // and not let through
		}
	}
	s.append(set{id: "o5", body: orderItem("o5", day, "a", "b")})
	cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Taken.LSN == 3 })
	if !cp.Position.IsZero() || !cp.Recorded.IsZero() {
		t.Errorf("nothing is durable, and the checkpoint is %+v", cp)
	}
	select {
	case n := <-sink.written:
		t.Errorf("%d rows more were written, beyond twice of what the sink may hold", n)
	case <-time.After(50 * time.Millisecond):
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if cp, err := processors.DecodeCheckpoint(l.Checkpoint()); err != nil || !cp.Position.IsZero() {
		t.Errorf("nothing was durable, and the last checkpoint is %+v, %v", cp, err)
	}

	sink = newGate(disk)
	cfg.Sink = sink
	p = compile(t, cfg)
	s.run(l, p)
	close(sink.flushing(t))
	cp = l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Recorded.LSN > 0 })
	if cp.Recorded.Before(cp.Position) {
		t.Errorf("up to %s is durable, and the checkpoint is %+v", cp.Recorded, cp)
	}
	go func() {
		for {
			select {
			case through := <-sink.flushes:
				close(through)
			case <-t.Context().Done():
				return
			}
		}
	}()
	s.append(set{id: "o6", body: orderItem("o6", day, "a", "b", "c", "d", "e", "f")})
	s.done(l)
	s.equal(p)
	s.noDeadLetters()
}

// What comes last of a stream that has filled the sink is not held for the interval;
// what comes alone is.
func TestTheEndOfABurstIsFlushed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	cfg.Sink = sinktest.NewMemory(sinktest.NewDisk(), true)
	cfg.FlushInterval, cfg.FlushRowsMax = time.Hour, 6
	p := compile(t, cfg)
	l := newLease()
	s.append(set{id: "o1", body: orderItem("o1", day, slices.Repeat([]string{"a"}, 20)...)})
	s.run(l, p)
	s.done(l)
	s.append(set{id: "o2", body: orderItem("o2", day, "a")})
	s.done(l)
	s.equal(p)
	s.append(set{id: "o3", body: orderItem("o3", day, "a")})
	cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Taken.LSN == s.last })
	if cp.Position.LSN != s.last-1 {
		t.Errorf("two rows are held, and the checkpoint is %+v", cp)
	}
}
