package owner

import (
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// overlay is what was decided and is not yet seen in the engine's snapshot:
// items, unique keys and records by their keys, with the LSN of the commit that
// made them. Only the deciding goroutine touches it.
type overlay struct {
	items   map[string]pendingItem
	unique  map[string]pendingID
	records map[string]pendingRecord
	targets map[string][]pendingTarget // by rule prefix and group
	log     []pendingKeys              // by LSN, oldest first
}

type pendingItem struct {
	lsn  feed.LSN
	item *engine.Item // nil: deleted
}

type pendingID struct {
	lsn feed.LSN
	id  string // "": free
}

type pendingRecord struct {
	lsn   feed.LSN
	value []byte // nil: deleted
}

// pendingTarget is an item that became the target of a group.
type pendingTarget struct {
	lsn feed.LSN
	key string // of the item
}

// pendingKeys are the keys that one commit put into the overlay.
type pendingKeys struct {
	lsn                             feed.LSN
	items, unique, records, targets []string
}

func newOverlay() *overlay {
	return &overlay{items: map[string]pendingItem{}, unique: map[string]pendingID{}, records: map[string]pendingRecord{}, targets: map[string][]pendingTarget{}}
}

// prune forgets what commits up to lsn decided, because the engine has it now, and puts it
// into r in place of what r read from an older snapshot.
func (o *overlay) prune(lsn feed.LSN, r *ruleCache) {
	// By the lists of keys that each commit left: going through the whole overlay at every
	// commit would cost what is in it, not what goes. A key stays if a later commit has it
	// too, which its own LSN tells.
	n := 0
	for ; n < len(o.log) && o.log[n].lsn <= lsn; n++ {
		for _, k := range o.log[n].items {
			if p, ok := o.items[k]; ok && p.lsn <= lsn {
				r.items.Update(k, p.item)
				delete(o.items, k)
			}
		}
		for _, k := range o.log[n].unique {
			if o.unique[k].lsn <= lsn {
				delete(o.unique, k)
			}
		}
		for _, k := range o.log[n].records {
			if p, ok := o.records[k]; ok && p.lsn <= lsn {
				r.records.Update(k, p.value)
				delete(o.records, k)
			}
		}
		for _, k := range o.log[n].targets {
			for _, p := range o.targets[k] {
				r.target(k, p.key)
			}
			left := slices.DeleteFunc(o.targets[k], func(p pendingTarget) bool { return p.lsn <= lsn })
			if o.targets[k] = left; len(left) == 0 {
				delete(o.targets, k)
			}
		}
	}
	o.log = slices.Delete(o.log, 0, n)
}

// keys returns the present commit's list.
func (o *overlay) keys(lsn feed.LSN) *pendingKeys {
	if n := len(o.log); n == 0 || o.log[n-1].lsn != lsn {
		o.log = append(o.log, pendingKeys{lsn: lsn})
	}
	return &o.log[len(o.log)-1]
}

// merge takes over what one transaction decided for the commit at lsn.
func (o *overlay) merge(lsn feed.LSN, t *txn) {
	keys := o.keys(lsn)
	for k, item := range t.items.all {
		o.items[k] = pendingItem{lsn, item}
		keys.items = append(keys.items, k)
	}
	for k, id := range t.unique {
		o.unique[k] = pendingID{lsn, id}
		keys.unique = append(keys.unique, k)
	}
	for k, v := range t.records {
		o.records[k] = pendingRecord{lsn, v}
		keys.records = append(keys.records, k)
	}
	for k, items := range t.targets {
		for _, item := range items {
			o.targets[k] = append(o.targets[k], pendingTarget{lsn, item})
		}
		keys.targets = append(keys.targets, k)
	}
}

// within returns the item keys that begin with prefix and lie after cursor, in
// order, so that a scan of the engine can be merged with what it does not have.
func (o *overlay) within(prefix, cursor []byte) []string {
	var keys []string
	for k := range o.items {
		if len(k) >= len(prefix) && k[:len(prefix)] == string(prefix) && k > string(cursor) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// changedItems are the items that a transaction has changed, by their item keys;
// nil stands for one that it removed. Most transactions change one item, for which
// no map is made. The zero value is empty.
type changedItems struct {
	key  string // of the first
	item *engine.Item
	more map[string]*engine.Item
}

// get returns what an item has become; false if it was not changed.
func (c *changedItems) get(itemKey []byte) (*engine.Item, bool) {
	if c.key != "" && c.key == string(itemKey) {
		return c.item, true
	}
	item, ok := c.more[string(itemKey)]
	return item, ok
}

// set notes what an item has become.
func (c *changedItems) set(itemKey []byte, item *engine.Item) {
	switch {
	case c.key == "":
		c.key, c.item = string(itemKey), item
	case c.key == string(itemKey):
		c.item = item
	default:
		if c.more == nil {
			c.more = map[string]*engine.Item{}
		}
		c.more[string(itemKey)] = item
	}
}

// all iterates over the items, in no order.
func (c *changedItems) all(yield func(string, *engine.Item) bool) {
	if c.key == "" || !yield(c.key, c.item) {
		return
	}
	for key, item := range c.more {
		if !yield(key, item) {
			return
		}
	}
}
