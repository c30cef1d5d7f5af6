package pipelines

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// reconcileMeaning brings a pipeline to what expressions mean now. One whose results could differ
// gets a new generation, which computes all anew, and is named; for the others the two
// meanings are the same, and that is noted.
func (s *reconciler) reconcileMeaning(ctx context.Context, rec *registry.Record, containers []store.ContainerInfo) error {
	names := rec.Spec.Turns()
	if len(names) == 0 {
		_, err := s.note(ctx, rec, "a pipeline means the same by the present meaning of expressions", func(now *registry.Record) { now.Expressions = query.MeaningNow })
		return err
	}
	if _, gone := rec.Bound(containers); gone != "" {
		return nil // it does nothing, and is told to
	}
	declared := rec.Document()
	outcome, err := s.registry.ApplyPipeline(ctx, &declared, &registry.ApplyOptions{})
	if err != nil {
		return err
	}
	s.log.WarnContext(ctx, "a pipeline is computed anew, because =, != and IN between values of different types mean something else since this release",
		slog.String("pipeline", rec.Metadata().String()), slog.Uint64("generation", uint64(outcome.Generation)),
		slog.String("expressions", strings.Join(names, ", ")), slog.String("notes", strings.Join(outcome.Notes, "; ")))
	return nil
}

// older tells whether a record has to be looked at by reconcileMeaning.
func older(r registry.Record) bool { return r.Expressions < query.MeaningNow }

// hasOlder tells whether one of the pipelines has.
func hasOlder(w *registry.World) bool { return slices.ContainsFunc(w.Pipelines, older) }
