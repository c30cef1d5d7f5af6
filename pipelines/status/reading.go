package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// reading is what a Monitor remembers of one reading.
type reading struct {
	time   time.Time
	logs   map[feed.Partition]logReader
	silent map[feed.Partition]error // why these logs were told as silent; nil for no other
	copies map[string]int64         // changed, by pipeline id and generation
	marks  map[processors.Resource]mark
}

// beginReading makes the last reading the one before, and begins another.
func (m *Monitor) beginReading(now time.Time) {
	m.last = m.now
	m.now = reading{now, map[feed.Partition]logReader{}, map[feed.Partition]error{}, map[string]int64{}, map[processors.Resource]mark{}}
}

// closeLogs closes the logs that the next reading does not use. Logs stay open from one reading
// to the next, because watch and the console read every second.
func (r *reading) closeLogs(next *reading) {
	for p, log := range r.logs {
		if next.logs[p] != log {
			log.Close()
		}
	}
	r.logs = nil
}

// mark is where a processor stood, and since when it has not moved.
type mark struct {
	text  string
	since time.Time
}

// still returns for how long w has had something to do and has not moved.
func (m *Monitor) still(w *watched) time.Duration {
	// Time counts from the first reading that saw it here, so the first reading of all calls
	// nothing stuck by this rule.
	last, text := m.last.marks[w.resource], w.mark()
	if last.text != text || w.lag().None() || w.record.Paused {
		last = mark{text, w.now}
	}
	m.now.marks[w.resource] = last
	return w.now.Sub(last.since)
}

// span is from when to when something went on.
type span struct{ began, ended time.Time }

// idle returns how much of whole no part of which goes on. It puts the parts into order.
//
//	whole   |----------------|
//	parts     |---|   |-|
//	             |--|
//	idle    xx      xx   xxxxx
func (whole span) idle(parts []span) (idle time.Duration) {
	slices.SortFunc(parts, func(a, b span) int { return a.began.Compare(b.began) })
	busyUntil := whole.began
	for _, p := range parts {
		idle += max(p.began.Sub(busyUntil), 0)
		if p.ended.After(busyUntil) {
			busyUntil = p.ended
		}
	}
	return idle + max(whole.ended.Sub(busyUntil), 0)
}

// waited returns how long a reading of logs, which began at a time and has ended, did nothing but wait for those that are
// silent; 0 if none is.
func waited(began time.Time, asked []*question) time.Duration {
	var answered []span
	silent := false
	for _, q := range asked {
		if isSilent(q.err) {
			silent = true
		} else {
			answered = append(answered, q.asked)
		}
	}
	if !silent {
		return 0
	}
	return span{began, time.Now()}.idle(answered)
}

// decode fills in what w's lease says.
func (w *watched) decode() error {
	var data []byte
	if w.lease != nil {
		data = w.lease.Checkpoint
	}
	cp, err := processors.DecodeCheckpoint(data)
	if err != nil {
		return fmt.Errorf("lease %s: %w", w.resource, err)
	}
	w.checkpoint = cp
	begin := w.record.Begin(w.resource)
	if len(data) == 0 || cp.Rewinds < w.record.Rewinds && begin.Before(cp.Position) {
		cp.Position = begin // as its next holder will find it
	}
	return nil
}

// place fills in where w stands in a log of which it knows the first commit and the last.
func (w *watched) place(first, last feed.LSN) {
	// What follows the checkpoint begins behind the commit that is read next, so something of
	// it is gone. A log that begins exactly there has lost nothing of it.
	if w.head = last; w.logBehind()+1 < first {
		w.trimmed = first
	}
}

// logBehind is the LSN behind which the processor has yet to read the log.
func (w *watched) logBehind() feed.LSN { return w.record.LogBehind(w.resource, w.checkpoint.Position) }

// sample reads some of the commits that w has not processed, of which there is one at least: the
// first, whose time is its lag, and others evenly spread, to estimate how many changes all of them
// hold.
//
//	commits 101 to 900, 8 are read: 101, 201, ... 801
//	they hold 40 changes, so 800 commits hold about 4,000
func (w *watched) sample(ctx context.Context, log logReader, limit int) error {
	first := w.logBehind() + 1
	commits := uint64(w.head - first + 1)
	looked := min(commits, uint64(limit))
	found, changes := uint64(0), uint64(0)
	for i := range looked {
		lsn := first + feed.LSN(i*commits/looked)
		c, err := log.Read(ctx, lsn)
		if errors.Is(err, feed.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read commit %d of %s: %w", lsn, w.resource.Partition, err)
		}
		if i == 0 {
			w.oldest = time.UnixMilli(c.Time)
		}
		found++
		changes += uint64(c.ChangeCount())
	}
	w.changes, w.estimated = changes, looked < commits
	if w.estimated && found > 0 {
		w.changes = changes * commits / found
	}
	return nil
}
