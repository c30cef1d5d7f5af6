package project

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Run makes durable what a sink that buffers holds, when it is full, has held it for
// FlushInterval, a burst of rows has ended, or a retry waits for it, and backfills rows of items that are there, until ctx ends.
func (r *RowWriter) Run(ctx context.Context) error {
	defer r.closeWriter()
	// Runs before closeWriter: whoever waits for room holds the slot that it waits for.
	defer close(r.runEnded)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.flushLoop(ctx) })
	g.Go(func() error { return r.backfill.Run(ctx) })
	return g.Wait()
}

// flushLoop flushes when the sink has held rows for long enough, or is full. Meanwhile the
// next batches are made and written, so that the feed does not stand still while a sink
// writes a file.
func (r *RowWriter) flushLoop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pauses := processors.NewPauses()
	for {
		full := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.broken:
			return err
		case <-r.full:
			full = r.bufferFull(1)
		case <-r.holding:
		case <-timer.C:
		}
		// A token may be left from before the last flush, and the timer was set for the
		// batch that was the oldest then: what is due now decides.
		due, early := r.flushDue()
		if !full && due > 0 {
			timer.Reset(due)
			continue
		}
		if early && !full {
			r.mu.Lock()
			r.early = time.Now()
			r.mu.Unlock()
		}
		if err := r.flushAll(ctx, full, pauses); err != nil {
			if processors.FailureOf(ctx, err) == processors.Canceled {
				return nil
			}
			return err
		}
		due, _ = r.flushDue()
		timer.Reset(due)
	}
}

// Finish makes Run flush what the sink holds at once: nothing more comes that could go with it.
func (r *RowWriter) Finish() {
	r.mu.Lock()
	if n := len(r.buffered); n > 0 {
		r.awaited = maxPosition(r.awaited, r.buffered[n-1].upTo)
	}
	r.mu.Unlock()
	signal(r.holding)
}

// burstEnds is how long nothing may come after a flush of a full sink before what came
// last is flushed too. A backfill of 450,000 rows with flushes of 200,000 leaves 50,000;
// they need not be held for FlushInterval as a trickle of changes is.
const burstEnds = 100 * time.Millisecond

// Where the sink holds many rows, or held many when it was flushed last, a twentieth of FlushInterval without a new batch ends
// the wait too: an import that has ended, or a rename, whose rows are worth a file of their own. What drips is gathered for all
// of it. Bursts that follow each other end a wait once in FlushInterval: so there are twice as many flushes at most.
const (
	burstRows = 1000 // or manyPart, if that is more
	manyPart  = 100  // of FlushRowsMax
	quietPart = 20   // of FlushInterval
)

// flushDue is how long what the sink holds may wait. early says that a burst that has ended ends the wait.
func (r *RowWriter) flushDue() (wait time.Duration, early bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.buffered) == 0 {
		return time.Hour, false
	}
	if r.recorded.Before(r.awaited) {
		return 0, false
	}
	// The oldest batch bounds the wait. Behind many rows some time without a new batch ends it earlier.
	interval := r.p.limits.FlushInterval
	at, newest := r.buffered[0].at.Add(interval), r.buffered[len(r.buffered)-1].at
	ends := at
	switch {
	case r.burst:
		ends = newest.Add(burstEnds)
	case r.behindMany || r.manyLocked():
		ends = newest.Add(interval / quietPart)
		if next := r.early.Add(interval); next.After(ends) {
			ends = next
		}
	}
	if ends.Before(at) {
		return max(time.Until(ends), 0), true
	}
	return max(time.Until(at), 0), false
}

// manyLocked says whether the sink holds rows enough for a file of their own.
func (r *RowWriter) manyLocked() bool {
	most := r.p.limits.FlushRowsMax
	return r.rows >= min(max(most/manyPart, burstRows), most)
}

// bufferFull says whether the sink holds so many times what it may.
func (r *RowWriter) bufferFull(times int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bufferFullLocked(times)
}

func (r *RowWriter) bufferFullLocked(times int) bool {
	return r.rows >= times*r.p.limits.FlushRowsMax || r.bytes >= times*r.p.limits.FlushBytesMax
}

// awaitRoom asks for a flush if the sink holds as much as it may, and waits while it holds
// twice that: one buffer is made durable while the next one fills. The error is that of a
// flush that failed while this waited. Run tries again by itself; the error is returned so
// that the Host counts it, and sees by that that the processor is alive.
func (r *RowWriter) awaitRoom(ctx context.Context) error {
	for {
		// flushed is read together with what it is about: a flush that ends right after
		// closes this very channel, so it cannot be missed.
		r.mu.Lock()
		full, over, flushed := r.bufferFullLocked(1), r.bufferFullLocked(2), r.flushed
		r.mu.Unlock()
		if full {
			signal(r.full)
		}
		if !over {
			return nil
		}
		select {
		case <-flushed:
		case <-r.runEnded:
			return store.Refuse(store.StatusUnavailable, "nobody makes the rows durable any more: the term ends")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r.mu.Lock()
		err := r.failure
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// closeWriter ends the use of the sink. It keeps the slot of sem: whoever waits for it from
// now on waits until ctx ends, and does not write to a closed writer.
func (r *RowWriter) closeWriter() {
	r.sem <- struct{}{} // comes soon: ctx has ended, or ends with Run
	r.backfill.closeWriter()
	if r.writer == nil {
		return
	}
	if err := r.writer.Close(); err != nil {
		r.term.Logger.Warn("the sink's writer was not closed", slog.Any("error", err))
	}
}

// flushAll flushes, and tries again what fails, without end: nobody's change is at fault,
// and what the sink has taken cannot be given up. A sink that is not what it was ends the term.
func (r *RowWriter) flushAll(ctx context.Context, full bool, pauses *processors.Pauses) error {
	for {
		r.mu.Lock()
		many := r.manyLocked()
		r.mu.Unlock()
		err := r.flush(ctx)
		if end, ok := errors.AsType[fatalError](err); ok {
			return end.error
		}
		r.mu.Lock()
		r.failure, r.burst, r.behindMany = err, full, many
		close(r.flushed)
		r.flushed = make(chan struct{})
		r.mu.Unlock()
		if err == nil {
			pauses.Reset()
			r.term.Changed("")
			return nil
		}
		switch processors.FailureOf(ctx, err) {
		case processors.Fenced:
			processors.CountFenced(ctx, r.term.Resource)
			return err
		case processors.Canceled:
			return err
		default:
		}
		r.noteFailure(ctx, err)
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// noteFailure notes a flush that is tried again, so that status tells of it.
func (r *RowWriter) noteFailure(ctx context.Context, err error) {
	r.mu.Lock()
	r.trouble = r.term.Failed(ctx, r.trouble, "rows cannot be made durable now", err)
	r.mu.Unlock()
	r.term.Changed("")
}

// flush makes durable what the sink holds, beside what is written to it meanwhile. Its
// failures are not those of a change.
func (r *RowWriter) flush(ctx context.Context) error {
	rows, some := r.bufferedRows()
	if !some {
		return nil
	}
	ctx, span := tracer().Start(ctx, "millrace.project.flush")
	defer span.End()
	if span.IsRecording() {
		r.describeSpan(span)
		span.SetAttributes(attribute.Int("millrace.rows", rows))
	}
	start := time.Now()
	at, err := r.writer.Flush(ctx)
	if err != nil {
		span.RecordError(err)
		if errors.Is(err, ErrPosition) {
			// The writer has ended. Only a new one knows what the sink has.
			return fatalError{fmt.Errorf("make %d rows durable: %w", rows, err)}
		}
		return r.unavailable(ctx, fmt.Sprintf("make %d rows durable", rows), err)
	}
	meters.flushDuration.Record(ctx, time.Since(start).Seconds(), r.p.measured(""))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.durableLocked(at)
	r.trouble = nil
	return nil
}

// bufferedRows is how many rows the sink holds, and whether there is a batch that it does.
func (r *RowWriter) bufferedRows() (rows int, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows, len(r.buffered) > 0
}
