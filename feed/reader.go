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
	err    error    // why the reader has ended
	rests  bool     // between two calls of Next
	closed bool

	// Guarded by shared.mu.
	joined bool // the reader is in shared.joined
	passed LSN  // the commits below it have been returned
}

// Log is the log that is read.
func (r *Reader) Log() *Log { return r.s.log }

// Expect makes the reader verify that the commit before the next has the
// checksum sum, as a checkpoint recorded it. Zero expects nothing.
func (r *Reader) Expect(sum Checksum) { r.prev = sum }

// Rests says that the caller rests before it calls Next again, and reads by Arrived what comes with the commit that Next
// returns. So the server is asked by Next alone, for all that it has then, or for the first commit that comes. It sends that in
// one go, and nothing while the caller rests, where else each commit would wake it and this process:
//
//	log            1        2 3   4            5 6             7
//	the caller     Next 1   rests    Next 2-4  rests   Next 5-6   Next, waits ──▶ 7
//	else sent      1        2 3   4            5 6             7
//	sent           1                 2-4               5-6     7
//
// Readers that do not rest keep what they had: while one of them waits for the partition's commits, all are sent as
// they are appended.
func (r *Reader) Rests() { r.rests = true }

// Next returns the next commit. It waits for one until ctx ends; then it
// returns the context's cause and the reader may be used further. Other errors
// are final and as those of Tail.Next, or a *SplitError behind the last commit of a
// partition that was split.
func (r *Reader) Next(ctx context.Context) (*Commit, error) {
	for r.err == nil {
		c, err := r.fromRing()
		if c != nil || err != nil {
			return c, err
		}
		// One commit from the own tail, and then the ring is looked at again: the reader may
		// have reached it.
		if r.own != nil {
			if c, err = r.own.await(ctx, r.rests); err != nil {
				return nil, r.failWith(r.own, err)
			}
			return r.deliver(c)
		}
		if c, err = r.awaitRing(ctx); err != nil {
			return nil, err
		}
		if c != nil {
			return r.deliver(c)
		}
	}
	return nil, r.err
}

// Arrived returns the next commit if it is here already, nil if Next would have to wait for it or has an error to return.
// Of a reader that rests (Rests) what the server is sending counts as here, and is waited for, until ctx ends or nothing has
// come for TailOptions.WatchInterval.
func (r *Reader) Arrived(ctx context.Context) *Commit {
	if r.err != nil {
		return nil
	}
	c, err := r.fromRing()
	if c != nil || err != nil {
		return c
	}
	if r.own != nil {
		c, err = arrivedAt(ctx, r.own)
	} else {
		select {
		case <-r.s.drive:
			c, err = r.driveOnce(func(t *Tail) (*Commit, error) { return arrivedAt(ctx, t) })
		default: // another reader waits for it
		}
	}
	if c != nil && err == nil {
		c, err = r.deliver(c)
	}
	if err != nil {
		return nil
	}
	return c
}

// arrivedAt returns the next commit of a tail if it has come.
func arrivedAt(ctx context.Context, t *Tail) (*Commit, error) {
	c := t.arrived(ctx)
	return c, t.err
}

// Close frees what the reader holds. It may be called twice.
func (r *Reader) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.s.mu.Lock()
	r.leaveRingLocked()
	r.s.mu.Unlock()
	r.closeOwn()
	r.h.release(r.s)
}

// fromRing returns the next commit if the ring has it. If not, the reader stands at the
// ring's end afterwards, or it has a tail of its own.
func (r *Reader) fromRing() (*Commit, error) {
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
	// Nobody reads from the ring, so this reader may move the shared tail to where it is.
	if len(s.joined) == 0 {
		if err := r.startTailLocked(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
	}
	inside := s.ring.first <= r.next && r.next <= s.ring.end()
	if !inside {
		r.leaveRingLocked()
		s.mu.Unlock()
		return nil, r.openOwn()
	}
	if !r.joined {
		r.joined = true
		s.joined = append(s.joined, r)
	}
	c := s.ring.at(r.next)
	r.passed = r.next
	s.dropPassedLocked()
	s.mu.Unlock()
	r.closeOwn()
	if c == nil {
		return nil, nil
	}
	return r.deliver(c)
}

// startTailLocked makes the shared tail begin where this reader is. The caller has seen that
// nobody else reads from the shared tail. A tail of the reader's own becomes the shared
// one, with what it has read ahead. A tail that has ended is replaced: what ended it may be over.
func (r *Reader) startTailLocked() error {
	s := r.s
	if s.tail != nil && s.tail.err == nil && s.ring.first <= r.next && r.next <= s.ring.end() {
		return nil
	}
	tail := r.own
	if tail == nil {
		var err error
		if tail, err = r.h.tail(s.log, r.next); err != nil {
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

// awaitRing waits at the end of the ring until another reader adds a commit to it, or reads
// the next commit for all. It returns neither commit nor error if the caller has to look
// at the ring again.
func (r *Reader) awaitRing(ctx context.Context) (*Commit, error) {
	s := r.s
	s.mu.Lock()
	if s.ring.end() > r.next {
		s.mu.Unlock()
		return nil, nil
	}
	changed := s.changed // taken under the lock that guards the ring, so no growth is missed
	s.mu.Unlock()
	select {
	case <-s.drive:
		return r.driveOnce(func(t *Tail) (*Commit, error) { return t.await(ctx, r.rests) })
	case <-changed:
		return nil, nil
	case <-r.h.done:
		return nil, r.errClosed()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// driveOnce reads one commit from the shared tail, by read, for all readers. The reader holds the token,
// and gives it back. It reads nothing if another reader did while this one waited for the
// token.
func (r *Reader) driveOnce(read func(*Tail) (*Commit, error)) (*Commit, error) {
	s := r.s
	defer func() { s.drive <- struct{}{} }()
	s.mu.Lock()
	behind := s.ring.end() != r.next
	s.mu.Unlock()
	if behind {
		return nil, nil
	}
	// Without s.mu: the others go on reading from the ring while this one waits. If its own
	// context ends here, the token goes to the next reader that waits.
	c, err := read(s.tail)
	if err != nil {
		return nil, r.failWith(s.tail, err)
	}
	if c != nil {
		s.push(c)
	}
	return c, nil
}

// deliver checks that c follows the commit before it, and moves the reader behind c. The
// tail that read c has checked the chain too, but not against what this reader's
// checkpoint expects: another reader, whose checkpoint is right, may share the tail.
func (r *Reader) deliver(c *Commit) (*Commit, error) {
	if r.prev != 0 && c.Prev != r.prev {
		return nil, r.fail(&MismatchError{Partition: r.s.log.p, Stream: r.s.log.api.stream(), LSN: c.LSN, What: fmt.Sprintf("commit follows checksum %s, the one before had %s when it was read", c.Prev, r.prev)})
	}
	r.next, r.prev = c.LSN+1, c.Sum
	switch split, err := SplitOf(c); {
	case err != nil:
		return nil, r.fail(fmt.Errorf("partition %s: LSN %d: %w", r.s.log.p, c.LSN, err))
	case split != nil:
		_ = r.fail(&SplitError{Partition: r.s.log.p, Last: c.LSN, Sum: c.Sum, Split: split}) // of the next call
	}
	return c, nil
}

// failWith ends the reader with the error of a tail, unless the tail goes on and err is merely
// that a context has ended. It returns err.
func (r *Reader) failWith(t *Tail, err error) error {
	if t.err == nil {
		return err
	}
	return r.fail(err)
}

// fail ends the reader. It leaves the ring at once, not when it is closed: while it counts
// as one that reads from the ring, a tail that has ended stays there for readers that come.
func (r *Reader) fail(err error) error {
	r.err = err
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.leaveRingLocked()
	return err
}

func (r *Reader) leaveRingLocked() {
	if r.joined {
		r.joined = false
		r.s.joined = slices.DeleteFunc(r.s.joined, func(other *Reader) bool { return other == r })
		r.s.dropPassedLocked()
	}
}

// openOwn gives the reader a tail of its own that begins at its next commit.
func (r *Reader) openOwn() (err error) {
	if r.own == nil {
		r.own, err = r.h.tail(r.s.log, r.next)
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
