package engine

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/dgraph-io/badger/v4"
)

// Span is a stretch of keys: those from Min on that lie below Max. A nil Min is
// the beginning and a nil Max the end. In an index the keys are the index form of
// a value followed by an item key, otherwise item keys.
type Span struct{ Min, Max []byte }

// PrefixSpan returns the span of the keys that begin with prefix.
func PrefixSpan(prefix []byte) Span { return Span{Min: prefix, Max: PrefixEnd(prefix)} }

// PrefixEnd returns the first key behind all that begin with prefix; nil if there
// is none.
func PrefixEnd(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xFF {
			end := bytes.Clone(prefix[:n])
			end[n-1]++
			return end
		}
	}
	return nil
}

// From returns the part of the span at min and behind it.
func (s Span) From(min []byte) Span {
	if bytes.Compare(min, s.Min) > 0 {
		s.Min = min
	}
	return s
}

// Until returns the part of the span below max; nil is all of it.
func (s Span) Until(max []byte) Span {
	if max != nil && (s.Max == nil || bytes.Compare(max, s.Max) < 0) {
		s.Max = max
	}
	return s
}

// Empty tells whether no key can be in the span.
func (s Span) Empty() bool { return s.Max != nil && bytes.Compare(s.Min, s.Max) >= 0 }

// Contains tells whether a key is in the span.
func (s Span) Contains(key []byte) bool {
	return bytes.Compare(key, s.Min) >= 0 && (s.Max == nil || bytes.Compare(key, s.Max) < 0)
}

// Entry is an entry of an index. Key is its place in the index: the form of the
// value, which AppendIndexValue makes, and behind it the item key.
type Entry struct {
	Key   []byte
	value int
}

// Value returns the index form of the entry's value.
func (e Entry) Value() []byte { return e.Key[:e.value] }

// ItemKey returns the key of the entry's item.
func (e Entry) ItemKey() []byte { return e.Key[e.value:] }

// IndexSpan lists entries of an index in the order of their values and item keys,
// or with desc in the reverse of that. The bytes are valid until the scan goes on.
// Values that AppendIndexValue cut lie behind all others, in the order of what is
// left of them.
func (s *Snapshot) IndexSpan(index uint32, span Span, desc bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.err != nil {
			yield(Entry{}, s.err)
			return
		}
		prefix := binary.BigEndian.AppendUint32(appendPrefix(nil, s.prefix, kindIndex), index)
		for it, err := range s.span(prefix, span, desc) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			key := it.Key()[len(prefix):]
			n := indexValueLen(key)
			if n < 0 {
				yield(Entry{}, corrupt("index entry %x", it.Key()))
				return
			}
			if !yield(Entry{Key: key, value: n}, nil) {
				return
			}
		}
	}
}

// ItemSpan scans items in the order of their keys, or with desc in the reverse of
// that. It ends after its first error.
func (s *Snapshot) ItemSpan(span Span, desc bool) iter.Seq2[*View, error] {
	return func(yield func(*View, error) bool) {
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		v := &View{s: s}
		var key []byte
		show := func(value []byte) error { return v.set(key, value) }
		for it, err := range s.span(appendPrefix(nil, s.prefix, kindItem), span, desc) {
			if err != nil {
				yield(nil, err)
				return
			}
			key = it.Key()
			if err := it.Value(show); err != nil {
				yield(nil, wrapRead(err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// ItemKeys lists the keys of the items in a span, in order, without reading the
// items. The bytes are valid until the scan goes on.
func (s *Snapshot) ItemKeys(span Span) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		for it, err := range s.span(appendPrefix(nil, s.prefix, kindItem), span, false) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(it.Key()[prefixLen+1:], nil) {
				return
			}
		}
	}
}

// span lists the keys in a span behind a prefix.
func (s *Snapshot) span(prefix []byte, span Span, desc bool) iter.Seq2[*badger.Item, error] {
	return func(yield func(*badger.Item, error) bool) {
		if span.Empty() {
			return
		}
		least := append(bytes.Clone(prefix), span.Min...)
		end := PrefixEnd(prefix)
		if span.Max != nil {
			end = append(bytes.Clone(prefix), span.Max...)
		}
		// What is common to all keys of the span tells Badger which tables it needs.
		shared := least[:max(len(prefix), commonLen(least, end))]
		it := s.p.d.iterate(s.txn, badger.IteratorOptions{Prefix: shared, Reverse: desc})
		defer it.Close()
		if !desc {
			for it.Seek(least); it.Valid() && bytes.Compare(it.Item().Key(), end) < 0; it.Next() {
				if !yield(it.Item(), nil) {
					return
				}
			}
			return
		}
		// Backward, Seek finds the last key up to end, end itself among them, which the span
		// does not hold.
		it.Seek(end)
		if it.Valid() && bytes.Equal(it.Item().Key(), end) {
			it.Next()
		}
		for ; it.Valid() && bytes.Compare(it.Item().Key(), least) >= 0; it.Next() {
			if !yield(it.Item(), nil) {
				return
			}
		}
	}
}

// commonLen returns how many bytes a and b begin with alike.
func commonLen(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Find returns the item with an item key; nil if there is none. It is valid until
// the snapshot is closed.
func (s *Snapshot) Find(itemKey []byte) (*View, error) {
	if s.err != nil {
		return nil, s.err
	}
	key := append(appendPrefix(make([]byte, 0, prefixLen+1+len(itemKey)), s.prefix, kindItem), itemKey...)
	value, err := s.p.d.get(s.txn, key)
	if err != nil || value == nil {
		return nil, err
	}
	v := &View{s: s}
	if err := v.set(key, value); err != nil {
		return nil, wrapRead(err)
	}
	return v, nil
}

// Finder finds items by item keys that ascend: it steps from one to the next where
// they are close together, and gets each where they are not. Close it.
type Finder struct {
	f finder
	v View
}

// NewFinder returns a finder of the snapshot's items.
func (s *Snapshot) NewFinder() (*Finder, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &Finder{f: *s.newFinder(), v: View{s: s}}, nil
}

// Find returns the item with an item key, which must lie behind that of the call
// before; nil if there is none. It is valid until the next call.
func (f *Finder) Find(itemKey []byte) (*View, error) {
	ok, err := f.f.find(itemKey, &f.v)
	if !ok {
		return nil, err
	}
	return &f.v, nil
}

// Close frees the finder.
func (f *Finder) Close() { f.f.close() }

// IsCut tells whether the index form of a value is not all of it.
func IsCut(form []byte) bool { return len(form) > 0 && form[0]&longMark != 0 }

// indexValueLen returns how many bytes of the key of an index entry are the form
// of its value; -1 if it is none.
func indexValueLen(key []byte) int {
	switch {
	case len(key) == 0:
		return -1
	case key[0]&longMark != 0:
		if len(key) < IndexValueMax {
			return -1
		}
		return IndexValueMax
	case key[0] == canonicalNumber:
		return numberEnd(key)
	case key[0] == canonicalString:
		return stringEnd(key)
	}
	return 1 // null, a boolean, a mark
}

// numberEnd returns where the form of a number ends.
func numberEnd(key []byte) int {
	const digitsAt = 6 // behind rank, sign and exponent
	last := byte(0)
	switch {
	case len(key) > 1 && key[1] == 0x02: // zero
		return 2
	case len(key) <= digitsAt:
		return -1
	case key[1] == 0x01: // negative
		last = 0xFF
	}
	n := bytes.IndexByte(key[digitsAt:], last)
	if n < 0 {
		return -1
	}
	return digitsAt + n + 1
}

// stringEnd returns where the form of a string ends: behind 00 01.
func stringEnd(key []byte) int {
	for i := 1; ; {
		n := bytes.IndexByte(key[i:], 0)
		if n < 0 || i+n+1 >= len(key) {
			return -1
		}
		// A zero byte of the string itself has FF behind it and not 01:
		//
		//	"a\x00b"   08 61 00 FF 62 00 01
		if i += n + 2; key[i-1] == 0x01 {
			return i
		}
	}
}

// The first bytes of the forms of numbers and strings, as document.AppendCanonical
// makes them, and of the marks that an ordered index has.
const (
	canonicalNumber = 0x05
	canonicalString = 0x08

	markArray  = 0x10
	markObject = 0x11
)
