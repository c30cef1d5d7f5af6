package feed

import (
	"context"
	"fmt"
	"slices"
)

// Reader reads the commits of one partition through a Hub. It is used, and
// closed, by one goroutine at a time. The commits that it returns are shared
// with other readers and must not be changed.
type Reader struct {
	h      *Hub
	s      *shared
	next   LSN
	prev   Checksum // of the commit before next; zero if not known
	own    *Tail    // while the reader is outside the ring
	closed bool

	// Guarded by the lock of what is shared.
	joined bool
	passed LSN // the commits below it have been returned
}

// Log is the log that is read.
func (r *Reader) Log() *Log { return r.s.log }

// Expect makes the reader verify that the commit before the next has the
// checksum sum, as a checkpoint recorded it. Zero expects nothing.
func (r *Reader) Expect(sum Checksum) { r.prev = sum }

// Next returns the next commit. It waits for one until ctx ends; then it
// returns the context's cause and the reader may be used further. Other errors
// are final and as those of Tail.Next.
func (r *Reader) Next(ctx context.Context) (*Commit, error) {
	for {
		c, err := r.ready()
		if c != nil || err != nil {
			return c, err
		}
		if r.own != nil {
			if c, err = r.own.Next(ctx); err != nil {
				return nil, err
			}
			return r.deliver(c)
		}
		if c, err = r.await(ctx); err != nil {
			return nil, err
		}
		if c != nil {
			return r.deliver(c)
		}
	}
}

// Close frees what the reader holds. It may be called twice.
func (r *Reader) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.s.mu.Lock()
	r.leaveLocked()
	r.s.mu.Unlock()
	r.closeOwn()
	r.h.release(r.s)
}

// ready returns the next commit if the ring has it. Otherwise it has seen to it
// that the reader either reads from the ring's end, or has a tail of its own.
func (r *Reader) ready() (*Commit, error) {
	if r.closed {
		return nil, r.errClosed()
	}
	select {
	case <-r.h.done:
		return nil, r.errClosed()
	default:
	}
	s := r.s
	s.mu.Lock()
	if len(s.joined) == 0 {
		if err := r.seatLocked(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
	}
	inside := s.ring.first <= r.next && r.next <= s.ring.end()
	if !inside {
		r.leaveLocked()
		s.mu.Unlock()
		return nil, r.openOwn()
	}
	if !r.joined {
		r.joined = true
		s.joined = append(s.joined, r)
	}
	c := s.ring.at(r.next)
	r.passed = r.next
	s.passLocked()
	s.mu.Unlock()
	r.closeOwn()
	if c == nil {
		return nil, nil
	}
	return r.deliver(c)
}

// seatLocked makes the shared tail begin where this reader is, because nobody
// else reads from it.
func (r *Reader) seatLocked() error {
	s := r.s
	if s.tail != nil && s.ring.first <= r.next && r.next <= s.ring.end() {
		return nil
	}
	tail := r.own
	if tail == nil {
		var err error
		if tail, err = r.h.tail(s.log, r.next, r.prev); err != nil {
			return err
		}
	}
	if s.tail != nil {
		s.tail.Close()
	}
	r.own, s.tail = nil, tail
	s.ring.reset(r.next)
	return nil
}

// await waits at the end of the ring until it grows, or reads on for all. With
// neither commit nor error there is something new to be looked at.
func (r *Reader) await(ctx context.Context) (*Commit, error) {
	s := r.s
	s.mu.Lock()
	if s.ring.end() > r.next {
		s.mu.Unlock()
		return nil, nil
	}
	changed := s.changed
	s.mu.Unlock()
	select {
	case <-s.drive:
		return r.driveOnce(ctx)
	case <-changed:
		return nil, nil
	case <-r.h.done:
		return nil, r.errClosed()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// driveOnce reads from the shared tail for all, unless another did while this
// reader waited for the token, which it has now and gives back.
func (r *Reader) driveOnce(ctx context.Context) (*Commit, error) {
	s := r.s
	defer func() { s.drive <- struct{}{} }()
	s.mu.Lock()
	behind := s.ring.end() != r.next
	s.mu.Unlock()
	if behind {
		return nil, nil
	}
	c, err := s.tail.Next(ctx)
	if err != nil {
		return nil, err
	}
	s.push(c)
	return c, nil
}

// deliver moves the reader behind c.
func (r *Reader) deliver(c *Commit) (*Commit, error) {
	if r.prev != 0 && c.Prev != r.prev {
		return nil, &MismatchError{Partition: r.s.log.p, LSN: c.LSN, What: fmt.Sprintf("commit follows checksum %s, the one before had %s when it was read", c.Prev, r.prev)}
	}
	r.next, r.prev = c.LSN+1, c.Sum
	return c, nil
}

func (r *Reader) leaveLocked() {
	if r.joined {
		r.joined = false
		r.s.joined = slices.DeleteFunc(r.s.joined, func(other *Reader) bool { return other == r })
		r.s.passLocked()
	}
}

// openOwn gives the reader a tail of its own at its place.
func (r *Reader) openOwn() (err error) {
	if r.own == nil {
		r.own, err = r.h.tail(r.s.log, r.next, r.prev)
	}
	return err
}

func (r *Reader) closeOwn() {
	if r.own != nil {
		r.own.Close()
		r.own = nil
	}
}

func (r *Reader) errClosed() error {
	return fmt.Errorf("reader of partition %s: %w", r.s.log.p, ErrClosed)
}
