package feed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
)

// nextLater reads one commit in the background.
func nextLater(tb testing.TB, r nexter) <-chan error {
	tb.Helper()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
		defer cancel()
		_, err := r.Next(ctx)
		done <- err
	}()
	return done
}

func (b *bed) consumers(tb testing.TB) int {
	tb.Helper()
	stream, err := b.js.Stream(tb.Context(), b.p.Stream())
	if err != nil {
		tb.Fatal(err)
	}
	return stream.CachedInfo().State.Consumers
}

// A tail that has read the stream to its end gets what its process appends from the cache, and has no consumer.
func TestTailCache_ATailAtTheEndHasNoConsumer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cache := feed.NewTailCache()
	w := newWriter(t, b.logWith(t, feed.LogConfig{Cache: cache}))
	w.append(5)
	tail := mustTail(t, b.logWith(t, feed.LogConfig{Cache: cache}), 1, feed.TailOptions{WatchInterval: never})
	expect(t, tail, 1, 5)
	for range 20 {
		got := nextLater(t, tail)
		w.append(1)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	// The consumer delivers a commit before its owner knows that it is stored, so the tail changes over behind one.
	poll.Until(t, func() error {
		if n := b.consumers(t); n != 0 || tail.Consumer() != "" {
			got := nextLater(t, tail)
			w.append(1)
			return errors.Join(<-got, fmt.Errorf("%d consumers, that of the tail is %q", n, tail.Consumer()))
		}
		return nil
	})
	w.append(50)
	expect(t, tail, w.last-49, w.last)
	if tail.Consumer() != "" {
		t.Error("the tail made a consumer for what the cache had")
	}
	if _, bytes := cache.Kept(); bytes != 0 {
		t.Errorf("%d bytes are kept that the one tail has read", bytes)
	}
	tail.Close()
	w.l.Close()
	if logs, _ := cache.Kept(); logs != 0 {
		t.Error("the log is kept that nobody reads or appends to")
	}
}

// A tail that begins where the log of its process ends asks the stream nothing but whether it is silent.
func TestTailCache_ATailThatBeginsAtTheEndWaits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cache := feed.NewTailCache()
	w := newWriter(t, b.logWith(t, feed.LogConfig{Cache: cache}))
	w.append(3)
	for _, interval := range []time.Duration{never, time.Millisecond} {
		tail := mustTail(t, b.logWith(t, feed.LogConfig{Cache: cache}), w.last+1, feed.TailOptions{WatchInterval: interval, Prev: w.sum})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if c, err := tail.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v behind the end of the log", c, err)
		}
		cancel()
		w.append(1)
		expect(t, tail, w.last, w.last)
		if tail.Consumer() != "" {
			t.Error("the tail made a consumer")
		}
	}
}

// A tail goes back to the stream at once where this process stops to append, and by its watch where another process
// has taken over from one that does not know it.
func TestTailCache_WhatAnotherProcessAppendsComesFromTheStream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		interval time.Duration
		ends     func(t *testing.T, w, other *writer)
	}{
		"it has stopped": {never, func(_ *testing.T, w, _ *writer) { w.l.Close() }},
		"it is refused": {never, func(t *testing.T, w, other *writer) {
			t.Helper()
			other.last, other.sum, other.time = w.last, w.sum, w.time
			other.append(1)
			c, data := w.commit(1)
			if _, err := w.l.Append(t.Context(), w.last, c.ID, data); !errors.Is(err, feed.ErrFenced) {
				t.Errorf("%v, want that it is fenced", err)
			}
			w.last, w.sum, w.time = other.last, other.sum, other.time
		}},
		"it hangs": {10 * time.Millisecond, func(*testing.T, *writer, *writer) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			cache := feed.NewTailCache()
			w, other := newWriter(t, b.logWith(t, feed.LogConfig{Cache: cache})), newWriter(t, b.log(t))
			w.append(3)
			tail := mustTail(t, b.logWith(t, feed.LogConfig{Cache: cache}), w.last+1, feed.TailOptions{WatchInterval: test.interval, Prev: w.sum})
			w.append(1)
			expect(t, tail, 4, 4)
			if tail.Consumer() != "" {
				t.Fatal("the tail does not follow the cache")
			}
			got := nextLater(t, tail)
			test.ends(t, w, other)
			other.last, other.sum, other.time = w.last, w.sum, w.time
			other.append(30)
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			expect(t, tail, 6, other.last)
		})
	}
}

// A tail that falls behind what is kept reads the stream, holds nothing back, and comes back.
func TestTailCache_ASlowTailKeepsLittle(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string]*feed.TailCache{"of one log": feed.NewTailCacheOf(2000, 1<<20), "of all": feed.NewTailCacheOf(1<<20, 2000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			w := newWriter(t, b.logWith(t, feed.LogConfig{Cache: cache}))
			w.append(1)
			slow := mustTail(t, b.logWith(t, feed.LogConfig{Cache: cache}), 2, feed.TailOptions{Prev: w.sum})
			for range 100 {
				w.append(1)
				if _, bytes := cache.Kept(); bytes > 2000 {
					t.Fatalf("%d bytes are kept", bytes)
				}
			}
			if _, bytes := cache.Kept(); bytes != 0 {
				t.Errorf("%d bytes are kept for a tail that has to read the stream", bytes)
			}
			expect(t, slow, 2, w.last)
			for slow.Consumer() != "" {
				got := nextLater(t, slow)
				w.append(1)
				if err := <-got; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestI4_TailsGetAllInOrderWhoeverAppends has owners in and outside of the process take a log from each other, while answers
// are lost, and tails of many kinds read it: each gets every commit once and in order, as the stream has them.
func TestI4_TailsGetAllInOrderWhoeverAppends(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cache := feed.NewTailCacheOf(3000, 5000)
	const turns = 60
	impatient := 5 * time.Millisecond
	logs := [3]*feed.Log{
		b.logWith(t, feed.LogConfig{Cache: cache, AppendTimeout: impatient}), b.logWith(t, feed.LogConfig{Cache: cache, AppendTimeout: impatient}),
		b.logWith(t, feed.LogConfig{AppendTimeout: impatient}),
	}
	random := rand.New(rand.NewPCG(11, 4))
	for i, l := range logs {
		lost := rand.New(rand.NewPCG(5, uint64(i)))
		l.Lose(func(*nats.Msg) bool { return lost.IntN(8) == 0 })
	}
	w := newWriter(t, logs[0])
	w.append(1)
	var group sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ended := make(chan struct{})
	var last feed.LSN // once ended is closed
	for reader := range 4 {
		l := b.logWith(t, feed.LogConfig{Cache: cache})
		tail := mustTail(t, l, 1, feed.TailOptions{WatchInterval: 20 * time.Millisecond})
		pace := rand.New(rand.NewPCG(9, uint64(reader)))
		group.Go(func() {
			read := feed.LSN(0)
			for {
				select {
				case <-ended:
					if read == last {
						return
					}
				default:
				}
				turn, done := context.WithTimeout(ctx, time.Duration(1+pace.IntN(1000))*time.Millisecond)
				c, err := tail.Next(turn)
				done()
				switch {
				case err == nil && c.LSN != read+1:
					t.Errorf("reader %d: LSN %d behind %d", reader, c.LSN, read)
					return
				case err == nil:
					read++
				case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("reader %d at LSN %d: %v", reader, read, err)
					return
				}
				if reader > 1 && pace.IntN(20) == 0 { // as one that is slow
					if !pauseFor(ctx, 10*time.Millisecond) {
						return
					}
				}
			}
		})
	}
	for range turns {
		w.l = logs[random.IntN(len(logs))]
		w.append(1 + random.IntN(30))
		if random.IntN(4) == 0 {
			w.l.Close()
		}
	}
	last = w.last
	close(ended)
	group.Wait()
}

// pauseFor waits for d, and reports whether ctx goes on.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
