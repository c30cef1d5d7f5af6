package query

import (
	"sync"
	"time"
)

// frame holds the roots of an evaluation and its budget. One goroutine uses it.
type frame struct {
	roots [][]byte // those of the caller, then the values of the aliases of subqueries
	spent bool     // the budget is spent: the result of the evaluation means nothing

	// The item at hand, and what it has used.
	rank  []byte // orders it; what RAND hangs on
	steps int    // rows that were tried
	made  int    // bytes of values that were made

	// What all items together keep, in bytes: the rows of a run.
	kept int

	// What all items have used, and from which amount on the budget is checked.
	work, next int64

	// Set once, before the evaluation.
	workMax int64           // 0 for no bound
	madeMax int             // 0 for no bound
	end     time.Time       // when the evaluation must have ended; zero for no limit
	done    <-chan struct{} // closed when nobody waits for the result; nil for never
	share   *Share          // holds kept and made; nil for no bound

	functions Functions // of the container; nil where none is called
	failed    error     // of one of them
}

// Bounds of one evaluation, of one item.
const (
	// WorkMax bounds the work of an expression that is evaluated without a time limit, in
	// units of about a nanosecond. Such an expression decides what a log means, so it must
	// have the same result everywhere: the bound counts work and reads no clock.
	WorkMax = 1 << 28
	// MadeMax bounds the bytes of all values that an evaluation makes on its way.
	MadeMax = 256 << 20
	// stepsMax bounds the rows that JOINs and subqueries try for one item.
	stepsMax = 1 << 20
	// argsBytesMax bounds the bytes of the arguments of one call.
	argsBytesMax = 64 << 20
)

// The costs of work in units of about a nanosecond. They are part of the meaning of
// expressions in a log: other costs need another Meaning.
const (
	workTick   = 4 << 10 // after how much work the budget is checked, and the clock read
	workNode   = 32      // a path, a term, a call
	workStep   = 8       // a character that is compared with a pattern
	workMember = 128     // a member or an element that is compared
	workBig    = 8 << 10 // an operation on numbers of hundreds of digits
	workInst   = 8       // an instruction of a regular expression at one character
	workRegexp = 8 << 10 // a byte of a regular expression that is compiled
	workScan   = 2       // bytes that are scanned in one unit
)

// charge counts work. It returns false when the budget is spent: a loop must end then, and its
// result means nothing. Without a frame there is no budget.
func (f *frame) charge(work int) bool {
	if f == nil {
		return true
	}
	if f.work += int64(work); f.work < f.next {
		return !f.spent
	}
	return f.checkBudget()
}

// chargeScan counts bytes that are scanned.
func (f *frame) chargeScan(size int) bool { return f.charge(size / workScan) }

// checkBudget compares what was used with the bounds. spent is never taken back, so a caller
// that overlooks one false gets the next.
func (f *frame) checkBudget() bool {
	f.next = f.work + workTick
	select {
	case <-f.done:
		f.spent = true
	default:
	}
	if f.workMax > 0 && f.work > f.workMax || !f.end.IsZero() && time.Now().After(f.end) {
		f.spent = true
	}
	return !f.spent
}

// chargeMade counts the bytes of a value that was made.
func (f *frame) chargeMade(size int) bool {
	if f == nil {
		return true
	}
	f.hold(size)
	return f.charge(size)
}

// hold counts bytes as made, but no work. What is held for a while is given back by their negative.
func (f *frame) hold(size int) {
	if f.made += size; f.madeMax > 0 && f.made > f.madeMax {
		f.spent = true
	}
	if f.share != nil && !f.share.hold(f.kept+f.made) {
		f.spent = true
	}
}

// keep says how many bytes are kept beyond the item.
func (f *frame) keep(bytes int) {
	if f.kept = bytes; f.share != nil && !f.share.hold(f.kept+f.made) {
		f.spent = true
	}
}

// fault returns why the budget is spent.
func (f *frame) fault() error {
	if f.failed != nil {
		return f.failed
	}
	if f.share != nil && f.share.err != nil {
		return f.share.err
	}
	return ErrTooMuch
}

// countRow counts a row that was tried. It returns false when there were too many.
func (f *frame) countRow() bool {
	if f.steps++; f.steps > stepsMax {
		f.spent = true
	}
	return f.charge(workNode)
}

// beginItem begins another item in the same frame.
func (f *frame) beginItem(item, rank []byte) {
	f.rank, f.steps, f.made, f.spent, f.roots[0] = rank, 0, 0, false, item
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// newFrame returns a frame of n roots, of which the first are given, without a budget
// but for rows.
func newFrame(n int, roots [][]byte) *frame {
	f := frames.Get().(*frame)
	// A copy, because the pool keeps the frame's slice.
	*f = frame{roots: append(f.roots[:0], roots...)}
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

// free gives the frame back to the pool.
func (f *frame) free() {
	clear(f.roots) // a frame in the pool must not keep items in memory
	frames.Put(f)
}
