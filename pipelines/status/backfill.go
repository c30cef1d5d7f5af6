package status

import (
	"time"

	"github.com/millrace/millrace/pipelines/registry"
)

// backfill adds up how far the readers of a pipeline's present generation are in
// what was there when it began.
type backfill struct {
	rec         *registry.Record
	done, total uint64
}

func newBackfill(rec *registry.Record) *backfill { return &backfill{rec: rec} }

// add takes in one reader.
func (b *backfill) add(w *watched) {
	if w.record != b.rec {
		return // of a former generation
	}
	done, total := b.rec.Backfilled(w.resource, w.checkpoint.Position)
	b.done, b.total = b.done+done, b.total+total
}

// status returns nil when all is done.
func (b *backfill) status(now time.Time) *Backfill {
	if b.done == b.total {
		return nil
	}
	s := &Backfill{
		Generation: b.rec.Generation, Done: b.done, Total: b.total, Percent: 100 * float64(b.done) / float64(b.total), Shadow: b.rec.Shadow,
	}
	// By the mean rate since the generation began: it forgets no pauses, but it does not jump
	// from one look to the next.
	if passed := now.Sub(b.rec.Changed); b.done > 0 && passed > 0 && !b.rec.Paused {
		s.ETA = time.Duration(float64(passed) * float64(b.total-b.done) / float64(b.done))
		s.Seconds = s.ETA.Seconds()
	}
	return s
}
