package store

import (
	"context"
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
	for name, c := range map[string]struct {
		looks func(n int32, m *nats.Msg) // nil: nobody has the subject
		gone  bool
	}{
		"nobody is there":       {nil, true},
		"an owner that is slow": {func(_ int32, m *nats.Msg) { answer(m) }, false},
		"one that was there":    {func(_ int32, m *nats.Msg) { listens(m, time.Hour) }, false},
		"one that came later":   {func(_ int32, m *nats.Msg) { listens(m, time.Second) }, true},
		"one that stands still": {func(int32, *nats.Msg) {}, false},
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
			(&Client{nc: nc}).lookForOwner(attempt, p, time.Now().Add(-time.Minute), new(atomic.Bool), func() { gone = true })
			if gone != c.gone {
				t.Errorf("gone: %t after %d looks", gone, n.Load())
			}
		})
	}
}
