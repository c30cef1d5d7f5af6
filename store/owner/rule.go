package owner

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner/internal/recent"
)

// rule is an aggregate's rule in force, compiled. Its accumulators are records
// whose keys begin with prefix.
type rule struct {
	*accumulator.Rule
	setting *store.RuleSetting
	prefix  string
	// recordPrefix is prefix behind the kind of the records.
	recordPrefix string
	reads        []document.Path // of a source item
	sets         bool            // the fields of targets are set
}

// rulePrefix begins the keys of the records of one generation of a pipeline.
func rulePrefix(pipeline string, generation uint32) string {
	return string(appendRulePrefix(nil, pipeline, generation))
}

func appendRulePrefix(dst []byte, pipeline string, generation uint32) []byte {
	return binary.BigEndian.AppendUint32(append(append(dst, pipeline...), 0), generation)
}

// compileRules compiles the rules of s.settings. A newer release wrote a rule that does
// not compile here; the partition must not be served without it.
func (s *schema) compileRules() error {
	for i := range s.settings.Rules {
		setting := &s.settings.Rules[i]
		compiled, err := accumulator.Compile(setting.Spec)
		if err != nil {
			return err
		}
		prefix := rulePrefix(setting.Pipeline, setting.Generation)
		s.rules = append(s.rules, &rule{
			Rule: compiled, setting: setting, prefix: prefix, recordPrefix: string(recordAccumulator) + prefix,
			reads: compiled.SourceReads(), sets: setting.Active && setting.Published,
		})
	}
	return nil
}

// rule returns a pipeline's rule, nil if there is none.
func (s *schema) rule(pipeline string, generation uint32) *rule {
	for _, r := range s.rules {
		if r.setting.Pipeline == pipeline && r.setting.Generation == generation {
			return r
		}
	}
	return nil
}

// mayReadChange reports whether a change with this undo may touch what the rule reads. It is true
// for a change without an undo, of which nothing is known.
func (r *rule) mayReadChange(undo []document.Splice) bool {
	if len(undo) == 0 {
		return true
	}
	for i := range undo {
		for _, path := range r.reads {
			if path.Touched(undo[i].Path) {
				return true
			}
		}
	}
	return false
}

// folded is what a transaction has changed in the accumulators of one rule: by kind and key, as the overlay has records; nil
// for what is gone.
type folded struct {
	rule    *rule
	records few[[]byte]
}

// folded returns what the transaction has changed of a rule, nil if it has changed nothing.
func (t *txn) folded(r *rule) *few[[]byte] {
	for i := range t.folds {
		if t.folds[i].rule == r {
			return &t.folds[i].records
		}
	}
	return nil
}

// ruleRecords is what a rule sees of its accumulators during a transaction.
type ruleRecords struct {
	t *txn
	r *rule
}

// Get implements accumulator.Records.
func (a ruleRecords) Get(key []byte) ([]byte, error) {
	var room [groupNameRoom]byte
	whole := append(append(room[:0], a.r.recordPrefix...), key...)
	if value, ok := a.t.folded(a.r).get(whole); ok {
		return value, nil
	}
	return a.t.accumulator(whole)
}

// Put implements accumulator.Records.
func (a ruleRecords) Put(key, value []byte) {
	changed := a.t.folded(a.r)
	if changed == nil {
		a.t.folds = append(a.t.folds, folded{rule: a.r})
		changed = &a.t.folds[len(a.t.folds)-1].records
	}
	var room [groupNameRoom]byte
	changed.set(append(append(room[:0], a.r.recordPrefix...), key...), value)
}

// Range implements accumulator.Records.
func (a ruleRecords) Range(prefix []byte) iter.Seq2[feed.Record, error] {
	changed := a.t.folded(a.r)
	return a.t.derived(a.r.prefix, prefix, func(yield func(string, []byte) bool) {
		for key, value := range changed.all {
			if !yield(key[len(a.r.recordPrefix):], value) {
				return
			}
		}
	})
}

// derived yields the accumulators or pending rows whose keys behind those of their owner
// begin with prefix: what the engine has, with what was decided since in its place,
// own by this transaction.
func (t *txn) derived(owner string, prefix []byte, own iter.Seq2[string, []byte]) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		// Two sorted lists are merged, of which the newer wins:
		//
		//	engine   a=1  b=2       d=4
		//	newer         b=∅  c=3        ─▶  a=1  c=3  d=4
		newer := t.newer(owner, string(prefix), own)
		keys := slices.Sorted(maps.Keys(newer))
		before := func(limit string, all bool) bool {
			for len(keys) > 0 && (all || keys[0] < limit) {
				k := keys[0]
				keys = keys[1:]
				if value := newer[k]; value != nil && !yield(feed.Record{Key: []byte(k), Value: value}, nil) {
					return false
				}
			}
			return true
		}
		for rec, err := range t.snap.Records(recordAccumulator, append([]byte(owner), prefix...)) {
			if err != nil {
				yield(feed.Record{}, err)
				return
			}
			key := rec.Key[len(owner):]
			if !before(string(key), false) {
				return
			}
			if _, ok := newer[string(key)]; ok {
				continue // comes from newer, or is gone
			}
			if !yield(feed.Record{Key: slices.Clone(key), Value: slices.Clone(rec.Value)}, nil) {
				return
			}
		}
		before("", true)
	}
}

// newer returns what was decided and is not in the engine's snapshot.
func (t *txn) newer(owner, prefix string, own iter.Seq2[string, []byte]) map[string][]byte {
	newer := map[string][]byte{}
	// The overlay holds what one or two commits decided. It has no order, since nearly all
	// look for one key; those who want a range go through all of it.
	whole := string(recordAccumulator) + owner + prefix
	for k, p := range t.pending.records {
		if strings.HasPrefix(k, whole) {
			newer[k[1+len(owner):]] = p.value
		}
	}
	for k, value := range own {
		if strings.HasPrefix(k, prefix) {
			newer[k] = value
		}
	}
	return newer
}

// foldRecords returns what the transaction says of accumulators in the log, and
// makes it visible to later decisions.
func (t *txn) foldRecords() []feed.Fold {
	// In the order of rules and of keys, not of maps: the same decision has the same bytes.
	var folds []feed.Fold
	for _, r := range t.schema.rules {
		changed := t.folded(r)
		if changed == nil {
			continue
		}
		f := feed.Fold{Pipeline: r.setting.Pipeline, Generation: r.setting.Generation, Records: make([]feed.Record, 0, changed.len())}
		for key, value := range changed.all {
			t.records.put(key, value)
			f.Records = append(f.Records, feed.Record{Key: []byte(key[len(r.recordPrefix):]), Value: value})
		}
		slices.SortFunc(f.Records, func(a, b feed.Record) int { return bytes.Compare(a.Key, b.Key) })
		folds = append(folds, f)
	}
	return append(folds, t.rowFolds...)
}

// recordOverhead is what a record costs in a commit beside key and value.
const recordOverhead = 16

// applyRules settles what the handler of a request has not settled, for every transaction. Those of
// clients and folds have: settleRules takes the deltas away that it adds, so nothing is left to
// be counted twice. It logs the targets that cannot take their fields: they do not hold up the page of a
// pipeline.
func (d *decider) applyRules(t *txn) *store.Error {
	// A page of a cascade must not halt because a customer has grown too large for its
	// count. The accumulator is right, so the field comes right with the next write.
	refused, refusal := t.settleRules()
	for i := range refused {
		d.p.log.Warn("a target cannot take the fields of its aggregate", "item", refused[i].Ref.String(), "reason", refused[i].Reason)
	}
	for i := range t.folds {
		for key, value := range t.folds[i].records.all {
			t.bytes += len(key) - len(t.folds[i].rule.recordPrefix) + len(value) + recordOverhead
		}
	}
	return refusal
}

// applyRulesStrictly applies the rules for a client's transaction, all of whose results must
// hold: it refuses the whole transaction where a target cannot take its fields. Results show
// items as the transaction leaves them; an item that was read, and then written by a later
// operation, is shown as it was read.
func (t *txn) applyRulesStrictly(r *store.Transact, result *store.TransactResult) *store.Error {
	if len(t.deltas) == 0 && len(t.orphans) == 0 {
		return nil
	}
	keys := make([][]byte, len(result.Results)) // of items that no later operation has written
	// Of [read c, create an order of c, patch c], with c.orders kept by a rule, the read
	// shows c as it was, the patch as it is with its new count. What tells them apart is
	// the position: the read's is that of an earlier commit.
	for i := range result.Results {
		res := &result.Results[i]
		if res.Item.Body == nil {
			continue
		}
		key := engine.ItemKey(r.Key, res.Item.ID)
		if item, ok := t.items.get(key); !ok || item != nil && item.Position == feed.Position(res.Item.ETag) {
			keys[i] = key
		}
	}
	refused, refusal := t.settleRules()
	if refusal != nil {
		return refusal
	}
	if len(refused) > 0 {
		return store.Refuse(refused[0].Status, "the aggregates that follow from it cannot be kept: %s", refused[0].Reason)
	}
	for i, key := range keys {
		if item, _ := t.items.get(key); key != nil && item != nil {
			result.Results[i].Item = itemOf(item)
		}
	}
	return nil
}

// foldChange notes what a change of an item means to the rules that the owner folds
// itself. before and after are nil where there is no item. Where the request came from
// the rule's own processor, that processor folds what follows, from the feed: the fold in
// the transaction is the one that it sent.
func (t *txn) foldChange(key feed.PartitionKey, id string, before, after *engine.Item, undo []document.Splice) {
	// Most writes leave alone what a rule reads, and the undo tells so without a look at the
	// bodies.
	for _, r := range t.schema.rules {
		if !r.setting.Folds || r == t.senderRule || before != nil && after != nil && !r.mayReadChange(undo) {
			continue
		}
		r.Fold(t.delta(r), key, id, bodyOf(before), bodyOf(after))
	}
}

func bodyOf(item *engine.Item) []byte {
	if item == nil {
		return nil
	}
	return item.Body
}

// unadded is what waits to be added to the accumulators of a rule.
type unadded struct {
	rule  *rule
	delta *accumulator.Delta
}

// delta returns what waits to be added to the accumulators of r.
func (t *txn) delta(r *rule) *accumulator.Delta {
	for i := range t.deltas {
		if t.deltas[i].rule == r {
			return t.deltas[i].delta
		}
	}
	d := t.cache.delta(r)
	t.deltas = append(t.deltas, unadded{r, d})
	return d
}

// ruleCache keeps what rules read again and again, as the engine's snapshot has it:
// accumulators, which items are the targets of groups, and these. Looking them up costs
// more than the rest of deciding one change.
//
// A decision puts in what it finds in the snapshot and not in the overlay, which is the
// newest there is. When the overlay drops a value because the engine has it, the value
// replaces what is here. So a key here is as new as the snapshot, or the overlay has it
// newer. Two things empty the cache: another schema, with other indexes and expiries, and
// an append that did not happen.
type ruleCache struct {
	kept   *recent.Bound
	groups *recent.Map[group]        // by the kind and key of their accumulator, and other records of accumulators, by theirs
	items  *recent.Map[*engine.Item] // targets, by item key; nil: there is none
	// deltas are empty, for the next transactions.
	deltas map[*rule]*accumulator.Delta

	budget *cacheBudget
	used   bool // counted by budget
}

// group is what is kept of a group: its accumulator, and where its targets are. Both in one entry, because they are asked
// for one after the other: with one for each, and copies of the items' keys, the 20,000 customers of a shop took 38 MB, more
// than a cache has, and 32 now. Of any other record of an accumulator it is that alone.
type group struct {
	record []byte // nil: there is none
	// targets are the keys of the items that an index has for the group, and of some that are there no more.
	targets                   []string
	knowsRecord, knowsTargets bool
}

// What a group costs, of what recent.Overhead does not have: beside its record and its targets, and a target, whose key is
// that of its item.
const (
	groupOverhead  = 40
	targetOverhead = 16
)

// cacheBudget bounds what the rule caches of a process keep. Those that keep anything have equal parts of it.
type cacheBudget struct {
	bytes int
	users atomic.Int64
}

// part returns the bytes of a cache.
func (b *cacheBudget) part() int { return b.bytes / int(max(b.users.Load(), 1)) }

// itemOverhead is what an item costs beside its body. Its key and its id are in the key under which it is kept, if it was
// read from the engine.
const itemOverhead = 112

func newRuleCache(budget *cacheBudget) *ruleCache {
	r := &ruleCache{budget: budget}
	r.kept = recent.NewBound(r.most)
	r.groups = recent.NewMap(r.kept, func(g group) int {
		return groupOverhead + len(g.record) + targetOverhead*len(g.targets)
	})
	r.items = recent.NewMap(r.kept, func(item *engine.Item) int {
		if item == nil {
			return 0
		}
		return len(item.Body) + itemOverhead
	})
	return r
}

// most returns the bound of the cache. The first call counts it among the users of the budget.
func (r *ruleCache) most() int {
	if !r.used {
		r.used = true
		r.budget.users.Add(1)
	}
	return r.budget.part()
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
	r.kept.Clear()
	r.deltas = nil
}

// delta returns an empty delta of a rule.
func (r *ruleCache) delta(of *rule) *accumulator.Delta {
	if d := r.deltas[of]; d != nil {
		delete(r.deltas, of)
		return d
	}
	return of.NewDelta()
}

// deltaBytesMax bounds a delta whose memory is used again.
const deltaBytesMax = 64 << 10

// reuse takes back a delta whose shares nobody looks at any more.
func (r *ruleCache) reuse(of *rule, d *accumulator.Delta) {
	if d.Memory() > deltaBytesMax {
		return
	}
	d.Reset()
	if r.deltas == nil {
		r.deltas = map[*rule]*accumulator.Delta{}
	}
	r.deltas[of] = d
}

// targetsMax bounds the targets of one group that are kept.
const targetsMax = 64

// keepRecord keeps the record of an accumulator as the snapshot has it; nil is none.
func (r *ruleCache) keepRecord(key string, value []byte) {
	if !r.record(key, value) {
		r.groups.Put(key, group{record: value, knowsRecord: true})
	}
}

// record brings what is kept of a record to what the snapshot has; false if nothing of it is kept. The value is copied: it
// is a few bytes of the memory in which it was made.
func (r *ruleCache) record(key string, value []byte) bool {
	return r.groups.Amend(key, func(g *group) { g.record, g.knowsRecord = bytes.Clone(value), true })
}

// keepTargets keeps the targets of a group as the snapshot has them.
func (r *ruleCache) keepTargets(name string, keys []string) {
	if !r.groups.Amend(name, func(g *group) { g.targets, g.knowsTargets = keys, true }) {
		r.groups.Put(name, group{targets: keys, knowsTargets: true})
	}
}

// target takes in an item that became a target of a group.
func (r *ruleCache) target(name, itemKey string) {
	r.groups.Amend(name, func(g *group) {
		// Only what is known is amended: without it the next look goes to the index, which has
		// the new item by now.
		switch {
		case !g.knowsTargets || slices.Contains(g.targets, itemKey):
		case len(g.targets) >= targetsMax:
			g.targets, g.knowsTargets = nil, false
		default:
			g.targets = append(slices.Clone(g.targets), itemKey)
		}
	})
}

// appendGroupName appends the name of a group of a rule: the kind and key of its accumulator.
func appendGroupName(dst []byte, r *rule, g accumulator.Group) []byte {
	return r.AppendKey(append(dst, r.recordPrefix...), g)
}

// groupNameRoom is room for most names of groups, on the stack.
const groupNameRoom = 128
