package owner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
)

// A partition into which another one is split has that one's state, as far as it lies in its range, and then what its own
// log says. The state is not in its log:
//
//	parent's log   1 ... L ........... s: split        no more
//	                     │             │
//	child's seed         └─ entries of its range as of L, a snapshot under the child's number
//	child's state           seed, then L+1 to s of the parent's log, of its range
//	child's log                        └─▶ first: genesis, parent (log, s, checksum, range)    first+1: ...
//
// So it stays a function of logs (I3), wherever it is made. A seed was read back before the parent's log was ended, and
// it stays, and so does the parent's log behind it, until the child has a snapshot of its own log.

// childOf returns what the log goes on from, if it is that of a partition into which another one was split, and
// nothing of it was trimmed; nil for any other log.
func (p *Partition) childOf(ctx context.Context, shape *feed.Shape) (*store.Parent, *feed.Commit, error) {
	if shape.Begin() == 1 || shape.First > shape.Begin() || shape.Commits == 0 {
		return nil, nil, nil
	}
	c, err := p.feed.Read(ctx, shape.First)
	if err != nil {
		return nil, nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	if parent, ok := ParentOf(c); ok && parent.Range != nil {
		return &parent, c, nil
	}
	return nil, nil, nil
}

// heir brings the engine's copy of a child to the states that its parent's log had. One goroutine uses it.
type heir struct {
	p *Partition // the child
	a *applier
	// The parent's log.
	log    Log
	parent feed.Partition
	tail   *feed.Tail // of that log, behind what was applied; nil before the first commit is asked for
}

// shareOf is the share of what a partition holds that belongs to a range of its keys. at returns the schema by which
// records are told.
func shareOf(within feed.Range, levels int, at func() *schema) *engine.Share {
	return &engine.Share{Range: within, Levels: levels, Record: func(kind byte, key []byte) bool {
		switch kind {
		case recordAccumulator:
			return sharesAccumulator(within, at(), string(key))
		case recordSplit:
			return false
		}
		// What a producer did, what fan-outs are under way, what was done under an idempotency key, and what is left of
		// items that went: whoever asks asks the partition of his key, and both may be that.
		return true
	}}
}

// sharesAccumulator says whether an accumulator, or a pending row, is of a target in a range.
func sharesAccumulator(within feed.Range, s *schema, key string) bool {
	for _, r := range s.rules {
		rest, ok := strings.CutPrefix(key, r.prefix)
		if !ok {
			continue
		}
		g, _, ok := r.GroupOfKey([]byte(rest))
		if !ok {
			return true
		}
		of, ok := r.TargetKey(g, s.key)
		return !ok || within.Contains(of.Hash())
	}
	// Behind the pipeline, a zero byte and the generation: a mark, the length of the item key, that key.
	_, rest, _ := strings.Cut(key, "\x00")
	rest = rest[min(4, len(rest)):]
	if rest == "" || rest[0] != pendingRowMark {
		return true
	}
	size, n := binary.Uvarint([]byte(rest[1:]))
	if n <= 0 || uint64(len(rest)-1-n) < size {
		return true
	}
	of, _, err := engine.ParseItemKey([]byte(rest[1+n : 1+n+int(size)]))
	return err != nil || within.Contains(of.Hash())
}

// inherit begins with what this process has of a child, or with its seed. log is that of the parent, upTo the last of its
// commits that may be in it.
func (p *Partition) inherit(ctx context.Context, log Log, parent feed.Partition, within feed.Range, upTo feed.LSN) (*heir, error) {
	h := &heir{p: p, log: log, parent: parent}
	state, err := p.engine.State()
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	fits := state.Log == log.ID() && state.Applied <= upTo
	if fits {
		fits, err = h.goesOn(ctx, state.Applied, state.Sum)
	}
	if err == nil && !fits {
		state, err = h.plant(ctx, upTo)
	}
	if err != nil {
		return nil, err
	}
	p.unfit = "" // it was another log's, and that is its parent's
	h.a = &applier{p: p.engine, log: p.log, partial: true, last: applied{lsn: state.Applied, sum: state.Sum, time: state.Time}}
	if h.a.schema, err = compileSettings(state.Settings); err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	p.engine.SetShare(shareOf(within, len(h.a.schema.key), func() *schema { return h.a.schema }))
	return h, nil
}

// goesOn says whether the parent's log goes on from a state. It does not where it was trimmed since, as after a split that was
// given up, or has another history.
func (h *heir) goesOn(ctx context.Context, at feed.LSN, sum feed.Checksum) (bool, error) {
	first, last, err := h.log.Bounds(ctx)
	if err != nil {
		return false, fmt.Errorf("partition %s: log of %s: %w", h.p.id, h.parent, err)
	}
	if at+1 < first || at > last {
		return false, nil
	}
	// A commit that was trimmed is known by what the one behind it says of it.
	c, err := h.log.Read(ctx, max(at, first))
	if err != nil {
		return false, fmt.Errorf("partition %s: log of %s: %w", h.p.id, h.parent, err)
	}
	if at < first {
		return c.Prev == sum, nil
	}
	return c.Sum == sum, nil
}

// plant loads the newest seed of the child.
func (h *heir) plant(ctx context.Context, upTo feed.LSN) (engine.State, error) {
	var errs []error
	none := errSeedLost
	for _, from := range h.p.cfg.snapshotStores() {
		all, damage, err := snapshot.Newest(ctx, from, h.p.id)
		errs = append(errs, err, errors.Join(damage...))
		if err != nil {
			none = errNoSeed // that store is away
		}
		for _, m := range all {
			if m.Log != h.log.ID() || m.LSN > upTo {
				continue
			}
			fits, err := h.goesOn(ctx, m.LSN, m.State().Sum)
			if err != nil {
				return engine.State{}, err
			}
			if !fits {
				continue
			}
			err = h.p.loadInto(ctx, from, m, false)
			if err == nil {
				h.p.log.Info("seed of the partition loaded", "of", h.parent.String(), "lsn", uint64(m.LSN), "entries", m.Entries, "bytes", m.Bytes)
				return h.p.engine.State()
			}
			if _, full := errors.AsType[*engine.NoRoomError](err); full || ctx.Err() != nil {
				return engine.State{}, err
			}
			errs = append(errs, err)
			if _, damaged := errors.AsType[*snapshot.DamagedError](err); !damaged {
				none = errNoSeed
			}
		}
	}
	return engine.State{}, fmt.Errorf("partition %s: what partition %s had when it was split is not to be found: %w", h.p.id, h.parent,
		errors.Join(append(errs, none)...))
}

// errNoSeed says that the seed of a child is not to be found, errSeedLost, which is one, that no store of snapshots has it.
var (
	errNoSeed   = errors.New("there is no snapshot of its share that can be read")
	errSeedLost = fmt.Errorf("%w, wherever they are kept", errNoSeed)
)

// lsn is that of the last commit of the parent that was applied.
func (h *heir) lsn() feed.LSN { return h.a.last.lsn }

// follow applies the parent's commits up to an LSN, which its log has.
func (h *heir) follow(ctx context.Context, upTo feed.LSN) error {
	if h.lsn() >= upTo {
		return nil
	}
	if h.tail == nil {
		var err error
		if h.tail, err = h.log.Tail(ctx, h.lsn()+1, feed.TailOptions{Prev: h.a.last.sum}); err != nil {
			return fmt.Errorf("partition %s: log of %s: %w", h.p.id, h.parent, err)
		}
	}
	for h.lsn() < upTo {
		c, err := h.tail.Next(ctx)
		if err != nil {
			return fmt.Errorf("partition %s: log of %s: %w", h.p.id, h.parent, err)
		}
		if err := h.a.apply(c); err != nil {
			return fmt.Errorf("partition %s: apply commit %s of %s: %w", h.p.id, c.LSN, h.parent, err)
		}
		h.p.lease.Progress()
	}
	return nil
}

// close frees what the heir holds. What the engine has of the child stays.
func (h *heir) close() {
	if h.tail != nil {
		h.tail.Close()
	}
	h.p.engine.SetShare(nil)
}

// comeOfAge makes the state that was inherited whole that of the child's own log, which goes on behind LSN after.
func (h *heir) comeOfAge(own feed.LogID, after feed.LSN, time int64) error {
	h.p.engine.SetShare(nil)
	h.a.last.lsn, h.a.last.time = after, max(h.a.last.time, time)
	b := h.p.engine.NewBatch(nil)
	// Of nobody's epoch: leases of the child begin anew.
	b.SetState(engine.State{Log: own, Applied: after, Sum: h.a.last.sum, Time: h.a.last.time, Settings: h.a.settings()})
	return b.Commit()
}

// beginChild makes the applier of a partition into which another one was split, from that one's state.
func (p *Partition) beginChild(ctx context.Context, shape *feed.Shape, parent *store.Parent, genesis *feed.Commit) (*applier, error) {
	of, err := feed.ParsePartition(parent.Partition)
	if err != nil {
		return nil, fmt.Errorf("partition %s: its log goes on from %q: %w", p.id, parent.Partition, err)
	}
	log, err := p.cfg.openLog(ctx, of)
	if errors.Is(err, feed.ErrNoLog) {
		return nil, p.lostParent(of, parent, shape, "its stream is gone")
	}
	if err != nil {
		return nil, fmt.Errorf("partition %s: log of %s, from which it goes on: %w", p.id, of, err)
	}
	defer log.Close()
	if log.ID() != parent.Log {
		return nil, p.lostParent(of, parent, shape, "its stream is log %s, and not log %s: it was made anew", log.ID(), parent.Log)
	}
	// Whoever waits for the end of a log that has lost it waits for ever.
	if _, last, err := log.Bounds(ctx); err != nil {
		return nil, fmt.Errorf("partition %s: log of %s, from which it goes on: %w", p.id, of, err)
	} else if last < parent.LSN {
		return nil, p.lostParent(of, parent, shape, "its log ends at LSN %d", last)
	}
	h, err := p.inherit(ctx, log, of, *parent.Range, parent.LSN)
	if errors.Is(err, errSeedLost) {
		return nil, p.lostParent(of, parent, shape, "%v", errSeedLost)
	}
	if err != nil {
		return nil, err
	}
	defer h.close()
	if err := h.follow(ctx, parent.LSN); err != nil {
		if gap, lacks := errors.AsType[*feed.GapError](err); lacks {
			return nil, p.lostParent(of, parent, shape, "its log lacks LSN %d", gap.Want)
		}
		return nil, err
	}
	if h.a.last.sum != genesis.Prev {
		return nil, p.lost(shape, "it goes on from LSN %d of partition %s with checksum %s, and that has %s there", parent.LSN, of, genesis.Prev, h.a.last.sum)
	}
	if err := h.comeOfAge(shape.Log, genesis.LSN-1, genesis.Time); err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	return h.a, p.checkWhole(h.a, shape)
}

// heirship is a child that the owner of its parent makes ready, in this process.
type heirship struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when nobody writes to its engine any more
}

// awaitHeir ends the making of a child, and waits until nobody writes to it. The error is that of ctx.
func (s *Server) awaitHeir(ctx context.Context, id feed.Partition) error {
	s.mu.Lock()
	h := s.heirs[id]
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	h.cancel()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteHeirs says that the children's engines are written by who splits their parent. It is false if one of them is in use:
// the split was completed, and this process is late to learn it.
//
//	own         has the lease   looks for an heir: there is one, it ends it and waits
//	noteHeirs                                      there is a lease: no heir
func (s *Server) noteHeirs(container feed.ResourceID, split *feed.Split, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, child := range split.Children {
		if s.inUseLocked(feed.Partition{Container: container, Number: child.Number}) {
			return false
		}
	}
	for _, child := range split.Children {
		s.heirs[feed.Partition{Container: container, Number: child.Number}] = &heirship{cancel, make(chan struct{})}
	}
	return true
}

func (s *Server) endHeirs(container feed.ResourceID, split *feed.Split) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, child := range split.Children {
		id := feed.Partition{Container: container, Number: child.Number}
		close(s.heirs[id].done)
		delete(s.heirs, id)
	}
}

// readyHeir is a child that this process can open at once.
type readyHeir struct {
	lsn   feed.LSN
	until time.Time
}

const (
	// heirReadyFor is for how long a child passes for warm that was made ready: until it is opened.
	heirReadyFor = 10 * time.Second
	// heirToldMax bounds the wait until the group knows that.
	heirToldMax = 5 * time.Second
)

// noteReady notes that children are ready, and how far they are.
func (s *Server) noteReady(heirs []*heir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range heirs {
		s.ready[LeaseResource(h.p.id)] = readyHeir{h.lsn(), time.Now().Add(heirReadyFor)}
	}
}

// Heirs are the leases of partitions that nobody owns yet and that this process can open at once, because it splits their
// parent, with the LSN of that one's log that it has.
func (s *Server) Heirs() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready map[string]uint64
	for resource, h := range s.ready {
		if time.Now().After(h.until) {
			delete(s.ready, resource)
			continue
		}
		if ready == nil {
			ready = map[string]uint64{}
		}
		ready[resource] = uint64(h.lsn)
	}
	return ready
}

// heirsTold says whether the group knows that this process is ready for the children.
func (s *Server) heirsTold(heirs []*heir) bool {
	group := s.leases.Group()
	if s.cfg.Standbys == nil || group == nil {
		return true // there is nobody who tells, or nobody else
	}
	warm := group.Warm[leases.NodeOf(s.leases.Holder())]
	for _, h := range heirs {
		if _, told := warm[LeaseResource(h.p.id)]; !told {
			return false
		}
	}
	return true
}

// tellHeirs waits until the group knows that this process is ready for the children, or for so long that it does not
// matter, and keeps them near to the end of their parent's log.
func (s *Server) tellHeirs(ctx context.Context, p *Partition, heirs []*heir) error {
	for began := time.Now(); ; {
		for _, h := range heirs {
			if err := h.follow(ctx, p.state.Load().lsn); err != nil {
				return err
			}
		}
		s.noteReady(heirs)
		if s.heirsTold(heirs) || time.Since(began) > heirToldMax {
			return nil
		}
		if err := pace.Pause(ctx, heirToldMax/50); err != nil {
			return err
		}
	}
}

// makeHeir makes the log of a child, and its state up to the end of the parent's log as it is now. db is the engine.
func (s *Server) makeHeir(ctx context.Context, db *engine.DB, p *Partition, info *store.ContainerInfo, split *feed.Split, child feed.Offshoot) (*heir, error) {
	id := feed.Partition{Container: info.ID, Number: child.Number}
	log, err := s.childLog(ctx, info, split, child)
	if err != nil {
		return nil, err
	}
	log.Close()
	if err := s.noteListed(db, id, child.Log, child.Log); err != nil {
		return nil, err
	}
	part, err := db.Partition(id)
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", id, err)
	}
	is := newPartition(id, s.cfg, p.feed, part, noRight{}, s.leases.Holder())
	h, err := is.inherit(ctx, p.feed, p.id, child.Range, p.state.Load().lsn)
	if errors.Is(err, errNoSeed) {
		p.tellSplit(fmt.Sprintf("it is being split: what %d gets is copied", child.Number))
		if err = s.writeSeed(ctx, p, id, child.Range); err == nil {
			h, err = is.inherit(ctx, p.feed, p.id, child.Range, p.state.Load().lsn)
		}
	}
	if err != nil {
		return nil, err
	}
	p.tellSplit(fmt.Sprintf("it is being split: %d follows its log", child.Number))
	if err := h.follow(ctx, p.state.Load().lsn); err != nil {
		h.close() // or what this process serves of the child later would go by its share
		return nil, err
	}
	return h, nil
}

// childLog returns the log of a child, which it makes if it is not there.
func (s *Server) childLog(ctx context.Context, info *store.ContainerInfo, split *feed.Split, child feed.Offshoot) (*feed.Log, error) {
	is := store.PartitionInfo{Number: child.Number, Range: child.Range, Log: child.Log}
	log, err := s.catalog.MakeChildLog(ctx, info, is, split.First-1)
	if err != nil {
		return nil, err
	}
	first, last, err := log.Bounds(ctx)
	if err == nil && last+1 < split.First {
		err = fmt.Errorf("the log of partition %s/%d has LSN %d to %d, and is to begin at %d", info.ID, child.Number, first, last, split.First)
	}
	if err != nil {
		log.Close()
		return nil, err
	}
	return log, nil
}

// writeSeed writes a snapshot of what a partition has for a child, under the child's name, and reads it back.
func (s *Server) writeSeed(ctx context.Context, p *Partition, child feed.Partition, within feed.Range) (err error) {
	defer func() {
		if wrong := p.engine.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	began := time.Now()
	pacer := pace.New(float64(s.cfg.Snapshots.SharePercent)/100, func() {})
	source, state, refusal := p.wholeSnapshot(ctx)
	if refusal != nil {
		return fmt.Errorf("%w: %s", errStopped, refusal.Message)
	}
	defer source.Close()
	source.Only(shareOf(within, len(state.schema.key), func() *schema { return state.schema }))
	m, err := snapshot.Write(ctx, s.cfg.snapshots, child, source, 0, func() error {
		if p.isClosed() || !p.lease.Valid() {
			return errStopped
		}
		if err := s.roomForSnapshot(snapshotSlack); err != nil {
			return err
		}
		return pacer.Pace(ctx)
	}, p.engine.Sound)
	if err != nil {
		return err
	}
	p.log.Info("seed of a child written", "child", child.String(), "lsn", uint64(m.LSN), "entries", m.Entries, "bytes", m.Bytes,
		"stored", m.Stored(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}
