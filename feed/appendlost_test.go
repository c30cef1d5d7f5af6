package feed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
)

// never is a time at whose end a test has failed.
const never = time.Hour

// within ends before AppendTimeout does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A server that ends takes an append on its way with it, and another one leads the stream long
// before the time of a try is over.
func TestAppend_ALostAnswerIsNotWaitedForToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := newWriter(t, b.logWith(t, feed.LogConfig{AppendTimeout: never}))
	w.append(1)
	lost := 0
	w.l.Lose(func(*nats.Msg) bool { lost++; return lost <= 2 })
	c, data := w.commit(1)
	if lsn, err := w.l.Append(within(t), w.last, c.ID, data); lsn != 2 || err != nil {
		t.Errorf("appended at %d, %v; want 2", lsn, err)
	}
}

// While a stream has no leader nobody has its subject, and nobody says what it is.
func TestAppend_AStreamWithoutALeaderIsNotAskedAboutToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	var leads atomic.Bool
	js := b.api(t, func(nc *nats.Conn, m *nats.Msg, question string) {
		switch {
		case !strings.HasPrefix(question, "STREAM.INFO."), leads.Load():
			forward(t, nc, m, "$JS.API."+question)
		default:
			leads.Store(true)
			if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{}); err != nil {
				t.Error(err)
			}
		}
	})
	leads.Store(true)
	if err := feed.CreateLog(t.Context(), b.js, b.p, b.id, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	l, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{AppendTimeout: never})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.AskAgain(never)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	leads.Store(false)
	w := newWriter(t, l)
	c, data := w.commit(1)
	if lsn, err := l.Append(within(t), 0, c.ID, data); lsn != 1 || err != nil {
		t.Errorf("appended at %d, %v; want 1", lsn, err)
	}
}

// stands answers appends in place of the stream of a log, which is taken away.
func (b *bed) stands(t *testing.T, answer func(m *nats.Msg)) {
	t.Helper()
	if err := b.js.DeleteStream(t.Context(), b.p.Stream()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.nc.Subscribe(b.p.Subject(), answer); err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

const fullAnswer = `{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}`

// A disk that is full and slow: both copies are refused, one after the other, so nothing was stored.
func TestAppend_RefusalsOfAllCopiesAreCertain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.logWith(t, feed.LogConfig{AppendTimeout: never})
	var held []*nats.Msg
	b.stands(t, func(m *nats.Msg) {
		if held = append(held, m); len(held) < 2 {
			return
		}
		for _, m := range held {
			if err := m.Respond([]byte(fullAnswer)); err != nil {
				t.Error(err)
			}
		}
		held = held[:1:1]
	})
	w := newWriter(t, l)
	c, data := w.commit(1)
	if _, err := l.Append(within(t), 0, c.ID, data); !errors.Is(err, feed.ErrStorage) || errors.Is(err, feed.ErrUnknown) {
		t.Errorf("error %v, want %v alone", err, feed.ErrStorage)
	}
}

// A refusal speaks of its own copy alone: the one before it is not answered, and may be stored.
func TestI2_TheRefusalOfACopyIsNoneOfTheOneBefore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.logWith(t, feed.LogConfig{AppendTimeout: never})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	sent := 0
	b.stands(t, func(m *nats.Msg) {
		switch sent++; sent {
		case 1:
		case 5:
			cancel()
		default:
			if err := m.Respond([]byte(fullAnswer)); err != nil {
				t.Error(err)
			}
		}
	})
	w := newWriter(t, l)
	c, data := w.commit(1)
	if _, err := l.Append(ctx, 0, c.ID, data); !errors.Is(err, feed.ErrUnknown) || errors.Is(err, feed.ErrStorage) {
		t.Errorf("error %v, want %v", err, feed.ErrUnknown)
	}
}
