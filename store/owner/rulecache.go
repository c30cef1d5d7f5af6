package owner

import (
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
)

// ruleCache keeps what rules read again and again, as the engine's snapshot has it:
// accumulators, the targets of groups, and which items these are. Looking them up costs
// more than the rest of deciding one change.
//
// A decision puts in what it finds in the snapshot and not in the overlay, which is the
// newest there is. When the overlay drops a value because the engine has it, the value
// replaces what is here. So a key here is as new as the snapshot, or the overlay has it
// newer. Two things empty the cache: another schema, with other indexes and expiries, and
// an append that did not happen.
type ruleCache struct {
	// found are the keys of the items that an index has for a group, by rule prefix and
	// group, and of some that are there no more.
	found aged[[][]byte]
	items aged[*engine.Item] // targets, by item key; nil: there is none
	// records are accumulators, by kind and key; nil: there is none.
	records aged[[]byte]

	budget *cacheBudget
	used   bool // counted by budget
}

// cacheBudget bounds what the rule caches of a process keep in each of the two
// generations of their aged. Those that keep anything have equal parts of it.
type cacheBudget struct {
	bytes int
	users atomic.Int64
}

// part returns the bytes of one in sixteen parts of a cache.
func (b *cacheBudget) part(sixteenths int) int {
	return b.bytes / int(max(b.users.Load(), 1)) / 16 * sixteenths
}

// cachedOverhead is what an entry costs beside what it holds.
const cachedOverhead = 128

func newRuleCache(budget *cacheBudget) *ruleCache {
	r := &ruleCache{budget: budget}
	r.found = newAged(r.most(2), func(keys [][]byte) int {
		bytes := 0
		for _, k := range keys {
			bytes += len(k) + 24
		}
		return bytes
	})
	r.items = newAged(r.most(9), func(item *engine.Item) int {
		if item == nil {
			return 0
		}
		return len(item.Body) + len(item.ID) + cachedOverhead
	})
	r.records = newAged(r.most(5), func(value []byte) int { return len(value) })
	return r
}

// most returns the bound of an aged. The first call counts the cache among the users of
// the budget.
func (r *ruleCache) most(sixteenths int) func() int {
	return func() int {
		if !r.used {
			r.used = true
			r.budget.users.Add(1)
		}
		return r.budget.part(sixteenths)
	}
}

// close gives the cache's part to others.
func (r *ruleCache) close() {
	r.clear()
	if r.used {
		r.used = false
		r.budget.users.Add(-1)
	}
}

func (r *ruleCache) clear() {
	r.found.clear()
	r.items.clear()
	r.records.clear()
}

// foundMax bounds the item keys of one group that are kept.
const foundMax = 64

// target takes in an item that became a target of a group.
func (r *ruleCache) target(group, itemKey string) {
	keys, ok := r.found.get(group)
	// Only what is known is amended: without it the next look goes to the index, which has
	// the new item by now.
	switch {
	case !ok:
	case slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == itemKey }):
	case len(keys) >= foundMax:
		r.found.remove(group)
	default:
		r.found.put(group, append(slices.Clone(keys), []byte(itemKey)))
	}
}

// aged is a map that forgets what was not used for a while: when the young half is full it
// becomes the old one, and the old one is dropped.
type aged[V any] struct {
	young, old map[string]V
	bytes      int        // of young, about
	max        func() int // what they may be
	size       func(V) int
}

func newAged[V any](most func() int, size func(V) int) aged[V] {
	return aged[V]{young: map[string]V{}, max: most, size: size}
}

func (a *aged[V]) get(key string) (V, bool) {
	if v, ok := a.young[key]; ok {
		return v, true
	}
	v, ok := a.old[key]
	if ok {
		a.put(key, v)
	}
	return v, ok
}

func (a *aged[V]) put(key string, v V) {
	if was, ok := a.young[key]; ok {
		a.bytes -= a.size(was)
	} else {
		a.bytes += len(key) + cachedOverhead
	}
	a.young[key] = v
	// Two maps in place of a list by use: what is asked for moves to the young one by get,
	// and all the rest is dropped at once with the old one.
	if a.bytes += a.size(v); a.bytes > a.max() {
		a.young, a.old, a.bytes = map[string]V{}, a.young, 0
	}
}

// update replaces the value of a key, if the map has the key.
func (a *aged[V]) update(key string, v V) {
	_, young := a.young[key]
	if _, old := a.old[key]; young || old {
		a.put(key, v)
	}
}

func (a *aged[V]) remove(key string) {
	if was, ok := a.young[key]; ok {
		a.bytes -= a.size(was) + len(key) + cachedOverhead
	}
	delete(a.young, key)
	delete(a.old, key)
}

func (a *aged[V]) clear() { a.young, a.old, a.bytes = map[string]V{}, nil, 0 }

// groupName names a group of a rule.
func groupName(r *rule, g accumulator.Group) string { return r.prefix + string(g) }
