package engine

import (
	"slices"
	"sync"
	"time"
)

// discardEvery is after how many commits Badger learns which old versions nobody
// reads any more.
const discardEvery = 64

// oracle hands out Badger's timestamps in place of Badger's own, whose every
// transaction talks to two goroutines. Every commit has its own timestamp. A
// snapshot of a partition reads at the newest timestamp below that of the commit
// which is being written to the partition, if there is one: it need not wait for
// commits of other partitions, which it does not see.
type oracle struct {
	discard func(ts uint64) // told below which timestamp versions are of no use

	// Guarded by mu.
	mu      sync.Mutex
	idle    sync.Cond // open has become zero, or nobody is alone any more
	next    uint64
	writing []uint64       // timestamps of commits in flight
	reading map[uint64]int // timestamps of open snapshots, and how many
	open    int            // commits and snapshots, and whoever is alone
	closed  bool
	isAlone bool        // those that begin wait
	holds   bool        // new commits wait, see hold
	turns   []chan bool // of those who want to be alone; false says that the oracle was closed
	commits int         // since discard was called
}

// writer is what the oracle knows of one partition, or of the engine's own keys.
// Whoever writes holds the lock beside it, so there is one commit at a time.
type writer struct {
	ts uint64 // of the commit in flight, or zero; guarded by oracle.mu
	tx tx     // of the last commit: its room is used again
}

func newOracle(last uint64, discard func(uint64)) *oracle {
	o := &oracle{discard: discard, next: last + 1, reading: make(map[uint64]int)}
	o.idle.L = &o.mu
	discard(last)
	return o
}

// begin returns the timestamp of a new commit of w. Call end after it. closing is
// for the last commits, after close.
func (o *oracle) begin(w *writer, closing bool) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Before closed is looked at: whoever was alone may have closed the oracle, because Badger could not be
	// opened again.
	o.enterLocked()
	for o.holds {
		o.idle.Wait()
		o.enterLocked()
	}
	if o.closed && !closing {
		return 0, ErrClosed
	}
	ts := o.next
	o.next++
	o.open++
	w.ts = ts
	o.writing = append(o.writing, ts)
	return ts, nil
}

// end makes the commit of w visible.
func (o *oracle) end(w *writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.writing, w.ts)
	o.writing = slices.Delete(o.writing, i, i+1)
	w.ts = 0
	// Not at each commit: Badger takes a lock for it, and to find the lowest goes through all that is open.
	// An old version that stays for some commits more costs a little space.
	if o.commits++; o.commits >= discardEvery {
		o.commits = 0
		o.discard(o.lowestLocked())
	}
	o.doneLocked()
}

// hold keeps new commits waiting while f runs.
func (o *oracle) hold(f func() error) error {
	o.mu.Lock()
	o.holds = true
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holds = false
		o.idle.Broadcast()
	}()
	return f()
}

// read returns the timestamp at which a new snapshot of w's keys reads. Call
// release after it.
func (o *oracle) read(w *writer) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.enterLocked()
	if o.closed {
		return 0, ErrClosed
	}
	// Commits of others that are in flight may lie below it. It does not see them, for their keys are not its own:
	//
	//	next is 9, a is being written at 5, b at 7
	//	a snapshot of a reads at 4, one of b at 6, one of c at 8
	//
	// All that c has was written before, and what it will have gets 9 or more.
	ts := o.next - 1
	if w.ts != 0 {
		ts = w.ts - 1
	}
	o.reading[ts]++
	o.open++
	return ts, nil
}

// release ends a snapshot that read at ts.
func (o *oracle) release(ts uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reading[ts]--; o.reading[ts] == 0 {
		delete(o.reading, ts)
	}
	o.doneLocked()
}

// close refuses new commits and snapshots and waits for the open ones.
func (o *oracle) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuseLocked()
	for o.open > 0 {
		o.idle.Wait()
	}
}

func (o *oracle) doneLocked() {
	if o.open--; o.open == 0 {
		o.turnLocked()
		o.idle.Broadcast()
	}
}

// isClosed tells whether new commits and snapshots are refused.
func (o *oracle) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// refuse is close for who is alone, and waits for nobody.
func (o *oracle) refuse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuseLocked()
}

func (o *oracle) refuseLocked() {
	o.closed = true
	for _, turn := range o.turns {
		turn <- false
	}
	o.turns = nil
}

// alone runs f when no commit and no snapshot is open; those that come meanwhile wait. Who waits
// for such a moment hinders nobody: a commit may need a snapshot, and would never end if it
// could not have one. So the moment must come by itself, and the error is errNotAdopted if it
// does not in time.
func (o *oracle) alone(within time.Duration, f func() error) error {
	// With room for one: turnLocked and refuseLocked send under mu, and must not wait for a reader that is
	// at its timer.
	turn := make(chan bool, 1)
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return ErrClosed
	}
	o.turns = append(o.turns, turn)
	if o.open == 0 {
		o.turnLocked()
	}
	o.mu.Unlock()

	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case ok := <-turn:
		if !ok {
			return ErrClosed
		}
	case <-late.C:
		o.mu.Lock()
		i := slices.Index(o.turns, turn)
		if i >= 0 {
			o.turns = slices.Delete(o.turns, i, i+1)
		}
		o.mu.Unlock()
		if i >= 0 {
			return errNotAdopted
		}
		// Whoever is not in turns any more was told. The turn has to be taken: isAlone is set, and would keep
		// everybody waiting for ever.
		if ok := <-turn; !ok { // it came meanwhile
			return ErrClosed
		}
	}
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.discard(o.next - 1) // nothing is open, and who discards has forgotten it
		o.isAlone = false
		// Those who wait go on when mu is free. If doneLocked lets the next one be alone, they find isAlone set
		// again: loads that wait behind each other are handed over in a row.
		o.idle.Broadcast()
		o.doneLocked()
	}()
	return f()
}

// isAwaited tells whether somebody waits to be alone.
func (o *oracle) isAwaited() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.turns) > 0
}

// turnLocked lets the first who wants to be alone be so. Nothing is open.
func (o *oracle) turnLocked() {
	if len(o.turns) == 0 {
		return
	}
	o.turns[0] <- true
	o.turns = slices.Delete(o.turns, 0, 1)
	o.isAlone = true
	o.open++
}

// enterLocked waits while somebody is alone.
func (o *oracle) enterLocked() {
	for o.isAlone {
		o.idle.Wait()
	}
}

// lowest is lowestLocked.
func (o *oracle) lowest() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lowestLocked()
}

// lowestLocked returns the highest timestamp at or below which every key needs
// only its newest version: no snapshot is open below it, and none will be.
func (o *oracle) lowestLocked() uint64 {
	// The next snapshot of a partition that is being written reads below that commit, so what is there now
	// has to stay:
	//
	//	next is 9, a is being written at 5, an open snapshot reads at 6
	//	lowest is 4: a's next snapshot needs the newest versions at or below 4
	lowest := o.next - 1
	for _, ts := range o.writing {
		lowest = min(lowest, ts-1)
	}
	for ts := range o.reading {
		lowest = min(lowest, ts)
	}
	return lowest
}

// last returns the newest timestamp that was given out.
func (o *oracle) last() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next - 1
}
