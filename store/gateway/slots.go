package gateway

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// answerPiece is how many bytes of an answer a client must take within answerStall: 13 KiB/s. The system
// buffers some hundred KiB or more before, and wakes who writes when a good part of them has gone; so less
// time would take slow clients for dead ones.
const (
	answerPiece = 64 << 10
	answerStall = 5 * time.Second
)

// slots bounds the requests that are carried out at once, and the bytes of the answers that clients are
// taking. A request keeps its slot, and its answer its room, until its client has taken it. Where no slot is
// free, or no room, the request whose client has taken nothing for longest loses its own, if that is for
// answerStall at least: the answer is cut off. So clients that do not take their answers keep others out for
// no longer.
type slots struct {
	taken chan struct{} // one for each that is taken
	most  int           // bytes of all answers

	mu       sync.Mutex // guards what follows
	stall    time.Duration
	held     int       // bytes of answers
	awaiting list.List // of *slot whose answers are being taken, the one that waits longest in front
}

// slot is the right of one request to be carried out.
type slot struct {
	of  *slots
	cut func() // ends the writing of the answer

	// Guarded by of.mu.
	place *list.Element // in of.awaiting; nil: there is no answer yet
	since time.Time     // when the client had taken what came before
	lost  bool          // another request has it
	room  int           // bytes of the answer, among of.held
}

func newSlots(requests, bytes int) *slots {
	return &slots{taken: make(chan struct{}, requests), most: bytes, stall: answerStall}
}

// take takes a slot, nil if there is none. It does not wait for one: a client that is told 429 tries again,
// while a queue would only grow. cut ends the writing of the request's answer, and does not block.
func (s *slots) take(ctx context.Context, cut func()) *slot {
	select {
	case s.taken <- struct{}{}:
	default:
		if !s.takeOver(ctx) {
			return nil
		}
	}
	meters.inFlight.Add(ctx, 1)
	return &slot{of: s, cut: cut}
}

// takeOver takes the slot of the answer that has waited for its client for longest.
func (s *slots) takeOver(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	victim := s.cutLocked(ctx)
	if victim == nil {
		return false
	}
	victim.lost = true
	return true
}

// cutLocked cuts off the answer that has waited for its client for longest, and gives its room back. It returns
// nil if none has waited for long. The caller holds s.mu.
func (s *slots) cutLocked(ctx context.Context) *slot {
	longest := s.awaiting.Front()
	if longest == nil {
		return nil
	}
	victim := longest.Value.(*slot)
	if time.Since(victim.since) < s.stall {
		return nil
	}
	s.awaiting.Remove(longest)
	victim.place = nil
	s.held -= victim.room
	victim.room = 0
	// With the lock held: once its request has ended, the connection may be at another one.
	victim.cut()
	meters.answersCut.Add(ctx, 1)
	return victim
}

// stalledLocked returns the room of the answers that have waited for their clients for long. The caller holds s.mu.
func (s *slots) stalledLocked() (bytes int) {
	for e := s.awaiting.Front(); e != nil; e = e.Next() {
		waiting := e.Value.(*slot)
		if time.Since(waiting.since) < s.stall {
			break
		}
		bytes += waiting.room
	}
	return bytes
}

// hold takes room for an answer, and says whether there is enough. One answer has room always, and so has one of a
// piece, of which the slots bound all together, and one that must be sent: of what has happened already.
func (s *slot) hold(ctx context.Context, bytes int, must bool) bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	// Nobody is cut off for an answer that has no room even then.
	if left := s.of.held - s.of.stalledLocked(); left > 0 && left+bytes > s.of.most && !must && bytes > answerPiece {
		return false
	}
	for s.of.held > 0 && s.of.held+bytes > s.of.most && s.of.cutLocked(ctx) != nil {
	}
	s.of.held += bytes
	s.room += bytes
	return true
}

// await notes that the client is to take the next piece of the answer, and has taken what came before.
func (s *slot) await() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.lost {
		return
	}
	s.since = time.Now()
	if s.place == nil {
		s.place = s.of.awaiting.PushBack(s)
	} else {
		s.of.awaiting.MoveToBack(s.place)
	}
}

// giveBack ends the right. It is called once, by the request that took it.
func (s *slot) giveBack(ctx context.Context) {
	meters.inFlight.Add(ctx, -1)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.held -= s.room
	s.room = 0
	if s.lost {
		return
	}
	if s.place != nil {
		s.of.awaiting.Remove(s.place)
	}
	<-s.of.taken
}
