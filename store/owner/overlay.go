package owner

import (
	"hash/maphash"
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
	recent  *recency                   // nil: nobody has asked yet
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
				r.items.Amend(k, func(item **engine.Item) { *item = p.item })
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
				r.record(k, p.value)
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
	if o.recent != nil {
		for i := range t.changes {
			o.recent.note(t.changes[i].Key, lsn)
		}
	}
	for k, item := range t.items.all {
		o.items[k] = pendingItem{lsn, item}
		keys.items = append(keys.items, k)
	}
	for k, id := range t.unique {
		o.unique[k] = pendingID{lsn, id}
		keys.unique = append(keys.unique, k)
	}
	for k, v := range t.records.all {
		o.records[k] = pendingRecord{lsn, v}
		keys.records = append(keys.records, k)
	}
	for k, items := range t.targets {
		for _, item := range items {
			o.target(lsn, k, item)
		}
		keys.targets = append(keys.targets, k)
	}
}

// recency tells behind which commit nothing was decided about a logical partition. It may tell a later one: logical partitions
// share places, and one that is not known has the LSN from which on it was watched. So a guard may refuse what it could have
// taken, and never takes what it must refuse:
//
//	A was written at 41, B at 42, and both have one place    A is told 42: a transaction that read it at 41 is done again
//	an owner that opens at 40 is asked about C               40: what was read before the owner opened is read again
type recency struct {
	floor  feed.LSN
	places [recencyPlaces]feed.LSN
}

// recencyPlaces is how many logical partitions are told apart: with a hundred that are written at a time, about one of forty
// that were not is taken for one that was. They take 32 KiB.
const recencyPlaces = 4096

// recencySeed is one for all: places are of one process.
var recencySeed = maphash.MakeSeed()

func newRecency(floor feed.LSN) *recency { return &recency{floor: floor} }

func (r *recency) place(key feed.PartitionKey) *feed.LSN {
	return &r.places[maphash.String(recencySeed, key.Encoded())%recencyPlaces]
}

// note notes that a commit has a change of the logical partition.
func (r *recency) note(key feed.PartitionKey, lsn feed.LSN) { *r.place(key) = lsn }

// of returns the LSN of a commit behind which nothing was decided about the logical partition.
func (r *recency) of(key feed.PartitionKey) feed.LSN { return max(r.floor, *r.place(key)) }

// target takes in an item that became a target of a group.
func (o *overlay) target(lsn feed.LSN, group, item string) {
	// Once, however many transactions write the item: whoever looks for targets goes through all of them. The former
	// commit says no more than the later one, behind which the engine has either. A group of many is not looked
	// through for each of them.
	of := o.targets[group]
	if len(of) <= targetsMax {
		if i := slices.IndexFunc(of, func(p pendingTarget) bool { return p.key == item }); i >= 0 {
			of[i].lsn = lsn
			return
		}
	}
	o.targets[group] = append(of, pendingTarget{lsn, item})
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

// few is a map of few keys. Most transactions change an item and a target of it, for which no map is made. The zero value
// is empty; of a nil one, get and all find nothing.
type few[V any] struct {
	n    int
	some [2]entry[V] // the first n
	more map[string]V
}

type entry[V any] struct {
	key   string
	value V
}

// get returns the value of a key; false if there is none.
func (f *few[V]) get(key []byte) (value V, ok bool) {
	if f == nil {
		return value, false
	}
	for i := range f.n {
		if f.some[i].key == string(key) {
			return f.some[i].value, true
		}
	}
	value, ok = f.more[string(key)]
	return value, ok
}

// at is get for a key that is a string.
func (f *few[V]) at(key string) (value V, ok bool) {
	if f == nil {
		return value, false
	}
	for i := range f.n {
		if f.some[i].key == key {
			return f.some[i].value, true
		}
	}
	value, ok = f.more[key]
	return value, ok
}

// set sets the value of a key, of which it keeps a copy.
func (f *few[V]) set(key []byte, value V) {
	for i := range f.n {
		if f.some[i].key == string(key) {
			f.some[i].value = value
			return
		}
	}
	f.put(string(key), value)
}

// put is set for a key that is a string already.
func (f *few[V]) put(key string, value V) {
	for i := range f.n {
		if f.some[i].key == key {
			f.some[i].value = value
			return
		}
	}
	if f.n < len(f.some) {
		f.some[f.n] = entry[V]{key, value}
		f.n++
		return
	}
	if f.more == nil {
		f.more = map[string]V{}
	}
	f.more[key] = value
}

// len returns the number of keys.
func (f *few[V]) len() int { return f.n + len(f.more) }

// all iterates over the keys and their values, in no order.
func (f *few[V]) all(yield func(string, V) bool) {
	if f == nil {
		return
	}
	for i := range f.n {
		if !yield(f.some[i].key, f.some[i].value) {
			return
		}
	}
	for key, value := range f.more {
		if !yield(key, value) {
			return
		}
	}
}
