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
		for entry, err := range s.IndexEntries(index, value, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			ok, err := items.find(entry, v)
			if err != nil {
				yield(nil, err)
				return
			}
			if !ok {
				continue // an entry that an unclean stop left behind
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

const (
	// stepsMax is how many items a finder steps over before it gets one: a get takes
	// about as long as that many steps.
	stepsMax = 4
	// missesMax is how many searches in a row may end with a get before the finder
	// gets at once, and retryEvery how often it then tries to step again.
	missesMax  = 4
	retryEvery = 64
)

// finder finds items by ascending item keys. Where they are close together it steps
// from one to the next, where they are far apart it gets each. To have the iterator seek
// would look into all tables, a get looks into few.
type finder struct {
	s       *Snapshot
	it      *iterator
	target  []byte // whole key
	began   bool
	misses  int
	skipped int // gets since the last try to step
}

func (s *Snapshot) newFinder() *finder {
	prefix := appendPrefix(nil, s.prefix, kindItem)
	return &finder{s: s, it: s.p.d.iterate(s.txn, badger.IteratorOptions{Prefix: prefix}), target: prefix}
}

func (f *finder) close() { f.it.Close() }

// find shows in v the item with that item key, which must lie behind the one before;
// false if there is none. What v shows is valid until the next find.
func (f *finder) find(itemKey []byte, v *View) (ok bool, err error) {
	f.target = append(f.target[:prefixLen+1], itemKey...)
	var c int
	switch {
	case f.misses >= missesMax:
		if f.skipped++; f.skipped < retryEvery {
			return f.get(v)
		}
		f.skipped, f.misses = 0, missesMax-1 // the next one steps from here
		c = f.seek()
	case !f.began:
		f.began = true
		c = f.seek()
	default:
		// Behind one gap items may be as close together as before it.
		if c = f.step(); c < 0 && f.misses == 1 {
			c = f.seek()
		}
	}
	switch {
	case c < 0:
		return f.get(v)
	case c > 0:
		return false, nil
	}
	item := f.it.Item()
	if err := item.Value(func(value []byte) error { return v.set(item.Key(), value) }); err != nil {
		return false, wrapRead(err)
	}
	return true, nil
}

// get is find without the iterator, which stays where it is.
func (f *finder) get(v *View) (ok bool, err error) {
	value, err := f.s.p.d.get(f.s.txn, f.target)
	if err != nil || value == nil {
		return false, err
	}
	if err := v.set(f.target, value); err != nil {
		return false, wrapRead(err)
	}
	return true, nil
}

// seek sends the iterator to the target, and compares.
func (f *finder) seek() int {
	f.it.Seek(f.target)
	return f.compare()
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
