package processors_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/processors"
)

// slow is a processor whose jobs get on while it holds a batch.
type slow struct {
	recorder
	began chan struct{} // gets a token for each batch
	hold  chan struct{}
}

func (s *slow) Process(ctx context.Context, _ *processors.Batch) error {
	s.began <- struct{}{}
	select {
	case <-s.hold:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestWorkIsToldWhileABatchTakesLong shows in the checkpoint what becomes of open jobs
// while a batch waits for them.
func TestWorkIsToldWhileABatchTakesLong(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	p := &slow{began: make(chan struct{}, 100), hold: make(chan struct{})}
	s.run(l, p)
	s.append("a")
	<-p.began
	for scanned := int64(1); scanned <= 2; scanned++ {
		p.mu.Lock()
		p.jobs = []processors.Job{{Source: `["k"]/x`, Scanned: scanned}}
		p.mu.Unlock()
		l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool {
			return cp.Position.IsZero() && len(cp.Jobs) == 1 && cp.Jobs[0].Scanned == scanned
		})
	}
	close(p.hold)
	l.waitCheckpoint(t, at(1))
}
