package aggregate

import (
	"context"
	"errors"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// repairTarget gives its fields to a target that could not take them, or makes the one that
// could not be made.
func (f *Folder) repairTarget(ctx context.Context, p *processors.Parked) error {
	return processors.RepairItem(p.Target, func(ref store.ItemRef) (done bool, err error) {
		item, is, err := f.readTarget(ctx, ref)
		if err != nil {
			return false, err
		}
		lacking, err := f.groupWithoutTarget(ctx, ref, is, p)
		switch {
		case err != nil:
			return false, err
		case lacking != nil && item.ETag != (store.ETag{}):
			return false, store.Refuse(store.StatusConflict, "item %s is not the target of its group, and has the id of the target to create; delete it, and try again", ref)
		case lacking != nil:
			return f.createOnce(ctx, ref, lacking)
		case is != nil:
			return f.repairOnce(ctx, item, *is)
		}
		return true, nil // it has changed, and is no target any more
	})
}

// groupState is a group and what its partition holds of it.
type groupState struct {
	group accumulator.Group
	*accumulator.State
}

// groupWithoutTarget returns a group to which the change of a dead letter means something, which
// has members, and whose target is to be created at ref, where the target of is stands instead,
// or none. It returns nil if there is no such group.
func (f *Folder) groupWithoutTarget(ctx context.Context, ref store.ItemRef, is *accumulator.Group, p *processors.Parked) (*groupState, error) {
	switch {
	case !f.a.rule.Spec().Create:
		return nil, nil
	case p.Change == nil && is != nil:
		return nil, nil
	case p.Change == nil:
		return nil, p.Missing // only the change tells the group
	}
	// As when targets are examined: until the rule is published there are no targets to make,
	// and of a generation that was ended there are none any more.
	partition := f.a.cfg.Target.PartitionFor(ref.Key)
	if shown, err := f.published(ctx, partition); err != nil || !shown {
		return nil, err
	}
	change := []member{{p.Change, p.At, &processors.Part{Commit: p.Commit, Transaction: p.Transaction}}}
	for g := range f.causesIn(partition, change) {
		if of, ok := f.a.targetRef(g); !ok || of != ref || is != nil && *is == g {
			continue
		}
		states, err := f.groupStates(ctx, partition, []string{string(g)})
		if err != nil {
			return nil, err
		}
		if !states[g].Empty() {
			return &groupState{g, states[g]}, nil
		}
	}
	return nil, nil
}

// createOnce is one attempt to make the target of a group. Owners make targets when their groups
// change, and this one may never do so again. done is false if somebody was faster.
//
// The create has no fence. Who has lost the lease makes what its successor would, and whatever
// the item says, its fields are the owner's. Only a generation that ends just now may leave an
// item that its successor would not make.
func (f *Folder) createOnce(ctx context.Context, ref store.ItemRef, g *groupState) (done bool, err error) {
	body, ok := f.a.rule.NewTarget(g.group, g.State, f.a.targetKey)
	if !ok {
		return false, store.Refuse(store.StatusBadRequest, "the target %s cannot be made: match and where exclude each other", ref)
	}
	_, refused := f.a.cfg.Target.Create(ctx, body)
	if !errors.Is(refused, store.ErrConflict) {
		return refused == nil, refused
	}
	// Its id may be taken by now, or something else that has to be unique is.
	item, _, err := f.readTarget(ctx, ref)
	if err == nil && item.ETag == (store.ETag{}) {
		err = refused
	}
	return false, err
}

// repairItem gives the fields of its group to an item that could not take them.
func (f *Folder) repairItem(ctx context.Context, name string) error {
	return processors.RepairItem(name, func(ref store.ItemRef) (bool, error) {
		item, is, err := f.readTarget(ctx, ref)
		if err != nil || is == nil { // it has changed, and is no target any more
			return err == nil, err
		}
		return f.repairOnce(ctx, item, *is)
	})
}

// readTarget reads an item, and returns the group of which it is the target, nil if it is not
// there or no target.
func (f *Folder) readTarget(ctx context.Context, ref store.ItemRef) (item *store.Item, is *accumulator.Group, err error) {
	items, err := f.a.cfg.Target.ReadMany(ctx, []store.ItemRef{ref}, true)
	if err != nil {
		return nil, nil, err
	}
	if item = &items[0]; item.ETag == (store.ETag{}) {
		return item, nil, nil
	}
	if g, ok := f.a.rule.TargetGroup(item.Body); ok {
		is = &g
	}
	return item, is, nil
}

// repairOnce is one attempt; done is false if the item has changed meanwhile.
func (f *Folder) repairOnce(ctx context.Context, item *store.Item, g accumulator.Group) (done bool, err error) {
	ref := store.ItemRef{Key: item.Key, ID: item.ID}
	values, err := f.groupFields(ctx, f.a.cfg.Target.PartitionFor(ref.Key), g)
	if err != nil {
		return false, err
	}
	setter, err := document.NewSetter(values)
	if err != nil {
		return false, err
	}
	if right, err := setter.Holds(item.Body); err == nil && right {
		return true, nil
	}
	// The values only make the owner write the item. It sets the fields of the group
	// in whatever is written, as they are in its own accumulators by then; so it does
	// no harm that the ones that were read here may be out of date.
	set := make([]store.Field, len(values))
	for i, v := range values {
		set[i] = store.Field{Path: v.Path.String(), Value: v.Value}
	}
	result, err := f.a.cfg.Target.Repair(ctx, f.a.cfg.Target.PartitionFor(ref.Key), &store.Repair{
		Producer: f.producerOf(feed.Position{}), Epoch: f.term.Epoch, Items: []store.RepairItem{{
			Ref: ref, IfMatch: item.ETag, Copies: []store.Copy{{Set: set, Action: store.CopySet}},
		}},
	})
	if err != nil {
		return false, err
	}
	return processors.RepairOutcome(ref, result)
}

// groupFields returns the fields of a group as they are in its partition.
func (f *Folder) groupFields(ctx context.Context, p feed.Partition, g accumulator.Group) ([]document.FieldValue, error) {
	states, err := f.groupStates(ctx, p, []string{string(g)})
	if err != nil {
		return nil, err
	}
	return states[g].Values(), nil
}

// groupStates returns the states of groups as they are in their partition.
func (f *Folder) groupStates(ctx context.Context, p feed.Partition, groups []string) (map[accumulator.Group]*accumulator.State, error) {
	result, err := f.a.cfg.Target.ReadStates(ctx, p, &store.ReadStates{
		Pipeline: f.a.cfg.Pipeline, Generation: f.a.cfg.Generation, Groups: groups,
	})
	if err != nil {
		return nil, err
	}
	states := make(map[accumulator.Group]*accumulator.State, len(groups))
	for i, name := range groups {
		g := accumulator.Group(name)
		if states[g], err = f.a.rule.DecodeState(g, result.States[i]); err != nil {
			return nil, err
		}
	}
	return states, nil
}
