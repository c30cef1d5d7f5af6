package registry

import (
	"context"
	"errors"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// A cascade may begin in two ways. It reads the logs of its source from their beginning: every
// change that they hold is fanned out, and each finds the items that copy it. Or it goes once
// through the items of its target, as a backfill does, and reads the logs of its source
// from where they end now. Package cascade says why both end with the same copies.
//
//	source                                 by its log                  by the target's items
//	50 categories, each written once       50 fan-outs                 all items are read
//	50 categories, renamed every minute    26 million fan-outs a year  all items are read
//	the log's beginning was trimmed        impossible                  all items are read
//
// So the log is read while it is short, since an index then leads to the few items that
// matter.

// What a log of a cascade's source may have for a generation to read it from its beginning.
const (
	shortLogBytes   = 1 << 20
	shortLogCommits = 1000
)

// walks tells whether a new generation of a cascade goes through the items of its target.
func (r *Registry) walks(ctx context.Context, source *store.ContainerInfo) (bool, error) {
	for _, p := range source.Partitions {
		partition := feed.Partition{Container: source.ID, Number: p.Number}
		shape, err := r.shapeOf(ctx, partition)
		if err != nil {
			return false, err
		}
		if shape.Trimmed > 0 || shape.Bytes > shortLogBytes || shape.Commits > shortLogCommits {
			return true, nil
		}
	}
	return false, nil
}

// beginWalk lets a generation of a cascade begin with the items of its target. Heads, the
// ends of the source's logs, were noted before; the order is what makes it exact.
func (r *Registry) beginWalk(ctx context.Context, rec *Record, b *Bound) (err error) {
	rec.From = rec.Heads
	rec.Backfills, rec.BackfillScope = 1, BackfillScope{}
	rec.Starts, err = r.positions(ctx, b.Target, feed.StartNow())
	return err
}

// rewindWalks tells whether a pipeline is set back by a walk: a cascade that goes back to
// the beginning, where it would begin so too, or to a place to which the logs of its source
// or its target do not reach back any more.
func (r *Registry) rewindWalks(ctx context.Context, rec *Record, b *Bound, to RewindTo) (bool, error) {
	if rec.Spec.Kind() != spec.CascadeKind || to.Kind == RewindNow {
		return false, nil
	}
	if to.Kind == rewindBeginning {
		return r.walks(ctx, b.Source)
	}
	start, err := r.rewindStart(ctx, b.Source, to)
	if err != nil {
		return false, err
	}
	if to.Kind == rewindLSN {
		// Whether the log has the place shows only when it is read.
		if start, err = r.timeOf(ctx, b.Source, to.lsn); err != nil {
			return isTrimmed(err)
		}
	}
	for _, c := range []*store.ContainerInfo{b.Source, b.Target} {
		if _, err := r.positions(ctx, c, start); err != nil {
			return isTrimmed(err)
		}
	}
	return false, nil
}

// isTrimmed tells whether an error says that a log was trimmed, and returns it if not.
func isTrimmed(err error) (bool, error) {
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed {
		return true, nil
	}
	return false, err
}

// rewoundByWalk returns the record of a cascade that goes through its target's items again.
// That contains what the generation before has not finished.
func (r *Registry) rewoundByWalk(ctx context.Context, rec *Record, b *Bound) (next Record, err error) {
	next = *rec
	if next.Heads, err = r.positions(ctx, b.Source, feed.StartNow()); err != nil {
		return next, err
	}
	next.Changed = now()
	next.succeed(rec, &ApplyOptions{})
	next.Generation++
	return next, r.beginWalk(ctx, &next, b)
}
