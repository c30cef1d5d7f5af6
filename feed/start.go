package feed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Start says where a reader of a log begins.
type Start struct {
	kind  startKind
	time  time.Time
	after Position
}

type startKind uint8

const (
	startBeginning startKind = iota
	startNow
	startTime
	startAt
)

// StartBeginning begins with the first commit that the log ever had.
func StartBeginning() Start { return Start{} }

// StartNow begins behind the commit that is the last one when Resolve is called.
func StartNow() Start { return Start{kind: startNow} }

// StartTime begins with the first commit whose time is t or later. The times of a log's
// commits have milliseconds and never go back.
func StartTime(t time.Time) Start { return Start{kind: startTime, time: t} }

// StartAt begins behind a position that a reader reached earlier.
func StartAt(after Position) Start { return Start{kind: startAt, after: after} }

// Time returns the time of a StartTime; ok is false for every other Start.
func (s Start) Time() (t time.Time, ok bool) { return s.time, s.kind == startTime }

// Resolve returns the position after which a reader that begins at start reads. A reader that
// stores it misses nothing that is appended from now on. The error is *TrimmedError if the
// log no longer holds all that start asks for; a reader that wants what is left begins
// before TrimmedError.First.
func (l *Log) Resolve(ctx context.Context, start Start) (Position, error) {
	if start.kind == startAt {
		return start.after, nil
	}
	first, last, err := l.Bounds(ctx)
	if err != nil {
		return Position{}, fmt.Errorf("resolve start: %w", err)
	}
	if start.kind == startNow {
		return Position{LSN: last}, nil
	}
	if start.kind == startBeginning {
		if first > 1 && last > 0 {
			return Position{}, fmt.Errorf("resolve start: %w", l.missingError(ctx, 1, first))
		}
		return Position{}, nil
	}
	lsn, err := l.search(ctx, first, last, ceilMillis(start.time))
	if err == nil && lsn <= first && first > 1 {
		// All kept commits are late enough, so the trimmed ones before them may have been too.
		err = l.missingError(ctx, first-1, first)
	}
	if err != nil {
		return Position{}, fmt.Errorf("resolve start at %s: %w", start.time.Format(time.RFC3339Nano), err)
	}
	return Position{LSN: lsn - 1}, nil
}

// ceilMillis is the first Unix millisecond that is not before t.
func ceilMillis(t time.Time) int64 {
	millis := t.UnixMilli()
	if t.After(time.UnixMilli(millis)) {
		millis++
	}
	return millis
}

// search returns the first LSN whose commit's time is millis or later, last+1 if there is
// none. It relies on times that never go back, and reads one commit for each halving.
func (l *Log) search(ctx context.Context, first, last LSN, millis int64) (LSN, error) {
	low, high := max(first, 1), last+1
	for low < high {
		middle := low + (high-low)/2
		data, err := l.fetch(ctx, middle)
		if errors.Is(err, ErrNotFound) {
			return 0, l.missingError(ctx, middle, middle+1) // trimmed meanwhile, or lost
		}
		if err != nil {
			return 0, err
		}
		h, err := DecodeHeader(data)
		if err != nil {
			return 0, fmt.Errorf("partition %s at LSN %d: %w", l.p, middle, err)
		}
		if h.Time < millis {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}
