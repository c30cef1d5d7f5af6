package owner

import (
	"context"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
)

const (
	sweepItems = 200 // looked at by one step
	sweepTime  = 2 * time.Millisecond
)

// sweep sets the fields of every target of a rule, and makes those that are
// missing, in steps between requests. It begins anew after a crash, which costs
// reads alone. The commit that published the rule is applied, so the engine shows
// every item and accumulator that was written before it.
func (p *Partition) sweep(ctx context.Context, pipeline string, generation uint32) error {
	p.log.Info("setting the fields of an aggregate", "pipeline", pipeline)
	var item []byte
	err := p.steps(ctx, func(d *decider) (done bool, err error) {
		item, done, err = d.sweepStep(pipeline, generation, item)
		return done, err
	})
	if err != nil {
		return err
	}
	var group accumulator.Group
	return p.steps(ctx, func(d *decider) (done bool, err error) {
		group, done, err = d.createStep(pipeline, generation, group)
		return done, err
	})
}

// steps repeats a step between requests until it is done and applied.
func (p *Partition) steps(ctx context.Context, step func(*decider) (done bool, err error)) error {
	for {
		var lsn feed.LSN
		var generation uint64
		var err error
		done := false
		if !p.onDecider(ctx, func(d *decider) {
			d.dropLost()
			switch refusal := d.p.refusing(); {
			case refusal != nil:
				err = refusal // whoever asked comes again
			case !d.full(): // else the draft leaves first
				done, err = step(d)
			}
			lsn, generation = d.decided(), d.generation
		}) {
			return errStopped
		}
		if err != nil {
			return err
		}
		if err := p.waitApplied(ctx, lsn, generation); err != nil || done {
			return err
		}
	}
}

// sweepStep decides the fields of the targets among some items after an item key.
func (d *decider) sweepStep(pipeline string, generation uint32, after []byte) (next []byte, done bool, err error) {
	v := d.view()
	r := v.schema.rule(pipeline, generation)
	if r == nil || !r.sets {
		return nil, true, nil
	}
	taken, err := d.addFitting(r, func(limit int) (t *txn, err error) {
		t, next, done, err = d.sweepSome(v, r, after, limit)
		return t, err
	})
	if !taken {
		return after, false, err
	}
	return next, done, nil
}

// sweepSome decides the fields of the targets among at most limit items.
func (d *decider) sweepSome(v *view, r *rule, after []byte, limit int) (t *txn, next []byte, done bool, err error) {
	t = newTxn(v, d.draft)
	// By number and by time: 200 items are little where few are targets, and much where all
	// are and each is large. Clients' writes wait for as long as a step takes.
	seen, deadline := 0, time.Now().Add(sweepTime)
	for shown, err := range v.snap.Items(after, nil) {
		if err != nil {
			return nil, nil, false, err
		}
		next = append(next[:0], shown.ItemKey()...)
		if refusal := t.sweepOne(r, next, shown); refusal != nil {
			d.p.log.Warn("a target cannot take the fields of its aggregate", "pipeline", r.setting.Pipeline, "reason", refusal.Message)
		}
		if seen++; seen >= limit || t.bytes > pageBytesMax || time.Now().After(deadline) {
			return t, next, false, nil
		}
	}
	return t, next, true, nil
}

// addFitting adds to the draft what some decides for at most limit things. It halves the
// limit while the result does not fit. It takes nothing if the draft must leave first, and
// logs and skips a single thing that is too large for any commit.
func (d *decider) addFitting(r *rule, some func(limit int) (*txn, error)) (taken bool, err error) {
	for limit := sweepItems; ; limit /= 2 {
		// Decided first and measured then: how much rules make of it is not known before.
		t, err := some(limit)
		if err != nil {
			return false, err
		}
		if refusal := d.applyRules(t); refusal != nil {
			return false, refusal
		}
		switch {
		case len(t.changes) == 0:
			return true, nil
		case d.draft.fits(t):
			d.draft.add(t, nil)
			return true, nil
		case !d.draft.empty():
			return false, nil
		case limit <= 1:
			d.p.log.Warn("a target cannot take the fields of its aggregate: what follows is too much for one commit",
				"pipeline", r.setting.Pipeline, "item", store.ItemRef{Key: t.changes[0].Key, ID: t.changes[0].ID}.String(), "bytes", t.bytes)
			return true, nil
		}
	}
}

// sweepOne sets the fields of one item, if it is a target.
func (t *txn) sweepOne(r *rule, itemKey []byte, shown *engine.View) *store.Error {
	if _, ok := r.TargetGroup(shown.Body); !ok {
		return nil // it may have become one since; then its fields were set
	}
	item, err := t.get(shown.Key(), shown.ID(), itemKey)
	if err != nil {
		return store.Refuse(store.StatusInternal, "read item %s: %v", shown.ID(), err)
	}
	if item == nil || expired(item, t.now) {
		return nil
	}
	g, ok := r.TargetGroup(item.Body)
	if !ok {
		return nil
	}
	state, err := r.State(ruleRecords{t, r}, g)
	if err != nil {
		return store.Refuse(store.StatusInternal, "accumulator of %s: %v", r.setting.Pipeline, err)
	}
	t.items.set(itemKey, item)
	return t.updateTarget(nil, string(itemKey), state)
}

// createStep makes the targets that some groups after a group have not.
func (d *decider) createStep(pipeline string, generation uint32, after accumulator.Group) (next accumulator.Group, done bool, err error) {
	v := d.view()
	r := v.schema.rule(pipeline, generation)
	if r == nil || !r.sets || !r.setting.Spec.Create {
		return "", true, nil
	}
	// Groups that exist in the overlay alone need no step: the rule was published before
	// they came, so their targets were made with them.
	groups, err := r.groupsAfter(v.snap, after, sweepItems)
	if err != nil {
		return after, false, err
	}
	taken, err := d.addFitting(r, func(limit int) (t *txn, err error) {
		var n int
		t, n, err = d.createSome(v, r, groups[:min(limit, len(groups))])
		if next = after; n > 0 {
			next = groups[n-1]
		}
		done = n == len(groups) && n < sweepItems
		return t, err
	})
	if !taken {
		return after, false, err
	}
	return next, done, nil
}

// createSome makes the targets that groups have not, and tells of how many it knows
// now: one at least, if there is one.
func (d *decider) createSome(v *view, r *rule, groups []accumulator.Group) (t *txn, n int, err error) {
	t = newTxn(v, d.draft)
	for deadline := time.Now().Add(sweepTime); n < len(groups); n++ {
		if t.bytes > pageBytesMax || n > 0 && time.Now().After(deadline) {
			break
		}
		refused, refusal := t.createMissing(r, groups[n])
		if refusal != nil {
			return nil, 0, refusal
		}
		for i := range refused {
			d.p.log.Warn("a target of an aggregate cannot be made", "pipeline", r.setting.Pipeline, "item", refused[i].Ref.String(), "reason", refused[i].Reason)
		}
	}
	return t, n, nil
}

// createMissing makes the target of a group that has members and no target.
func (t *txn) createMissing(r *rule, g accumulator.Group) ([]store.Refusal, *store.Error) {
	state, err := r.State(ruleRecords{t, r}, g)
	if err != nil {
		return nil, store.Refuse(store.StatusInternal, "accumulator of %s: %v", r.setting.Pipeline, err)
	}
	if state.Empty() {
		return nil, nil
	}
	targets, refusal := t.targetsOf(r, g)
	if refusal != nil || len(targets) > 0 {
		return nil, refusal
	}
	return t.createTarget(r, g, state)
}
