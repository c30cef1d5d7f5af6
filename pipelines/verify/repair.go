package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// Repairer repairs what a Verifier lists as drift, while writes and pipelines go on,
// and nothing else.
//
// It verifies, and repairs each thing in the moment in which it is judged, by a write
// that is carried out only if what was judged is still as it was:
//
//   - a copy by the write with which the pipeline's own check repairs, guarded by the
//     item's ETag;
//   - an accumulator by adding what is missing in it, which stays the same whatever is
//     folded meanwhile, guarded by a digest of what it holds, and by which changes were
//     given up there. The fields of its targets follow in the same commit, and then it
//     is compared once more;
//   - fields that differ from their accumulator, as a copy;
//   - a row as project.Projection.Repair says: the item is read, its rows are written,
//     and the item read again, until it is the same. What the pipeline writes of a
//     later change it writes after that.
//
// Before that, what was given up is tried once more; see retryGivenUp.
//
// So the pipeline need not stop, and a repair takes no lease from anybody. Its
// writes name a producer of its own, repair:PARTITION, whose epoch is the time of
// its beginning: of two repairs at a time the later one goes on.
//
// A repair leaves alone what is behind, because the pipeline will write it, what dangles, and
// a copy or row that becomes right by itself between judgement and write.
type Repairer struct{ v *Verifier }

// NewRepairer returns a Repairer of the pipelines in registry.
func NewRepairer(js jetstream.JetStream, registry *registry.Registry, client *store.Client, cfg Config) *Repairer {
	return &Repairer{New(js, registry, client, cfg)}
}

// Repair repairs the named pipelines, all if none is named. The report tells what was
// repaired, and as drift what could not be; its verdict is equal if nothing else is
// left. A pipeline that is behind is to be repaired again when it has caught up.
func (r *Repairer) Repair(ctx context.Context, names ...spec.Metadata) (*Report, error) {
	if err := r.retryGivenUp(ctx, names); err != nil {
		return nil, err
	}
	return r.v.run(ctx, newRepair(), names)
}

// repair is one run of a Repairer. What it has for rows is used by one goroutine at
// a time, since projections are verified one after the other.
type repair struct {
	epoch uint64
	rowWriters
}

func newRepair() *repair { return &repair{epoch: uint64(time.Now().UnixMilli())} }

// producer is who writes to a partition.
func (r *repair) producer(p *Verified, partition feed.Partition) feed.Producer {
	return feed.Producer{Pipeline: p.Record.ID, Generation: p.Record.Generation, Source: "repair:" + partition.String()}
}

// writeError says what to do about a write that failed.
func (r *repair) writeError(what string, err error) error {
	if errors.Is(err, store.ErrFenced) {
		return fmt.Errorf("repair %s: another repair has begun meanwhile and goes on: %w", what, err)
	}
	return fmt.Errorf("repair %s: %w", what, err)
}

// repaired notes a difference that is no more.
func (run *verification) repaired(p *Verified, d Difference) {
	d.Kind = DifferenceRepaired
	run.addDifference(p, d)
}

// notRepaired notes a difference that could not be repaired.
func (run *verification) notRepaired(p *Verified, d Difference, reason string) {
	d.Note = joinNotes(d.Note, "it cannot be repaired: "+reason)
	run.addDifference(p, d)
}

func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// repairItem writes copies into one item as it was seen. again says that it has changed
// since.
func (r *repair) repairItem(ctx context.Context, run *verification, p *Verified, item *store.Item, copies []store.Copy, ds []Difference) (again bool, err error) {
	ref, partition := store.ItemRef{Key: item.Key, ID: item.ID}, p.target.PartitionFor(item.Key)
	result, err := p.target.Repair(ctx, partition, &store.Repair{
		Producer: r.producer(p, partition), Epoch: r.epoch,
		Items: []store.RepairItem{{Ref: ref, IfMatch: item.ETag, Copies: copies}},
	})
	if _, split := errors.AsType[*store.SplitError](err); split {
		return true, nil // and now it is known which partition holds the item
	}
	if err != nil {
		return false, r.writeError(ref.String(), err)
	}
	switch result.Statuses[0] {
	// Somebody has written the item since it was judged. It is judged anew, and
	// the pipeline may have repaired it itself meanwhile.
	case store.StatusPreconditionFailed:
		return true, nil
	case store.StatusOK:
		for _, d := range ds {
			run.repaired(p, d)
		}
	case store.StatusNotModified, store.StatusNotFound: // there is nothing to repair any more
	default:
		for _, d := range ds {
			run.notRepaired(p, d, fmt.Sprintf("%s (%d)", result.Reasons[0], result.Statuses[0]))
		}
	}
	return false, nil
}

// repairFields gives an item the fields that its accumulator says.
func (r *repair) repairFields(ctx context.Context, c *fieldCheck, item *carrier, values []document.FieldValue, d Difference) (again bool, err error) {
	set := make([]store.Field, len(values))
	for i := range values {
		set[i] = store.Field{Path: values[i].Path.String(), Value: values[i].Value}
	}
	return r.repairItem(ctx, c.run, c.p, item.Item, []store.Copy{{Set: set, Action: store.CopySet}}, []Difference{d})
}

// repairCopies repairs the copies of an item that differ from their sources.
func (r *repair) repairCopies(ctx context.Context, s *scan, v *view) (again bool, err error) {
	var copies []store.Copy
	var ds []Difference
	for j := range v.refs {
		if v.verdicts[j] == cascade.Drift {
			copies = append(copies, v.pipeline.Cascade.RepairOf(&v.refs[j], v.sources[j]))
			ds = append(ds, v.difference(j, ""))
		}
	}
	return r.repairItem(ctx, s.run, v.pipeline, v.item, copies, ds)
}

// createTarget makes the target of a group as its owner would, who sets the fields in whatever is written.
func (r *repair) createTarget(ctx context.Context, c *groupCheck, o *orphan, d Difference) error {
	body, _ := c.rule.NewTarget(o.group, o.state, c.keys)
	_, err := c.p.target.Create(ctx, body)
	switch {
	case err == nil:
		c.run.repaired(c.p, d)
		return nil
	case errors.Is(err, store.ErrUnavailable), ctx.Err() != nil:
		return r.writeError("the target of group "+o.group.String(), err)
	case errors.Is(err, store.ErrConflict):
		// Its owner was faster, or something else of it that must be unique is taken.
		if left, err := c.stillOrphans(ctx, []orphan{*o}); err != nil || len(left) == 0 {
			return err
		}
	}
	c.run.notRepaired(c.p, d, err.Error())
	return nil
}

// repairTriesMax bounds the tries to repair one accumulator: each is lost to whoever
// folds between the reading and the write.
const repairTriesMax = 2000

// repairGroup adds to an accumulator what is missing in it. again says that it is to be
// looked at again: it was repaired, or a change that was given up has been tried again
// since the view in which it differs.
func (r *repair) repairGroup(ctx context.Context, c *groupCheck, partition feed.Partition, view *groupView, g accumulator.Group, d Difference) (again bool, err error) {
	// An accumulator adds, so to repair it twice is as wrong as not at all. What
	// could add the same change again must be out of the way first:
	//
	//	owed       a worker is still to try it: it would add it again
	//	let go     nobody adds it any more: the repair may
	//	(changes)  what was given up since the view: the delta is out of date
	gaveUp, err := aggregate.GivenUpOf(view.Positions)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(gaveUp, func(g aggregate.GivenUp) bool { return g.Owed }) {
		d.Kind, d.Reason = DifferenceBehind, "a change was given up, and no worker has tried it again"
		c.run.addDifference(c.p, d)
		return false, nil
	}
	delta := c.delta.Only(func(o accumulator.Group) bool { return o == g }).Append(nil)
	for range repairTriesMax {
		now, err := c.p.target.ReadGroups(ctx, partition, &store.ReadGroups{
			Pipeline: c.p.Record.ID, Generation: c.p.Record.Generation, Groups: []string{string(g)},
		})
		if err != nil {
			return false, fmt.Errorf("read the accumulator of group %s: %w", g, err)
		}
		// The write is guarded by what is read here, so it must be of the same partitions as the delta.
		if err := c.checkLineage(now.Positions); err != nil {
			return false, err
		}
		if is, err := aggregate.GivenUpOf(now.Positions); err != nil || !slices.Equal(is, gaveUp) {
			return err == nil, err
		}
		result, err := c.p.target.Fold(ctx, partition, &store.FoldMany{
			Producer: r.producer(c.p, partition), Epoch: r.epoch, Mend: true, Delta: delta, Content: now.Digest,
		})
		switch {
		// A fold came between. The delta is what is missing, not what has to be
		// there in the end, so it is still right.
		case errors.Is(err, store.ErrPreconditionFailed):
			continue
		case err != nil:
			return false, r.writeError("group "+g.String(), err)
		case len(result.Refused) > 0:
			d.Note = joinNotes(d.Note, fmt.Sprintf("its target %s could not take the fields: %s", result.Refused[0].Ref, result.Refused[0].Reason))
		}
		c.run.repaired(c.p, d)
		return true, nil
	}
	c.run.notRepaired(c.p, d, "its accumulator changes faster than it can be written")
	return false, nil
}
