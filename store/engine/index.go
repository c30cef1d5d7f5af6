package engine

import (
	"bytes"
	"iter"

	"github.com/dgraph-io/badger/v4"
)

// IndexItems scans the items that have a value, a raw JSON scalar, in an index: in
// the order of item keys, those after the item key after if that is not nil. Items
// with another value longer than IndexValueMax and the same hash are among them, so
// whoever must be sure looks at the item.
func (s *Snapshot) IndexItems(index uint32, value, after []byte) iter.Seq2[*View, error] {
	return func(yield func(*View, error) bool) {
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		items := s.newFinder()
		defer items.close()
		v := &View{s: s}
		var key []byte
		show := func(value []byte) error { return v.set(key, value) }
		for entry, err := range s.IndexEntries(index, value, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			item := items.find(entry)
			if item == nil {
				continue // an entry that an unclean stop left behind
			}
			key = item.Key()
			if err := item.Value(show); err != nil {
				yield(nil, wrapRead(err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

const (
	// stepsMax is how many items a finder steps over before it seeks: a seek takes
	// about as long as that many steps.
	stepsMax = 12
	// missesMax is how many searches in a row may end with a seek before the finder
	// seeks at once, and retryEvery how often it then tries to step again.
	missesMax  = 4
	retryEvery = 64
)

// finder finds items by ascending item keys. Where they are close together it steps
// from one to the next, where they are far apart it seeks.
type finder struct {
	it      *iterator
	target  []byte // whole key
	began   bool
	misses  int
	skipped int // seeks since the last try to step
}

func (s *Snapshot) newFinder() *finder {
	prefix := appendPrefix(nil, s.prefix, kindItem)
	return &finder{it: s.p.d.iterate(s.txn, badger.IteratorOptions{Prefix: prefix}), target: prefix}
}

func (f *finder) close() { f.it.Close() }

// find returns the item with that item key, which must lie behind the one before;
// nil if there is none. It is valid until the next find.
func (f *finder) find(itemKey []byte) *badger.Item {
	f.target = append(f.target[:prefixLen+1], itemKey...)
	c := -1
	if f.began && f.tries() {
		c = f.step()
	}
	if c < 0 {
		f.began = true
		f.it.Seek(f.target)
		c = f.compare()
	}
	if c != 0 {
		return nil
	}
	return f.it.Item()
}

// tries tells whether stepping is worth a try.
func (f *finder) tries() bool {
	if f.misses < missesMax {
		return true
	}
	if f.skipped++; f.skipped < retryEvery {
		return false
	}
	f.skipped = 0
	return true
}

// step steps to the target and returns a negative number if it is further away than
// stepsMax items, zero if it was reached, else a positive one.
func (f *finder) step() int {
	for range stepsMax {
		c := f.compare()
		if c >= 0 {
			f.misses = 0
			return c
		}
		f.it.Next()
	}
	c := f.compare()
	if c < 0 {
		f.misses++
	}
	return c
}

// compare compares the present item with the target; the end is behind all.
func (f *finder) compare() int {
	if !f.it.Valid() {
		return 1
	}
	return bytes.Compare(f.it.Item().Key(), f.target)
}
