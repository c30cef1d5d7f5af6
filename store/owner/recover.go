package owner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

// SupersededError says that the log was taken over under a newer lease.
type SupersededError struct {
	Partition   feed.Partition
	Epoch, Seen uint64
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("partition %s: lease epoch %d is older than %d in its log", e.Partition, e.Epoch, e.Seen)
}

// Unwrap lets the next holder have a greater epoch, where the leases were lost. One that is merely
// late has no right to its lease's record any more.
func (e *SupersededError) Unwrap() error { return &leases.EpochBehindError{Seen: e.Seen} }

// notSuperseded returns a *SupersededError if the engine has applied a commit of a log from a later epoch. It is asked
// before the log is: where that is gone, epochs of a bucket that was made anew must not pass for those of before.
func notSuperseded(id feed.Partition, db *engine.Partition, log feed.LogID, epoch uint64) error {
	state, err := db.State()
	if err != nil {
		return fmt.Errorf("partition %s: %w", id, err)
	}
	if state.Log == log && state.Epoch > epoch {
		return &SupersededError{id, epoch, state.Epoch}
	}
	return nil
}

// open brings the engine up to the end of the log, appends the takeover commit
// and applies it. Nothing of an older owner can be stored behind that commit, so
// the partition may be served. want is the log's id according to the catalog.
func (p *Partition) open(ctx context.Context, want feed.LogID) error {
	start := time.Now()
	a, err := p.attach(ctx, want)
	if err != nil {
		return err
	}
	// The copy may hold what a later owner wrote: by a snapshot of that owner's, or because this
	// process followed the log until now. Its takeover commit is not replayed then.
	if err := notSuperseded(p.id, p.engine, want, p.lease.Epoch()); err != nil {
		return err
	}
	from, attached := a.last.lsn, time.Since(start)
	// A copy that has followed the log to its end needs no second look at it: an append behind what attach has seen is
	// refused if that was not the end any more. Writers wait for this, and each question to a log that machines share
	// takes as long as an append.
	shape := p.shape.Load()
	for atEnd := from == shape.Last && !shape.Untrimmable; ; atEnd = false {
		if !atEnd {
			if err := p.replay(ctx, a); err != nil {
				return err
			}
		}
		if a.damage != nil {
			p.showApplied(a)
			return a.damage
		}
		// Each time: the owner before this one may have closed the log meanwhile.
		if !atEnd {
			if err := p.goOn(ctx); err != nil {
				return err
			}
		}
		// Nothing goes behind it: the children have it all.
		if split, err := splitDone(p.engine); split != nil || err != nil {
			return cmp.Or(err, error(&splitError{split, a.last}))
		}
		err := p.takeOver(ctx, a)
		if err == nil {
			break
		}
		if !errors.Is(err, feed.ErrFenced) {
			return err
		}
		// Somebody appended meanwhile, maybe the owner before this one, whose append was on
		// its way: apply that, and try again. Its takeover, if it was one, ends the loop by
		// its epoch (SupersededError).
	}
	// Until then the owner before this one may answer from what was before the takeover commit. Nothing is answered or
	// appended meanwhile: what is in the log is in the feed, and whoever acts on it may ask that owner.
	if err := p.lease.Settle(ctx, true); err != nil {
		return err
	}
	p.showApplied(a)
	p.checkClock()
	last := a.last
	p.log.Info("partition opened", "lsn", uint64(last.lsn), "epoch", p.lease.Epoch(),
		"replayed", uint64(last.lsn-from), "asked", attached.Round(time.Millisecond), "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// showApplied makes what was applied the state that readers see.
func (p *Partition) showApplied(a *applier) {
	a.last.schema = a.schema
	last := a.last
	p.state.Store(&last)
	p.inFlight.Store(uint64(last.lsn))
}

// attach compares the engine with the log and decides where to replay from:
// behind the last commit that a sync of the engine covered. An engine that
// belongs to another log, or to another history of this one, is rebuilt.
func (p *Partition) attach(ctx context.Context, want feed.LogID) (*applier, error) {
	if p.feed.ID() != want {
		return nil, p.lost(nil, "its stream is log %s, the catalog names log %s: the stream was made anew", p.feed.ID(), want)
	}
	state, err := p.engine.State()
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	asked := time.Now()
	shape, err := p.feed.Shape(ctx)
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", p.id, err)
	}
	p.noteClock(asked, shape)
	p.logBytes.Store(shape.Bytes)
	p.shape.Store(shape)
	end := shape.Last
	latest := p.latest(state)
	if latest.Log == want && end < latest.Applied {
		return nil, p.lost(shape, "LSN %d to %d were applied and are not in its log any more: the stream was restored older or has lost its end",
			end+1, latest.Applied)
	}
	if state.Applied == 0 { // an engine that has nothing
		return p.beginState(ctx, shape)
	}
	reason := ""
	if why := p.cfg.distrusted.Why(p.id); why != "" && len(shape.Missing) == 0 { // what the log lacks is nowhere else
		reason = why
	} else if state.Log != want {
		reason = fmt.Sprintf("it belongs to log %s, the catalog names %s", state.Log, want)
	} else if state.Applied+1 < shape.Begin() {
		reason = fmt.Sprintf("it ends at LSN %d, and its log was trimmed since and begins at LSN %d", state.Applied, shape.Begin())
	} else if reason, err = p.diverges(ctx, shape, state, latest); err != nil {
		return nil, err
	}
	if reason != "" {
		return p.rebuild(ctx, shape, reason)
	}
	if shape.Missing != nil && p.engine.Kept() { // what the log lacks behind the last sync is in the engine
		if state, err = p.adopt(latest); err != nil {
			return nil, fmt.Errorf("partition %s: %w", p.id, err)
		}
	}
	return p.resumeFrom(state, shape)
}

// latest returns the latest state of which the engine knows that its log reached it:
//
//	the last process died at 9, synced 6    state 6, found 9    9
//	the same, and this one applied up to 12 state 12, found 9   12
//	nothing was synced: it was emptied      no state, found 9       9
//	this one rebuilt it from another log    found is of the log before and tells nothing
func (p *Partition) latest(state engine.State) engine.State {
	if found := p.engine.Found(); (found.Log == state.Log || state.Applied == 0) && found.Applied > state.Applied {
		return found
	}
	return state
}

// adopt makes the latest state, whose commits are all in the engine, the engine's own: what reads
// it takes its LSN from there, such as a snapshot, whose reader goes on with the log behind it.
func (p *Partition) adopt(latest engine.State) (engine.State, error) {
	b := p.engine.NewBatch(nil)
	b.SetState(latest)
	return latest, b.Commit()
}

// rebuild makes the applier of a partition whose engine holds a state from which nothing can
// continue. A log that begins at 1 can make everything again, so the engine is emptied. Behind
// a trimmed log the engine may be the last that holds anything: only the load of a snapshot
// that was found to be whole, and for which there is room, empties it.
func (p *Partition) rebuild(ctx context.Context, shape *feed.Shape, reason string) (*applier, error) {
	p.unfit = reason
	if shape.Begin() == 1 {
		p.tellUnfit()
		if err := p.engine.Clear(); err != nil {
			return nil, fmt.Errorf("partition %s: clear: %w", p.id, err)
		}
	}
	return p.beginState(ctx, shape)
}

// tellUnfit logs that the engine's copy goes, right before it does: an opening that is tried again
// and again, because the disk lacks room, throws nothing away.
func (p *Partition) tellUnfit() {
	if p.unfit == "" {
		return
	}
	p.log.Warn("the engine's copy of the partition is thrown away and rebuilt from the log", "reason", p.unfit)
	p.unfit = ""
}

// beginState makes the applier of a partition whose engine is empty, or holds what does not count:
// from a snapshot, from the entries in a log that continues another one, or from LSN 1.
func (p *Partition) beginState(ctx context.Context, shape *feed.Shape) (*applier, error) {
	state, err := p.loadSnapshot(ctx, shape)
	if err != nil {
		return nil, err
	}
	if state.Applied == 0 && shape.Begin() > 1 {
		a, err := p.beginContinued(ctx, shape)
		if a != nil {
			p.cfg.distrusted.MadeAnew(p.id)
		}
		if a != nil || err != nil {
			return a, err
		}
		return nil, p.lacksSnapshot(shape)
	}
	p.cfg.distrusted.MadeAnew(p.id)
	return p.resumeFrom(state, shape)
}

// resumeFrom makes the applier that continues from a state of the engine, the zero state if the
// engine is empty.
func (p *Partition) resumeFrom(state engine.State, shape *feed.Shape) (a *applier, err error) {
	a = &applier{p: p.engine, log: p.log, partial: state.Owner == ""}
	if state.Applied > 0 {
		if a.schema, err = compileSettings(state.Settings); err != nil {
			return nil, fmt.Errorf("partition %s: %w", p.id, err)
		}
		a.last = applied{lsn: state.Applied, sum: state.Sum, time: state.Time}
	}
	return a, p.checkWhole(a, shape)
}

// checkWhole compares what the log has with what the engine needs of it:
//
//	the log lacks 5 to 7, the engine ends at 9    the engine has them: reads go on
//	the log lacks 5 to 7, the engine ends at 4    they are lost to this process: no reads
func (p *Partition) checkWhole(a *applier, shape *feed.Shape) error {
	if len(shape.Missing) == 0 {
		return nil
	}
	damage := p.damaged(shape, "its log lacks %s", shape.Lacks())
	if last := shape.Missing[len(shape.Missing)-1]; last.To > a.last.lsn {
		damage.unreadable()
		return damage
	}
	a.damage = damage
	return nil
}

// diverges compares the checksums of the commits that the engine names with
// those that the log holds there.
func (p *Partition) diverges(ctx context.Context, shape *feed.Shape, states ...engine.State) (string, error) {
	for i, s := range states {
		if slices.ContainsFunc(states[:i], func(of engine.State) bool { return of.Applied == s.Applied && of.Sum == s.Sum }) {
			continue // the engine has applied nothing since its last sync
		}
		if s.Applied == 0 || shape.Misses(s.Applied) {
			continue // checkWhole tells of what is missing
		}
		if s.Applied+1 < shape.First {
			continue // it is below the trim point, which the caller looks at
		}
		at := max(s.Applied, shape.First)
		if shape.Misses(at) {
			continue
		}
		c, err := p.feed.Read(ctx, at)
		if _, trimmed := errors.AsType[*feed.TrimmedError](err); trimmed {
			return "", fmt.Errorf("partition %s: %w", p.id, err) // since the look at its shape
		}
		if errors.Is(err, feed.ErrNotFound) || feed.Damaged(err) {
			damage := p.damaged(shape, "LSN %d cannot be read from its log: %v", at, err)
			damage.read = feed.Stretch{From: at, To: at}
			// What another owner has appended since is not in the engine, and cannot be brought
			// into it: nothing proves that the engine is of this history.
			if !slices.ContainsFunc(states, func(s engine.State) bool { return s.Applied >= shape.Last }) {
				damage.unreadable()
			}
			return "", damage
		}
		if err != nil {
			return "", fmt.Errorf("partition %s: %w", p.id, err)
		}
		// A commit that was trimmed is known by what the one behind it says of it.
		sum := c.Sum
		if at > s.Applied {
			sum = c.Prev
		}
		if sum != s.Sum {
			return fmt.Sprintf("commit %d has checksum %s in the log and %s in the engine: the log has another history", s.Applied, sum, s.Sum), nil
		}
	}
	return "", nil
}

// anotherUser is the node that owned the partition last and appended to its log; "" if it is this one, or not known.
func (p *Partition) anotherUser() string {
	if node, _ := p.lease.User(); node != leases.NodeOf(p.owner) {
		return node
	}
	return ""
}

// holdsAll says whether what the engine holds is all that was acknowledged, where the log does not show it any more. It
// is the copy of who owned the partition last, and of nobody else, because that one applied each commit before it
// answered. Another's copy, such as a standby's, holds what it had heard until then:
//
//	b's copy    1 2 3          b is a standby, and slow, or was away
//	a's engine  1 2 3 4 5      4 and 5 were answered
//	the log     -              b takes the lease: of what 4 made it would say that it does not exist
//
// So the last commit that the engine holds must be of this node, and no other node may have used the lease since. An
// engine that was made anew counts when an owner has gone on from it.
func (p *Partition) holdsAll(state engine.State) bool {
	if p.unfit != "" || state.Owner == "" {
		return false
	}
	if p.cfg.Alone {
		return true
	}
	node, since := p.lease.User()
	return node != "" && node == leases.NodeOf(p.owner) && node == leases.NodeOf(state.Owner) && since <= state.Epoch && state.Epoch <= p.lease.Epoch()
}

// replay applies what the log holds behind the last applied commit.
func (p *Partition) replay(ctx context.Context, a *applier) error {
	_, end, err := p.feed.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("partition %s: %w", p.id, err)
	}
	if a.last.lsn >= end {
		return nil
	}
	tail, err := p.feed.Tail(ctx, a.last.lsn+1, feed.TailOptions{Prev: a.last.sum})
	if err != nil {
		return fmt.Errorf("partition %s: %w", p.id, err)
	}
	defer tail.Close()
	began, told := time.Now(), time.Now()
	first := a.last.lsn
	for a.last.lsn < end {
		c, err := tail.Next(ctx)
		if feed.Damaged(err) {
			damage := p.damaged(nil, "%s", lacking(err, a.last.lsn+1, end))
			damage.unreadable()
			_, damage.stays = errors.AsType[*feed.MismatchError](err)
			damage.read = feed.Stretch{From: a.last.lsn + 1, To: a.last.lsn + 1}
			return damage
		}
		if err != nil {
			return fmt.Errorf("partition %s: replay from %d: %w", p.id, first+1, err)
		}
		if seen := controlEpoch(c); seen > p.lease.Epoch() {
			return &SupersededError{p.id, p.lease.Epoch(), seen}
		}
		if err := a.apply(c); err != nil {
			return fmt.Errorf("partition %s: apply commit %s: %w", p.id, c.LSN, err)
		}
		p.compression.note(tail.Data())
		p.lease.Progress()
		if time.Since(told) > replayReport {
			told = time.Now()
			p.log.Info("replaying the log", "lsn", uint64(a.last.lsn), "of", uint64(end), "since", time.Since(began).Round(time.Second))
		}
	}
	return nil
}

const replayReport = 5 * time.Second

// takeOver appends and applies the commit that makes this process the owner.
func (p *Partition) takeOver(ctx context.Context, a *applier) error {
	if a.schema == nil {
		return &DamagedError{
			Partition: p.id, Unreadable: true, Reason: "its log has no genesis commit: the container's creation did not finish",
			Heal: "Apply the declaration again", need: a.last.lsn + 1,
		}
	}
	// Before the append: from now on no other process's engine holds all.
	if err := p.lease.Use(ctx); err != nil {
		return fmt.Errorf("take over partition %s: %w", p.id, err)
	}
	d := &draft{lsn: a.last.lsn + 1, time: max(a.last.time, p.now())}
	d.txns = []feed.Transaction{{Control: takeover(p.owner, p.lease.Epoch())}}
	c := d.commit(p.feed.ID(), &applied{sum: a.last.sum, schema: a.schema}, p.lease.Epoch(), p.owner)
	data := feed.AppendCommit(nil, c)
	lsn, err := p.feed.Append(ctx, a.last.lsn, c.ID, data)
	p.leaveIfNotAppended(ctx, err)
	if feed.Damaged(err) { // since the look at its shape
		return p.lost(nil, "it cannot be written behind LSN %d: %v", a.last.lsn, err)
	}
	if err != nil {
		return fmt.Errorf("take over partition %s: %w", p.id, err)
	}
	c.LSN = lsn
	a.partial = false
	if err := a.apply(c); err != nil {
		return fmt.Errorf("partition %s: apply takeover: %w", p.id, err)
	}
	return nil
}

// controlEpoch reads the epoch of the last takeover from a commit, 0 if it has
// none.
func controlEpoch(c *feed.Commit) uint64 {
	for i := range c.Transactions {
		if k := c.Transactions[i].Control; k != nil && k.Kind == store.ControlTakeover {
			return c.Epoch
		}
	}
	return 0
}

// takeoverData says who took over.
type takeoverData struct {
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
}

func takeover(owner string, epoch uint64) *feed.Control {
	data, err := json.Marshal(takeoverData{owner, epoch})
	if err != nil {
		panic(fmt.Sprintf("owner: takeover of %q cannot be marshalled: %v", owner, err))
	}
	return &feed.Control{Kind: store.ControlTakeover, Data: data}
}

// leaveIfNotAppended takes back that the lease is used, if the takeover commit was certainly not appended: then the
// engine of who owned the partition before still holds all, and this one's is not to pass for it. Where that is not
// certain it stays said: the commit may be in the log, and the next owner goes on from it.
func (p *Partition) leaveIfNotAppended(ctx context.Context, err error) {
	fenced := errors.Is(err, feed.ErrFenced) && !errors.Is(err, feed.ErrUnknown) // what is there in its place is another's
	if !fenced && !neverHappened(err) {
		return
	}
	if err := p.lease.LeaveUnused(ctx); err != nil && ctx.Err() == nil {
		p.log.Warn("it could not be noted who owned the partition last, and that one answers nothing if this process dies", "error", err)
	}
}

// engineStopMin is the size of the largest snapshot that the engine takes in by commits, without standing still.
const engineStopMin = 4 << 20

// loadInto loads a snapshot into the engine. remakes says that what is in the engine can be made again without one. The
// error is *engine.NoRoomError where the disk lacks room for it.
func (p *Partition) loadInto(ctx context.Context, from snapshot.Store, m *snapshot.Manifest, remakes bool) error {
	told := false
	opt := engine.LoadOptions{
		Bytes: int64(m.Bytes), Reserve: p.loadReserve(int64(m.Bytes)),
		Progress: func(waits bool) error {
			if waits && !told {
				told = true
				p.log.Info("a snapshot waits until others are loaded", "lsn", uint64(m.LSN), "bytes", m.Bytes)
			}
			p.lease.Progress()
			return ctx.Err()
		},
	}
	// Before the snapshot is read: where there is no room this is tried again and again.
	if err := p.engine.LoadRoom(opt); err != nil {
		return err
	}
	// Load empties the engine first, and what is in it may be all that there is. Where it holds
	// nothing a damaged snapshot takes nothing away, and reading it twice would be half the work.
	before, unknown := p.engine.State()
	if !remakes && (unknown != nil || before.Applied > 0) {
		if err := snapshot.Verify(ctx, from, m, func() error { return opt.Progress(false) }); err != nil {
			return err
		}
	}
	p.tellUnfit()
	loaded := *m
	loaded.Owner = "" // see applier.partial
	p.stopped = p.stopped || m.Bytes > engineStopMin
	return snapshot.Load(ctx, from, &loaded, p.engine, opt)
}
