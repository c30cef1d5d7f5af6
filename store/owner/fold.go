package owner

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
)

// ruleFor returns the rule to which a pipeline folds, or why it must wait.
func (s *schema) ruleFor(pipeline string, generation uint32) (*rule, *store.Error) {
	r := s.rule(pipeline, generation)
	if r != nil && r.setting.Active {
		return r, nil
	}
	refusal := store.Refuse(store.StatusUnavailable, "the rule of pipeline %s, generation %d, is not in force here yet", pipeline, generation)
	refusal.RetryAfter = indexRetry
	return nil, refusal
}

var foldHandler = handler{
	decide: func(_ *decider, t *txn, r *store.Request, _ int) (*store.Response, bool) {
		result, write, refusal := decideFold(t, r.Fold)
		if refusal != nil {
			return &store.Response{Err: refusal}, false
		}
		return &store.Response{Fold: result}, write
	},
	about: func(r *store.Request) string { return "a fold of pipeline " + r.Fold.Producer.Pipeline },
}

// decideFold decides the folding of a source interval. write says whether there
// is something to commit.
func decideFold(t *txn, f *store.FoldMany) (result *store.FoldResult, write bool, refusal *store.Error) {
	known, plant, refusal := t.fence(f.Producer, f.Epoch)
	if refusal != nil {
		return nil, false, refusal
	}
	r, refusal := t.schema.ruleFor(f.Producer.Pipeline, f.Producer.Generation)
	if refusal != nil {
		return nil, false, refusal
	}
	result = &store.FoldResult{LSN: t.lsn, Position: known.Position}
	known.Epoch = f.Epoch
	// An interval that does not begin where the last one ended is one that was folded
	// already, or comes from a worker that has lost its lease: the answer tells both where
	// to go on.
	//
	//	recorded 40    (40, 55]  folded, 55 is recorded
	//	recorded 55    (40, 55]  sent again after a lost answer: 55 is told, nothing folded
	if f.Ask || !f.Mend && f.After != known.Position {
		t.effectOf(f.Producer, known)
		return result, plant, nil
	}
	delta, err := r.DecodeDelta(f.Delta)
	if err != nil {
		return nil, false, store.Refuse(store.StatusBadRequest, "delta: %v", err)
	}
	if f.Mend {
		if refusal := t.unchanged(r, delta, f.Content); refusal != nil {
			return nil, false, refusal
		}
	} else {
		if !known.Position.Before(f.UpTo) {
			return nil, false, store.Refuse(store.StatusBadRequest, "the interval (%s, %s] is empty", f.After, f.UpTo)
		}
		known.Position = f.UpTo
	}
	if !delta.Empty() {
		t.deltas = append(t.deltas, unadded{r, delta})
	}
	// The fold is of what was sent. What its own writes to targets mean to this rule comes
	// with the feed, to the same processor.
	t.senderRule = r
	if result.Refused, refusal = t.settleRules(); refusal != nil {
		return nil, false, refusal
	}
	t.effectOf(f.Producer, known)
	result.Applied, result.Position = true, known.Position
	return result, true, nil
}

// effectOf names the producer and where it stands in the transaction.
func (t *txn) effectOf(p feed.Producer, known producerState) {
	t.effect = &feed.Effect{Producer: p, Epoch: known.Epoch, UpTo: known.Position}
	t.setRecord(recordProducer, p.String(), known.encode())
}

// unchanged refuses unless the groups of delta have the contents of which digest
// is the sum.
func (t *txn) unchanged(r *rule, delta *accumulator.Delta, digest uint64) *store.Error {
	content, _, err := r.contentOf(ruleRecords{t, r}, delta.Groups(), math.MaxInt)
	if err != nil {
		return store.Refuse(store.StatusInternal, "accumulator of %s: %v", r.setting.Pipeline, err)
	}
	if xxhash.Sum64(content.Append(nil)) != digest {
		return store.Refuse(store.StatusPreconditionFailed, "the accumulators have changed since they were read; read them again")
	}
	return nil
}

// contentOf returns the delta that would make groups from nothing, of the first of them that
// together have at most about bytesMax bytes, one at least, and how many those are.
func (r *rule) contentOf(records ruleRecords, groups []accumulator.Group, bytesMax int) (content *accumulator.Delta, read int, err error) {
	content = r.NewDelta()
	for ; read < len(groups); read++ {
		// By itself: how large a group is shows when it has been read.
		one := r.NewDelta()
		if err := r.Content(one, records, groups[read]); err != nil {
			return nil, 0, err
		}
		if read > 0 && content.Size()+one.Size() > bytesMax {
			break
		}
		content.Merge(one)
	}
	return content, read, nil
}

// recordsAt returns a rule, and its records as a snapshot of the engine has them.
func recordsAt(snap *engine.Snapshot, s *applied, pipeline string, generation uint32) (*rule, ruleRecords, *store.Error) {
	rule := s.schema.rule(pipeline, generation)
	if rule == nil {
		_, refusal := s.schema.ruleFor(pipeline, generation)
		return nil, ruleRecords{}, refusal
	}
	// A transaction that decides nothing sees the engine as it is.
	return rule, ruleRecords{newTxn(&view{schema: s.schema, snap: snap, pending: newOverlay(), cache: newRuleCache(&cacheBudget{bytes: 1 << 20}), lsn: s.lsn}, &draft{}), rule}, nil
}

// groupsAfter lists groups that have an accumulator or members, in order.
func (r *rule) groupsAfter(snap *engine.Snapshot, after accumulator.Group, limit int) (groups []accumulator.Group, err error) {
	from := []byte(r.prefix)
	if after != "" {
		from = after.AppendEnd(from)
	}
	// A group may have records of its members behind its accumulator, and many of them. So
	// each step reads one record and seeks behind the rest of its group.
	for len(groups) < limit {
		found := false
		for rec, err := range snap.RecordsFrom(recordAccumulator, []byte(r.prefix), from) {
			if err != nil {
				return nil, err
			}
			g, _, ok := r.GroupOfKey(rec.Key[len(r.prefix):])
			if !ok {
				return nil, fmt.Errorf("record %x of %s is of no group", rec.Key, r.setting.Pipeline)
			}
			groups, found = append(groups, g), true
			from = g.AppendEnd([]byte(r.prefix)) // over its members
			break
		}
		if !found {
			return groups, nil
		}
	}
	return groups, nil
}

const (
	groupsDefault = 100
	groupsMax     = 1000
	// groupsBytesMax ends an answer early: half of what a message takes, because sizes are reckoned
	// and not counted.
	groupsBytesMax = 4 << 20
)

var errTooManyGroups = store.Refuse(store.StatusBadRequest, "more than %d groups are asked for at once", groupsMax)

var groupsHandler = handler{
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response {
		return p.groups(r.Groups)
	},
	barrier: always,
	heat: func(_ *Partition, _ *store.Request, resp *store.Response) heat.Work {
		if resp.Groups == nil {
			return heat.Work{}
		}
		return heat.Work{Bytes: len(resp.Groups.Content)}
	},
}

// groups reads accumulators.
func (p *Partition) groups(r *store.ReadGroups) *store.Response {
	if len(r.Groups) > groupsMax {
		return &store.Response{Err: errTooManyGroups}
	}
	snap, s := p.snapshot()
	defer snap.Close()
	rule, records, refusal := recordsAt(snap, s, r.Pipeline, r.Generation)
	if refusal != nil {
		return &store.Response{Err: refusal}
	}
	result := &store.GroupsResult{LSN: s.lsn}
	var groups []accumulator.Group
	var err error
	if r.Groups == nil {
		limit := r.Max
		if limit <= 0 {
			limit = groupsDefault
		}
		groups, err = rule.groupsAfter(snap, accumulator.Group(r.After), min(limit, groupsMax))
		if len(groups) == min(limit, groupsMax) {
			result.Last = string(groups[len(groups)-1])
		}
	}
	for _, g := range r.Groups {
		groups = append(groups, accumulator.Group(g))
	}
	if err != nil {
		return p.readFailed(err)
	}
	bytesMax := groupsBytesMax
	if r.Groups != nil && r.Max <= 0 {
		bytesMax = math.MaxInt // an asker of an earlier release takes what is missing for empty
	}
	content, read, err := rule.contentOf(records, groups, bytesMax)
	if err != nil {
		return p.readFailed(err)
	}
	if read < len(groups) {
		result.Last = string(groups[read-1])
	}
	result.Content = content.Append(nil)
	result.Digest = xxhash.Sum64(result.Content)
	if result.Positions, err = positions(snap, r.Pipeline, r.Generation); err != nil {
		return p.readFailed(err)
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{Groups: result}
}

var statesHandler = handler{
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response {
		return p.states(r.States)
	},
	barrier: always,
	heat: func(_ *Partition, _ *store.Request, resp *store.Response) (w heat.Work) {
		if resp.States != nil {
			for _, s := range resp.States.States {
				w.Bytes += len(s)
			}
		}
		return w
	},
}

// states reads accumulators without their members.
func (p *Partition) states(r *store.ReadStates) *store.Response {
	if len(r.Groups) > groupsMax {
		return &store.Response{Err: errTooManyGroups}
	}
	snap, s := p.snapshot()
	defer snap.Close()
	rule, records, refusal := recordsAt(snap, s, r.Pipeline, r.Generation)
	if refusal != nil {
		return &store.Response{Err: refusal}
	}
	result := &store.StatesResult{States: make([][]byte, len(r.Groups))}
	for i, g := range r.Groups {
		value, err := rule.StateRecord(records, accumulator.Group(g))
		if err != nil {
			return p.readFailed(err)
		}
		result.States[i] = slices.Clone(value)
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{States: result}
}

// positions returns what is recorded of a pipeline's producers.
func positions(snap *engine.Snapshot, pipeline string, generation uint32) ([]store.ProducerPosition, error) {
	prefix := feed.Producer{Pipeline: pipeline, Generation: generation}.String()
	var all []store.ProducerPosition
	for r, err := range snap.Records(recordProducer, []byte(prefix)) {
		if err != nil {
			return nil, err
		}
		all = append(all, store.ProducerPosition{Source: string(r.Key[len(prefix):]), Position: decodeProducer(slices.Clone(r.Value)).Position})
	}
	return all, nil
}
