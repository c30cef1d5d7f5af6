package owner

import (
	"slices"

	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
)

// ruleCache keeps what rules read again and again, as the engine's snapshot has it:
// accumulators, the targets of groups, and which items these are. To look them up costs
// more than all else that is decided for one change.
//
// What a decision finds in the snapshot is put in; it is not in the overlay then, so it
// is what was decided last. What the overlay forgets because the engine has it takes
// the place of what is there. So a key in it is as new as the snapshot, or the
// overlay has it newer. Only what no decision changes makes it forget everything:
// another schema, whose indexes and expiries are others, and an append that did not
// happen.
type ruleCache struct {
	// found are the keys of the items that an index has for a group, by rule prefix and
	// group, and of some that are there no more.
	found aged[[][]byte]
	items aged[*engine.Item] // targets, by item key; nil: there is none
	// records are accumulators, by kind and key; nil: there is none.
	records aged[[]byte]
}

// Bounds of what is kept in each generation of an aged, of which there are two.
const (
	cachedFoundBytes   = 4 << 20
	cachedItemsBytes   = 16 << 20
	cachedRecordsBytes = 8 << 20
)

// cachedOverhead is what an entry costs beside what it holds.
const cachedOverhead = 128

func newRuleCache() *ruleCache {
	return &ruleCache{
		found: newAged(cachedFoundBytes, func(keys [][]byte) int {
			bytes := 0
			for _, k := range keys {
				bytes += len(k) + 24
			}
			return bytes
		}),
		items: newAged(cachedItemsBytes, func(item *engine.Item) int {
			if item == nil {
				return 0
			}
			return len(item.Body) + len(item.ID) + cachedOverhead
		}),
		records: newAged(cachedRecordsBytes, func(value []byte) int { return len(value) }),
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
	switch {
	case !ok:
	case slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == itemKey }):
	case len(keys) >= foundMax:
		r.found.remove(group)
	default:
		r.found.put(group, append(slices.Clone(keys), []byte(itemKey)))
	}
}

// aged is a map that forgets what has not been asked for in a while: when it is full,
// what is in it grows old, and what was old is forgotten.
type aged[V any] struct {
	young, old map[string]V
	bytes, max int // of young, about
	size       func(V) int
}

func newAged[V any](most int, size func(V) int) aged[V] {
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
	if a.bytes += a.size(v); a.bytes > a.max {
		a.young, a.old, a.bytes = map[string]V{}, a.young, 0
	}
}

// update puts v in the place of what is there; if nothing is, nothing will be.
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
