package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/leases/bucket"

	"github.com/millrace/millrace/leases/right"
)

// eventsMax bounds the events that wait for the loop.
const eventsMax = 256

// loop is one Run of a Manager. Other goroutines communicate with it through events.
type loop struct {
	*Manager
	work Work

	// Used by all goroutines of the run.
	done      <-chan struct{} // closed when run returns
	endRights func()          // ends the renewal of the right
	events    chan any
	rewatch   chan struct{} // holds a token: open a new watch
	tasks     sync.WaitGroup

	// All that follows belongs to the goroutine of run.
	view     *view
	snapshot *view                    // the snapshot being delivered, or nil
	local    map[string]*local        // resources that this process is taking, holds or releases
	pauses   map[string]pausedFor     // resources that this process does not take for now
	vacant   map[string]vacancy       // wanted resources that are free
	slow     map[string]time.Duration // nodes that did not take a free lease, and until when they get none
	refused  map[string]refusal       // resources whose taking was refused since the watch was made
	digest   uint64

	dirty          bool          // a round is due
	balance        time.Duration // when leases are next given up
	beatSeen       time.Duration // when the watch last showed this process's own beat, or was made
	reachableSince time.Duration // since when the bucket takes this process's beats
	beatRevision   uint64        // of the last beat of this process that is known to be stored
	asking         int           // questions to the leader whether the bucket went back
	askingUntil    time.Duration // until when nothing is taken while the answer is waited for
	quietUntil     time.Duration // until when nothing is taken, because the bucket went back
	draining       bool
	drained        bool                     // the log says that the node drains
	given          map[string]time.Duration // what was given up because the node drains, and when; see onTheWay
	next           map[string]string        // what others are to become warm for, by the last plan of moves, by resource
	moves          map[string]nextMove      // the same, and how long nothing was heard of it
	fails          map[fails]time.Duration  // who does not become warm for what, and until when it is passed over

	probing   bool            // questions to neighbors are under way
	nextProbe time.Duration   // when the next are due
	deposing  map[string]bool // nodes that this process is about to depose
	missed    map[string]int  // how often in a row a neighbor was absent, by holder
	answered  map[string]bool // which neighbors have answered since they were asked first, or were declared gone
}

// local is a resource that this process is taking, holds, or releases.
type local struct {
	held *Held // nil while taking
}

// pausedFor is a time during which this process does not take a resource. decline says that
// the group is told.
type pausedFor struct {
	until   time.Duration
	decline bool
}

// vacancy is a free lease.
type vacancy struct {
	since  time.Duration // since when this process sees it free
	holder string        // the member that is to take it by the present plan
	named  time.Duration // since when it is that member

	patience time.Duration // the longest that a member which was named is waited for
}

// Events of the loop beside updates of the watch.
type (
	watchStarted struct{}
	takeEnded    struct {
		resource string
		how      string
		revision uint64 // that the view had
		held     *Held  // nil: not taken
		err      error
	}
	workEnded struct {
		resource string
		held     *Held
		cause    error // why its context had ended
		err      error
		attempts int
	}
	superseded struct{ err error }
	due        struct{}            // something is, earlier than the next tick shows
	backAsked  struct{ back bool } // whether the bucket went back
)

func newLoop(m *Manager, work Work) *loop {
	return &loop{
		Manager: m, work: work,
		events: make(chan any, eventsMax), rewatch: make(chan struct{}, 1),
		view: newView(m.cfg.Group, m.cfg.Fenced), local: make(map[string]*local),
		pauses: make(map[string]pausedFor), slow: make(map[string]time.Duration),
		vacant: make(map[string]vacancy), refused: make(map[string]refusal), deposing: make(map[string]bool),
		given: make(map[string]time.Duration), fails: make(map[fails]time.Duration),
	}
}

// run takes leases and gives them up until ctx ends, and then drains.
func (l *loop) run(ctx context.Context) error {
	// runCtx outlives ctx, because leases are renewed and released during the drain.
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	l.done = runCtx.Done()
	beatCtx, stopBeat := context.WithCancel(runCtx)
	defer stopBeat()
	beaten := make(chan struct{})
	l.tasks.Go(func() { l.watch(runCtx) })
	l.tasks.Go(func() {
		err := l.beat.run(beatCtx)
		close(beaten)
		if err != nil {
			l.send(superseded{err})
		}
	})
	rightsCtx, endRights := context.WithCancel(runCtx)
	defer endRights()
	l.endRights = endRights
	if l.rights != nil {
		l.tasks.Go(func() { l.runRights(rightsCtx) })
	}
	l.log.Info("lease manager running", "ttl", l.cfg.TTL)

	l.reachableSince = l.clock()
	l.resourcesChanged()
	err := errors.Join(l.handleEvents(ctx, runCtx), l.drain(runCtx))
	stopBeat()
	<-beaten
	// After the beats have stopped, which would bring the record back. A superseded process
	// leaves it alone: it is its successor's.
	if !errors.Is(err, ErrSuperseded) {
		leaveCtx, left := context.WithTimeout(runCtx, l.cfg.RenewInterval)
		if err := l.beat.leave(leaveCtx); err != nil {
			l.log.Debug("member not removed", "error", err)
		}
		l.forgetDrain(leaveCtx)
		l.closeRights(leaveCtx)
		left()
	}
	l.stopAnswering()
	cancel()
	l.tasks.Wait()
	return err
}

// handleEvents handles events until ctx ends, or until this process is superseded, when every
// lease is lost. Goroutines that it starts live until runCtx ends.
func (l *loop) handleEvents(ctx, runCtx context.Context) error {
	ticker := time.NewTicker(l.tick())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-l.events:
			if gone, ok := event.(superseded); ok {
				l.endRights() // the key is the later process's
				l.abandonAll()
				return gone.err
			}
			l.handle(runCtx, event)
		case <-l.changed:
			l.resourcesChanged()
		case <-ticker.C:
			l.doDue(runCtx)
		}
		// A burst of events costs one round. Without a whole view there is nothing to decide
		// on: every lease that was not delivered yet would look free.
		if l.dirty && l.view.ready && len(l.events) == 0 {
			l.dirty = false
			l.balanceRound(runCtx)
		}
	}
}

// tick is the time between two readings of the clock.
func (l *loop) tick() time.Duration {
	return max(min(l.cfg.RenewInterval/8, 250*time.Millisecond), time.Millisecond)
}

// drain ends all work and waits until it is released.
func (l *loop) drain(runCtx context.Context) error {
	l.draining = true
	l.publish()
	for _, task := range l.local {
		if task.held != nil {
			task.held.endWork(ErrDraining)
		}
	}
	ticker := time.NewTicker(l.tick())
	defer ticker.Stop()
	// Work that ends at the very end of DrainTimeout is still released.
	deadline := l.clock() + l.cfg.DrainTimeout + l.cfg.RenewInterval
	var err error
	for len(l.local) > 0 && l.clock() < deadline {
		select {
		case event := <-l.events:
			if gone, ok := event.(superseded); ok {
				err = gone.err
				l.abandonAll()
				continue
			}
			l.handle(runCtx, event)
		case <-ticker.C:
			l.checkHeld()
		}
	}
	if len(l.local) == 0 {
		return err
	}
	l.abandonAll()
	names := slices.Sorted(maps.Keys(l.local))
	return errors.Join(err, fmt.Errorf("%w: %s", ErrDrainTimeout, strings.Join(names, ", ")))
}

// abandonAll ends the trust in all leases. It leaves their records alone: they expire, or
// another process has them.
func (l *loop) abandonAll() {
	for _, task := range l.local {
		if task.held != nil {
			task.held.loseToOther()
		}
	}
}

// send gives an event to the loop, and drops it if run has returned.
func (l *loop) send(event any) {
	select {
	case l.events <- event:
	case <-l.done:
	}
}

// handle handles one event.
func (l *loop) handle(runCtx context.Context, event any) {
	switch e := event.(type) {
	case watchStarted:
		l.snapshot, l.beatSeen = newView(l.cfg.Group, l.cfg.Fenced), l.clock()
		clear(l.refused)
	case bucket.Update:
		l.applyUpdate(runCtx, e)
	case backAsked:
		l.asking--
		l.dirty = true
		if e.back {
			l.wentBack(l.clock())
		}
	case takeEnded:
		l.takeEnded(runCtx, e)
	case workEnded:
		l.workEnded(runCtx, e)
	case due:
		l.doDue(runCtx)
	case probed:
		l.probed(runCtx, e)
	case deposed:
		l.deposed(e)
	case keysChanged:
		l.keysChanged()
	case deposeEnded:
		delete(l.deposing, e.node)
	default:
		panic(fmt.Sprintf("leases: event %T", event))
	}
}

// applyUpdate applies what the watch delivered. While a watch delivers its first entries they
// go to a snapshot of their own, which replaces the view when it is whole: so records that
// were deleted while no watch was open do not stay in the view.
func (l *loop) applyUpdate(runCtx context.Context, u bucket.Update) {
	now := l.clock()
	if u.Ready {
		l.askIfBack(runCtx)
		l.view.replace(l.snapshot, l.cfg.Node, now)
		l.snapshot, l.dirty = nil, true
		for node, m := range l.view.members {
			l.noteGone(runCtx, node, m)
		}
		for resource := range l.local {
			l.endIfTaken(resource)
		}
		l.publish()
		return
	}
	v := l.view
	if l.snapshot != nil {
		v = l.snapshot
	}
	resource, node, changed, err := v.apply(u.Entry, now)
	if err != nil && changed {
		l.log.Error("lease record cannot be read; it is left alone", "key", u.Key, "error", err)
	}
	if node == l.cfg.Node {
		l.beatSeen = now
	}
	if node != "" && l.snapshot == nil {
		l.noteGone(runCtx, node, v.members[node])
	}
	if !changed || l.snapshot != nil {
		return
	}
	// Something changed for this node, or a node took a lease: it is not idle.
	l.dirty = true
	delete(l.slow, node)
	if seen := v.leases[resource]; seen != nil && seen.rec != nil {
		delete(l.slow, NodeOf(seen.rec.Owner))
	}
	l.endIfTaken(resource)
}

// endIfTaken ends the trust in a held lease whose record another process has written. Only a
// greater epoch counts: the watch may still show records from before this holding.
func (l *loop) endIfTaken(resource string) {
	task, seen := l.local[resource], l.view.leases[resource]
	if task == nil || task.held == nil || seen == nil || seen.rec == nil {
		return
	}
	if seen.rec.Epoch > task.held.epoch {
		task.held.loseToOther()
	}
}

func (l *loop) resourcesChanged() {
	wanted := l.wanted()
	l.digest = digest(wanted)
	for resource, task := range l.local {
		if _, found := slices.BinarySearch(wanted, resource); !found && task.held != nil {
			task.held.endWork(ErrWithdrawn)
		}
	}
	l.dirty = true
	l.publish()
}

// doDue does what is due by the clock.
func (l *loop) doDue(runCtx context.Context) {
	now := l.clock()
	l.checkHeld()
	// This process's own beats are not stored, so it cannot reach the bucket, and knows nothing
	// of the others.
	if _, at := l.beat.lastStored(); now-at > l.cfg.RenewInterval*3/2 {
		l.reachableSince = max(now, l.quietUntil)
		l.view.restartWaits(now)
	}
	for resource, pause := range l.pauses {
		if now >= pause.until {
			delete(l.pauses, resource)
			l.dirty = true
		}
	}
	for node, until := range l.slow {
		if now >= until {
			delete(l.slow, node)
		}
	}
	for _, resource := range l.wanted() {
		if l.view.free(resource, now) && l.local[resource] == nil {
			l.dirty = true
			break
		}
	}
	if now >= l.balance {
		l.dirty = true
		l.removeDeadMember(runCtx, now)
	}
	l.publish()
	l.probeDue(runCtx, now)
	l.deposeDue(runCtx, now)
	l.watchdog(now)
	l.checkBeatRevision(now)
}

// dueIn has doDue called after a while, and not only at the next tick.
func (l *loop) dueIn(runCtx context.Context, after time.Duration) {
	l.tasks.Go(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
			l.send(due{})
		case <-runCtx.Done():
		}
	})
}

// canJudge reports whether this process has reached the bucket for long enough that the
// silence of another means something.
func (l *loop) canJudge(now time.Duration) bool { return now-l.reachableSince >= 2*l.cfg.RenewInterval }

// checkHeld checks each lease that is held, see Held.checkDue.
func (l *loop) checkHeld() {
	for _, task := range l.local {
		if task.held != nil {
			task.held.checkDue()
		}
	}
}

// publish tells the group which leases this process takes and which it declines.
func (l *loop) publish() {
	closed := l.draining || !l.view.ready || l.isUnseated()
	drains := !closed && l.drains()
	l.noteDrain()
	l.beat.set(closed || drains, drains, l.digest, l.declined())
}

// declined returns the resources that this process does not take for now: the work under them
// failed a moment ago, or it lost its lease and has not returned yet.
func (l *loop) declined() []string {
	var declined []string
	for resource, pause := range l.pauses {
		if pause.decline {
			declined = append(declined, resource)
		}
	}
	for resource, task := range l.local {
		if task.held != nil && task.held.trust.Err() != nil {
			declined = append(declined, resource)
		}
	}
	slices.Sort(declined)
	return slices.Compact(declined)
}

// lockedKept is how long the record of a locked node stays that is silent.
const lockedKept = 24 * time.Hour

// removeDeadMember deletes the record of one member that has been silent for ten lifetimes. That
// of a locked node stays for lockedKept, so that operators see which node is missing; then it goes
// too, because a directory may have been lost with its machine. Whoever lives all the same writes
// its record anew. One at a time, since nothing waits for it.
func (l *loop) removeDeadMember(runCtx context.Context, now time.Duration) {
	own := l.view.members[l.cfg.Node]
	for node, m := range l.view.members {
		if m.rec == nil || now-m.since < 10*m.rec.ttl() {
			continue
		}
		// By the server's dates, because processes that start anew each day see nobody silent for a
		// day. A wrong date removes a record too early, which costs its node one more write.
		if m.rec.Locked && (own == nil || own.created.Sub(m.created) < lockedKept) {
			continue
		}
		delete(l.view.members, node)
		l.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(runCtx, l.cfg.RenewInterval)
			defer cancel()
			if err := l.store.Delete(ctx, memberKey(l.cfg.Group, node), m.revision); err != nil {
				l.log.Debug("dead member not removed", "member", m.rec.holder(), "error", err)
				return
			}
			if m.rec.Right != "" {
				_ = right.Forget(ctx, l.store, l.cfg.Group, node) // one that stays does no harm
			}
		})
		return
	}
}
