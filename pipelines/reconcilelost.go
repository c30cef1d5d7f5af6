package pipelines

import (
	"context"
	"log/slog"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
)

// beginAnew lets pipelines begin anew that cannot go on: a log was trimmed beyond what they
// have read, because changeFeed.retentionMax had passed, or the snapshot is gone whose items
// they read, because they were paused for longer than it is kept. One that is paused does so
// when it is resumed. status tells of those that an operator has to decide about.
func (s *reconciler) beginAnew(ctx context.Context, w *registry.World, held []leases.Lease, at registry.Checkpoints) {
	failed := map[string]bool{}
	for i := range held {
		l := &held[i]
		cp := at[l.Resource]
		failed[l.Resource] = l.Attempts > 0 || cp != nil && cp.Attempts > 0
	}
	for i := range w.Pipelines {
		rec := &w.Pipelines[i]
		b, gone := rec.Bound(w.Containers)
		if rec.Paused || gone != "" {
			continue
		}
		for _, reader := range rec.Readers(&b, at) {
			if !failed[reader.String()] {
				continue
			}
			next, begun, err := s.registry.BeginAnew(ctx, rec, &b, s.bucket)
			name := slog.String("pipeline", rec.Metadata().String())
			switch {
			case err != nil:
				s.warn(ctx, "a pipeline that is cut off could not begin anew", err, name)
			case begun:
				s.log.WarnContext(ctx, "a pipeline begins anew with the items that are there, because what it had yet to read is gone",
					name, slog.Uint64("generation", uint64(next.Generation)))
			}
			break
		}
	}
}
