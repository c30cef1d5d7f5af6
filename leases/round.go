package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// slowTime is how long a member gets no leases after it did not take a free one.
const slowTime = 30 * time.Second

// balanceRound asks Balance what this process should do, and does it.
func (l *loop) balanceRound(runCtx context.Context) {
	now := l.clock()
	live := l.view.live(now)
	leases := l.assessWanted(live, now)
	members := l.members(live, true, now)
	l.group.Store(&Group{
		Nodes: l.nodes(live), Drains: maps.Clone(l.view.drains), Leases: leases, Warm: warmOf(live), Next: l.next, members: members,
	})
	decision := Balance(l.Holder(), members, leases)
	// A member that was just marked gets nothing in a second plan, so that its leases do not
	// wait for the next round. Marking after that plan marks nobody: the members named now
	// have only begun to wait.
	if l.markSlow(decision.Plan, live, now) {
		decision = Balance(l.Holder(), l.members(live, true, now), leases)
		l.markSlow(decision.Plan, live, now)
	}
	for _, resource := range decision.Take {
		l.startTaking(runCtx, resource, "free")
	}
	for _, lease := range leases {
		vacancy, free := l.vacant[lease.Resource]
		switch {
		case !free && lease.Owner == l.Holder():
			// An earlier incarnation's lease, or one whose taking or releasing got no
			// reply. Nobody else may take it before it expires.
			l.startTaking(runCtx, lease.Resource, "reclaimed")
		case free && now-vacancy.since > l.cfg.takeInterval()+vacancy.patience:
			// The member in the plan did not take it, nor did who was named in its place.
			l.startTaking(runCtx, lease.Resource, "free")
		}
	}
	// Leases are given up less often than taken: a lease that moves must open elsewhere,
	// while a free one serves nobody. A node that drains goes on as soon as something has moved.
	if now < l.balance && !l.drains() {
		return
	}
	l.balance = now + l.cfg.BalanceInterval
	moves := Balance(l.Holder(), l.members(live, false, now), leases)
	l.noteNext(moves.Next, live, now)
	l.giveUp(moves.GiveUp, leases)
}

// nodes returns the nodes of the members that live, in order.
func (l *loop) nodes(live map[string]*memberRecord) []string {
	nodes := slices.Collect(maps.Keys(live))
	if live[l.cfg.Node] == nil { // its own beat was not delivered yet
		nodes = append(nodes, l.cfg.Node)
	}
	slices.Sort(nodes)
	return nodes
}

// warmOf returns what the members are warm for.
func warmOf(live map[string]*memberRecord) map[string]map[string]uint64 {
	warm := make(map[string]map[string]uint64)
	for node, rec := range live {
		if len(rec.Warm) > 0 {
			warm[node] = rec.Warm
		}
	}
	return warm
}

// assessWanted returns the wanted leases for Balance, and records in l.vacant which are free.
// While this process cannot reach the bucket, and for a moment longer, the waiting time of
// free leases begins again: after an outage each node gets the chance to take what it had.
func (l *loop) assessWanted(live map[string]*memberRecord, now time.Duration) []Lease {
	wanted := l.wanted()
	vacant, copied := make(map[string]vacancy), l.copiedNow()
	leases := make([]Lease, 0, len(wanted))
	for _, resource := range wanted {
		if l.view.free(resource, now) {
			v, known := l.vacant[resource]
			if !known || !l.canJudge(now) {
				v = vacancy{since: now}
			}
			vacant[resource] = v
		}
		lease := Lease{Resource: resource, Owner: l.view.owner(resource, live, now), Copied: copied[resource]}
		if seen := l.view.leases[resource]; seen != nil && seen.rec != nil {
			lease.Weight = seen.rec.weight()
			lease.Last = seen.rec.Last
			lease.User, lease.Bound = seen.rec.lastUse().Node, seen.rec.Bound
			if seen.rec.Owner != "" {
				lease.Last = seen.rec.Owner
			}
		}
		leases = append(leases, lease)
	}
	l.vacant = vacant
	return leases
}

// members returns the live members for Balance. A member that knows another set of resources
// is closed, unless strangers are welcome: then it gets time to learn of a new resource and
// to take its share. A member that has missed a beat, or did not take a free lease, is
// closed too.
func (l *loop) members(live map[string]*memberRecord, strangers bool, now time.Duration) []Member {
	members := make([]Member, 0, len(live)+1)
	self := Member{Holder: l.Holder(), Declines: l.declined(), Closed: l.isUnseated(), Drains: l.drains(), Fails: l.failsOf(l.cfg.Node, now)}
	// As the others see it, so that all come to one plan.
	if rec := live[l.cfg.Node]; rec != nil {
		self.Warm = rec.Warm
	}
	members = append(members, self)
	for node, rec := range live {
		if node == l.cfg.Node {
			continue
		}
		_, slow := l.slow[node]
		// Silent for half a lifetime. It may be alive; but a lease that is planned for it would
		// stay free until it is known to be dead.
		late := l.canJudge(now) && now-l.view.members[node].since > rec.ttl()/2
		members = append(members, Member{
			Holder:   rec.holder(),
			Closed:   rec.Closed && !rec.Drains || slow || late || !strangers && rec.Resources != l.digest,
			Drains:   rec.Drains,
			Declines: rec.Declines,
			Warm:     rec.Warm,
			Fails:    l.failsOf(node, now),
		})
	}
	return members
}

// markSlow records which member the plan names for each free lease, and marks members that have
// been named for longer than they are waited for. It reports whether it marked any.
func (l *loop) markSlow(plan map[string]string, live map[string]*memberRecord, now time.Duration) bool {
	marked := false
	for resource, v := range l.vacant {
		holder := plan[resource]
		if holder != v.holder {
			v.holder, v.named = holder, now
		}
		patience := l.patience(live, holder, resource)
		v.patience = max(v.patience, patience)
		l.vacant[resource] = v
		if holder != "" && holder != l.Holder() && now-v.named > patience {
			l.slow[NodeOf(holder)] = now + slowTime
			marked = true
		}
	}
	return marked
}

// patience is how long a free lease waits for the member that the plan names.
func (l *loop) patience(live map[string]*memberRecord, holder, resource string) time.Duration {
	if rec := live[NodeOf(holder)]; rec != nil {
		if _, warm := rec.Warm[resource]; warm {
			return l.cfg.warmInterval()
		}
	}
	return l.cfg.takeInterval()
}

// startTaking begins to take a lease, unless this process is taking, holding or releasing it,
// pauses it, takes nothing for now, or is taking TakeMax others. The event takeEnded tells the outcome.
func (l *loop) startTaking(runCtx context.Context, resource, how string) {
	now, s := l.clock(), l.rights.now()
	if l.quiet(now) || l.rights != nil && s == nil || l.local[resource] != nil || l.pauses[resource].until > now || l.taking() >= l.cfg.TakeMax {
		return
	}
	w := writer{
		store: l.store, clock: l.clock, number: func() uint64 { return l.writes.Add(1) },
		tryMax: l.cfg.RenewInterval / 2, holder: l.Holder(), key: leaseKey(l.cfg.Group, resource),
	}
	if seen := l.view.leases[resource]; seen != nil {
		if seen.rec == nil {
			return // of a later release, or damaged: whoever can read it takes it
		}
		w.rec, w.revision = *seen.rec, seen.revision
		switch {
		case how != "free" || seen.rec.Owner == "":
		case l.view.isFallen(NodeOf(seen.rec.Owner), seen.rec.Right):
			how = "deposed"
		case now-seen.since < seen.rec.ttl():
			how = "gone"
		default:
			how = "expired"
		}
	}
	previous := w.rec.Owner
	if previous == "" {
		previous = w.rec.Last
	}
	// The view remembers epochs of deleted records, so that the next one is not lower.
	epoch := max(l.view.epochs[resource], w.rec.Epoch) + 1
	before := w.rec.usedBefore(epoch)
	weight := roundWeight(l.weightOf(resource))
	acquired := time.Now().UnixMilli()
	seenRevision := w.revision // w goes on from it
	waits := settling{due: w.rec.Waits || how == "deposed", lifetime: w.rec.ttl()}
	l.local[resource] = new(local)
	l.setMine(resource, true)
	l.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(runCtx, l.cfg.RenewInterval)
		defer cancel()
		start, err := w.put(ctx, func(r *leaseRecord) {
			r.Resource, r.Owner, r.Last, r.Host, r.Epoch = resource, l.Holder(), previous, l.cfg.Host, epoch
			r.TTL, r.Acquired, r.Progress = l.cfg.TTL.Milliseconds(), acquired, acquired
			// As it was, until the work says that it uses the lease: it may die before, or the reply to this
			// write may be lost and the lease taken once more.
			r.Used = &before
			r.Right, r.Waits = s.incarnation(), waits.due
			if r.Weight == 0 {
				r.Weight = weight
			}
		})
		ended := takeEnded{resource: resource, how: how, revision: seenRevision, err: err}
		if err == nil {
			ended.held = newHeld(runCtx, l.Manager, s, resource, before, w, start)
			ended.held.settling = waits
		}
		l.send(ended)
	})
}

func (l *loop) taking() int {
	n := 0
	for _, task := range l.local {
		if task.held == nil {
			n++
		}
	}
	return n
}

// takeEnded starts the work under a lease that was taken.
func (l *loop) takeEnded(runCtx context.Context, e takeEnded) {
	now := l.clock()
	l.dirty = true
	if e.held == nil {
		delete(l.local, e.resource)
		l.setMine(e.resource, false)
		l.pauses[e.resource] = pausedFor{until: now + l.cfg.takeInterval()}
		l.log.Debug("lease not taken", "resource", e.resource, "error", e.err)
		l.noteRefusal(e, now)
		return
	}
	l.local[e.resource].held = e.held
	l.view.stored(e.held.w.rec, e.held.w.revision, now)
	if l.snapshot != nil { // which may be from before it, and replaces the view
		l.snapshot.stored(e.held.w.rec, e.held.w.revision, now)
	}
	meters.took(runCtx, l.cfg.Group, e.how)
	l.log.Info("lease taken", "resource", e.resource, "epoch", e.held.epoch, "how", e.how, "from", e.held.w.rec.Last)
	_, wanted := slices.BinarySearch(l.wanted(), e.resource)
	switch {
	case e.held.deposed(): // since it was begun
		e.held.endTrust(ErrLost)
	case l.draining:
		e.held.endWork(ErrDraining)
	case !wanted:
		e.held.endWork(ErrWithdrawn)
	}
	go l.runWork(runCtx, e.held) // not in tasks: the drain does not wait for it beyond its deadline
}

// runWork does the work under a lease while it is renewed, and releases it.
//
//nolint:contextcheck // the work's scope is the Held
func (l *loop) runWork(runCtx context.Context, h *Held) {
	keepCtx, stop := context.WithCancel(h.trust)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		h.renewLoop(keepCtx)
	}()
	var err error
	if h.ctx.Err() == nil {
		err = l.work(h.ctx, h)
	}
	cause := context.Cause(h.ctx)
	stop()
	<-kept
	switch {
	case errors.Is(cause, ErrStalled):
		err = fmt.Errorf("%w for %v", ErrStalled, l.cfg.StallTimeout)
	case cause != nil:
		err = nil // it was told to end
	}
	h.endTrust(ErrLost) // before the record says that the lease is free
	ctx, cancel := context.WithTimeout(runCtx, l.cfg.RenewInterval)
	defer cancel()
	attempts, releaseErr := h.release(ctx, err)
	if releaseErr != nil {
		l.log.Warn("lease not released; it expires", "resource", h.resource, "epoch", h.epoch, "error", releaseErr)
	}
	// The fence was another holder's, and did what it is for: no epoch was lost.
	if _, behind := errors.AsType[*EpochBehindError](err); behind && h.isTaken() {
		cause, err = ErrLost, nil
	}
	l.send(workEnded{resource: h.resource, held: h, cause: cause, err: err, attempts: attempts})
}

// workEnded drops a lease whose work has ended, and decides when this process may take it
// again: after an error the pause grows, and after a return without one it is short; a lease
// that was lost or asked for has no pause.
func (l *loop) workEnded(runCtx context.Context, e workEnded) {
	now := l.clock()
	l.dirty = true
	delete(l.local, e.resource)
	l.setMine(e.resource, false)
	meters.gave(runCtx, l.cfg.Group, endName(e.cause, e.err))
	attrs := []any{"resource", e.resource, "epoch", e.held.epoch, "cause", e.cause}
	switch {
	case e.err != nil:
		pause := l.cfg.RetryBackoff
		for range min(e.attempts, 30) - 1 {
			pause = min(pause*2, l.cfg.RetryBackoffMax)
		}
		l.pauses[e.resource] = pausedFor{until: now + jitter(pause), decline: true}
		l.log.Error("work under a lease failed", append(attrs, "error", e.err, "retryAfter", pause)...)
	case e.cause == nil:
		l.pauses[e.resource] = pausedFor{until: now + l.cfg.RetryBackoff, decline: true}
		l.log.Info("work under a lease returned", attrs...)
	case errors.Is(e.cause, ErrLost):
		l.log.Warn("lease lost", attrs...)
	default:
		l.log.Info("lease released", attrs...)
	}
	l.publish()
}

func endName(cause, err error) string {
	if cause == nil && err != nil {
		return "failed"
	}
	return causeName(cause)
}
