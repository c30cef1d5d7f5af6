package pipelines

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

func (s slice) has(hash uint64) bool { return s.bits == 0 || hash>>(64-s.bits) == s.value }

// split returns the two halves of a slice.
func (s slice) split() (first, second slice) {
	first = slice{s.bits + 1, s.value << 1}
	second = first
	second.value++
	return first, second
}

// slices are the slices that are left to be verified, and the one at hand.
type sliceQueue struct {
	now  slice
	left []slice
}

func newSliceQueue() sliceQueue { return sliceQueue{left: []slice{{}}} }

// next goes to the next slice; false if there is none.
func (q *sliceQueue) next() bool {
	if len(q.left) == 0 {
		return false
	}
	q.now, q.left = q.left[len(q.left)-1], q.left[:len(q.left)-1]
	return true
}

// halve leaves the second half of the slice at hand for later; false if it cannot
// be halved.
func (q *sliceQueue) halve() bool {
	if q.now.bits >= sliceBitsMax {
		return false
	}
	first, second := q.now.split()
	q.now, q.left = first, append(q.left, second)
	return true
}
