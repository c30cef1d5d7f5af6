package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/pace"
)

// readCheckpoints reads the checkpoints of all processors. One that cannot be read is an
// error: taken for nowhere, its pipeline would be judged by what is not known.
func (v *Verifier) readCheckpoints(ctx context.Context) (registry.Checkpoints, error) {
	at, unreadable, err := registry.ReadCheckpoints(ctx, v.js, v.cfg.Bucket)
	return at, errors.Join(err, unreadable)
}

// givenUp returns an item of a record's source that was given up, nil if none was.
func givenUp(at registry.Checkpoints, rec *registry.Record, source *store.ContainerInfo) *processors.Job {
	for _, reader := range rec.SourceReaders(source, at) {
		if cp := at.Of(rec, processors.RoleSource, reader.Partition); len(cp.Parked) > 0 {
			return &cp.Parked[0]
		}
	}
	return nil
}

// checkpoints reads the checkpoints of all processors. What was read a moment ago will do:
// whoever asks wants to know how far they are at least.
func (run *verification) checkpoints(ctx context.Context) (registry.Checkpoints, error) {
	run.mu.Lock()
	at, asked := run.at, run.asked
	run.mu.Unlock()
	if at != nil && time.Since(asked) < run.cfg.PollInterval/2 {
		return at, nil
	}
	// Before the reading: what is answered may be as old as this. Two that ask at
	// once both read, which costs a reading and keeps the lock free of I/O.
	asked = time.Now()
	at, err := run.readCheckpoints(ctx)
	if err != nil {
		return nil, err
	}
	run.mu.Lock()
	run.at, run.asked = at, asked
	run.mu.Unlock()
	return at, nil
}

// await asks until done finds nothing left, which is told of what is left. It gives
// up at the timeout, or at once where it makes no sense to wait for p.
func (run *verification) await(ctx context.Context, p *Verified, done func(registry.Checkpoints) (left string, err error)) (left string, err error) {
	deadline := time.Now().Add(max(run.cfg.Timeout, 0))
	for {
		at, err := run.checkpoints(ctx)
		if err != nil {
			return "", err
		}
		if left, err = done(at); err != nil || left == "" {
			return left, err
		}
		// After one look, not before it: also of a paused pipeline all may be done.
		if run.hopeless(p) {
			return left, nil
		}
		if !time.Now().Before(deadline) {
			run.expire(p)
			return left, nil
		}
		if err := run.wait(ctx, run.cfg.PollInterval); err != nil {
			return "", err
		}
	}
}

// awaitBackfill waits until p has been backfilled.
func (run *verification) awaitBackfill(ctx context.Context, p *Verified) (full bool, err error) {
	left, err := run.await(ctx, p, func(at registry.Checkpoints) (string, error) {
		if !p.Record.BackfillDone(&p.bound, at) {
			return "what was there is being backfilled", nil
		}
		return "", nil
	})
	if left != "" {
		run.notJudged(p, left)
	}
	return err == nil && left == "", err
}

// awaitSources waits until the readers of p's source have passed LSNs, and returns
// where they are then.
func (run *verification) awaitSources(ctx context.Context, p *Verified, goals map[feed.Partition]feed.LSN) (now registry.Checkpoints, left string, err error) {
	left, err = run.await(ctx, p, func(at registry.Checkpoints) (string, error) {
		now = at
		for partition, goal := range goals {
			if is := at.Of(&p.Record, processors.RoleSource, partition).Position; goal > 0 && !is.Reached(goal) {
				return p.behind(partition, is, goal), nil
			}
		}
		return "", nil
	})
	return now, left, err
}

// behind says that a reader of p's source has not come to an LSN.
func (p *Verified) behind(partition feed.Partition, is feed.Position, goal feed.LSN) string {
	left := fmt.Sprintf("its reader of %s stands at %s, before LSN %d", partition, is, goal)
	if p.Record.Paused {
		left += "; the pipeline is paused"
	}
	return left
}

// hopeless says that waiting for p makes no sense.
func (run *verification) hopeless(p *Verified) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return p.expired || p.Record.Paused
}

// expire notes that a wait for p has reached the timeout, so that what comes later
// is not waited for as long again.
func (run *verification) expire(p *Verified) {
	run.mu.Lock()
	defer run.mu.Unlock()
	p.expired = true
}

// wait waits for d. The pacer does not count the wait as work, so no rest is due for it.
func (run *verification) wait(ctx context.Context, d time.Duration) error {
	defer run.pacer.Resume()
	return pace.Pause(ctx, d)
}
