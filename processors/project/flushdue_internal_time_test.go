package project

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
)

// buffering is a RowWriter whose sink may hold so many rows, for five seconds.
func buffering(rows int) *RowWriter {
	limits := Limits{FlushInterval: 5 * time.Second, FlushRowsMax: rows, FlushBytesMax: 1 << 20}
	return (&Projection{declaration: &declaration{}, limits: limits}).Rows(feed.Partition{}).(*RowWriter)
}

// Rows wait for FlushInterval at most, and many of them only while more come, once in FlushInterval.
func TestFlushDue(t *testing.T) {
	const (
		ms    = time.Millisecond
		never = time.Hour // ago
	)
	for name, c := range map[string]struct {
		rows           int
		last           string        // what the last flush was of
		oldest, newest time.Duration // ago
		early          time.Duration // ago, when the end of a burst was flushed
		want           time.Duration
	}{
		"a few rows":                             {1999, "a few", 2000 * ms, 1000 * ms, never, 3000 * ms},
		"many, of which some came just now":      {2000, "a few", 2000 * ms, 0, never, 250 * ms},
		"many, and then none for a moment":       {2000, "a few", 2000 * ms, 100 * ms, never, 150 * ms},
		"many, and then none for long enough":    {2000, "a few", 2000 * ms, 1000 * ms, never, 0},
		"many that never stop":                   {90_000, "a few", 4900 * ms, 0, never, 100 * ms},
		"one behind many":                        {1, "many", 40 * ms, 40 * ms, never, 210 * ms},
		"many behind a burst of a moment ago":    {2000, "many", 1000 * ms, 900 * ms, 1200 * ms, 3800 * ms},
		"many behind a burst of an interval ago": {2000, "many", 1000 * ms, 900 * ms, 5000 * ms, 0},
		"one behind a full sink":                 {1, "a full sink", 40 * ms, 40 * ms, 1000 * ms, 60 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, now := buffering(200_000), time.Now()
				r.rows, r.burst, r.behindMany, r.early = c.rows, c.last == "a full sink", c.last != "a few", now.Add(-c.early)
				r.buffered = []bufferedBatch{{at: now.Add(-c.oldest)}, {at: now.Add(-c.newest)}}
				if got, early := r.flushDue(); got != c.want || early != (c.want < 5000*ms-c.oldest) {
					t.Errorf("due in %s, early: %t; want %s", got, early, c.want)
				}
			})
		})
	}
}

// What is many is a hundredth of what the sink may hold, 1,000 rows at least, and what it may hold at most.
func TestMany(t *testing.T) {
	for most, want := range map[int]int{200_000: 2000, 20_000: 1000, 1000: 1000, 6: 6} {
		r := buffering(most)
		for r.rows = 0; !r.manyLocked(); r.rows++ {
		}
		if r.rows != want {
			t.Errorf("of %d, %d rows are many, want %d", most, r.rows, want)
		}
	}
}

// The loop that flushes looks again when the first rows are held, and when there have come to be many.
func TestNoteWritten_ManyRowsAreAnotherReason(t *testing.T) {
	r := buffering(200_000)
	for i, c := range []struct {
		rows  int
		looks bool
	}{{4, true}, {1995, false}, {1, true}, {100, false}} {
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
