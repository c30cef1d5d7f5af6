package query

import (
	"sync"
	"time"
)

// frame is what an evaluation works in: the roots, and what its subqueries may
// still spend.
type frame struct {
	roots [][]byte  // those of the caller, then what the aliases of subqueries stand for
	ticks int       // as steps, of all items
	steps int       // rows that were tried
	spent bool      // too many of them, too large a result, or too late
	end   time.Time // when it is too late; zero for never
}

// stepsMax bounds the rows that JOINs and subqueries try for one item.
const stepsMax = 1 << 20

// stepsTick is after how many of them the clock is looked at.
const stepsTick = 256

// step counts a row. It returns false when there were too many.
func (f *frame) step() bool {
	f.steps++
	f.ticks++
	if f.steps > stepsMax || f.ticks%stepsTick == 0 && !f.end.IsZero() && time.Now().After(f.end) {
		f.spent = true
	}
	return !f.spent
}

// late looks at the clock for work that tries no rows. It returns true if it is too
// late, or was too much before. Without a frame it never is.
func (f *frame) late() bool {
	if f == nil {
		return false
	}
	if !f.end.IsZero() && time.Now().After(f.end) {
		f.spent = true
	}
	return f.spent
}

// pause tells whether the clock is to be looked at before one of many steps, such as
// the terms of an OR, each of which may read the whole item.
func pause(step int) bool { return step%pauseSteps == pauseSteps-1 }

const pauseSteps = 64

var frames = sync.Pool{New: func() any { return new(frame) }}

// newFrame returns a frame of n roots, of which the first are given.
func newFrame(n int, roots [][]byte) *frame {
	f := frames.Get().(*frame)
	f.steps, f.spent, f.end = 0, false, time.Time{}
	f.roots = append(f.roots[:0], roots...)
	for len(f.roots) < n {
		f.roots = append(f.roots, nil)
	}
	return f
}

// item returns root 0.
func (f *frame) item() []byte {
	if len(f.roots) == 0 {
		return nil
	}
	return f.roots[0]
}

// free gives the frame back.
func (f *frame) free() {
	clear(f.roots)
	frames.Put(f)
}
