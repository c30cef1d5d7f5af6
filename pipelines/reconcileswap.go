package pipelines

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors/project"
)

// swap puts the rows of a projection that were built in the shadow in place of the
// former ones, for its readers have come to where the logs ended when the
// generation was registered. What is younger than that they are about to write, as
// those of the former generation were.
func (s *reconciler) swap(ctx context.Context, rec *registry.Record, b *registry.Bound) (err error) {
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
	return s.note(ctx, rec, "the rows of a new generation have taken the place of the former ones", func(now *registry.Record) {
		now.Shadow, now.Former = false, nil
		now.InForce = now.Backfills == 0 // else when the backfill is done
	})
}
