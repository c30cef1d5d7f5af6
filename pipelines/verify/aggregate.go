package verify

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// verifyAggregate verifies an aggregate: its fields against its accumulators, and those
// against its members.
func (run *verification) verifyAggregate(ctx context.Context, p *Verified) error {
	left, err := run.await(ctx, p, func(at registry.Checkpoints) (string, error) {
		rules, err := run.readRules(ctx, p)
		if err != nil {
			return "", err
		}
		return p.Record.NotInForce(&p.bound, rules, at), nil
	})
	if err != nil {
		return err
	}
	if left != "" {
		run.notJudged(p, left)
	}
	// While only the fields are pending, the accumulators are complete and can be
	// compared with the members; the fields cannot.
	if left != "" && left != registry.FieldsPending {
		return nil
	}
	seen, err := run.compareAccumulators(ctx, p)
	if err != nil || left != "" {
		return err
	}
	fields := newFieldCheck(run, p, seen)
	if err := fields.compareAll(ctx); err != nil {
		return err
	}
	return run.findOrphans(ctx, fields)
}

// readRules asks each partition of an aggregate's target how it keeps it.
func (run *verification) readRules(ctx context.Context, p *Verified) (map[uint32]store.RuleState, error) {
	rules := map[uint32]store.RuleState{}
	for _, partition := range p.target.Partitions() {
		status, err := p.target.Status(ctx, partition)
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", partition, err)
		}
		rules[partition.Number] = registry.RuleOf(status, &p.Record)
	}
	return rules, nil
}

// compareAccumulators compares the accumulators with the members, and those that differ
// once more with members that are read anew: what is told was found twice. It returns
// what the accumulators say of the fields of their targets.
func (run *verification) compareAccumulators(ctx context.Context, p *Verified) (*groupValues, error) {
	first, err := newGroupCheck(run, p, nil)
	if err != nil {
		return nil, err
	}
	if err := first.compareAll(ctx); err != nil {
		return nil, err
	}
	if first.reason != "" {
		run.notJudged(p, first.reason)
		return nil, nil
	}
	if len(first.differs) == 0 {
		return first.values, nil
	}
	only := make(map[accumulator.Group]bool, len(first.differs))
	for _, g := range first.differs {
		only[g] = true
	}
	second, err := newGroupCheck(run, p, only)
	if err != nil {
		return nil, err
	}
	// The values are those of the first pass, which saw all groups.
	second.looks, second.judge, second.values = map[accumulator.Group]look{}, second.judgeSuspects, nil
	if err := second.compareAll(ctx); err != nil {
		return nil, err
	}
	if second.reason != "" {
		run.notJudged(p, second.reason)
	}
	return first.values, nil
}

// suspectRounds is how often something is found to differ before it is judged.
const suspectRounds = 3

// judgeSuspects judges groups that differ, once they have differed by the same in several
// views. What is wrong stays wrong by the same, whatever is folded meanwhile.
func (c *groupCheck) judgeSuspects(ctx context.Context, partition feed.Partition, view *groupView, differ []accumulator.Group) (again []accumulator.Group, err error) {
	var judged []accumulator.Group
	for _, g := range differ {
		by := string(c.delta.Only(func(o accumulator.Group) bool { return o == g }).Append(nil))
		l := c.looks[g]
		// Differing by another amount is a fold that was under way in one of the
		// views. A fault stays the same, whatever is folded beside it: accumulators
		// only ever add.
		if l.by != by {
			l = look{by: by}
		}
		if l.times++; l.times < suspectRounds {
			again = append(again, g)
		} else {
			judged = append(judged, g)
		}
		c.looks[g] = l
	}
	if len(judged) == 0 {
		return again, nil
	}
	at, err := c.run.checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	reason := ""
	// Which groups a change that was given up belongs to is not known without
	// reading it, so it excuses all groups that differ.
	source := c.p.Source.Info()
	if job := givenUp(at, &c.p.Record, &source); job != nil {
		reason = fmt.Sprintf("a change of %s was given up: %s", job.Source, job.LastError)
	}
	for _, g := range judged {
		d, err := c.difference(view, g, reason)
		if err != nil {
			return nil, err
		}
		if c.run.repair == nil || reason != "" {
			c.run.addDifference(c.p, d)
			continue
		}
		unsure, err := c.run.repair.repairGroup(ctx, c, partition, view, g, d)
		if err != nil {
			return nil, err
		}
		if unsure {
			again = append(again, g)
			// Repaired or tried again since: it is a new question.
			delete(c.looks, g)
		}
	}
	return again, nil
}

// difference tells how a group differs, with the fields that follow from the
// accumulator as it is, and as it must be.
func (c *groupCheck) difference(view *groupView, g accumulator.Group, reason string) (Difference, error) {
	d := Difference{Kind: DifferenceDrift, Group: g.String(), Element: -1, Reason: reason}
	if reason != "" {
		d.Kind = DifferenceBehind
	}
	if ref, ok := c.targetRef(g); ok {
		d.Item = ref.String()
	}
	content, err := c.rule.DecodeDelta(view.Content)
	if err != nil {
		return d, err
	}
	memory := accumulator.NewMemory()
	if err := c.rule.Apply(memory, content.Only(func(o accumulator.Group) bool { return o == g })); err != nil {
		return d, err
	}
	is, err := c.rule.State(memory, g)
	if err != nil {
		return d, err
	}
	must, err := c.rule.Add(memory, g, c.delta.Share(g))
	if err != nil {
		return d, err
	}
	has, want := is.Values(), must.Values()
	for i, path := range c.rule.TargetWrites() {
		if !SameRaw(has[i].Value, want[i].Value) {
			d.Fields = append(d.Fields, FieldDifference{path.String(), has[i].Value, want[i].Value})
		}
	}
	if len(d.Fields) == 0 {
		d.Note = fmt.Sprintf("its fields are right, but the accumulator is not: it has %d members, of its source %d", is.Members(), must.Members())
	}
	return d, nil
}

// targetRef returns the target of a group, if match and where fix it.
func (c *groupCheck) targetRef(g accumulator.Group) (ref store.ItemRef, ok bool) {
	if ref.ID, ok = c.rule.TargetID(g); ok {
		ref.Key, ok = c.rule.TargetKey(g, c.keys)
	}
	return ref, ok
}
