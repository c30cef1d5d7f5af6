package feed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
)

// consumer returns what the server says of the one consumer of the log.
func (b *bed) consumer(tb testing.TB) *jetstream.ConsumerInfo {
	tb.Helper()
	stream, err := b.js.Stream(tb.Context(), b.p.Stream())
	if err != nil {
		tb.Fatal(err)
	}
	var all []*jetstream.ConsumerInfo
	for c := range stream.ListConsumers(tb.Context()).Info() {
		all = append(all, c)
	}
	if len(all) != 1 {
		tb.Fatalf("%d consumers, want 1", len(all))
	}
	return all[0]
}

// awaitAsked returns when the consumer's server has so many open requests.
func (b *bed) awaitAsked(tb testing.TB, requests int) {
	tb.Helper()
	poll.Until(tb, func() error {
		if n := b.consumer(tb).NumWaiting; n != requests {
			return fmt.Errorf("the server has %d requests, want %d", n, requests)
		}
		return nil
	})
}

// A reader that rests is sent nothing meanwhile, all that there is when it asks, and what comes then at once.
func TestHub_NothingIsSentToAReaderThatRests(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	r := mustReader(t, newHub(t, b, feed.HubConfig{}), b, feed.Position{})
	r.Rests()
	next := feed.LSN(1)
	for _, n := range []int{1, 3, 100, 1} {
		w.append(n)
		expect(t, r, next, next)
		for next++; next <= w.last; next++ {
			if c := r.Arrived(t.Context()); c == nil || c.LSN != next {
				t.Fatalf("%v has arrived, want LSN %d of %d", c, next, w.last)
			}
		}
		if c := r.Arrived(t.Context()); c != nil {
			t.Fatalf("LSN %d has arrived of a log with %d", c.LSN, w.last)
		}
		w.append(2) // while it rests
		if c := b.consumer(t); c.NumWaiting != 0 || c.Delivered.Stream != uint64(next-1) {
			t.Fatalf("the server has %d requests, and has sent up to LSN %d, want none and %d", c.NumWaiting, c.Delivered.Stream, next-1)
		}
	}
	for next <= w.last {
		expect(t, r, next, next)
		next++
	}

	got := make(chan *feed.Commit, 1)
	go func() {
		c, err := r.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	b.awaitAsked(t, 1)
	w.append(1)
	if c := <-got; c == nil || c.LSN != w.last {
		t.Errorf("%v came while the reader waited, want LSN %d", c, w.last)
	}
}

// A reader that rests for ever takes nothing from one that does not, whichever of them asked last.
func TestHub_AReaderThatRestsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	h := newHub(t, b, feed.HubConfig{})
	rests, eager := mustReader(t, h, b, feed.Position{}), mustReader(t, h, b, feed.Position{})
	rests.Rests()
	w.append(1)
	expect(t, rests, 1, 1)
	expect(t, eager, 1, 1)
	w.append(600) // more than two requests have
	expect(t, eager, 2, 601)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = eager.Next(ctx)
	}()
	b.awaitAsked(t, 2) // as if it were alone: the next commits are sent as they are appended
	cancel()
	<-done
	expect(t, rests, 2, 2)
	for lsn := feed.LSN(3); lsn <= 601; lsn++ {
		if c := rests.Arrived(t.Context()); c == nil || c.LSN != lsn {
			t.Fatalf("%v has arrived at the reader that rests, want LSN %d", c, lsn)
		}
	}
}

// What is lost on its way to a reader that rests, the end of what was sent too, it gets all the same.
func TestI4_WhatIsLostToAReaderThatRests(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.log(t))
	count := 0
	h := feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		l, err := feed.OpenLog(ctx, b.js, p, feed.LogConfig{})
		if err == nil {
			l.Lose(func(*nats.Msg) bool { count++; return count%3 == 0 }) // commits, and statuses
		}
		return l, err
	}, feed.HubConfig{Tail: feed.TailOptions{WatchInterval: 20 * time.Millisecond}})
	t.Cleanup(h.Close)
	r := mustReader(t, h, b, feed.Position{})
	r.Rests()
	for next := feed.LSN(1); next <= 30; next++ {
		if next > w.last {
			w.append(int(next%4) + 1)
		}
		if c := r.Arrived(t.Context()); c == nil {
			expect(t, r, next, next)
		} else if c.LSN != next {
			t.Fatalf("LSN %d has arrived, want %d", c.LSN, next)
		}
	}
}
