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
			slow := mustTail(t, b.logWith(t, feed.LogConfig{Cache: cache}), 2, feed.TailOptions{Prev: w.sum, WatchInterval: never})
			for range 100 {
				w.append(1)
				if _, bytes := cache.Kept(); bytes > 2000 {
					t.Fatalf("%d bytes are kept", bytes)
				}
			}
			if _, bytes := cache.Kept(); bytes != 0 {
				t.Errorf("%d bytes are kept for a tail that has to read the stream", bytes)
			}
			if expect(t, slow, 2, w.last); slow.Consumer() == "" {
				t.Error("the tail has got what was dropped, and not from the stream")
			}
			poll.Until(t, func() error {
				got := nextLater(t, slow)
				w.append(1)
				if err := <-got; err != nil {
					return err
				}
				if c := slow.Consumer(); c != "" {
					return fmt.Errorf("the tail has consumer %s", c)
				}
				return nil
			})
		})
	}
}

// Where other logs have taken the room, a tail at the end of its log stays with its consumer; one who reads from the stream
// alone does so anyway.
func TestTailCache_WithoutRoomTailsReadTheStream(t *testing.T) {
	t.Parallel()
	full, here := newBed(t), newBed(t)
	full.cache = feed.NewTailCacheOf(4000, 5000)
	here.cache = full.cache
	other := newWriter(t, full.log(t))
	other.append(1)
	mustTail(t, full.log(t), 2, feed.TailOptions{Prev: other.sum}) // reads nothing
	for bytes := 0; bytes < 3500; _, bytes = full.cache.Kept() {
		other.append(1)
	}
	w := newWriter(t, here.log(t))
	w.append(1)
	tail := mustTail(t, here.log(t), 1, feed.TailOptions{WatchInterval: never})
	expect(t, tail, 1, 1)
	consumer := tail.Consumer()
	for range 20 {
		got := nextLater(t, tail)
		w.append(1)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if c := tail.Consumer(); c == "" || c != consumer {
			t.Fatalf("the tail has consumer %q, had %q", c, consumer)
		}
	}

	full.cache = feed.NewTailCache()
	here.cache = full.cache
	v := newWriter(t, here.log(t))
	v.last, v.sum, v.time = w.last, w.sum, w.time
	v.append(1)
	scrub := mustTail(t, here.log(t), v.last+1, feed.TailOptions{FromStream: true, Prev: v.sum})
	v.append(5)
	expect(t, scrub, v.last-4, v.last)
	if n := here.cache.Taken(); n != 0 || scrub.Consumer() == "" {
		t.Errorf("%d commits are from memory", n)
	}
}

// TestI4_TailsGetAllInOrderWhoeverAppends has owners in and outside of the process take a log from each other, while answers
// are lost and those who were succeeded try to append, and tails of many kinds read it: each gets the commits that the stream
// has, once and in order, and some of them from the cache.
func TestI4_TailsGetAllInOrderWhoeverAppends(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.cache = feed.NewTailCacheOf(3000, 5000)
	const turns = 60
	ownerConfig := feed.LogConfig{Cache: b.cache, AppendTimeout: 5 * time.Millisecond}
	logs := [3]*feed.Log{b.logWith(t, ownerConfig), b.logWith(t, ownerConfig), b.logWith(t, feed.LogConfig{AppendTimeout: ownerConfig.AppendTimeout})}
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
	var got [4][]feed.Checksum
	for reader := range got {
		tail := mustTail(t, b.log(t), 1, feed.TailOptions{WatchInterval: 20 * time.Millisecond})
		pace := rand.New(rand.NewPCG(9, uint64(reader)))
		group.Go(func() {
			for {
				select {
				case <-ended:
					if len(got[reader]) >= int(last) {
						return
					}
				default:
				}
				turn, done := context.WithTimeout(ctx, time.Duration(1+pace.IntN(1000))*time.Millisecond)
				c, err := tail.Next(turn)
				done()
				if err == nil {
					got[reader] = append(got[reader], c.Sum)
				} else if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("reader %d behind LSN %d: %v", reader, len(got[reader]), err)
					return
				}
				if reader > 1 && pace.IntN(20) == 0 && !pauseFor(ctx, 10*time.Millisecond) { // as one that is slow
					return
				}
			}
		})
	}
	for range turns {
		former := w.l
		w.l = logs[random.IntN(len(logs))]
		w.append(1 + random.IntN(30))
		if former != w.l && random.IntN(2) == 0 {
			c, data := w.commit(1)
			if _, err := former.Append(ctx, w.last-1, c.ID, data); !errors.Is(err, feed.ErrFenced) {
				t.Errorf("one who was succeeded: %v, want that it is fenced", err)
			}
		}
		if random.IntN(4) == 0 {
			logs[random.IntN(len(logs))].Close()
		}
	}
	last = w.last
	close(ended)
	group.Wait()
	if b.cache.Taken() == 0 {
		t.Error("nobody followed the cache")
	}
	for reader := range got {
		if len(got[reader]) != int(last) {
			t.Fatalf("reader %d has %d commits of %d", reader, len(got[reader]), last)
		}
	}
	log := b.log(t)
	for lsn := feed.LSN(1); lsn <= last && !t.Failed(); lsn++ {
		c, err := log.Read(t.Context(), lsn)
		if err != nil {
			t.Fatal(err)
		}
		for reader := range got {
			if got[reader][lsn-1] != c.Sum {
				t.Errorf("reader %d has %s at LSN %d, the log has %s", reader, got[reader][lsn-1], lsn, c.Sum)
			}
		}
	}
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
