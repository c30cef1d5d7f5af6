package accumulator

import (
	"iter"

	"github.com/millrace/millrace/feed"
)

// Records is where accumulators are kept: the owner's view of a partition, or a Memory. Get and
// Range see what was put. Nobody may change slices that Get and Range returned or that Put
// was given.
type Records interface {
	// Get returns the value of a key, nil if it has none.
	Get(key []byte) ([]byte, error)
	// Range yields the records whose keys begin with prefix, in ascending order. It
	// ends behind the first error.
	Range(prefix []byte) iter.Seq2[feed.Record, error]
	// Put sets the value of a key; nil removes it. It may keep both slices.
	Put(key, value []byte)
}
