package parquetsink

import (
	"container/list"
	"slices"
	"sync"
)

// index keeps the hashes of the rows of live files, eight bytes a row, as many as
// bytesMax holds; those used last stay. Safe for concurrent use.
type index struct {
	bytesMax int

	mu     sync.Mutex
	bytes  int
	byPath map[string]*list.Element
	used   *list.List // of *indexed, the last used first
}

type indexed struct {
	path   string
	hashes []uint64
}

func newIndex(bytesMax int) *index {
	return &index{bytesMax: bytesMax, byPath: map[string]*list.Element{}, used: list.New()}
}

// get returns the hashes of a file in ascending order, which must not be changed.
func (x *index) get(path string) ([]uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.byPath[path]
	if !ok {
		return nil, false
	}
	x.used.MoveToFront(e)
	return e.Value.(*indexed).hashes, true
}

// put keeps the hashes of a file.
func (x *index) put(path string, hashes []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.byPath[path]; ok { // files do not change, so neither do their hashes
		return
	}
	x.byPath[path] = x.used.PushFront(&indexed{path, hashes})
	x.bytes += 8 * len(hashes)
	for x.bytes > x.bytesMax && x.used.Len() > 1 {
		x.forgetLocked(x.used.Back())
	}
}

// putUnsorted keeps the hashes of a file that are in any order, and sorts them.
func (x *index) putUnsorted(path string, hashes []uint64) {
	slices.Sort(hashes)
	x.put(path, hashes)
}

// forget drops a file that is not live any more.
func (x *index) forget(path string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.byPath[path]; ok {
		x.forgetLocked(e)
	}
}

func (x *index) forgetLocked(e *list.Element) {
	old := x.used.Remove(e).(*indexed)
	delete(x.byPath, old.path)
	x.bytes -= 8 * len(old.hashes)
}

// common returns the hashes that are in both of two ascending lists, ascending and
// once each.
func common(a, b []uint64) (both []uint64) {
	if len(a) > len(b) { // walk over the shorter list, and leap in the longer one
		a, b = b, a
	}
	for _, hash := range a {
		b = b[below(b, hash):]
		if len(b) == 0 {
			break
		}
		if b[0] == hash && (len(both) == 0 || both[len(both)-1] != hash) {
			both = append(both, hash)
		}
	}
	return both
}

// below is how many of the ascending hashes are less than hash. It looks near the
// beginning first, in steps that double, and then between the last two steps:
//
//	hashes 3 5 8 9 12 20 31 40 ..., hash 20
//	compared with 3, 8, 31: too far; so 20 is behind 8 and not behind 31
//
// So a walk over a list costs about its number of steps times the logarithm of the gaps,
// whether it looks for ten hashes among a million or for all of them.
func below(hashes []uint64, hash uint64) int {
	low, step := 0, 1
	for low+step <= len(hashes) && hashes[low+step-1] < hash {
		low += step
		step *= 2
	}
	high := min(low+step, len(hashes))
	for low < high {
		middle := (low + high) / 2
		if hashes[middle] < hash {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}
