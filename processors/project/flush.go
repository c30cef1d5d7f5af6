package project

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/processors"
)

// Run makes durable what a sink that buffers has held for FlushInterval, and fills
// rows of items that are there, until ctx ends.
func (r *RowWriter) Run(ctx context.Context) error {
	defer r.close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.flushNow(ctx) })
	g.Go(func() error { return r.fill.Run(ctx) })
	return g.Wait()
}

// flushNow flushes now and then.
func (r *RowWriter) flushNow(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pauses := processors.NewPauses()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.broken:
			return err
		case <-r.held:
			timer.Reset(r.p.limits.FlushInterval)
		case <-timer.C:
			if err := r.flushAll(ctx, pauses); err != nil {
				if processors.FailureOf(ctx, err) == processors.Ended {
					return nil
				}
				return err
			}
		}
	}
}

// close ends the use of the sink: whoever waits for its turn waits for the end of
// the tenure.
func (r *RowWriter) close() {
	r.turn <- struct{}{} // ctx has ended, or ends with Run
	if r.writer == nil {
		return
	}
	if err := r.writer.Close(); err != nil {
		r.tenure.Logger.Warn("the sink's writer was not closed", slog.Any("error", err))
	}
}

// flushAll flushes, and tries again what fails.
func (r *RowWriter) flushAll(ctx context.Context, pauses *processors.Pauses) error {
	for {
		err := r.flushTurn(ctx)
		if err == nil {
			pauses.Reset()
			r.tenure.Changed("")
			return nil
		}
		switch processors.FailureOf(ctx, err) {
		case processors.Lost:
			processors.CountFenced(ctx, r.tenure.Resource)
			return err
		case processors.Ended:
			return err
		default:
		}
		r.failed(ctx, err)
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// failed notes a flush that is tried again, so that status tells of it.
func (r *RowWriter) failed(ctx context.Context, err error) {
	processors.CountRetry(ctx, r.tenure.Resource)
	r.mu.Lock()
	t := processors.Trouble{Attempts: 1, LastError: processors.Clip(err)}
	if r.trouble != nil {
		t.Attempts += r.trouble.Attempts
	}
	r.trouble = &t
	r.mu.Unlock()
	r.tenure.Changed("")
	level := slog.LevelWarn
	if t.Attempts == processors.StuckAttempts {
		level = slog.LevelError
	}
	r.tenure.Logger.Log(ctx, level, "rows cannot be made durable now; trying again", slog.Int("attempts", t.Attempts), slog.Any("error", err))
}

// flushTurn flushes when it is this goroutine's turn.
func (r *RowWriter) flushTurn(ctx context.Context) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.release()
	return r.flush(ctx)
}

// flushFull flushes if the sink holds as much as it may.
func (r *RowWriter) flushFull(ctx context.Context) error {
	if r.rows < r.p.limits.FlushRowsMax && r.bytes < r.p.limits.FlushBytesMax {
		return nil
	}
	return r.flush(ctx)
}

// flush makes durable what the sink holds. Its failures are not those of a
// change.
func (r *RowWriter) flush(ctx context.Context) error {
	if !r.holds() {
		return nil
	}
	ctx, span := tracer().Start(ctx, "millrace.project.flush")
	defer span.End()
	start := time.Now()
	at, err := r.writer.Flush(ctx)
	if err != nil {
		span.RecordError(err)
		return r.waiting(ctx, fmt.Sprintf("make %d rows durable", r.rows), err)
	}
	meters.flushDuration.Record(ctx, time.Since(start).Seconds(), r.p.measured(""))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded.Before(at) {
		r.recorded = at
	}
	if !at.Before(r.after) {
		r.durableLocked()
		return nil
	}
	if r.durable.Before(at) {
		r.durable = at
	}
	r.trouble = nil
	r.signalHeld()
	return nil
}

func (r *RowWriter) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holding
}
