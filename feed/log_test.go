package feed_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

func TestLog_AppendReadTail(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	w := newWriter(t, l)
	w.append(5)
	tail := mustTail(t, l, 1, feed.TailOptions{})
	expect(t, tail, 1, 5)
	w.append(5)
	expect(t, tail, 6, 10)
	c, err := l.Read(t.Context(), 7)
	if err != nil || c.LSN != 7 {
		t.Fatalf("read: %v, %v", c, err)
	}
	if _, err := l.Read(t.Context(), 11); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("read beyond the end: %v", err)
	}
	first, last, err := l.Bounds(t.Context())
	if first != 1 || last != 10 || err != nil {
		t.Errorf("bounds %d to %d, %v", first, last, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := tail.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("next at the end: %v", err)
	}
}

// TestLog_BoundsAreShared has many ask one Log for its bounds: one request answers all, an
// error is for all too, and nobody gets what was learned before the moment that it names.
func TestLog_BoundsAreShared(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	_, js := b.connect(t)
	l, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l.AskAgain(time.Minute) // requests are counted
	w := newWriter(t, b.log(t))
	ask := func(since time.Time, want feed.LSN, requests uint64) {
		t.Helper()
		before := js.Conn().Stats().OutMsgs
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				first, last, err := l.BoundsSince(t.Context(), since)
				if want == 0 && !errors.Is(err, feed.ErrNoLog) {
					t.Errorf("the log is gone: %d to %d, %v", first, last, err)
				}
				if want > 0 && (first != 1 || last != want || err != nil) {
					t.Errorf("bounds %d to %d, %v; want 1 to %d", first, last, err, want)
				}
			})
		}
		wg.Wait()
		if asked := js.Conn().Stats().OutMsgs - before; asked != requests {
			t.Errorf("%d requests were made, want %d", asked, requests)
		}
	}
	w.append(3)
	begun := time.Now()
	ask(begun, 3, 1)
	w.append(1)
	ask(begun, 3, 0)
	begun = time.Now()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.BoundsSince(ended, begun); !errors.Is(err, context.Canceled) {
		t.Errorf("bounds for somebody who has gone: %v", err)
	}
	ask(begun, 4, 1)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	ask(begun, 4, 0)
	ask(time.Now(), 0, 2) // where it was, and where it may have moved
}

// TestLog_QuestionsAreAskedAgain has a server whose first answers do not help, as while a log's
// stream has no leader. It plays what is asked under a prefix of its own.
func TestLog_QuestionsAreAskedAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	unavailable := []byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`)
	for name, answer := range map[string]func(nc *nats.Conn, asked []*nats.Msg){
		"the first gets no answer": func(nc *nats.Conn, asked []*nats.Msg) {
			if len(asked) > 1 {
				forwardInfo(t, nc, asked[len(asked)-1])
			}
		},
		"nobody leads at first": func(nc *nats.Conn, asked []*nats.Msg) {
			if len(asked) > 1 {
				forwardInfo(t, nc, asked[len(asked)-1])
			} else if err := asked[0].Respond(unavailable); err != nil {
				t.Error(err)
			}
		},
		"the first is answered late, the second not at all": func(nc *nats.Conn, asked []*nats.Msg) {
			if len(asked) == 2 {
				forwardInfo(t, nc, asked[0])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []*nats.Msg // by serve, which is called for one at a time
			js := b.api(t, func(nc *nats.Conn, m *nats.Msg, question string) {
				if strings.HasPrefix(question, "STREAM.INFO.") {
					asked = append(asked, m)
					answer(nc, asked)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := feed.OpenLog(ctx, js, b.p, feed.LogConfig{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLog_NobodyListens asks where nobody listens: that is told at once, and is an error of its own.
func TestLog_NobodyListens(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	js, err := jetstream.NewWithAPIPrefix(b.nc, nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := feed.OpenLog(t.Context(), js, b.p, feed.LogConfig{}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("%v, want %v", err, nats.ErrNoResponders)
	}
}

// TestLog_QuestionsAreCheap bounds what a question allocates: each store and worker asks for the
// end of each of its logs every second. The server's part is counted too. No test may run beside.
func TestLog_QuestionsAreCheap(t *testing.T) {
	l := newBed(t).log(t)
	const n, most = 50, 100 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		if _, _, err := l.Bounds(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > most {
		t.Errorf("a question allocates %d bytes, want fewer than %d", each, most)
	}
}

// forwardInfo has JetStream answer a question about a stream that was asked elsewhere.
func forwardInfo(t *testing.T, nc *nats.Conn, m *nats.Msg) {
	t.Helper()
	_, question, _ := strings.Cut(m.Subject, ".STREAM.")
	forward(t, nc, m, "$JS.API.STREAM."+question)
}
