package aggregate

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// examineMax bounds the groups, and the items, of one read of an examination.
const examineMax = 100

// examine looks after the members that t has folded, and of which this term was not told what
// refused its fields: see the package comment.
func (f *Folder) examine(ctx context.Context, t *target, members []member) error {
	some := t.untold(members)
	if len(some) == 0 {
		return nil
	}
	if err := f.examineTargets(ctx, t, some); err != nil {
		return err
	}
	t.told = some[len(some)-1].at
	return nil
}

// untold returns the members that t has folded and told this term nothing of.
func (t *target) untold(members []member) []member {
	members = membersAfter(members, t.told)
	return members[:len(members)-len(membersAfter(members, t.at))]
}

// examineTargets writes dead letters for the targets in t of members' groups whose fields are
// not what the accumulators say, and which refuse them.
func (f *Folder) examineTargets(ctx context.Context, t *target, members []member) error {
	causes := f.causesIn(t.partition, members)
	groups := make([]string, 0, len(causes))
	for g := range causes {
		groups = append(groups, string(g))
	}
	slices.Sort(groups)
	for some := range slices.Chunk(groups, examineMax) {
		states, err := f.groupStates(ctx, t.partition, some)
		if err != nil {
			return fmt.Errorf("examine %d groups in %s: %w", len(some), t.partition, unavailable(err))
		}
		// Asked behind that read, which waits at a barrier: a rule that was published when
		// something was refused is seen to be so.
		if shown, err := f.published(ctx, t.partition); err != nil || !shown {
			return err
		}
		x := examination{f: f, t: t, causes: causes, states: states}
		if err := x.run(ctx, some); err != nil {
			return err
		}
		f.term.Heartbeat()
	}
	return nil
}

// causesIn returns the groups in a partition that members have a share in, each with the last
// such member.
func (f *Folder) causesIn(partition feed.Partition, members []member) map[accumulator.Group]*member {
	// One by one: of two members that mean nothing together the first may have been folded
	// by itself, and refused.
	causes := map[accumulator.Group]*member{}
	d := f.a.rule.NewDelta()
	for i := range members {
		d.Reset()
		if _, err := f.a.fold(d, members[i:i+1], 1); err != nil {
			continue // nobody can have folded it
		}
		for _, g := range d.Groups() {
			if p, ok := f.a.partitionOf(g); ok && p == partition {
				causes[g] = &members[i]
			}
		}
	}
	return causes
}

// published says whether targets in a partition carry the fields of their groups.
func (f *Folder) published(ctx context.Context, partition feed.Partition) (bool, error) {
	status, err := f.a.cfg.Target.Status(ctx, partition)
	if err != nil {
		return false, fmt.Errorf("ask for the rules of %s: %w", partition, unavailable(err))
	}
	return slices.ContainsFunc(status.Rules, func(r store.RuleState) bool {
		return r.Pipeline == f.a.cfg.Pipeline && r.Generation == f.a.cfg.Generation && r.Published
	}), nil
}

// examination is one look at the targets of some groups. One goroutine uses it.
type examination struct {
	f      *Folder
	t      *target
	causes map[accumulator.Group]*member
	states map[accumulator.Group]*accumulator.State
}

// run looks at the targets of groups: by their ids where the groups fix them, else among the
// items of their logical partitions.
func (x *examination) run(ctx context.Context, groups []string) error {
	var refs []store.ItemRef
	var of []accumulator.Group
	keys := map[feed.PartitionKey]bool{}
	for _, name := range groups {
		g := accumulator.Group(name)
		key, ok := x.f.a.rule.TargetKey(g, x.f.a.targetKey)
		if !ok {
			continue
		}
		if id, fixed := x.f.a.rule.TargetID(g); fixed {
			refs, of = append(refs, store.ItemRef{Key: key, ID: id}), append(of, g)
		} else {
			keys[key] = true
		}
	}
	items, err := x.f.a.cfg.Target.ReadMany(ctx, refs, true)
	if err != nil {
		return fmt.Errorf("examine targets in %s: %w", x.t.partition, unavailable(err))
	}
	for i := range items {
		found, err := x.look(ctx, refs[i], &items[i])
		if err == nil && !found && x.f.a.rule.Spec().Create {
			err = x.notMade(ctx, refs[i], of[i])
		}
		if err != nil {
			return err
		}
		x.f.term.Heartbeat()
	}
	for key := range keys {
		if err := x.scan(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// scan looks at the items of a logical partition.
func (x *examination) scan(ctx context.Context, key feed.PartitionKey) error {
	for scan := (store.Scan{Scope: store.Scope{Key: key}, Barrier: true}); ; {
		page, err := x.f.a.cfg.Target.Scan(ctx, x.t.partition, scan)
		if err != nil {
			return fmt.Errorf("examine targets in %s: %w", x.t.partition, unavailable(err))
		}
		for i := range page.Items {
			item := &page.Items[i]
			if _, err := x.look(ctx, store.ItemRef{Key: item.Key, ID: item.ID}, item); err != nil {
				return err
			}
		}
		x.f.term.Heartbeat() // it may have many pages
		if scan.After = page.Cursor; scan.After == nil {
			return nil
		}
	}
}

// look looks at one item, and repairs it if it is a target of the groups whose fields are not
// right; what it refuses is a dead letter. found is false if it is no such target.
func (x *examination) look(ctx context.Context, ref store.ItemRef, item *store.Item) (found bool, err error) {
	if item.ETag == (store.ETag{}) {
		return false, nil
	}
	g, ok := x.f.a.rule.TargetGroup(item.Body)
	if !ok || x.causes[g] == nil {
		return false, nil
	}
	setter, err := document.NewSetter(x.states[g].Values())
	if err != nil {
		return true, err
	}
	if right, err := setter.Holds(item.Body); err == nil && right {
		return true, nil
	}
	// Not right, or changed between the two reads: the repair reads both anew.
	err = x.f.repairItem(ctx, ref.String())
	if err == nil {
		return true, nil
	}
	refusal, ok := refusalOf(ctx, err)
	if !ok {
		return true, fmt.Errorf("examine %s: %w", ref, unavailable(err))
	}
	return true, x.f.writeDeadLetter(ctx, x.causes[g], x.t.at, &store.Refusal{Ref: ref, Status: refusal.Status, Reason: refusal.Message})
}

// notMade writes the dead letter of a target that could not be made. An owner makes the target
// of a group that has members whenever it is not there, and has no other reason to leave it.
func (x *examination) notMade(ctx context.Context, ref store.ItemRef, g accumulator.Group) error {
	// It may have been made, or the group have emptied, between the two reads: what is looked
	// at again was not there before the group was seen to have members, nor after.
	states, err := x.f.groupStates(ctx, x.t.partition, []string{string(g)})
	if err != nil || states[g].Empty() {
		return unavailableOrNil(err)
	}
	items, err := x.f.a.cfg.Target.ReadMany(ctx, []store.ItemRef{ref}, true)
	if err != nil {
		return unavailableOrNil(err)
	}
	r := store.Refusal{Ref: ref, Reason: "the target of the group could not be made"}
	if items[0].ETag != (store.ETag{}) {
		if of, ok := x.f.a.rule.TargetGroup(items[0].Body); ok && of == g {
			return nil
		}
		r.Status, r.Reason = store.StatusConflict, "an item that is no target has the id of the target to create"
	}
	return x.f.writeDeadLetter(ctx, x.causes[g], x.t.at, &r)
}
