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
)

// eventsMax bounds the events that wait for the loop.
const eventsMax = 256

// loop is one Run of a Manager. Its fields belong to the goroutine of run,
// except where noted; others speak to it through events.
type loop struct {
	*Manager
	work Work

	done   <-chan struct{} // closed when run returns
	events chan any
	kick   chan struct{} // holds a token: make the watch anew
	tasks  sync.WaitGroup

	view   *view
	fresh  *view                    // the snapshot being delivered, or nil
	local  map[string]*local        // resources with something going on here
	pauses map[string]pausedFor     // resources that this process does not take for now
	vacant map[string]vacancy       // wanted resources that are free
	slow   map[string]time.Duration // nodes that let a free lease lie, and until when that counts
	digest uint64

	dirty    bool          // a round is due
	balance  time.Duration // when leases are next given up
	beatSeen time.Duration // when the watch last showed this process's own beat, or was made
	reached  time.Duration // since when the bucket takes this process's beats
	draining bool
}

// local is a resource that this process is taking, holds or releases.
type local struct {
	held *Held // nil while taking
}

// pausedFor tells until when a resource is not taken, and whether the group is
// told.
type pausedFor struct {
	until   time.Duration
	decline bool
}

// vacancy is a free lease: since when it is seen to be free, and whom the plan
// wants to take it since when.
type vacancy struct {
	since  time.Duration
	holder string
	named  time.Duration
}

// Events of the loop beside updates of the watch.
type (
	watchStarted struct{}
	takeEnded    struct {
		resource string
		how      string
		held     *Held // nil: not taken
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
)

func newLoop(m *Manager, work Work) *loop {
	return &loop{
		Manager: m, work: work,
		events: make(chan any, eventsMax), kick: make(chan struct{}, 1),
		view: newView(m.cfg.Group), local: make(map[string]*local),
		pauses: make(map[string]pausedFor), slow: make(map[string]time.Duration),
		vacant: make(map[string]vacancy),
	}
}

// run takes and gives until ctx ends, and drains.
func (l *loop) run(ctx context.Context) error {
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
	l.log.Info("lease manager running", "ttl", l.cfg.TTL)

	l.reached = l.clock()
	l.resourcesChanged()
	err := errors.Join(l.turn(ctx, runCtx), l.drain(runCtx))
	stopBeat()
	<-beaten
	if !errors.Is(err, ErrSuperseded) {
		leaveCtx, left := context.WithTimeout(runCtx, l.cfg.RenewInterval)
		if err := l.beat.leave(leaveCtx); err != nil {
			l.log.Debug("member not removed", "error", err)
		}
		left()
	}
	cancel()
	l.tasks.Wait()
	return err
}

// turn handles events until ctx ends, or until this process is superseded; then
// every lease is lost. What it starts belongs to runCtx.
func (l *loop) turn(ctx, runCtx context.Context) error {
	ticker := time.NewTicker(l.tick())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-l.events:
			if gone, ok := event.(superseded); ok {
				l.abandon()
				return gone.err
			}
			l.handle(runCtx, event)
		case <-l.changed:
			l.resourcesChanged()
		case <-ticker.C:
			l.look(runCtx)
		}
		// A burst of events costs one round.
		if l.dirty && l.view.ready && len(l.events) == 0 {
			l.dirty = false
			l.round(runCtx)
		}
	}
}

// tick is the time between two looks at the clock.
func (l *loop) tick() time.Duration {
	return max(min(l.cfg.RenewInterval/8, 250*time.Millisecond), time.Millisecond)
}

// drain ends all work and waits until it is released.
func (l *loop) drain(runCtx context.Context) error {
	l.draining = true
	l.publish()
	for _, task := range l.local {
		if task.held != nil {
			task.held.end(ErrDraining)
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
				l.abandon()
				continue
			}
			l.handle(runCtx, event)
		case <-ticker.C:
			l.guard()
		}
	}
	if len(l.local) == 0 {
		return err
	}
	l.abandon()
	names := slices.Sorted(maps.Keys(l.local))
	return errors.Join(err, fmt.Errorf("%w: %s", ErrDrainTimeout, strings.Join(names, ", ")))
}

// abandon ends the trust in all leases; their records are left to expire or to
// whoever has them.
func (l *loop) abandon() {
	for _, task := range l.local {
		if task.held != nil {
			task.held.lose()
		}
	}
}

// send hands an event to the loop; it is dropped when run has returned.
func (l *loop) send(event any) {
	select {
	case l.events <- event:
	case <-l.done:
	}
}

// handle takes in one event.
func (l *loop) handle(runCtx context.Context, event any) {
	switch e := event.(type) {
	case watchStarted:
		l.fresh, l.beatSeen = newView(l.cfg.Group), l.clock()
	case update:
		l.updated(e)
	case takeEnded:
		l.takeEnded(runCtx, e)
	case workEnded:
		l.workEnded(runCtx, e)
	default:
		panic(fmt.Sprintf("leases: event %T", event))
	}
}

// updated takes in what the watch delivered.
func (l *loop) updated(u update) {
	now := l.clock()
	if u.Ready {
		l.view.replace(l.fresh, l.cfg.Node, now)
		l.fresh, l.dirty = nil, true
		for resource := range l.local {
			l.compare(resource)
		}
		l.publish()
		return
	}
	v := l.view
	if l.fresh != nil {
		v = l.fresh
	}
	resource, node, changed, err := v.apply(u.entry, now)
	if err != nil && changed {
		l.log.Error("lease record cannot be read; it is left alone", "key", u.Key, "error", err)
	}
	if node == l.cfg.Node {
		l.beatSeen = now
		if m := v.members[node]; l.fresh == nil && m != nil && m.rec != nil && m.rec.Incarnation != l.incarnation {
			l.beat.wake() // it will find out whether this process is superseded
		}
	}
	if !changed || l.fresh != nil {
		return
	}
	l.dirty = true
	delete(l.slow, node)
	if seen := v.leases[resource]; seen != nil && seen.rec != nil {
		delete(l.slow, nodeOf(seen.rec.Owner))
	}
	l.compare(resource)
}

// compare ends trust in a held lease whose record has become another's.
func (l *loop) compare(resource string) {
	task, seen := l.local[resource], l.view.leases[resource]
	if task == nil || task.held == nil || seen == nil || seen.rec == nil {
		return
	}
	if seen.rec.Epoch > task.held.epoch {
		task.held.lose()
	}
}

func (l *loop) resourcesChanged() {
	wanted := l.wanted()
	l.digest = digest(wanted)
	for resource, task := range l.local {
		if _, found := slices.BinarySearch(wanted, resource); !found && task.held != nil {
			task.held.end(ErrWithdrawn)
		}
	}
	l.dirty = true
	l.publish()
}

// look does what is due by the clock.
func (l *loop) look(runCtx context.Context) {
	now := l.clock()
	l.guard()
	if _, at := l.beat.lastLanded(); now-at > l.cfg.RenewInterval*3/2 {
		l.reached = now
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
		l.sweep(runCtx, now)
	}
	l.publish()
	l.watchdog(now)
}

// canJudge reports whether the bucket has been in reach for long enough to judge
// others by their silence.
func (l *loop) canJudge(now time.Duration) bool { return now-l.reached >= 2*l.cfg.RenewInterval }

// guard looks after the leases that are held.
func (l *loop) guard() {
	for _, task := range l.local {
		if task.held != nil {
			task.held.check()
		}
	}
}

// publish tells the group what this process takes.
func (l *loop) publish() {
	l.beat.set(l.draining || !l.view.ready, l.digest, l.declined())
}

// declined returns the resources that this process does not take for now: work
// under them failed a moment ago, or lost its lease and has not returned yet.
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

// sweep deletes the record of a member that is gone and will not come back
// under its name.
func (l *loop) sweep(runCtx context.Context, now time.Duration) {
	for node, m := range l.view.members {
		if m.rec == nil || m.rec.Locked || now-m.since < 10*m.rec.ttl() {
			continue
		}
		delete(l.view.members, node)
		l.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(runCtx, l.cfg.RenewInterval)
			defer cancel()
			if err := l.store.Delete(ctx, memberKey(l.cfg.Group, node), m.revision); err != nil {
				l.log.Debug("dead member not removed", "member", m.rec.holder(), "error", err)
			}
		})
		return
	}
}
