package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// RewindTo is where the reading of a pipeline is set to. The zero value is the
// beginning.
type RewindTo struct {
	Kind RewindKind
	// DiscardExpired is as in ApplyOptions, for the beginning.
	DiscardExpired bool
	// Revision is that of the record which somebody has looked at, 0 for any: if another is there,
	// nothing is rewound.
	Revision uint64

	time time.Time
	lsn  feed.LSN
}

// RewindKind is what a RewindTo is counted from.
type RewindKind uint8

// The kinds of RewindTo.
const (
	rewindBeginning RewindKind = iota
	RewindNow
	RewindTime
	rewindLSN
)

// ParseRewindTo reads beginning, now, a time such as 2026-11-21T08:30:00Z, an age
// such as 2h, or the LSN of the first commit that is read again.
func ParseRewindTo(text string, now time.Time) (RewindTo, error) {
	switch text = strings.TrimSpace(text); text {
	case "beginning":
		return RewindTo{}, nil
	case "now":
		return RewindTo{Kind: RewindNow}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return RewindTo{Kind: RewindTime, time: t}, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return RewindTo{Kind: RewindTime, time: now.Add(-age)}, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		return RewindTo{Kind: rewindLSN, lsn: feed.LSN(n)}, nil
	}
	return RewindTo{}, fmt.Errorf("%q is none of beginning, now, a time such as 2026-11-21T08:30:00Z, an age such as 2h, and an LSN", text)
}

// String prints the place as ParseRewindTo reads it.
func (t RewindTo) String() string {
	switch t.Kind {
	case RewindNow:
		return "now"
	case RewindTime:
		return t.time.UTC().Format(time.RFC3339Nano)
	case rewindLSN:
		return t.lsn.String()
	case rewindBeginning:
	}
	return "beginning"
}

// Rewind lets a pipeline read the feed of its source again from a place before,
// while it runs. What has come before that place and was not finished is done
// too, unless the place is now: then what is not done yet is left out.
//
// A cascade, or a projection, does so in a new generation, which sets its copies
// and rows again. One of a cascade whose source has a long log, or one that does not
// reach back to the place, goes through the items of its target. One of a projection that begins at the beginning builds its rows
// beside those that are there, and then replaces them; others set rows among
// them. An aggregate stays in its generation: its partitions know what they have
// folded, so that what they have is passed over. One that began with items goes back no
// further than to their end; to the beginning it goes in a new generation.
//
// The error is *NoPipelineError, or says what cannot be: an aggregate that would
// leave something out, an LSN of a source with several partitions. ErrRecordChanged says
// that the record has another revision than the one that to names.
func (r *Registry) Rewind(ctx context.Context, database, name string, to RewindTo, bucket string) (Record, error) {
	for {
		rec, err := r.Get(ctx, database, name)
		if err != nil {
			return rec, err
		}
		if to.Revision != 0 && to.Revision != rec.Revision {
			return rec, ErrRecordChanged
		}
		b, err := r.containersOf(ctx, &rec)
		if err != nil {
			return rec, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
		}
		// One that cannot be read counts as nowhere.
		at, _, err := ReadCheckpoints(ctx, r.JetStream, bucket)
		if err == nil {
			at, err = r.withRefusals(ctx, &rec, to, at)
		}
		if err != nil {
			return rec, err
		}
		next, err := r.rewound(ctx, &rec, &b, to, at)
		if err != nil {
			return rec, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
		}
		if to.Kind == RewindTime || to.Kind == rewindLSN {
			// The place is there. What it has given up may lie before that, and is read again too.
			if out, err := r.outrun(ctx, &next, &b); err != nil || out {
				return rec, cmp.Or(err, fmt.Errorf("pipeline %s: %w", rec.Metadata(), errOutrun))
			}
		}
		if err = r.put(ctx, &next, rec.Revision); err == nil {
			r.registered(ctx, &rec, &next, &b)
			// If its log was trimmed meanwhile, it is set back once more: to the beginning by
			// the items that are there, to a place that is gone with an error that says so.
			out, err := r.outrun(ctx, &next, &b)
			if err != nil {
				return rec, err
			}
			if out {
				to.Revision = 0 // it was that one, and is another by this rewind
				continue
			}
			return r.Get(ctx, database, name)
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return rec, err
		}
	}
}

// ErrRecordChanged says that a pipeline is not any more what somebody has looked at.
var ErrRecordChanged = errors.New("the pipeline has changed since that was asked; look at it, and ask again")

var errSplitting = errors.New("it has not finished a partition that was split since; wait until it has, " +
	"retry or drop its dead letters (millrace dead-letters), or rewind it to the beginning: then it begins with the items that are there")

var errOutrun = errors.New("what it has not finished, has given up, or was refused by an item, lies before what the logs still hold; " +
	"retry or drop its dead letters (millrace dead-letters), or rewind it to the beginning: then it begins with the items that are there")

// rewound returns the record of a pipeline that reads from a place again.
func (r *Registry) rewound(ctx context.Context, rec *Record, b *Bound, to RewindTo, at Checkpoints) (Record, error) {
	next := *rec
	if to.Kind == RewindNow && rec.Spec.Kind() == spec.AggregateKind {
		return next, errors.New("an aggregate cannot leave out what it has not folded: its fields would be wrong for good; rewind it to a place before")
	}
	if rec.Shadow && to.Kind != rewindBeginning {
		return next, errors.New("its rows are being built anew, and nothing is there that it could go back among; wait until that is done, or rewind it to the beginning")
	}
	if walk, err := r.rewindWalks(ctx, rec, b, to); err != nil {
		return next, err
	} else if walk {
		return r.rewoundByWalk(ctx, rec, b)
	}
	switch kind := rec.Spec.Kind(); {
	case kind == spec.CascadeKind:
	case to.Kind == rewindBeginning:
		if again, ok, err := r.rewoundByItems(ctx, rec, b, &ApplyOptions{DiscardExpired: to.DiscardExpired}); ok || err != nil {
			return again, err
		}
	case rec.walking(b, at):
		return next, errWalking
	case kind != spec.AggregateKind:
		next.Walks = nil
	}
	// Its children begin behind it, and the next generation would begin with them.
	if to.Kind != rewindBeginning && to.Kind != RewindNow && rec.readsFormer(b, at) {
		return next, errSplitting
	}
	start, err := r.rewindStart(ctx, b.Source, to)
	if err == nil && to.Kind == rewindLSN {
		err = r.holdsFrom(ctx, b.Source, to.lsn)
	}
	if err != nil {
		return next, err
	}
	if next.From, err = r.positions(ctx, b.Source, start); err != nil {
		if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed {
			err = fmt.Errorf("%w; rewind it to a later place, or to the beginning: then it begins with the items that are there", err)
		}
		return next, err
	}
	if next.Heads, err = r.positions(ctx, b.Source, feed.StartNow()); err != nil {
		return next, err
	}
	next.Changed = now()
	// An aggregate stays in its generation: its partitions pass over what they have folded.
	// The others get a new one, whose writes set values again.
	if rec.Spec.Kind() == spec.AggregateKind {
		next.Rewinds++
		// Never ahead of what a partition has folded: one that has not begun, or is behind, would
		// leave out what lies between for good.
		next.From = rec.behindItems(rec.Unfinished(processors.RoleSource, b.Source, next.From, to, at))
		return next, nil
	}
	next.succeed(rec, &ApplyOptions{FromNow: to.Kind != rewindBeginning})
	switch project := rec.Spec.Project; {
	case to.Kind == rewindBeginning: // it brings all that was there
	case project != nil && project.Sink.Container != nil:
		// A container forgets the rows of a generation that wait for their keys when the next
		// one begins, and the items that make them may not have changed since that place.
		next.Backfills = rec.Backfills + 1
	case !rec.BackfillDone(b, at):
		next.Backfills, next.BackfillScope = rec.Backfills, rec.BackfillScope
	}
	next.Generation++
	next.From = rec.Unfinished(processors.RoleSource, b.Source, next.From, to, at)
	if rec.Spec.Kind() == spec.ProjectKind && (to.Kind == RewindTime || to.Kind == rewindLSN) {
		next.RowsFrom = rec.rowsFrom(b.Source, next.From)
	}
	if rec.Spec.Kind() == spec.CascadeKind {
		if next.Starts, err = r.rewindChecks(ctx, rec, b, to, start, at); err != nil {
			return next, err
		}
	}
	return next, nil
}

// behindItems returns starts with those moved forward to the end of the items with which
// their partitions began. What is before it is in the items and was folded with them,
// and a partition of the target that they meant nothing to does not know that:
//
//	commit 5 creates an order, commit 8 deletes it, the items are as of commit 10
//	commit 8 read again: the order is taken away, and was never added
func (r *Record) behindItems(starts []Start) []Start {
	starts = slices.Clone(starts)
	for i := range starts {
		for _, w := range r.Walks {
			if end := feed.WalkEnd(w.LSN); w.Partition == starts[i].Partition && starts[i].After.Before(end) {
				starts[i].After = end
			}
		}
	}
	return starts
}

// rewindStart returns where the place is in the logs of the source.
func (r *Registry) rewindStart(ctx context.Context, source *store.ContainerInfo, to RewindTo) (feed.Start, error) {
	switch to.Kind {
	case RewindNow:
		return feed.StartNow(), nil
	case RewindTime:
		return feed.StartTime(to.time), nil
	case rewindLSN:
		if n := len(source.Partitions); n > 1 {
			return feed.Start{}, fmt.Errorf("the source has %d physical partitions, each with LSNs of its own; name a time instead", n)
		}
		ends, err := r.positions(ctx, source, feed.StartNow())
		if err != nil {
			return feed.Start{}, err
		}
		if end := ends[0].After.LSN; to.lsn > end+1 {
			return feed.Start{}, fmt.Errorf("the log of the source ends at %s, before %s", end, to.lsn)
		}
		return feed.StartAt(feed.Position{LSN: to.lsn - 1}), nil
	case rewindBeginning:
	}
	return feed.StartBeginning(), nil
}

// holdsFrom refuses an LSN that the one log of a container does not hold any more: a
// pipeline that was set back there would stand still at once.
func (r *Registry) holdsFrom(ctx context.Context, c *store.ContainerInfo, lsn feed.LSN) error {
	partition := feed.Partition{Container: c.ID, Number: c.Partitions[0].Number}
	log, err := feed.OpenLog(ctx, r.JetStream, partition, r.cfg.Log)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", partition, err)
	}
	defer log.Close()
	first, _, err := log.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("look where the log of %s begins: %w", partition, err)
	}
	if lsn < first {
		return fmt.Errorf("the log of the source was trimmed and begins at %s, behind %s; rewind it to a later place, or to the beginning: "+
			"then it begins with the items that are there", first, lsn)
	}
	return nil
}

// rewindChecks returns where the checks of a cascade's target begin. Fan-outs from
// the beginning find every item, so the checks begin now; so they do when the rest
// is to be left out. Otherwise they go back by the same time as the fan-outs.
func (r *Registry) rewindChecks(ctx context.Context, rec *Record, b *Bound, to RewindTo, start feed.Start, at Checkpoints) ([]Start, error) {
	switch to.Kind {
	case rewindBeginning, RewindNow:
		return r.positions(ctx, b.Target, feed.StartNow())
	case rewindLSN:
		var err error
		if start, err = r.timeOf(ctx, b.Source, to.lsn); err != nil {
			return nil, err
		}
	case RewindTime:
	}
	starts, err := r.positions(ctx, b.Target, start)
	return rec.Unfinished(processors.RoleTarget, b.Target, starts, to, at), err
}

// timeOf returns the time of a commit in the one log of a container, or now if it
// is yet to come.
func (r *Registry) timeOf(ctx context.Context, c *store.ContainerInfo, lsn feed.LSN) (feed.Start, error) {
	partition := feed.Partition{Container: c.ID, Number: c.Partitions[0].Number}
	log, err := feed.OpenLog(ctx, r.JetStream, partition, r.cfg.Log)
	if err != nil {
		return feed.Start{}, fmt.Errorf("open the log of %s: %w", partition, err)
	}
	defer log.Close()
	commit, err := log.Read(ctx, lsn)
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); !trimmed && errors.Is(err, feed.ErrNotFound) {
		return feed.StartNow(), nil
	}
	if err != nil {
		return feed.Start{}, fmt.Errorf("read commit %s of %s: %w", lsn, partition, err)
	}
	return feed.StartTime(time.UnixMilli(commit.Time)), nil
}

// Unfinished returns starts with those moved back to what the readers of the record
// have not finished, or have given up: a generation that ends leaves nothing undone,
// unless that is asked for.
func (r *Record) Unfinished(role processors.Role, c *store.ContainerInfo, starts []Start, to RewindTo, at Checkpoints) []Start {
	if to.Kind == RewindNow {
		return starts
	}
	starts = slices.Clone(starts)
	readers := r.readersOf(role, c)
	for i := range starts {
		reader := readers[slices.IndexFunc(readers, func(p processors.Resource) bool { return p.Partition.Number == starts[i].Partition })]
		done := r.Begin(reader)
		if cp := at[reader.String()]; cp != nil {
			done = behindUndone(cp)
		}
		if done.Before(starts[i].After) {
			starts[i].After = done
		}
	}
	return starts
}

// behindUndone returns behind what a reader is to read again, so that what its checkpoint has passed and not finished,
// or given up, comes once more.
func behindUndone(cp *processors.Checkpoint) feed.Position {
	behind, open := cp.Position, cp.Position
	passed := func(at feed.Position) {
		// No place in a log brings an item of a walk again: its dead letter does.
		if _, walked := at.Walked(); !walked && !open.Before(at) {
			open = at
			behind = feed.Position{LSN: at.LSN - 1} // the change itself is read again
		}
	}
	for i := range cp.Jobs {
		if cp.Jobs[i].Source != processors.BackfillJob {
			passed(cp.Jobs[i].Position)
		}
	}
	for i := range cp.Parked {
		passed(cp.Parked[i].Position)
	}
	return behind
}
