package parquetsink

import (
	"context"
	"log/slog"
	"time"
)

// countLocked counts what a writer took, and begins a commit if that is enough.
func (s *Sink) countLocked(rows, bytes int) {
	s.rows, s.bytes = s.rows+rows, s.bytes+bytes
	// A twentieth is enough to end the wait of waitForTurn: much is at hand, so nothing
	// is gained by waiting for the other writers.
	if s.rows >= s.cfg.BufferRowsMax/20 || s.bytes >= s.cfg.BufferBytesMax/20 {
		select {
		case <-s.full:
		default:
			close(s.full)
		}
	}
	if s.overLocked() && !s.running {
		s.running = s.background(s.commitAside)
	}
}

func (s *Sink) overLocked() bool {
	return s.rows >= s.cfg.BufferRowsMax || s.bytes >= s.cfg.BufferBytesMax
}

// commitAside commits in the background. Whoever flushes next learns of an error,
// because nothing is durable.
func (s *Sink) commitAside(ctx context.Context) {
	err := s.takeTurn(ctx)
	if err == nil {
		err = s.commit(ctx)
		s.endTurn()
	}
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "rows could not be committed; trying again", slog.Any("error", err))
	}
}

// waitForRoom waits while the sink holds as much as it may: what is being committed, and
// as much again. It waits for the turn, which is to say for the commit under way. If the
// sink is full afterwards too, that commit has failed, and it tries one itself, so that
// the writer learns the error.
func (s *Sink) waitForRoom(ctx context.Context) error {
	for s.isFull() {
		if err := s.takeTurn(ctx); err != nil {
			return err
		}
		var err error
		if s.isFull() {
			err = s.commit(ctx)
		}
		s.endTurn()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows+s.sealedRows >= 2*s.cfg.BufferRowsMax || s.bytes+s.sealedBytes >= 2*s.cfg.BufferBytesMax
}

// waitForTurn waits until it is time for a commit: as long after the last one as that one
// took, and at least CommitInterval. So with a slow store half of the time is left for
// writers to fill their buffers, and with many writers one commit serves all of them.
func (s *Sink) waitForTurn(ctx context.Context) error {
	s.mu.Lock()
	wait, full := time.Until(s.ended.Add(max(s.cfg.CommitInterval, s.took))), s.full
	s.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
