package pipelines

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// A swap is done by a sink and noted in the record, and whoever does both may die in between.
// Another generation may be registered then, and whose rows it is built beside must not be
// lost. So a swap is noted before, too:
//
//	record                   rows that are read
//	2 shadow, former 1       1                   2 comes to its heads
//	2 swapping, former 1     1, then 2           the sink does it
//	2                        2
//
// Where the sink refuses for good, because it has rows of a later generation that this registry does not
// know, such as after a restore of an older one, the record says why (swapRefused), and status does.
//
// and what is registered in the middle takes over that it is not known:
//
//	2 swapping, former 1     1 or 2              3 is registered
//	3, former 1, between 2   1 or 2              all are kept up to date, and the sink is asked again:
//	3, former 2              2                   it does it, or has done it
//	3, former 1              1                   ErrGivenUp, for it has rows of 3 already

// swap puts the rows of a projection that were built in the shadow in place of the
// former ones, for its readers have come to where the logs ended when the
// generation was registered. What is younger than that they are about to write, as
// those of the former generation were.
func (s *reconciler) swap(ctx context.Context, rec *registry.Record, b *registry.Bound) error {
	// Who registers the next generation reads in the record what may have happened to the rows. If
	// that has just been done, the record is another one, and nothing is swapped.
	done, err := s.note(ctx, rec, "the rows of a new generation are to take the place of the former ones", func(now *registry.Record) { now.Swapping = true })
	if err != nil || !done {
		return err
	}
	err = s.putInPlace(ctx, rec, b)
	if errors.Is(err, project.ErrGivenUp) {
		// It is asked for again all the same, round by round: a sink may be restored from a backup, too.
		_, failed := s.note(ctx, rec, "the rows of a new generation will never take the place of the former ones",
			func(now *registry.Record) { now.SwapRefused = err.Error() })
		return errors.Join(err, failed)
	}
	if err != nil {
		return err
	}
	_, err = s.note(ctx, rec, "the rows of a new generation have taken the place of the former ones", func(now *registry.Record) {
		now.Shadow, now.Swapping, now.SwapRefused, now.Former = false, false, "", nil
		now.InForce = now.Backfills == 0 // else when the backfill is done
	})
	return err
}

// putInPlace asks the sink of a generation to put its rows in place.
func (s *reconciler) putInPlace(ctx context.Context, rec *registry.Record, b *registry.Bound) (err error) {
	p, err := compile.Projection(s.client, rec, b, s.limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Sink().Close()) }()
	sink, ok := p.Sink().(project.Swapper)
	if !ok {
		return fmt.Errorf("pipeline %s: its sink cannot put rows in the place of others", rec.Metadata())
	}
	if err := sink.Swap(ctx, p.Schema()); err != nil {
		return fmt.Errorf("put the rows of generation %d in place: %w", rec.Generation, err)
	}
	return nil
}

// settle finds out whether the rows of the generation before have taken the place of the
// former ones, by asking for it once more: they have now, or never will.
func (s *reconciler) settle(ctx context.Context, rec *registry.Record, containers []store.ContainerInfo) error {
	between := rec.BetweenRecord()
	b, gone := between.Bound(containers)
	if gone != "" {
		return nil
	}
	err := s.putInPlace(ctx, between, &b)
	if err != nil && !errors.Is(err, project.ErrGivenUp) {
		return err
	}
	inPlace, what := err == nil, "the rows of the generation before were given up, and the former ones are read on"
	if inPlace {
		what = "the rows of the generation before have taken the place of the former ones"
	}
	_, err = s.note(ctx, rec, what, func(now *registry.Record) {
		if inPlace && now.Between != nil { // else another reconciler has noted it
			now.Former = now.Between
		}
		now.Between = nil
	})
	return err
}
