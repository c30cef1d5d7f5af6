// Package judge tells whether reads of items are stale, exactly: each item has one writer, which writes versions that grow,
// and any number of readers.
//
//	writer   ──── 7 ────┤ack    ──── 8 ────┤ack
//	reader          ├─ reads 6, 7 ─┤  ├─ reads 7 or 8, never 6 ─┤
//
// A read is right if its version is no older than the newest that was acknowledged, or that another read returned, before it
// began, and no newer than the one that was being written when it ended. With one writer these are all orders in which the
// item is linearizable. The writer writes a version again until it is acknowledged, under one idempotency key, so that no
// write comes late.
package judge

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Register is an item. Its zero value has version 0. It is safe for concurrent use.
type Register struct {
	mu    sync.Mutex // guards what follows
	begun uint64     // the newest version that a write was begun of
	known uint64     // the newest that was acknowledged or read
}

// Write writes a version every so often until ctx ends. write is called again with the same version while it fails.
func (r *Register) Write(ctx context.Context, every time.Duration, write func(ctx context.Context, version uint64) error) {
	for pause(ctx, every) {
		r.mu.Lock()
		r.begun++
		version := r.begun
		r.mu.Unlock()
		for write(ctx, version) != nil {
			if !pause(ctx, every) {
				return
			}
		}
		r.learn(version)
	}
}

// learn notes that a version is there.
func (r *Register) learn(version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = max(r.known, version)
}

func (r *Register) bounds() (known, begun uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known, r.begun
}

// Reader reads a register and judges what it gets.
type Reader struct {
	of   *Register
	read func(ctx context.Context) (version uint64, err error)

	mu      sync.Mutex // guards verdict
	verdict Verdict
}

// Verdict is what a reader has found.
type Verdict struct {
	Reads  int // answered ones
	Failed int
	Errors []error // of the first ErrorsMax that failed
	Wrong  []Wrong
}

// ErrorsMax bounds the errors that a Verdict keeps.
const ErrorsMax = 100

// Wrong is a read that is not right.
type Wrong struct {
	Began, Ended time.Time
	Got          uint64
	Least, Most  uint64
}

func (w Wrong) String() string {
	const clock = "15:04:05.000"
	return fmt.Sprintf("a read from %s to %s returned version %d; %d to %d would be right", w.Began.UTC().Format(clock), w.Ended.UTC().Format(clock), w.Got, w.Least, w.Most)
}

// NewReader returns a reader of r.
func NewReader(r *Register, read func(ctx context.Context) (version uint64, err error)) *Reader {
	return &Reader{of: r, read: read}
}

// Run reads every so often until ctx ends.
func (d *Reader) Run(ctx context.Context, every time.Duration) {
	for pause(ctx, every) {
		d.once(ctx)
	}
}

func (d *Reader) once(ctx context.Context) {
	w := Wrong{Began: time.Now()}
	w.Least, _ = d.of.bounds()
	got, err := d.read(ctx)
	if err != nil && ctx.Err() != nil {
		return
	}
	_, w.Most = d.of.bounds()
	w.Got, w.Ended = got, time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		d.verdict.Failed++
		if len(d.verdict.Errors) < ErrorsMax {
			d.verdict.Errors = append(d.verdict.Errors, fmt.Errorf("at %s: %w", w.Ended.UTC().Format("15:04:05.000"), err))
		}
		return
	case got < w.Least || got > w.Most:
		d.verdict.Wrong = append(d.verdict.Wrong, w)
	default:
		d.of.learn(got)
	}
	d.verdict.Reads++
}

// Verdict returns what has been found so far.
func (d *Reader) Verdict() Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.verdict
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
