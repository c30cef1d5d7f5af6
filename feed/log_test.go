package feed_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

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
