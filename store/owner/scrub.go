package owner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/pace"
)

// ScrubConfig tunes the scrub. Zero fields take their defaults.
type ScrubConfig struct {
	// SharePercent is the part of its time in which one process reads the logs of its
	// partitions and the blocks of its engine, one after the other, to find what has
	// changed on disk: it is the share of one processor. Default 2, at most 100.
	SharePercent int `yaml:"sharePercent"`

	// Interval is the least time between the beginnings of two passes. A pass leaves out what
	// one before found whole and nobody has written to since, for 30 times as long. Default 1m.
	Interval time.Duration `yaml:"interval"`
}

const (
	// scrubCommits is how many commits the scrub reads ahead.
	scrubCommits = 64
	// scrubFindingsMax bounds the places of one log that a pass tells of.
	scrubFindingsMax = 100
	// scrubProbesMax bounds the commits behind a place that cannot be read at which
	// the scrub tries to go on.
	scrubProbesMax = 10_000
	// scrubUnchanged is for how many intervals what was whole and has not changed is left
	// alone. Read in every pass, a small store at rest did little else.
	scrubUnchanged = 30
)

// wholeAt is up to where a pass found something whole, and when it did.
type wholeAt struct {
	applied uint64
	ended   time.Time
}

// rests reports whether a pass may leave out what is as it was.
func (w wholeAt) rests(applied uint64, interval time.Duration) bool {
	return w.applied == applied && time.Since(w.ended) < scrubUnchanged*interval
}

// scrubLoop reads the logs of all open partitions and the engine again and again.
func (s *Server) scrubLoop(ctx context.Context) {
	pacer := pace.New(float64(s.cfg.Scrub.SharePercent)/100, func() {})
	next := time.NewTimer(0)
	defer next.Stop()
	var engineWhole wholeAt
	whole := map[*Partition]wholeAt{}
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			all = true
			next.Reset(s.cfg.Scrub.Interval)
		// It alone: all that rests, and the engine, has its turn at the next pass.
		case <-s.opened: // what was opened is read at once
		}
		pacer.Resume()
		// Asked for before it is read. What is written meanwhile makes the next pass read again:
		//
		//	applied is 40, the engine is read, 41 comes and changes a block that was passed
		//	whole at 40: the next pass finds 41, and reads
		//	whole at 41: it would leave that block alone for half an hour
		if applied := s.Applied(); all && !engineWhole.rests(applied, s.cfg.Scrub.Interval) {
			engineWhole = wholeAt{}
			if s.scrubEngine(ctx, pacer) {
				engineWhole = wholeAt{applied, time.Now()}
			}
		}
		// A new map for each pass: partitions that are not open any more are forgotten with the old one.
		seen := map[*Partition]wholeAt{}
		for _, p := range s.partitions() {
			applied := uint64(p.state.Load().lsn)
			if seen[p] = whole[p]; p.closedFor.Load() != nil || p.scrubbed.Load() != nil && (!all || whole[p].rests(applied, s.cfg.Scrub.Interval)) {
				continue
			}
			seen[p] = wholeAt{}
			if s.scrubLog(ctx, p, pacer) {
				seen[p] = wholeAt{applied, time.Now()}
			}
		}
		whole = seen
	}
}

// scrubEngine reads all blocks of the engine, and reports whether it is whole. It is renewed
// if one is damaged.
func (s *Server) scrubEngine(ctx context.Context, pacer *pace.Pacer) (whole bool) {
	began := time.Now()
	blocks, err := s.Engine().Scrub(func() error { return pacer.Pace(ctx) })
	state := &store.ScrubState{Ended: time.Now().UTC(), Took: time.Since(began), Blocks: blocks}
	switch {
	case ctx.Err() != nil, errors.Is(err, engine.ErrClosed):
		return false
	case err != nil:
		state.Finding = err.Error()
	}
	s.engineScrubbed.Store(state)
	return err == nil
}

// scrubLog reads the log of a partition up to what was applied when it began, and
// refuses writes if it is not whole, which it reports.
func (s *Server) scrubLog(ctx context.Context, p *Partition, pacer *pace.Pacer) (whole bool) {
	// What is behind it may be in flight, and is no concern of this pass: a log that lacks it is no damage.
	known := *p.state.Load()
	began := time.Now()
	var damage *DamagedError
	var bad feed.Shape
	shape, err := p.feed.Shape(ctx)
	if err != nil {
		return false
	}
	next := shape.Begin()
	state := &store.ScrubState{Commits: uint64(known.lsn+1) - uint64(min(next, known.lsn+1))}
	for next <= known.lsn {
		reached, err := p.readLog(ctx, next, &known, pacer)
		if err == nil {
			break
		}
		if trimmed, ok := errors.AsType[*feed.TrimmedError](err); ok {
			next = trimmed.First // meanwhile
			continue
		}
		if !feed.Damaged(err) {
			return false // it could not be read to the end, which tells nothing
		}
		from := reached + 1
		to, ok := p.unreadable(ctx, from, known.lsn, pacer)
		bad.Missing = append(bad.Missing, feed.Stretch{From: from, To: to})
		if damage == nil {
			damage = &DamagedError{read: feed.Stretch{From: from, To: to}, stays: !ok}
			if _, gap := errors.AsType[*feed.GapError](err); !gap {
				damage.Reason = ": " + err.Error()
			}
		}
		if next = to + 1; len(bad.Missing) >= scrubFindingsMax {
			break
		}
	}
	if p.isClosed() || ctx.Err() != nil {
		return false
	}
	if damage != nil {
		bad.Last = known.lsn
		shape, err := p.feed.Shape(ctx)
		if err != nil {
			shape = nil // without it nothing is said of replicas
		}
		named := p.damaged(shape, "its log cannot be read at %s%s", bad.Lacks(), damage.Reason)
		named.read, named.stays = damage.read, damage.stays
		p.refuseWrites(named)
		state.Finding = named.Reason
	} else if harm := p.harm.Load(); harm != nil && harm.read != (feed.Stretch{}) {
		p.takeWrites(harm)
	}
	state.Ended, state.Took = time.Now().UTC(), time.Since(began)
	p.scrubbed.Store(state)
	return damage == nil
}

// readLog reads and verifies commits from an LSN up to a known one, and returns the
// last that was whole. At the known one the checksum must be that of what was applied.
func (p *Partition) readLog(ctx context.Context, from feed.LSN, known *applied, pacer *pace.Pacer) (feed.LSN, error) {
	tail, err := p.feed.Tail(ctx, from, feed.TailOptions{CommitsMax: scrubCommits, FromStream: true})
	if err != nil {
		return from - 1, err
	}
	defer tail.Close()
	for lsn := from; lsn <= known.lsn; lsn++ {
		c, err := tail.Next(ctx)
		if err != nil {
			return lsn - 1, err
		}
		// Each commit has the checksum of the one before, which Tail compares. So this one says that all of the
		// log is what was applied, and not another one that is whole too.
		if lsn == known.lsn && c.Sum != known.sum {
			return lsn - 1, &feed.MismatchError{Partition: p.id, Stream: p.feed.Stream(), LSN: lsn, What: "checksum " + c.Sum.String() + ", what was applied had " + known.sum.String()}
		}
		if err := pacer.Pace(ctx); err != nil {
			return lsn, err
		}
		if p.isClosed() {
			return lsn, errStopped
		}
	}
	return known.lsn, nil
}

// unreadable returns the last LSN of a stretch whose first commit cannot be read, or does not
// follow the one before it; false if that commit can be read by itself. Where scrubProbesMax
// commits cannot be read, it takes all up to last for unreadable.
func (p *Partition) unreadable(ctx context.Context, from, last feed.LSN, pacer *pace.Pacer) (to feed.LSN, ok bool) {
	// One by one, past the tail: a tail ends at the first commit that it cannot read.
	for lsn := from; lsn < min(last, from+scrubProbesMax); lsn++ {
		if _, err := p.feed.Read(ctx, lsn); err == nil {
			// The first can be read by itself, and does not follow the one before. To read the stretch again would
			// not show when that is mended, so the damage is one that stays (DamagedError.healed).
			return max(lsn, from+1) - 1, lsn > from
		} else if !errors.Is(err, feed.ErrNotFound) && !feed.Damaged(err) {
			return lsn, true
		}
		if err := pacer.Pace(ctx); err != nil {
			return lsn, true
		}
	}
	return last, true
}

// Digests find what a scrub cannot: what an engine holds by mistake, under the right checksums. See package digest.

const (
	// digestShare is the share of one processor that a digest takes at either side, and digestRests for how long it
	// rests between: then what its view keeps from being freed is more than what others lose.
	digestShare = 0.1
	digestRests = 10 * time.Minute
	// digestTick bounds the time between two looks at what is to be compared.
	digestTick = time.Second
	// digestAppendMax bounds the wait until an order, or a digest, is in the log: one partition is compared after the
	// other, and a log that does not answer must not keep those of all others waiting.
	digestAppendMax = 10 * time.Second
)

// digestLoop has the partitions of this process compared with their copies, one after the other.
func (s *Server) digestLoop(ctx context.Context) {
	if s.cfg.DigestInterval < 0 {
		return
	}
	schedule := digest.NewSchedule(s.cfg.DigestInterval)
	t := time.NewTicker(min(digestTick, s.cfg.DigestInterval))
	defer t.Stop()
rounds:
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.cfg.level.Level() < featurelevel.Digests {
			continue // an earlier release cannot apply the records
		}
		for _, p := range s.partitions() {
			at := p.state.Load().lsn
			if !schedule.Due(p.id, at, s.warmCopies(p.id), time.Now()) || p.closedFor.Load() != nil || p.refusing() != nil || p.splitting() != nil {
				continue
			}
			told, err := s.compareDigest(ctx, p)
			if err != nil {
				schedule.Failed(p.id, time.Now())
				p.log.Debug("the partition's digest is not compared now", "error", err)
				if errors.Is(err, digest.ErrGaveWay) {
					// Whoever loads waits for all views of the engine, so a digest of the next partition would be ordered in vain,
					// and of all others. The round is not ended, or those would be forgotten.
					continue rounds
				}
				continue
			}
			schedule.Done(p.id, told, time.Now())
		}
		schedule.EndRound()
	}
}

// warmCopies are the nodes that have a copy of a partition which is warm.
func (s *Server) warmCopies(id feed.Partition) (nodes []string) {
	info, group := s.containerOf(id), s.leases.Group()
	if info == nil || info.Spec.Standbys == 0 || group == nil {
		return nil
	}
	self := leases.NodeOf(s.leases.Holder())
	for _, node := range group.Nodes {
		if _, warm := group.Warm[node][LeaseResource(id)]; warm && node != self {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// compareDigest orders a digest of a partition, computes this engine's, and tells it in the log. It returns the LSN of the
// commit that does; 0 if others were written since the order, which nobody has compared.
func (s *Server) compareDigest(ctx context.Context, p *Partition) (told feed.LSN, err error) {
	h := s.enter()
	if h == nil {
		return 0, errStopped
	}
	defer h.users.Done()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(h.over, func() { stop(errStopped) })() //nolint:contextcheck // the home is a scope of its own
	view, err := p.orderDigest(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	d, err := p.digestOf(ctx, view)
	if err != nil {
		return 0, err
	}
	told, err = p.appendControl(ctx, d.Tell(), nil)
	if err != nil {
		return 0, err
	}
	p.log.Debug("digest told", "lsn", uint64(d.LSN), "took", time.Since(began).Round(time.Millisecond))
	if told != d.LSN+1 {
		told = 0
	}
	return told, nil
}

// orderDigest orders a digest in the log, and returns the view behind the commit that does.
func (p *Partition) orderDigest(ctx context.Context) (*engine.Snapshot, error) {
	var mu sync.Mutex
	var view *engine.Snapshot
	given := false // up: nobody closes a view that is taken from now on
	_, err := p.appendControl(ctx, digest.Order(), func() {
		mu.Lock()
		defer mu.Unlock()
		if !given {
			view = p.engine.Snapshot()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if err == nil {
		return view, nil
	}
	if given = true; view != nil {
		view.Close()
	}
	return nil, err
}

// appendControl appends a control transaction, and returns the LSN of its commit when that is applied. applied is called at
// that moment, before anything behind it is; it may be nil, and it may be called after an error too: the wait is bounded.
func (p *Partition) appendControl(ctx context.Context, c *feed.Control, applied func()) (lsn feed.LSN, err error) {
	ctx, cancel := context.WithTimeout(ctx, digestAppendMax)
	defer cancel()
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		t := newTxn(d.view(), d.draft)
		t.control = c
		d.draft.add(t, nil)
		d.draft.applied = applied
		lsn, generation = d.decided(), d.generation
	}) {
		return 0, errStopped
	}
	return lsn, p.waitApplied(ctx, lsn, generation)
}

// digestOf computes the digest of a view, and closes it.
func (p *Partition) digestOf(ctx context.Context, view *engine.Snapshot) (digest.Digest, error) {
	return digestOf(ctx, p.engine, view, func() bool { return !p.follows && p.isClosed() }) // nobody ever opens what is followed
}

// digestOf computes the digest of a view of an engine, until over, and closes it.
func digestOf(ctx context.Context, of *engine.Partition, view *engine.Snapshot, over func() bool) (d digest.Digest, err error) {
	defer view.Close()
	defer func() {
		if wrong := of.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Of its own: a pacer that several share is held by the one who rests, and the others would not hear meanwhile that
	// their view keeps a load waiting, or that they are to end.
	pacer := pace.New(digestShare, func() {
		if view.Hinders() {
			stop(digest.ErrGaveWay)
		}
	})
	began := time.Now()
	d, err = digest.Compute(view, recordPart, func() error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case over():
			return errStopped
		case time.Since(began) > digestRests:
			return nil
		}
		return pacer.Pace(ctx)
	})
	return d, errors.Join(err, of.Sound())
}

// View returns a view of what the engine holds, as of the last commit that was applied. It is nil where it is a copy that is
// followed, in which an earlier process has left some of what later commits made.
func (r *Replayer) View() *engine.Snapshot {
	if r.p != nil && r.p.latest(engine.State{Log: r.p.feed.ID(), Applied: r.a.last.lsn}).Applied > r.a.last.lsn {
		return nil
	}
	return r.a.p.Snapshot()
}

// Digest computes the digest of a view, and closes it. Unlike the other methods it may be called beside them.
func (r *Replayer) Digest(ctx context.Context, view *engine.Snapshot) (digest.Digest, error) {
	return digestOf(ctx, r.a.p, view, func() bool { return false }) // nobody opens what is followed or replayed
}

// Distrust has this process's copy of a partition made anew, from an older snapshot than the newest where there is one, by
// whoever follows or opens it next. Nobody may write to it meanwhile.
func (s *Server) Distrust(id feed.Partition, why string) { s.cfg.distrusted.Add(id, why) }

// Distrusts says whether it was not made anew since.
func (s *Server) Distrusts(id feed.Partition) bool { return s.cfg.distrusted.Why(id) != "" }
