package owner

import (
	"slices"

	"github.com/millrace/millrace/feed/document"
)

// arena gives a page memory for the many small things that it decides, a piece
// at a time. What it gave lives as long as anybody points at it.
type arena struct {
	bytes   []byte
	splices []document.Splice
}

const (
	// Pieces double from the least to the most: a page of many items takes a few large
	// ones, a repair of one item a small one. With large ones for all, repairs were a
	// sixth of what was allocated while a shop was imported, 1 GiB of 6; with 8 KiB at
	// least they were still 2 % of it under steady writes.
	arenaLeast, arenaBytes     = 1 << 10, 256 << 10
	splicesLeast, arenaSplices = 16, 512
)

// room returns an empty slice with space for at least n bytes, if n is not
// large. Whoever appends to it hands the result to use.
func (a *arena) room(n int) []byte {
	if cap(a.bytes)-len(a.bytes) < n && n <= arenaBytes {
		a.bytes = make([]byte, 0, min(max(arenaLeast, 2*cap(a.bytes), n), arenaBytes))
	}
	return a.bytes[len(a.bytes):]
}

// use says that b, which begins in the space that room returned, is in use. It
// returns b with no space behind it.
func (a *arena) use(b []byte) []byte {
	free := a.bytes[len(a.bytes):cap(a.bytes)]
	if len(b) > 0 && len(b) <= len(free) && &b[0] == &free[0] {
		a.bytes = a.bytes[:len(a.bytes)+len(b)]
	}
	return slices.Clip(b)
}

// keep returns a copy of b.
func (a *arena) keep(b []byte) []byte { return a.use(append(a.room(len(b)), b...)) }

// undoRoom returns an empty slice of splices with some space.
func (a *arena) undoRoom() []document.Splice {
	if cap(a.splices)-len(a.splices) < 8 {
		a.splices = make([]document.Splice, 0, min(max(splicesLeast, 2*cap(a.splices)), arenaSplices))
	}
	return a.splices[len(a.splices):]
}

// useUndo says that undo, which began as what undoRoom returned, is in use, and
// makes what it points at its own: the item before is only a view.
func (a *arena) useUndo(undo []document.Splice) []document.Splice {
	for i := range undo {
		undo[i].Old = a.keep(undo[i].Old)
	}
	if len(undo) <= cap(a.splices)-len(a.splices) {
		a.splices = a.splices[:len(a.splices)+len(undo)]
	}
	return slices.Clip(undo)
}
