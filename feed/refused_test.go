package feed_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/guard"
)

// crowded returns a log as a reader sees it whose stream has as many consumers of readers as a
// guard allows. leave ends one of them.
func crowded(t *testing.T, b *bed) (l *feed.Log, leave func()) {
	t.Helper()
	nc, _ := b.connect(t)
	g, err := guard.New(t.Context(), nc, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	// What the account of readers does: it leads some requests to the guard.
	js := b.api(t, func(nc *nats.Conn, m *nats.Msg, question string) {
		subject := "$JS.API." + question
		if rest, ok := strings.CutPrefix(question, "CONSUMER.CREATE."); ok {
			subject = guard.Create + rest
		}
		forward(t, nc, m, subject)
	})
	if l, err = feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	for {
		other, err := js.CreateConsumer(t.Context(), l.Stream(), jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Hour, // a slow machine takes longer than the five seconds after which one goes by itself
		})
		if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == feed.CodeRefused {
			return l, leave
		}
		if err != nil {
			t.Logf("%v; asked again", err) // a busy server may not answer in time
			continue
		}
		name := other.CachedInfo().Name
		leave = func() {
			if err := b.js.DeleteConsumer(t.Context(), l.Stream(), name); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTail_ARefusedReaderIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	newWriter(t, b.log(t)).append(1)
	l, _ := crowded(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := mustTail(t, l, 1, feed.TailOptions{}).Next(ctx)
	if refused, ok := errors.AsType[*feed.RefusedError](err); !ok || !strings.Contains(refused.Reason, "64 consumers") {
		t.Errorf("a reader too many got %v, want a *RefusedError that tells of 64 consumers", err)
	}
}

func TestTail_ARefusedReaderWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	newWriter(t, b.log(t)).append(1)
	l, leave := crowded(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := 0
	tail := mustTail(t, l, 1, feed.TailOptions{Waits: func(err error) {
		if _, ok := errors.AsType[*feed.RefusedError](err); !ok {
			t.Errorf("it waits for %v", err)
		}
		if told++; told == 1 {
			time.AfterFunc(7*time.Second, leave) // longer than a tail waits to which nobody listens
		}
	}})
	if c, err := tail.Next(ctx); err != nil || c.LSN != 1 {
		t.Errorf("got %v, %v; want the commit", c, err)
	}
	if told != 1 {
		t.Errorf("it was told %d times that the tail waits, want once", told)
	}
}
