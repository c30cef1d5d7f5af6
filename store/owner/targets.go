package owner

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
)

// settleRules adds what the transaction's changes mean to the accumulators, and
// sets the fields of their targets. Targets may be members of other aggregates,
// so it goes on until nothing is left; that it ends is checked when pipelines are
// applied. A target that cannot take its fields is refused: its accumulator is
// right, and its fields are set when either changes again.
func (t *txn) settleRules() (refused []store.Refusal, err *store.Error) {
	// An order counts in its customer, and a customer with orders in its region:
	//
	//	round 1   order created    ─▶ customer.orders 0 → 1
	//	round 2   customer changed ─▶ region.active 6 → 7
	//	round 3   region changed   ─▶ nothing
	//
	// No chain is longer than there are rules, unless one counts what it makes itself.
	// Two rounds more let the last one find nothing, and recreated targets be counted.
	for range len(t.schema.rules) + 2 {
		if len(t.deltas) == 0 && len(t.orphans) == 0 {
			return refused, nil
		}
		// What this round writes is noted anew, for the next one.
		deltas := t.deltas
		t.deltas = nil
		for _, r := range t.schema.rules {
			i := slices.IndexFunc(deltas, func(w unadded) bool { return w.rule == r })
			if i < 0 || deltas[i].delta.Empty() {
				continue
			}
			for _, g := range deltas[i].delta.Groups() {
				some, err := t.addShare(r, g, deltas[i].delta.Share(g))
				if err != nil {
					return nil, err
				}
				refused = append(refused, some...)
			}
		}
		// What was added lies in the memory of the records by now (accumulator.Rule.Add).
		for _, w := range deltas {
			if w.rule != t.senderRule { // that one was not made here
				t.cache.reuse(w.rule, w.delta)
			}
		}
		if err := t.recreateTargets(); err != nil {
			return nil, err
		}
	}
	for _, w := range t.deltas {
		if !w.delta.Empty() {
			return nil, store.Refuse(store.StatusInternal, "the aggregates that follow from it do not come to rest, at last %s; "+
				"one of them counts what another one makes", w.rule.setting.Pipeline)
		}
	}
	return refused, nil
}

// addShare adds a share to one group and sets the fields of its targets.
func (t *txn) addShare(r *rule, g accumulator.Group, share *accumulator.Share) ([]store.Refusal, *store.Error) {
	if share.Zero() {
		return nil, nil
	}
	// The accumulator grows also before the rule is published, and for a group that has no
	// target yet: both are then right from the first moment on.
	state, err := r.Add(ruleRecords{t, r}, g, share)
	if err != nil {
		return nil, store.Refuse(store.StatusInternal, "accumulator of %s: %v", r.setting.Pipeline, err)
	}
	if !r.sets {
		return nil, nil
	}
	targets, refusal := t.targetsOf(r, g)
	if refusal != nil {
		return nil, refusal
	}
	if len(targets) == 0 && r.setting.Spec.Create && !state.Empty() {
		return t.createTarget(r, g, state)
	}
	var refused []store.Refusal
	for _, itemKey := range targets {
		if refusal := t.updateTarget(r, itemKey, state); refusal != nil {
			item, _ := t.items.at(itemKey)
			ref := store.ItemRef{}
			if item != nil {
				ref = store.ItemRef{Key: item.Key, ID: item.ID}
			}
			refused = append(refused, store.Refusal{Ref: ref, Status: refusal.Status, Reason: refusal.Message})
		}
	}
	return refused, nil
}

// targetsOf returns the keys of the items that carry the fields of a group.
func (t *txn) targetsOf(r *rule, g accumulator.Group) ([]string, *store.Error) {
	// Where the group names the id there is one target at most, and no index is needed.
	if id, ok := r.TargetID(g); ok {
		key, ok := r.TargetKey(g, t.schema.key)
		if !ok {
			return nil, nil
		}
		return t.onlyTargets(r, g, []string{string(engine.ItemKey(key, id))})
	}
	// The index shows the targets of the snapshot. Those that were decided since, by others
	// and by this transaction, are noted when they are written (noteTarget). What has
	// ceased to be a target is among them still, and left out by onlyTargets.
	var room [groupNameRoom]byte
	name := appendGroupName(room[:0], r, g)
	var keys []string
	if r.setting.Index != 0 {
		var err error
		if keys, err = t.indexed(r, g, name); err != nil {
			return nil, store.Refuse(store.StatusInternal, "targets of %s: %v", r.setting.Pipeline, err)
		}
	}
	pending, own := t.pending.targets[string(name)], t.targets[string(name)]
	// Most groups have one target, which the index has found, and nothing is left to do.
	if len(pending)+len(own) == 0 && slices.IsSorted(keys) {
		return t.onlyTargets(r, g, keys)
	}
	keys = slices.Clone(keys) // those that were found are the cache's
	for i := range pending {
		keys = append(keys, pending[i].key)
	}
	keys = append(keys, own...)
	slices.Sort(keys)
	return t.onlyTargets(r, g, slices.Compact(keys))
}

// indexed returns the keys of the items that the snapshot has in the rule's index for a
// group of that name, and of some that are gone. They are the cache's.
func (v *view) indexed(r *rule, g accumulator.Group, name []byte) ([]string, error) {
	// Orders of one customer arrive together, and all look for the same target. Looking once
	// a snapshot, and not for each, took an order from 139 to 94 µs of CPU.
	if known, ok := v.cache.groups.Find(name); ok && known.knowsTargets {
		return known.targets, nil
	}
	var keys []string
	for key, err := range v.snap.IndexEntries(r.setting.Index, g.Values()[0], nil) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, string(key))
	}
	if len(keys) <= targetsMax {
		v.cache.keepTargets(string(name), keys)
	}
	return keys, nil
}

// onlyTargets returns those of keys, which it leaves as they are, that are targets of the group as the transaction
// sees them, and makes the items its own.
func (t *txn) onlyTargets(r *rule, g accumulator.Group, keys []string) ([]string, *store.Error) {
	// Nearly always all of them are: no list is made then.
	targets, all := keys, true
	for i, itemKey := range keys {
		item, err := t.target(itemKey)
		if err != nil {
			return nil, store.Refuse(store.StatusInternal, "targets of %s: %v", r.setting.Pipeline, err)
		}
		is := item != nil && !expired(item, t.now)
		if is {
			of, ok := r.TargetGroup(item.Body)
			is = ok && of == g
		}
		switch {
		case !is && all:
			targets, all = slices.Clone(keys[:i]), false
		case is && !all:
			targets = append(targets, itemKey)
		}
		if is {
			// updateTarget and targets of other groups find it there without another look.
			t.items.put(itemKey, item)
		}
	}
	return targets, nil
}

// updateTarget makes the fields of a target, which the transaction has at hand, what
// the accumulator says. known is the rule if the transaction has found the item as a target of it (targetsOf), else nil.
func (t *txn) updateTarget(known *rule, itemKey string, state *accumulator.State) *store.Error {
	item, _ := t.items.at(itemKey)
	setter, err := document.NewSetter(state.Values())
	if err != nil {
		return store.Refuse(store.StatusInternal, "fields of item %s: %v", item.ID, err)
	}
	body, undo, changed, err := setter.Apply(item.Body)
	if err != nil {
		if tooLarge, ok := errors.AsType[*document.SizeError](err); ok {
			return store.Refuse(store.StatusTooLarge, "item %s would be %d bytes with its aggregates; at most %d are allowed", item.ID, tooLarge.Size, store.ItemBytesMax)
		}
		return store.Refuse(store.StatusBadRequest, "aggregates of item %s: %v", item.ID, err)
	}
	if !changed {
		return nil
	}
	after := &engine.Item{Key: item.Key, ID: item.ID, Body: body}
	return t.putShowing(known, itemKey, after, item, undo, true)
}

// createTarget makes the item that a group's fields are to be in.
func (t *txn) createTarget(r *rule, g accumulator.Group, state *accumulator.State) ([]store.Refusal, *store.Error) {
	id, ok := r.TargetID(g)
	key, fixed := r.TargetKey(g, t.schema.key)
	if !ok || !fixed {
		return nil, nil
	}
	// Below the level in which the id can be there is no target, as in earlier releases. Its accumulator
	// grows, and its next change makes it.
	if refusal := t.admitID(id); refusal != nil {
		if refusal.Status == store.StatusUnavailable {
			return nil, refusal
		}
		return nil, nil
	}
	itemKey := engine.ItemKey(key, id)
	ref := store.ItemRef{Key: key, ID: id}
	current, err := t.get(key, id, itemKey)
	switch {
	case err != nil:
		return nil, store.Refuse(store.StatusInternal, "read item %s: %v", id, err)
	case current != nil && expired(current, t.now):
		// Its expiry is decided here, before the sweep that would: the create needs the id.
		t.remove(itemKey, current, feed.OpExpire)
	case current != nil: // an item of another kind
		return []store.Refusal{{Ref: ref, Status: store.StatusConflict, Reason: "an item that is no target has the id of the target to create"}}, nil
	}
	body, ok := r.NewTarget(g, state, t.schema.key)
	if !ok {
		return nil, nil
	}
	if refusal := t.put(itemKey, &engine.Item{Key: key, ID: id, Body: body}, nil, nil, false); refusal != nil {
		return []store.Refusal{{Ref: ref, Status: refusal.Status, Reason: refusal.Message}}, nil //nolint:nilerr // it is told of the item
	}
	return nil, nil
}

// orphan is a group whose target has gone.
type orphan struct {
	rule  *rule
	group accumulator.Group
}

// noteOrphans notes for which groups an item that goes is a target that a rule makes.
func (t *txn) noteOrphans(item *engine.Item) {
	for _, r := range t.schema.rules {
		if !r.sets || !r.setting.Spec.Create {
			continue
		}
		if g, ok := r.TargetGroup(item.Body); ok {
			t.orphans = append(t.orphans, orphan{r, g})
		}
	}
}

// recreateTargets makes the targets that have gone and whose groups have members. What
// cannot be made, because an item of another kind has its id now, stays away until
// its group changes.
func (t *txn) recreateTargets() *store.Error {
	// Making one may remove an expired item that was a target itself, which is noted for
	// the next round.
	all := t.orphans
	t.orphans = nil
	for _, b := range all {
		if _, err := t.createMissing(b.rule, b.group); err != nil {
			return err
		}
	}
	return nil
}

// setRuleFields gives an item that is about to be written the fields that rules set in
// it, whatever the writer wrote there, and notes for which groups it is a target.
// undo is returned as nil if the body is another one now. The fields of shown stand in the item, and it is known as
// a target of that rule: what a rule sets is nothing by which it finds its targets. nil is no rule.
func (t *txn) setRuleFields(shown *rule, itemKey string, after *engine.Item, undo []document.Splice) ([]document.Splice, *store.Error) {
	// Rule 0 may find its targets by a field that rule 1 sets. An item that rule 1 has just
	// made a target of rule 0 was passed over by it before, so all are gone through again.
	// In one pass its fields came late or never, depending on the order of declaration.
	for range t.schema.rules {
		again := false
		for i, r := range t.schema.rules {
			if r == shown {
				continue
			}
			changed, err := t.setFieldsOf(r, itemKey, after)
			if err != nil {
				return undo, err
			}
			if changed {
				undo, shown = nil, nil // shown may look at what r set
				again = again || i > 0 // those before it may look at what it set
			}
		}
		if !again {
			break
		}
	}
	return undo, nil
}

// setFieldsOf does so for one rule.
func (t *txn) setFieldsOf(r *rule, itemKey string, after *engine.Item) (changed bool, refusal *store.Error) {
	if !r.setting.Active {
		return false, nil
	}
	g, ok := r.TargetGroup(after.Body)
	if !ok {
		return false, nil
	}
	// Noted before the rule is published too: the index that would find it is only as new
	// as the snapshot.
	if r.setting.Index != 0 {
		t.noteTarget(r, g, itemKey)
	}
	if !r.sets {
		return false, nil
	}
	state, err := r.State(ruleRecords{t, r}, g)
	if err != nil {
		return false, store.Refuse(store.StatusInternal, "accumulator of %s: %v", r.setting.Pipeline, err)
	}
	setter, err := document.NewSetter(state.Values())
	if err != nil {
		return false, store.Refuse(store.StatusInternal, "fields of item %s: %v", after.ID, err)
	}
	body, _, changed, err := setter.Apply(after.Body)
	if err != nil {
		if tooLarge, ok := errors.AsType[*document.SizeError](err); ok {
			return false, store.Refuse(store.StatusTooLarge, "item %s would be %d bytes with its aggregates; at most %d are allowed", after.ID, tooLarge.Size, store.ItemBytesMax)
		}
		return false, store.Refuse(store.StatusBadRequest, "item %s cannot take its aggregates: %v", after.ID, err)
	}
	if changed {
		after.Body = body
	}
	return changed, nil
}

func (t *txn) noteTarget(r *rule, g accumulator.Group, itemKey string) {
	if t.targets == nil {
		t.targets = map[string][]string{}
	}
	k := string(appendGroupName(nil, r, g))
	if !slices.Contains(t.targets[k], itemKey) {
		t.targets[k] = append(t.targets[k], itemKey)
	}
}
