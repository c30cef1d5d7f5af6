package parquetsink

import (
	"context"
	"log/slog"
	"time"
)

// heldLocked counts what a writer took, and begins a commit if that is enough.
func (s *Sink) heldLocked(rows, bytes int) {
	s.rows, s.bytes = s.rows+rows, s.bytes+bytes
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
	err := s.acquire(ctx)
	if err == nil {
		err = s.commit(ctx)
		s.release()
	}
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "rows could not be committed; trying again", slog.Any("error", err))
	}
}

// room waits while the sink holds as much as it may: what is being committed, and
// as much again. When that is because commits fail, it tries one.
func (s *Sink) room(ctx context.Context) error {
	for s.filled() {
		if err := s.acquire(ctx); err != nil {
			return err
		}
		var err error
		if s.filled() {
			err = s.commit(ctx)
		}
		s.release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) filled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows+s.sealedRows >= 2*s.cfg.BufferRowsMax || s.bytes+s.sealedBytes >= 2*s.cfg.BufferBytesMax
}

// pace waits until it is time for a commit.
func (s *Sink) pace(ctx context.Context) error {
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
