package project

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
)

// buffering is a RowWriter whose sink may hold 1,000 rows, for five seconds.
func buffering() *RowWriter {
	limits := Limits{FlushInterval: 5 * time.Second, FlushRowsMax: 1000, FlushBytesMax: 1 << 20}
	return (&Projection{declaration: &declaration{}, limits: limits}).Rows(feed.Partition{}).(*RowWriter)
}

// Rows wait for FlushInterval at most, and many of them only while more come.
func TestFlushDue(t *testing.T) {
	for name, c := range map[string]struct {
		rows           int
		last           string        // what the last flush was of
		oldest, newest time.Duration // ago
		want           time.Duration
	}{
		"a few rows":                          {9, "a few", 2 * time.Second, time.Second, 3 * time.Second},
		"many, of which some came just now":   {10, "a few", 2 * time.Second, 0, 250 * time.Millisecond},
		"many, and then none for a moment":    {10, "a few", 2 * time.Second, 100 * time.Millisecond, 150 * time.Millisecond},
		"many, and then none for long enough": {10, "a few", 2 * time.Second, time.Second, 0},
		"many that never stop":                {500, "a few", 4900 * time.Millisecond, 0, 100 * time.Millisecond},
		"one behind many":                     {1, "many", 40 * time.Millisecond, 40 * time.Millisecond, 210 * time.Millisecond},
		"one behind a full sink":              {1, "a full sink", 40 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, now := buffering(), time.Now()
				r.rows, r.burst, r.behindMany = c.rows, c.last == "a full sink", c.last != "a few"
				r.buffered = []bufferedBatch{{at: now.Add(-c.oldest)}, {at: now.Add(-c.newest)}}
				if got := r.flushDue(); got != c.want {
					t.Errorf("due in %s, want %s", got, c.want)
				}
			})
		})
	}
}

// The loop that flushes looks again when the first rows are held, and when there have come to be many.
func TestNoteWritten_ManyRowsAreAnotherReason(t *testing.T) {
	r := buffering()
	for i, c := range []struct {
		rows  int
		looks bool
	}{{4, true}, {5, false}, {1, true}, {100, false}} {
		b := &Batch{UpTo: feed.Position{LSN: feed.LSN(i + 1)}, Drop: make([]Row, c.rows)}
		r.noteWritten(t.Context(), b, Written{}, 1)
		looks := false
		select {
		case <-r.holding:
			looks = true
		default:
		}
		if looks != c.looks {
			t.Errorf("%d rows held after %d more: the loop looks again: %t", r.rows, c.rows, looks)
		}
	}
}
