package store

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
)

// TestLookForOwner_FindsThatAnAttemptWaitsInVain plays what a client finds while an attempt of it is not answered.
func TestLookForOwner_FindsThatAnAttemptWaitsInVain(t *testing.T) {
	t.Parallel()
	p := feed.Partition{Container: "c", Number: 1}
	listens := func(m *nats.Msg, since time.Duration) {
		if err := m.Respond(EncodeResponse(&Response{Status: &PartitionStatus{Listens: since}}, &Request{Status: &StatusRequest{}})); err != nil {
			t.Error(err)
		}
	}
	answer := func(m *nats.Msg) { listens(m, 0) }
	has := func(m *nats.Msg, keys ...uint64) {
		st := &PartitionStatus{Listens: time.Hour, Unanswered: append([]uint64{}, keys...)}
		if err := m.Respond(EncodeResponse(&Response{Status: st}, &Request{Status: &StatusRequest{}})); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		looks func(n int32, m *nats.Msg) // nil: nobody has the subject
		gone  bool
	}{
		"nobody is there":       {nil, true},
		"an owner that is slow": {func(_ int32, m *nats.Msg) { answer(m) }, false},
		"one that was there":    {func(_ int32, m *nats.Msg) { listens(m, time.Hour) }, false},
		"one that came later":   {func(_ int32, m *nats.Msg) { listens(m, time.Second) }, true},
		// Its server may not have told that of the client yet.
		"one that came just before":   {func(_ int32, m *nats.Msg) { listens(m, time.Minute+routeTime/2) }, true},
		"one that has it":             {func(_ int32, m *nats.Msg) { has(m, HashKey("other"), HashKey("k")) }, false},
		"one that has nothing":        {func(_ int32, m *nats.Msg) { has(m) }, true},
		"one that has something else": {func(_ int32, m *nats.Msg) { has(m, HashKey("other")) }, true},
		"one that stands still":       {func(int32, *nats.Msg) {}, false},
		"one that stood still, or is new": {func(n int32, m *nats.Msg) {
			if n > 1 {
				answer(m)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := natstest.Start(t).NC
			attempt, over := context.WithCancel(t.Context())
			defer over()
			var n atomic.Int32
			if c.looks != nil {
				sub, err := nc.Subscribe(ReadSubject(p), func(m *nats.Msg) {
					c.looks(n.Add(1), m)
					if !c.gone && n.Load() == 3 {
						over() // three looks have found nothing
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = sub.Unsubscribe() }()
			}
			gone := false
			(&Client{nc: nc}).lookForOwner(attempt, p, "k", time.Now().Add(-time.Minute), new(atomic.Bool), func() { gone = true })
			if gone != c.gone {
				t.Errorf("gone: %t after %d looks", gone, n.Load())
			}
		})
	}
}

// counted closes all when somebody has begun to wait for its end so many times.
type counted struct {
	context.Context //nolint:containedctx // it is one
	left            *atomic.Int32
	all             chan struct{}
}

func (c counted) Done() <-chan struct{} {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
	return c.Context.Done()
}

// TestLookForOwner_AsksOnceForAllThatWait lets many attempts wait for one owner, which answers when all of them look.
func TestLookForOwner_AsksOnceForAllThatWait(t *testing.T) {
	t.Parallel()
	const attempts = 64
	p := feed.Partition{Container: "c", Number: 1}
	nc := natstest.Start(t).NC
	var left, looks atomic.Int32
	left.Store(attempts)
	all := make(chan struct{})
	sub, err := nc.Subscribe(ReadSubject(p), func(m *nats.Msg) {
		looks.Add(1)
		go func() {
			<-all
			answer := &Response{Status: &PartitionStatus{Listens: time.Millisecond}}
			if err := m.Respond(EncodeResponse(answer, &Request{Status: &StatusRequest{}})); err != nil {
				t.Error(err)
			}
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	c := &Client{nc: nc}
	var told atomic.Int32
	var waiting sync.WaitGroup
	for range attempts {
		waiting.Go(func() {
			c.lookForOwner(counted{t.Context(), &left, all}, p, "", time.Now().Add(-time.Minute), new(atomic.Bool), func() { told.Add(1) })
		})
	}
	waiting.Wait()
	if told.Load() != attempts {
		t.Errorf("%d of %d attempts were told that they wait in vain", told.Load(), attempts)
	}
	// A look may end by its time before a busy machine has begun all attempts.
	if n := looks.Load(); n > attempts/8 {
		t.Errorf("%d attempts looked %d times", attempts, n)
	}
}
