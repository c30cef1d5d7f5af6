package feed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
)

func TestLog_AppendReadTail(t *testing.T) {
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
