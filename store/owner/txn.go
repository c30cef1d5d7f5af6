package owner

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
)

// view is what a decision sees: the engine's snapshot, what was decided since,
// and the time at which the decision happens.
type view struct {
	schema  *schema
	snap    *engine.Snapshot
	pending *overlay
	cache   *ruleCache
	lsn     feed.LSN // of the commit that is being decided
	now     int64    // its time, unix milliseconds
	level   int      // of the data; 0 where nothing is made
}

// item returns the item as the last decision left it, nil if there is none.
// An expired item that is not deleted yet is returned too; see expired.
func (v *view) item(key feed.PartitionKey, id string, itemKey []byte) (*engine.Item, error) {
	if p, ok := v.pending.items[string(itemKey)]; ok {
		return p.item, nil
	}
	return v.snap.GetAt(itemKey, key, id)
}

// target is item for what may be the target of a rule.
func (v *view) target(itemKey string) (*engine.Item, error) {
	// The overlay before the cache, which is as old as the snapshot. Only targets are kept
	// in it: they are read again for each of their members, other items are not.
	if p, ok := v.pending.items[itemKey]; ok {
		return p.item, nil
	}
	if item, ok := v.cache.items.Get(itemKey); ok {
		return item, nil
	}
	of := []byte(itemKey)
	key, id, err := engine.ParseItemKey(of)
	if err != nil {
		return nil, err
	}
	// The cache has the item by its key, which ends with the id: one memory is enough for both.
	item, err := v.snap.GetAt(of, key, itemKey[len(itemKey)-len(id):])
	if err != nil {
		return nil, fmt.Errorf("read item %s: %w", id, err)
	}
	v.cache.items.Put(itemKey, item)
	return item, nil
}

// accumulator is record for an accumulator of a rule, by kind and key. It does not keep k.
func (v *view) accumulator(k []byte) ([]byte, error) {
	if p, ok := v.pending.records[string(k)]; ok {
		return p.value, nil
	}
	if known, ok := v.cache.groups.Find(k); ok && known.knowsRecord {
		return known.record, nil
	}
	value, _, err := v.snap.Record(k[0], k[1:])
	if err == nil {
		v.cache.keepRecord(string(k), value)
	}
	return value, err
}

func (v *view) record(kind byte, key string) ([]byte, error) {
	if p, ok := v.pending.records[string(kind)+key]; ok {
		return p.value, nil
	}
	value, _, err := v.snap.Record(kind, []byte(key))
	return value, err
}

func expired(item *engine.Item, now int64) bool { return item.Expires != 0 && item.Expires <= now }

// txn is one transaction while it is being decided: it sees its own changes, and
// nobody else does until it is merged. The decider's goroutine owns all of it.
type txn struct {
	*view
	draft   *draft
	items   few[*engine.Item] // changed, by item key; nil: removed
	unique  map[string]string
	records few[[]byte] // by kind and key; nil: gone

	// What goes into the log.
	changes []feed.Change
	bytes   int // estimate of its encoded size
	effect  *feed.Effect
	page    *feed.Page
	control *feed.Control
	idemKey string
	arena   arena

	// Of a page of a fan-out.
	excess *excessCopy // nil: none is known
	copied []byte      // key of the last item of which the page changed anything

	conditions    map[string]condition // of the request's patches
	conditionTook time.Duration        // their evaluation, so far

	// What follows for aggregates; see settleRules in targets.go.
	deltas     []unadded // not yet added to accumulators
	folds      []folded
	senderRule *rule               // whose processor has sent the request
	targets    map[string][]string // keys of items that became targets, by rule prefix and group
	orphans    []orphan            // groups whose targets go, of rules that make them
	// rowFolds are what it changes in the pending rows of a projection.
	rowFolds []feed.Fold
}

func newTxn(v *view, d *draft) *txn { return &txn{view: v, draft: d} }

// target is get for what may be the target of a rule.
func (t *txn) target(itemKey string) (*engine.Item, error) {
	if item, ok := t.items.at(itemKey); ok {
		return item, nil
	}
	return t.view.target(itemKey)
}

func (t *txn) get(key feed.PartitionKey, id string, itemKey []byte) (*engine.Item, error) {
	if item, ok := t.items.get(itemKey); ok {
		return item, nil
	}
	return t.item(key, id, itemKey)
}

// position is that of the next change.
func (t *txn) position() feed.Position {
	return feed.Position{LSN: t.lsn, Index: uint32(t.draft.changes + len(t.changes))}
}

// changeOverhead is what a change costs in a commit beside its bodies.
const changeOverhead = 96

// put decides that after replaces before (nil: creates). A pipeline's write
// (quiet) leaves the TTL clock and the mark of the last client's write alone.
// undo, if not nil, stands for before's body, which is not kept then.
func (t *txn) put(itemKey []byte, after, before *engine.Item, undo []document.Splice, quiet bool) *store.Error {
	return t.putShowing(nil, string(itemKey), after, before, undo, quiet)
}

// putShowing is put for an item that was found as a target of a rule and has its fields already; nil is no rule.
func (t *txn) putShowing(shown *rule, itemKey string, after, before *engine.Item, undo []document.Splice, quiet bool) *store.Error {
	// Rules first: unique keys, folds and the log have to see the item as it is stored.
	if len(t.schema.rules) > 0 {
		left, refusal := t.setRuleFields(shown, itemKey, after, undo)
		if refusal != nil {
			return refusal
		}
		if quiet && left == nil && before != nil && bytes.Equal(after.Body, before.Body) {
			// A row {"id":"r","a":1} over {"id":"r","a":1,"count":7}, where count is a
			// rule's: what the writer left out is what rules set, so nothing changes (I7).
			return nil
		}
		// The undo does not hold any more, so the body before goes into the log instead. A
		// page shows items in the memory of its scan, which the next item overwrites.
		if undo != nil && left == nil {
			kept := *before
			kept.Body = bytes.Clone(before.Body)
			before = &kept
		}
		undo = left
	}
	if refusal := t.updateUnique(after, before, undo); refusal != nil {
		return refusal
	}
	t.foldChange(after.Key, after.ID, before, after, undo)
	at := t.position()
	after.Position = at
	after.Modified, after.Written = t.now, t.lsn
	change := feed.Change{Op: feed.OpCreate, Key: after.Key, ID: after.ID, After: after.Body}
	if before != nil {
		change.Op = feed.OpReplace
		change.Prev, change.PrevModified = before.Position, before.Modified
		if len(undo) > 0 {
			change.Undo = undo
		} else {
			change.Before = before.Body
		}
		if quiet {
			after.Modified, after.Written = before.Modified, before.Written
		}
	}
	change.Modified, change.Written = after.Modified, after.Written
	after.Expires = t.schema.engine.Expires(after.Body, after.Modified)
	if t.changes == nil {
		t.changes = make([]feed.Change, 0, 2) // the item, and the target of a rule
	}
	t.changes = append(t.changes, change)
	t.bytes += changeBytes(&change)
	t.items.put(itemKey, after)
	return nil
}

// remove decides that before goes, by a delete or by expiry.
func (t *txn) remove(itemKey []byte, before *engine.Item, op feed.Op) {
	t.foldChange(before.Key, before.ID, before, nil, nil)
	// The target is not made again here: the transaction may still remove the members of its
	// group, and then nobody wants it.
	t.noteOrphans(before)
	for i := range t.schema.engine.UniqueKeys {
		tuple, _ := uniqueTuple(&t.schema.engine.UniqueKeys[i], before.Key, before.Body)
		t.setUnique(tuple, "")
	}
	change := feed.Change{
		Op: op, Key: before.Key, ID: before.ID, Before: before.Body, Prev: before.Position, PrevModified: before.Modified,
		Modified: t.now, Written: t.lsn,
	}
	t.changes = append(t.changes, change)
	t.bytes += changeBytes(&change)
	t.items.set(itemKey, nil)
}

func changeBytes(c *feed.Change) int {
	n := changeOverhead + len(c.Key.Encoded()) + len(c.ID) + len(c.After) + len(c.Before)
	for i := range c.Undo {
		n += len(c.Undo[i].Path) + len(c.Undo[i].Old) + 16
	}
	return n
}

// updateUnique moves the unique keys that before held to after. It refuses after where
// another item holds one of its.
func (t *txn) updateUnique(after, before *engine.Item, undo []document.Splice) *store.Error {
	if len(t.schema.engine.UniqueKeys) == 0 || before != nil && undo != nil && !t.touched(undo) {
		return nil
	}
	// All are checked before any is moved: a page goes on, in the same transaction, after
	// an item that is refused. All of before are freed before those of after are set, since
	// an item mostly keeps the values that it had.
	for i := range t.schema.engine.UniqueKeys {
		u := &t.schema.engine.UniqueKeys[i]
		tuple, values := uniqueTuple(u, after.Key, after.Body)
		holder, err := t.uniqueHolder(u, after.Key, tuple, values)
		if err != nil {
			return store.Refuse(store.StatusInternal, "unique key: %v", err)
		}
		if holder != "" && holder != after.ID {
			return store.Refuse(store.StatusConflict, "item %s: unique key %v is held by item %q of the same logical partition",
				after.ID, t.schema.settings.UniqueKeys[i].Paths, holder)
		}
	}
	if before != nil {
		for i := range t.schema.engine.UniqueKeys {
			tuple, _ := uniqueTuple(&t.schema.engine.UniqueKeys[i], before.Key, before.Body)
			t.setUnique(tuple, "")
		}
	}
	for i := range t.schema.engine.UniqueKeys {
		tuple, _ := uniqueTuple(&t.schema.engine.UniqueKeys[i], after.Key, after.Body)
		t.setUnique(tuple, after.ID)
	}
	return nil
}

func (t *txn) touched(undo []document.Splice) bool {
	for i := range undo {
		if t.schema.touches(undo[i].Path) {
			return true
		}
	}
	return false
}

// uniqueHolder returns the id of the item that holds a unique tuple, "" if none does.
// An expired holder counts no more.
func (t *txn) uniqueHolder(u *engine.UniqueKey, key feed.PartitionKey, tuple string, values [][]byte) (string, error) {
	// The newest first: this transaction, what was decided, what the engine has. "" in one
	// of them says that the tuple was freed, and ends the search.
	if id, ok := t.unique[tuple]; ok {
		return id, nil
	}
	if p, ok := t.pending.unique[tuple]; ok {
		return p.id, nil
	}
	id, ok, err := t.snap.Unique(key, u.Number, values)
	if err != nil || !ok {
		return "", err
	}
	itemKey := engine.ItemKey(key, id)
	item, err := t.get(key, id, itemKey)
	if err != nil {
		return "", err
	}
	if item != nil && expired(item, t.now) {
		t.remove(itemKey, item, feed.OpExpire)
		return "", nil
	}
	return id, nil
}

func (t *txn) setUnique(tuple, id string) {
	if t.unique == nil {
		t.unique = map[string]string{}
	}
	t.unique[tuple] = id
}

func (t *txn) setRecord(kind byte, key string, value []byte) {
	t.records.put(string(kind)+key, value)
}

// bodyFor checks a new body against the operation and the partition key and
// returns its id.
func (t *txn) bodyFor(op *store.Operation, key feed.PartitionKey) (string, *store.Error) {
	if len(op.Body) > store.ItemBytesMax {
		return "", store.Refuse(store.StatusTooLarge, "item is %d bytes; at most %d are allowed", len(op.Body), store.ItemBytesMax)
	}
	if err := document.Check(op.Body); err != nil {
		return "", store.Refuse(store.StatusBadRequest, "item: %v", err)
	}
	id, ok := document.ID(op.Body)
	if !ok {
		return "", store.Refuse(store.StatusBadRequest, "item has no id; a string member \"id\" is expected")
	}
	checkID := document.CheckNewID
	if op.Kind == store.OpReplace { // it is there already
		checkID = document.CheckID
	}
	if err := checkID(id); err != nil {
		return "", store.Refuse(store.StatusBadRequest, "item: %v", err)
	}
	if refusal := t.admitID(id); refusal != nil && op.Kind != store.OpReplace {
		return "", refusal
	}
	if op.ID != "" && op.ID != id {
		return "", store.Refuse(store.StatusBadRequest, "item has id %q, the request names %q; an id cannot be changed", id, op.ID)
	}
	actual, err := store.KeyAt(op.Body, t.schema.key)
	if err != nil {
		return "", store.Refuse(store.StatusBadRequest, "item %s: %v", id, err)
	}
	if actual != key {
		return "", store.Refuse(store.StatusBadRequest, "item %s has partition key %s, the request names %s", id, actual, key)
	}
	if refusal := t.checkTTL(op.Body); refusal != nil {
		return "", refusal
	}
	return id, nil
}

// admitID refuses an id of an item to be made that a process of an earlier release cannot read, as long as
// there may be one: with 503 where that is not known yet.
func (t *txn) admitID(id string) *store.Error {
	err := document.CheckPlainID(id)
	switch {
	case err == nil || t.level >= featurelevel.WideIDs:
		return nil
	case t.level == 0:
		return store.Refuse(store.StatusUnavailable, "item %q: the feature level of the data is not known yet; try again", id)
	}
	return store.Refuse(store.StatusBadRequest, "item: %v: the data has feature level %d, and such ids are taken from %d on: millrace upgrade --finish, when no process of an earlier release is left",
		err, t.level, featurelevel.WideIDs)
}

// checkTTL refuses a ttl member that is not -1 or 1 to 2147483647 where the
// container has TTL switched on.
func (t *txn) checkTTL(body []byte) *store.Error {
	if t.schema.engine.DefaultTTL == nil {
		return nil
	}
	raw, ok := document.Get(body, ttlPath)
	if !ok || engine.ValidTTL(raw) {
		return nil
	}
	return store.Refuse(store.StatusBadRequest, "item: ttl is %s; -1 (never) or 1 to 2147483647 seconds are allowed", document.Excerpt(string(raw), 40))
}

var ttlPath = document.Path{{Name: "ttl"}}

// arena gives a page memory for the many small things that it decides, a piece
// at a time. What it gave lives as long as anybody points at it.
type arena struct {
	bytes   []byte
	splices []document.Splice
}

const (
	// Pieces double from the least to the most: a page of many items takes a few large
	// ones, a repair of one item a small one. With large ones for all, repairs were a
	// sixth of what was allocated while a shop was imported, 1 GiB of 6; with 8 KiB at
	// least they were still 2 % of it under steady writes.
	arenaLeast, arenaBytes     = 1 << 10, 256 << 10
	splicesLeast, arenaSplices = 16, 512
)

// room returns an empty slice with space for at least n bytes, if n is not
// large. Whoever appends to it hands the result to use.
func (a *arena) room(n int) []byte {
	if cap(a.bytes)-len(a.bytes) < n && n <= arenaBytes {
		a.bytes = make([]byte, 0, min(max(arenaLeast, 2*cap(a.bytes), n), arenaBytes))
	}
	return a.bytes[len(a.bytes):]
}

// use says that b, which begins in the space that room returned, is in use. It
// returns b with no space behind it.
func (a *arena) use(b []byte) []byte {
	free := a.bytes[len(a.bytes):cap(a.bytes)]
	if len(b) > 0 && len(b) <= len(free) && &b[0] == &free[0] {
		a.bytes = a.bytes[:len(a.bytes)+len(b)]
	}
	return slices.Clip(b)
}

// keep returns a copy of b.
func (a *arena) keep(b []byte) []byte { return a.use(append(a.room(len(b)), b...)) }

// undoRoom returns an empty slice of splices with some space.
func (a *arena) undoRoom() []document.Splice {
	if cap(a.splices)-len(a.splices) < 8 {
		a.splices = make([]document.Splice, 0, min(max(splicesLeast, 2*cap(a.splices)), arenaSplices))
	}
	return a.splices[len(a.splices):]
}

// useUndo says that undo, which began as what undoRoom returned, is in use, and
// makes what it points at its own: the item before is only a view.
func (a *arena) useUndo(undo []document.Splice) []document.Splice {
	for i := range undo {
		undo[i].Old = a.keep(undo[i].Old)
	}
	if len(undo) <= cap(a.splices)-len(a.splices) {
		a.splices = a.splices[:len(a.splices)+len(undo)]
	}
	return slices.Clip(undo)
}
