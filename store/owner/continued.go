package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

// A log may continue another one: a restored log does. It begins behind the last LSN that was
// restored, with a genesis that names the other log and that LSN. Control transactions bring the
// engine's entries as of there:
//
//	LSN n+1   genesis, parent (log, n, checksum)
//	LSN n+2   state: entries
//	   ...
//	LSN n+k   state: the last entries
//	LSN n+k+1 the owner's takeover
//
// So the state stays a function of the log (I3), wherever it is replayed, and no process
// needs anything but its log. Once there is a snapshot, such a log is trimmed like any other.

// continued returns the first commit of a log that continues another one, whose state it holds, and of which nothing
// was trimmed; nil for any other log.
func (p *Partition) continued(ctx context.Context, shape *feed.Shape) (*feed.Commit, error) {
	if shape.Begin() == 1 || shape.First > shape.Begin() {
		return nil, nil
	}
	c, err := p.feed.Read(ctx, shape.First)
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	if !Begins(c) {
		return nil, nil
	}
	return c, nil
}

// applyState adds entries of the state that the log continues.
func (a *applier) applyState(block []byte) error {
	if err := a.p.LoadMore(snapshot.BlockEntries(block)); err != nil {
		return fmt.Errorf("state of the log that this one goes on from: %w", err)
	}
	// Both caches were filled from the engine before it had these entries.
	var err error
	a.stones = nil
	a.finished, err = loadFinished(a.p)
	return err
}

// beginContinued makes the applier of a log that continues another one and so needs no
// snapshot of its own; nil for any other log.
func (p *Partition) beginContinued(ctx context.Context, shape *feed.Shape) (*applier, error) {
	if parent, genesis, err := p.childOf(ctx, shape); parent != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return p.beginChild(ctx, shape, parent, genesis)
	}
	c, err := p.continued(ctx, shape)
	if c == nil {
		return nil, err
	}
	// All of the state is in the log. What the engine has belongs to something else.
	p.tellUnfit()
	if err := p.engine.Clear(); err != nil {
		return nil, fmt.Errorf("partition %s: clear: %w", p.id, err)
	}
	a := &applier{p: p.engine, log: p.log, last: applied{lsn: c.LSN - 1, sum: c.Prev, time: c.Time}, partial: true}
	return a, p.checkWhole(a, shape)
}

// ParentOf returns the parent of a log whose first commit is c; false if c is not the genesis
// of a log that continues another one.
func ParentOf(c *feed.Commit) (parent store.Parent, ok bool) {
	if len(c.Transactions) != 2 {
		return parent, false
	}
	first, second := c.Transactions[0].Control, c.Transactions[1].Control
	if first == nil || second == nil || first.Kind != store.ControlGenesis || second.Kind != store.ControlParent {
		return parent, false
	}
	return parent, json.Unmarshal(second.Data, &parent) == nil
}

// Begins reports whether c is the first commit of a log, so that the state can be built from
// the log alone. No other commit can be applied to an empty engine. The log of a partition into which another one was
// split is no such log: it begins with a genesis too, and lacks all that the partition inherited (Inherits).
func Begins(c *feed.Commit) bool {
	if c.LSN == 1 {
		return len(c.Transactions) > 0 && c.Transactions[0].Control != nil && c.Transactions[0].Control.Kind == store.ControlGenesis
	}
	parent, ok := ParentOf(c)
	return ok && parent.Range == nil && c.Trimmed == c.LSN-1
}

// Inherits reports whether c is the first commit of the log of a partition into which another one was split.
func Inherits(c *feed.Commit) bool {
	parent, ok := ParentOf(c)
	return ok && parent.Range != nil
}

// Continue returns the first commit of a log that continues a partition's state.
func Continue(id feed.LogID, state *engine.State, parent *store.Parent) (*feed.Commit, error) {
	data, err := json.Marshal(parent)
	if err != nil {
		return nil, err
	}
	c := StateCommit(id, state.Sum, state.Time, state.Applied,
		&feed.Control{Kind: store.ControlGenesis, Data: state.Settings}, &feed.Control{Kind: store.ControlParent, Data: data})
	return c, nil
}

// StateCommit returns a commit of control transactions behind one with the checksum prev, in
// a log that goes on from the LSN trimmed.
func StateCommit(id feed.LogID, prev feed.Checksum, time int64, trimmed feed.LSN, controls ...*feed.Control) *feed.Commit {
	c := &feed.Commit{ID: feed.NewCommitID(), Log: id, Prev: prev, Time: time, Owner: "restore", Trimmed: trimmed}
	for _, control := range controls {
		c.Transactions = append(c.Transactions, feed.Transaction{Control: control})
	}
	return c
}

// Replayer builds a partition's state from commits, in an engine that nobody serves. One
// goroutine uses it.
type Replayer struct {
	a *applier
	s *Server    // of p
	p *Partition // that is followed; nil where none is
}

// NewReplayer returns a Replayer that continues from what the engine holds.
func NewReplayer(p *engine.Partition, log *slog.Logger) (*Replayer, error) {
	state, err := p.State()
	if err != nil {
		return nil, err
	}
	a := &applier{p: p, log: log, partial: state.Owner == ""}
	if state.Applied > 0 {
		if a.schema, err = compileSettings(state.Settings); err != nil {
			return nil, err
		}
		a.last = applied{lsn: state.Applied, sum: state.Sum, time: state.Time}
	}
	return &Replayer{a: a}, nil
}

// Apply applies the commits behind the last one. Readers see those that are written to the engine at once, and tell
// their LSNs, when all of them are there.
func (r *Replayer) Apply(commits ...*feed.Commit) error {
	last := r.a.last
	for _, c := range commits {
		if last.lsn > 0 && (c.LSN != last.lsn+1 || c.Prev != last.sum) {
			return fmt.Errorf("commit %s with predecessor %s does not follow LSN %d with checksum %s", strconv.FormatUint(uint64(c.LSN), 10), c.Prev, last.lsn, last.sum)
		}
		if last.lsn == 0 && !Begins(c) {
			return fmt.Errorf("no log begins with the commit at LSN %d, and what stood before it is not there", c.LSN)
		}
		last.lsn, last.sum = c.LSN, c.Sum
	}
	if err := r.a.apply(commits...); err != nil {
		return err
	}
	if r.p != nil {
		r.p.showApplied(r.a)
		r.p.changed.notify()
	}
	return nil
}

// Only has what is applied from now on taken as far as it lies in a range, as by a partition into which another one is split.
// What the first commit of the log says must have been applied, and nobody may write to the engine meanwhile.
func (r *Replayer) Only(within feed.Range) {
	r.a.p.SetShare(shareOf(within, len(r.a.schema.key), func() *schema { return r.a.schema }))
}

// LSN is that of the last commit that the engine holds, 0 if it holds none.
func (r *Replayer) LSN() feed.LSN { return r.a.last.lsn }

// Sum is the checksum of that commit.
func (r *Replayer) Sum() feed.Checksum { return r.a.last.sum }

// Serve has the copy that is followed answer reads from what was applied, until stop is called, or ctx ends. Readers who
// do not say which LSN it must hold are refused while it is not fresh. Call it once, and stop before Follow's work returns.
func (r *Replayer) Serve(ctx context.Context, fresh func() bool) (stop func(), err error) {
	r.p.showApplied(r.a)
	r.a.hide, r.a.parts, r.a.applying = r.p.showSchema, &r.p.parts, &r.p.applying
	return r.s.serveCopy(ctx, r.p, fresh)
}

// End returns the last LSN that the log has, of a partition that is followed.
func (r *Replayer) End(ctx context.Context) (feed.LSN, error) {
	_, end, err := r.p.feed.Bounds(ctx)
	return end, err
}

// Stopped says whether all of the engine stood still for a moment to make the copy ready that is followed: it takes in
// at once what was loaded from a large snapshot.
func (r *Replayer) Stopped() bool { return r.p.stopped }

// Standbys are the copies that this process keeps of partitions of others.
type Standbys interface {
	// Yield ends the following of a partition, and keeps it from beginning again until back is
	// called. What the copy holds stays as it is. The error is that ctx ended before.
	Yield(ctx context.Context, p feed.Partition) (back func(), err error)
}

// Follow brings this process's copy of a partition to a state of its log, as an owner does that
// opens it, and calls work with what applies the commits behind that state. end is the last LSN
// that the log had then. It returns when work does, and that is told to end when the engine is damaged. Nobody may
// serve the partition here meanwhile.
func (s *Server) Follow(ctx context.Context, id feed.Partition, work func(ctx context.Context, r *Replayer, end feed.LSN) error) error {
	h := s.enter()
	if h == nil {
		return fmt.Errorf("partition %s: %w: the engine is made anew", id, ErrNotFollowed)
	}
	defer h.users.Done()
	return s.within(ctx, h, func(ctx context.Context) error {
		want, ok := s.logOf(id)
		if !ok {
			return fmt.Errorf("partition %s: %w: its container is not in the catalog", id, ErrNotFollowed)
		}
		db, err := h.db.Partition(id)
		if err != nil {
			return fmt.Errorf("partition %s: %w", id, err)
		}
		log, err := feed.OpenLog(ctx, s.js, id, s.cfg.Log)
		if err != nil {
			return fmt.Errorf("partition %s: %w", id, err)
		}
		defer log.Close()
		if err := s.noteListed(h.db, id, log.ID(), want); err != nil {
			return err
		}
		if !s.noteFollowed(id, nil) {
			return fmt.Errorf("partition %s: %w: its copy is made ready by a split", id, ErrNotFollowed)
		}
		defer s.endFollowed(id)
		p := newPartition(id, s.cfg, log, db, noRight{}, s.leases.Holder())
		p.follows = true
		a, err := p.attach(ctx, want)
		if err != nil {
			return err
		}
		if a.damage != nil {
			return a.damage
		}
		s.noteFollowed(id, db)
		// Asked again, because a load takes as long as it takes, and the log has grown meanwhile.
		_, end, err := log.Bounds(ctx)
		if err != nil {
			return fmt.Errorf("partition %s: %w", id, err)
		}
		return work(ctx, &Replayer{a, s, p}, end)
	})
}

// noteFollowed notes that a partition's copy is written by who follows its log. db is nil while it may be
// loaded, when nobody else may look at it. It is false where who splits its parent writes to it.
func (s *Server) noteFollowed(id feed.Partition, db *engine.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heirs[id] != nil {
		return false
	}
	s.followed[id] = db
	return true
}

func (s *Server) endFollowed(id feed.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followed, id)
}

// Unfollow frees what a partition takes in the engine that was followed here, and that nobody
// here follows or serves any more. Where its log could not make it anew it stays, because it may be the last that
// holds anything: kept says why, "" if it was freed. Where this process takes or has the lease it stays, and the
// error is ErrNotFollowed: an owner goes on from it. ctx ends it until it has begun to free. progress is called while a
// snapshot is read, which takes as long as it is large.
func (s *Server) Unfollow(ctx context.Context, id feed.Partition, progress func()) (kept string, err error) {
	h := s.enter()
	if h == nil {
		return "", fmt.Errorf("partition %s: %w: the engine is made anew", id, ErrNotFollowed)
	}
	defer h.users.Done()
	// Within, because it reads the engine: a damaged block there must not end the process, and whoever makes the engine
	// anew does not wait for what is asked of the log.
	err = s.within(ctx, h, func(ctx context.Context) error {
		kept, err = s.unfollow(ctx, h.db, id, progress)
		return err
	})
	return kept, err
}

func (s *Server) unfollow(ctx context.Context, db *engine.DB, id feed.Partition, progress func()) (kept string, err error) {
	if want, listed := s.logOf(id); listed {
		kept, err = s.lastCopy(ctx, db, id, want, progress)
	} else {
		var opened bool
		if kept, opened, err = s.undeleted(ctx, db, id); kept != "" {
			kept = "the catalog does not list its container, and " + kept
		} else if opened && err == nil {
			err = s.dropSnapshots(ctx, id)
		}
	}
	if kept != "" || err != nil {
		return kept, err
	}
	// Looked at last, because what is above asks the network. An owner that comes behind this waits for who frees
	// (Standbys.Yield), and finds all or nothing.
	if s.leases.Has(LeaseResource(id)) {
		return "", fmt.Errorf("partition %s: %w: this process has its lease", id, ErrNotFollowed)
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err := db.Sound(); err != nil { // what it holds may have been read wrong
		return "", err
	}
	return "", db.DropPartition(id)
}

// lastCopy says why what the engine has of a partition may be nowhere else; "" if its log, with the snapshots, makes
// it anew.
func (s *Server) lastCopy(ctx context.Context, db *engine.DB, id feed.Partition, want feed.LogID, progress func()) (why string, err error) {
	part, err := db.Partition(id)
	if err != nil {
		return "", fmt.Errorf("partition %s: %w", id, err)
	}
	state, err := part.State()
	if err != nil {
		return "", fmt.Errorf("partition %s: %w", id, err)
	}
	if state.Applied == 0 && part.Found().Applied == 0 {
		return "", nil // it holds nothing
	}
	log, err := feed.OpenLog(ctx, s.js, id, s.cfg.Log)
	if errors.Is(err, feed.ErrNoLog) {
		return "its log is not there", nil
	}
	if err != nil {
		return "", fmt.Errorf("partition %s: %w", id, err)
	}
	defer log.Close()
	p := newPartition(id, s.cfg, log, part, noRight{}, s.leases.Holder())
	shape, err := log.Shape(ctx)
	if err != nil {
		return "", fmt.Errorf("partition %s: %w", id, err)
	}
	latest := p.latest(state)
	switch {
	case log.ID() != want:
		return fmt.Sprintf("its stream is log %s, the catalog names log %s", log.ID(), want), nil
	case len(shape.Missing) > 0:
		return "its log lacks " + shape.Lacks(), nil
	case latest.Log == want && shape.Last < latest.Applied:
		return fmt.Sprintf("its log ends at LSN %d, and %d was applied", shape.Last, latest.Applied), nil
	case state.Log == want:
		if why, err = p.diverges(ctx, shape, state, latest); why != "" || err != nil {
			return why, err
		}
	}
	return p.beginsNowhere(ctx, shape, progress)
}

// beginsNowhere says why the state of a log whose shape is whole cannot be made from it; "" if it can.
func (p *Partition) beginsNowhere(ctx context.Context, shape *feed.Shape, progress func()) (why string, err error) {
	if shape.Begin() == 1 {
		return "", nil
	}
	if c, err := p.continued(ctx, shape); c != nil || err != nil {
		return "", err
	}
	switch there, err := p.snapshotThere(ctx, shape, progress); {
	case there:
		return "", nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("its log begins at LSN %d, and there is no snapshot that can be read, from which to go on", shape.Begin()), nil
}

// snapshotThere says whether a snapshot from which a log of a shape goes on can be read, whole; an error says that it is
// not known. progress is called before each part, and within it.
func (p *Partition) snapshotThere(ctx context.Context, shape *feed.Shape, progress func()) (bool, error) {
	turn := func() error {
		progress()
		return ctx.Err()
	}
	var errs []error
	for _, from := range p.cfg.snapshotStores() {
		all, _, err := snapshot.Newest(ctx, from, p.id)
		if err != nil { // another may have one
			errs = append(errs, fmt.Errorf("partition %s: snapshots: %w", p.id, err))
			continue
		}
		for _, m := range all {
			if m.Log != shape.Log || m.LSN+1 < shape.Begin() || m.LSN > shape.Last {
				continue
			}
			reason, err := p.diverges(ctx, shape, m.State())
			if err == nil && reason == "" {
				if err = snapshot.Verify(ctx, from, m, turn); err == nil {
					return true, nil
				}
			}
			if err == nil {
				continue // it is of another history
			}
			if _, damaged := errors.AsType[*snapshot.DamagedError](err); !damaged {
				errs = append(errs, err)
			}
		}
	}
	return false, errors.Join(errs...)
}

// RoomToFollow is nil if the disk of the engine has more room than is kept free for those who write: a copy of somebody
// else's partition must not be what stops them.
func (s *Server) RoomToFollow() error {
	if s.cfg.DiskReserve < 0 || s.cfg.DataDir == "" {
		return nil
	}
	free, err := freeBytes(s.cfg.DataDir)
	if err != nil {
		return err
	}
	if least := copyReserve(s.cfg.DiskReserve); free < least {
		return fmt.Errorf("%d MiB are free below %s, and copies of other stores' partitions leave %d MiB free (store.diskReserve)", free>>20, s.cfg.DataDir, least>>20)
	}
	return nil
}

// lostParent is the damage of a child that has no snapshot of its own, where its seed or its parent's log is lost.
func (p *Partition) lostParent(of feed.Partition, parent *store.Parent, shape *feed.Shape, format string, args ...any) *DamagedError {
	e := &DamagedError{
		Partition: p.id, Unreadable: true,
		Reason: fmt.Sprintf("it was made by a split of partition %s, of which it needs LSN %d and what is before that, and %s", of, parent.LSN, fmt.Sprintf(format, args...)),
		Heal: fmt.Sprintf("Start %s, with its directory; or restore the stream %s from a backup that is not older, and the snapshots of both partitions; "+
			"it goes on as soon as they are there", p.lastOwner(), of.AnyStream()),
	}
	e.heals = func(ctx context.Context) bool {
		there, _ := p.snapshotThere(ctx, shape, func() {})
		return there || p.seedThere(ctx, of, parent)
	}
	return e
}

// seedThere says whether a seed of the partition can be read, and the log of its parent goes on from it.
func (p *Partition) seedThere(ctx context.Context, of feed.Partition, parent *store.Parent) bool {
	log, err := p.cfg.openLog(ctx, of)
	if err != nil {
		return false
	}
	defer log.Close()
	h := &heir{p: p, log: log, parent: of}
	shape, err := log.Shape(ctx)
	if err != nil || log.ID() != parent.Log || len(shape.Missing) > 0 || shape.Last < parent.LSN {
		return false
	}
	for _, from := range p.cfg.snapshotStores() {
		all, _, err := snapshot.Newest(ctx, from, p.id)
		if err != nil {
			continue // another may have it
		}
		for _, m := range all {
			if m.Log != parent.Log || m.LSN > parent.LSN {
				continue
			}
			if fits, err := h.goesOn(ctx, m.LSN, m.State().Sum); err != nil || !fits {
				continue
			}
			if snapshot.Verify(ctx, from, m, ctx.Err) == nil {
				return true
			}
		}
	}
	return false
}
