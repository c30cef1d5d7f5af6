// Package recent keeps in memory what was used lately, within a bound of bytes.
//
// A Bound is what several Maps may hold together. What they hold stands in one ring. When it is too much a hand goes round
// it and drops what was not asked for since it was there last:
//
//	ring   a  b* c  d*      b and d were asked for
//	          ▲ hand        b is spared once, c is dropped
//
// So a Bound is full all the time and keeps what is asked for again and again, of whatever Map. Two generations, of
// which the older one is dropped at once, hold three quarters of it on average, and a share for each Map is too large
// for one and too small for another.
//
// One goroutine at a time uses a Bound and its Maps.
package recent

import "iter"

// Overhead is what an entry costs beside its key and its value, about.
const Overhead = 128

// Bound bounds what its Maps hold.
type Bound struct {
	max   func() int // bytes; asked again each time
	bytes int
	ring  []entry
	hand  int // where it looks next
	maps  []interface{ clear() }
}

// entry is an entry of a Map.
type entry interface {
	// spared tells whether the entry was asked for since spared was called last.
	spared() bool
	// drop takes the entry out of its Map and of the ring.
	drop()
	// moved tells the entry where it is in the ring.
	moved(at int)
}

// NewBound returns a Bound of at most max bytes, which may change; it is asked for each time that something is put.
func NewBound(max func() int) *Bound { return &Bound{max: max} }

// Clear empties all Maps.
func (b *Bound) Clear() {
	for _, m := range b.maps {
		m.clear()
	}
	b.bytes, b.ring, b.hand = 0, nil, 0
}

// insert puts a new entry behind the hand, so that it is the last to be looked at.
func (b *Bound) insert(e entry) {
	// What stands there takes the end of the ring, and comes back when the next entry is dropped.
	b.ring = append(b.ring, e)
	if last := len(b.ring) - 1; b.hand < last {
		b.swap(b.hand, last)
		b.hand++
	} else {
		e.moved(last)
	}
}

// remove takes the entry out of a place of the ring; the last one takes the place.
func (b *Bound) remove(at int) {
	last := len(b.ring) - 1
	b.swap(at, last)
	b.ring[last] = nil
	b.ring = b.ring[:last]
}

func (b *Bound) swap(i, j int) {
	b.ring[i], b.ring[j] = b.ring[j], b.ring[i]
	b.ring[i].moved(i)
	b.ring[j].moved(j)
}

// grow counts bytes that a Map holds more, and drops entries until all fits.
func (b *Bound) grow(bytes int) {
	b.bytes += bytes
	for most := b.max(); b.bytes > most && len(b.ring) > 0; {
		if b.hand >= len(b.ring) {
			b.hand = 0
		}
		if e := b.ring[b.hand]; e.spared() {
			b.hand++
		} else {
			e.drop()
		}
	}
}

// Map holds values by their keys.
type Map[V any] struct {
	bound *Bound
	size  func(V) int
	all   map[string]*kept[V]
}

// NewMap returns an empty Map of b. size tells about how many bytes a value takes.
func NewMap[V any](b *Bound, size func(V) int) *Map[V] {
	m := &Map[V]{bound: b, size: size}
	m.clear()
	b.maps = append(b.maps, m)
	return m
}

func (m *Map[V]) clear() { m.all = map[string]*kept[V]{} }

// Get returns the value of a key; false if m does not have it.
func (m *Map[V]) Get(key string) (V, bool) {
	k := m.all[key]
	if k == nil {
		var none V
		return none, false
	}
	k.used = true
	return k.value, true
}

// Put sets the value of a key.
func (m *Map[V]) Put(key string, v V) {
	k := m.all[key]
	if k == nil {
		k = &kept[V]{of: m, key: key}
		m.all[key] = k
		m.bound.insert(k)
	}
	was := k.bytes
	k.value, k.bytes = v, len(key)+Overhead+m.size(v)
	m.bound.grow(k.bytes - was)
}

// Find is Get for a key that is no string yet.
func (m *Map[V]) Find(key []byte) (V, bool) {
	k := m.all[string(key)]
	if k == nil {
		var none V
		return none, false
	}
	k.used = true
	return k.value, true
}

// Amend has amend change the value of a key that m has; false if it does not have it. It does not count as asking for it.
func (m *Map[V]) Amend(key string, amend func(*V)) bool {
	k := m.all[key]
	if k == nil {
		return false
	}
	amend(&k.value)
	was := k.bytes
	k.bytes = len(key) + Overhead + m.size(k.value)
	m.bound.grow(k.bytes - was)
	return true
}

// All yields what m has, in no order. It does not count as asking for it, and nothing may be put meanwhile.
func (m *Map[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for key, k := range m.all {
			if !yield(key, k.value) {
				return
			}
		}
	}
}

// kept is an entry of a Map.
type kept[V any] struct {
	of    *Map[V]
	key   string
	value V
	bytes int
	at    int  // in the ring
	used  bool // since the hand was here
}

func (k *kept[V]) spared() bool {
	used := k.used
	k.used = false
	return used
}

func (k *kept[V]) drop() {
	delete(k.of.all, k.key)
	k.of.bound.bytes -= k.bytes
	k.of.bound.remove(k.at)
}

func (k *kept[V]) moved(at int) { k.at = at }
