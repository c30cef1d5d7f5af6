package verify

// slice is a share of things by their hash: those whose hash begins with the bits of
// value. What does not fit into memory at once is verified slice by slice. The zero
// slice is all.
type slice struct {
	bits  uint
	value uint64
}

// sliceBitsMax bounds how fine slices become: what is then still too much is one
// thing that is too large, and smaller slices would not help.
const sliceBitsMax = 20

func (s slice) Has(hash uint64) bool { return s.bits == 0 || hash>>(64-s.bits) == s.value }

// split returns the two halves of a slice.
func (s slice) split() (first, second slice) {
	first = slice{s.bits + 1, s.value << 1}
	second = first
	second.value++
	return first, second
}

// SliceQueue is the slices that are left to be verified, and the one at hand.
type SliceQueue struct {
	Now  slice
	todo []slice
}

// NewSliceQueue returns a queue of one slice, which is everything.
func NewSliceQueue() SliceQueue { return SliceQueue{todo: []slice{{}}} }

// Next goes to the next slice; false if there is none.
func (q *SliceQueue) Next() bool {
	if len(q.todo) == 0 {
		return false
	}
	q.Now, q.todo = q.todo[len(q.todo)-1], q.todo[:len(q.todo)-1]
	return true
}

// Halve leaves the second half of the slice at hand for later; false if it cannot
// be halved.
func (q *SliceQueue) Halve() bool {
	if q.Now.bits >= sliceBitsMax {
		return false
	}
	first, second := q.Now.split()
	q.Now, q.todo = first, append(q.todo, second)
	return true
}
