package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// DamagedError says that a partition's log does not hold what was acknowledged.
// Writes are refused. Reads go on from what was applied, unless that is not all of
// it: then nothing is answered, because it would be the past.
type DamagedError struct {
	Partition feed.Partition
	Reason    string
	// Unreadable says that reads are refused too.
	Unreadable bool
	// Heal says what an operator can do.
	Heal string

	stream string                     // that holds the log
	owner  string                     // whose engine may be whole, in words
	lost   bool                       // the log does not tell how far it went, so an engine that is behind does not show it
	lacks  string                     // what an unreadable engine lacks, in words
	stays  bool                       // does not heal by itself
	heals  func(context.Context) bool // whether it has, beside what the log shows; nil: that is all
	need   feed.LSN                   // where the log must end at least to be whole
	read   feed.Stretch               // cannot be read though the stream lists it; zero if there is none
}

func (e *DamagedError) Error() string {
	if e.Unreadable {
		return fmt.Sprintf("partition %s answers nothing: %s, and the engine of this process %s. %s",
			e.Partition, e.Reason, cmp.Or(e.lacks, "does not hold all that was in it"), e.Heal)
	}
	return fmt.Sprintf("partition %s refuses writes: %s; reads go on from what was applied. %s", e.Partition, e.Reason, e.Heal)
}

// damaged returns the damage of the partition's log. Only what works today is offered.
func (p *Partition) damaged(shape *feed.Shape, format string, args ...any) *DamagedError {
	e := &DamagedError{Partition: p.id, Reason: fmt.Sprintf(format, args...)}
	// A log that has gone on in a new stream is nowhere but there.
	stream := cmp.Or(p.feed.Stream(), p.id.AnyStream())
	e.stream, e.owner = stream, p.lastOwner()
	e.Heal = fmt.Sprintf("Restore the stream %s from a backup that is not older, or export the items (millrace export), "+
		"delete the container, declare it anew and import them", stream)
	if shape != nil && len(shape.Replicas) > 0 {
		e.Heal = fmt.Sprintf("The stream %s has copies on %s that may be whole: let one of them lead (nats stream cluster step-down %s) "+
			"and see whether this message ends; then remove the damaged copy. Otherwise: %s", stream, strings.Join(shape.Replicas, ", "), stream,
			strings.Replace(e.Heal, "Restore", "restore", 1))
	}
	return e
}

// lost is damaged for a log that does not tell how far it went.
func (p *Partition) lost(shape *feed.Shape, format string, args ...any) *DamagedError {
	e := p.damaged(shape, format, args...)
	e.lost = true
	return e
}

// lacksStream is the damage of a partition whose stream NATS does not have. It may be there
// again after the server's next start.
func (p *Partition) lacksStream() *DamagedError {
	e := p.lost(nil, "its stream is gone")
	e.Heal = seeServer + e.Heal
	return e
}

const seeServer = "See first what the NATS server's log says: a server that cannot read a stream's files starts without it, and has it again when it can. "

// lacksSnapshot is the damage of a partition whose log was trimmed, where there is no
// snapshot of what is gone.
func (p *Partition) lacksSnapshot(shape *feed.Shape) *DamagedError {
	where := "no snapshots are kept (store.snapshots.store is off)"
	var looked []string
	for _, from := range p.cfg.snapshotStores() {
		looked = append(looked, from.String())
	}
	if len(looked) > 0 {
		where = "there is no usable snapshot in " + strings.Join(looked, " or in ")
	}
	e := &DamagedError{
		Partition: p.id, Unreadable: true,
		Reason: fmt.Sprintf("its log was trimmed and begins at LSN %d, %s", shape.Begin(), where),
		Heal: "Start " + p.lastOwner() + ", with its directory, which holds engine and snapshots; or copy its snapshots " +
			"to where this one looks for them; it goes on as soon as one is there",
	}
	e.heals = func(ctx context.Context) bool {
		there, _ := p.snapshotThere(ctx, shape, func() {})
		return there
	}
	return e
}

// unreadable makes the damage one under which nothing is answered.
func (e *DamagedError) unreadable() {
	e.Unreadable = true
	heal := fmt.Sprintf("Restore the stream %s from a backup that is not older, or start %s, with its directory: "+
		"its engine may be whole", cmp.Or(e.stream, e.Partition.AnyStream()), e.owner)
	if strings.HasPrefix(e.Heal, seeServer) {
		heal = seeServer + heal
	}
	e.Heal = heal
}

// lastOwner names the process whose engine may hold what this one's does not.
func (p *Partition) lastOwner() string {
	if node := p.anotherUser(); node != "" {
		return "node " + node + " that owned the partition last, and gets it when it is there"
	}
	return "the process that owned the partition before"
}

// lacking tells why a log cannot be read at an LSN.
func lacking(err error, at, last feed.LSN) string {
	var gap *feed.GapError
	if !errors.As(err, &gap) {
		return fmt.Sprintf("LSN %d of %d cannot be read from its log: %v", at, last, err)
	}
	missing := feed.Shape{Last: last, Missing: []feed.Stretch{{From: gap.Want, To: last}}}
	if gap.Got != 0 {
		missing.Missing[0].To = gap.Got - 1
	}
	return "its log lacks " + missing.Lacks()
}

// errHealed ends a term whose log is whole again: the partition is opened anew.
var errHealed = errors.New("the log is whole again")

// errLeft ends a term that answers nothing: the process is there again whose engine may hold all.
var errLeft = errors.New("it is left to the store that owned it last")

// serveDamaged answers reads from what was applied and refuses writes, or refuses
// both if what was applied is not all, until the lease ends or the log is whole, or
// who owned the partition last is there.
func (s *Server) serveDamaged(ctx context.Context, p *Partition, damage *DamagedError) error {
	readable, err := p.openReadOnly(damage)
	if err != nil {
		return err
	}
	p.log.Error(damage.Error())
	// Nothing was appended that would refuse the appends of the owner before this one. Nor may it be said of a write that
	// nothing happened, which that one may have got too.
	if err := p.lease.Settle(ctx, false); err != nil {
		return err
	}
	s.register(p)
	defer s.unregister(p)
	// Also where nothing can be read: whoever asks is told why, at once.
	sub, err := s.subscribe(ctx, p)
	if err != nil {
		return err
	}
	defer sub.stop()
	watched, heal := context.WithCancelCause(ctx)
	defer heal(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		heal(s.awaitHealed(watched, p, damage, readable))
	}()
	if readable {
		err = p.run(watched)
	} else {
		<-watched.Done()
	}
	heal(nil)
	<-done
	switch cause := context.Cause(watched); {
	case errors.Is(cause, errHealed):
		p.log.Info("the log is whole again; the partition is opened anew")
		return errHealed
	case errors.Is(cause, errLeft):
		return fmt.Errorf("partition %s: %w", p.id, cause)
	}
	return err
}

// awaitHealed looks now and then whether a damaged log is whole, which is errHealed, and, where the partition is not
// readable, whether the node takes it that owned it last, which is errLeft. It returns nil if ctx ended first.
func (s *Server) awaitHealed(ctx context.Context, p *Partition, damage *DamagedError, readable bool) error {
	// Elsewhere less can be read, or nothing. Who owned the partition last keeps it though it can read nothing itself: any
	// other would give it back.
	p.lease.Bind(true)
	t := time.NewTicker(s.cfg.CheckInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		p.lease.Progress()
		// Not to one that would not take it: this process would get it again, and meanwhile nobody says what is wrong.
		user, group := p.anotherUser(), s.leases.Group()
		if !readable && user != "" && group != nil && group.Takes(user, LeaseResource(p.id)) {
			return errLeft
		}
		want, known := s.logOf(p.id)
		// Opened each time, and not the one that p has: that is none where the stream was gone.
		log, err := feed.OpenLog(ctx, s.js, p.id, s.cfg.Log)
		if err != nil {
			continue
		}
		healed := known && log.ID() == want && damage.healed(ctx, log)
		log.Close()
		if healed {
			return errHealed
		}
	}
}

// healed tells whether a log has what it lacked.
func (e *DamagedError) healed(ctx context.Context, log Log) bool {
	if e.stays {
		return false
	}
	shape, err := log.Shape(ctx)
	if err != nil || len(shape.Missing) > 0 || shape.Last < e.need {
		return false
	}
	if e.heals != nil && !e.heals(ctx) {
		return false
	}
	for lsn := e.read.From; lsn != 0 && lsn <= e.read.To; lsn++ {
		if _, err := log.Read(ctx, lsn); err != nil {
			return false
		}
	}
	return true
}

// openReadOnly serves what was applied, without a log, and tells whether it can be
// read: the partition is damaged. The partition may have been opened so far that it
// has a state.
func (p *Partition) openReadOnly(damage *DamagedError) (readable bool, err error) {
	state, err := p.engine.State()
	if err != nil {
		return false, errors.Join(damage, err)
	}
	if latest := p.latest(state); p.state.Load() == nil && latest.Applied != state.Applied {
		// Commits between the two were applied and may be lost in parts.
		if !p.engine.Kept() {
			if !damage.Unreadable { // else it tells more already of what heals it
				damage.unreadable()
			}
		} else if state, err = p.adopt(latest); err != nil {
			return false, errors.Join(damage, err)
		}
	}
	if damage.lost && !damage.Unreadable && state.Applied > 0 && !p.holdsAll(state) {
		damage.unreadable()
		damage.lacks = fmt.Sprintf("has a copy up to LSN %d, which may lack what was written last", state.Applied)
	}
	// A log that is shorter than what was applied once is not whole, though nothing is missing in it.
	damage.need = max(damage.need, p.latest(state).Applied)
	if damage.Unreadable || state.Applied == 0 {
		if !damage.Unreadable {
			damage.unreadable()
		}
		// Not nil, though nothing is known: the loops of the server read it of each partition.
		p.state.Store(&applied{})
		p.closedFor.Store(&store.Error{Status: store.StatusUnavailable, Message: damage.Error()})
		return false, nil
	}
	schema, err := compileSettings(state.Settings)
	if err != nil {
		return false, errors.Join(damage, err)
	}
	if p.state.Load() == nil {
		p.state.Store(&applied{lsn: state.Applied, sum: state.Sum, time: state.Time, schema: schema})
		p.inFlight.Store(uint64(state.Applied))
	}
	p.readOnly.Store(true)
	p.trouble.Store(&store.Error{Status: store.StatusUnavailable, Message: damage.Error()})
	return true, nil
}

// checkLoop compares every open partition's log with what was applied, now and then,
// and refuses writes where the log has lost something.
func (s *Server) checkLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.CheckInterval)
	defer t.Stop()
	suspects := map[*Partition]int{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		open := s.partitions()
		for _, p := range open {
			known := p.state.Load().lsn // before the stream is asked
			before, asked := p.shape.Load(), time.Now()
			shape, err := p.feed.Shape(ctx)
			if err == nil {
				p.noteClock(asked, shape)
				p.noteShape(before, shape)
			}
			p.checkClock()
			damage := p.damageIn(known, shape, err)
			if damage == nil {
				delete(suspects, p)
				// An answer alone ends it: of a log that cannot be asked, damageIn finds nothing either.
				if harm := p.harm.Load(); harm != nil && err == nil && harm.read == (feed.Stretch{}) {
					p.takeWrites(harm)
				}
				continue
			}
			// A new leader may have to catch up: what it says is believed when it says
			// so again.
			if suspects[p]++; suspects[p] >= checksMax {
				delete(suspects, p)
				p.refuseWrites(damage)
			}
		}
		for p := range suspects {
			if p.isClosed() {
				delete(suspects, p)
			}
		}
	}
}

// noteShape notes how the log stood when it was asked. before is what was noted before it
// was asked: what a purge has noted since is newer.
func (p *Partition) noteShape(before, shape *feed.Shape) {
	if p.shape.CompareAndSwap(before, shape) {
		p.logBytes.Store(shape.Bytes)
	}
}

// checksMax is how often a log must look damaged before it is believed.
const checksMax = 3

// damageIn returns the damage that a stream's shape shows; nil if it shows none, or the shape
// is unknown.
func (p *Partition) damageIn(known feed.LSN, shape *feed.Shape, err error) *DamagedError {
	var mismatch *feed.MismatchError
	switch {
	case errors.Is(err, feed.ErrNoLog):
		return p.lacksStream()
	case errors.As(err, &mismatch):
		return p.damaged(nil, "%s", mismatch.What)
	case err == nil && len(shape.Missing) > 0:
		return p.damaged(shape, "its log lacks %s", shape.Lacks())
	case err == nil && shape.Last < known:
		return p.damaged(shape, "LSN %d to %d were applied and are not in its log any more", shape.Last+1, known)
	}
	return nil
}

// takeWrites ends what refuseWrites began: the log has been restored. A partition that was opened for
// reads alone has not taken its log over, and is opened anew; see awaitHealed.
func (p *Partition) takeWrites(harm *DamagedError) {
	if p.readOnly.Load() || !p.harm.CompareAndSwap(harm, nil) {
		return
	}
	if why := p.trouble.Load(); why != nil && why.Message == harm.Error() {
		p.trouble.CompareAndSwap(why, nil)
	}
	p.lease.Bind(false)
	p.log.Info("the log is whole again; writes are taken")
}

// refuseWrites says once that the log is damaged, and refuses writes from now on. A log may be
// damaged in turns: while its stream is restored it is gone, and then it is there and too
// short. What is found last is said, or the operator would look for what has long been mended.
// But what the scrub found stays until the scrub takes it back: a shape does not show
// that bytes cannot be read, and so must not end what was said of them.
func (p *Partition) refuseWrites(damage *DamagedError) {
	before := p.harm.Load()
	if before != nil && (before.read != (feed.Stretch{}) || damage.read != (feed.Stretch{}) || before.Error() == damage.Error()) {
		return
	}
	if p.harm.CompareAndSwap(before, damage) {
		p.trouble.Store(&store.Error{Status: store.StatusUnavailable, Message: damage.Error()})
		p.lease.Bind(true) // another owner would open the partition on the damaged log, and may read less
		p.log.Error(damage.Error())
	}
}

// isClosed says whether the partition decides no request any more.
func (p *Partition) isClosed() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.closed
}

// doubt has the newest snapshot read, and another one taken if it is damaged.
func (p *Partition) doubt() { p.doubted.Store(1) }

// damageOf reads a snapshot, unless this process has, and tells what is wrong with it: it is damaged, or not of the
// history that the log has. turn is called before each part, and within it. An error says that this is not known.
func (p *Partition) damageOf(ctx context.Context, m *snapshot.Manifest, turn func() error) (damage, err error) {
	if _, known := p.unusable.Load(m.ID()); known {
		return fmt.Errorf("snapshot %s was found damaged, or of another history", m.ID()), nil
	}
	if _, known := p.readWhole.Load(m.ID()); known {
		return nil, nil
	}
	// By the manifest alone, and before gigabytes of parts are read.
	if reason, err := p.foreign(ctx, m); reason != "" || err != nil {
		if err == nil {
			p.unusable.Store(m.ID(), true)
			damage = fmt.Errorf("snapshot %s: %s", m.ID(), reason)
		}
		return damage, err
	}
	err = snapshot.Verify(ctx, p.cfg.snapshots, m, turn)
	if damaged, ok := errors.AsType[*snapshot.DamagedError](err); ok {
		p.unusable.Store(m.ID(), true)
		return damaged, nil
	}
	if err == nil {
		p.readWhole.Store(m.ID(), true)
	}
	return nil, err
}

// foreign tells why a snapshot of this log is not of the history that an owner has applied; "" if it is.
func (p *Partition) foreign(ctx context.Context, m *snapshot.Manifest) (reason string, err error) {
	if last := p.state.Load().lsn; m.LSN > last {
		return fmt.Sprintf("it is of LSN %d, and the log ends at %d", m.LSN, last), nil
	}
	shape, err := p.feed.Shape(ctx)
	if err != nil {
		return "", fmt.Errorf("partition %s: %w", p.id, err)
	}
	return p.diverges(ctx, shape, m.State())
}

// newestLacks reads the newest snapshot of a partition, of which somebody doubts that it is there and whole, and tells
// whether another one has to take its place before it is needed. Where the log still begins at 1, none is.
func (s *Server) newestLacks(ctx context.Context, p *Partition) bool {
	all, damage, err := snapshot.Newest(ctx, s.cfg.snapshots, p.id)
	if err != nil {
		return false // it is said where one is taken
	}
	if len(damage) == 0 && (len(all) == 0 || all[0].Log != p.feed.ID()) {
		return p.needsOwn(ctx)
	}
	if len(damage) == 0 {
		p.readWhole.Delete(all[0].ID()) // it was, and somebody says that it is no more
		p.counted.Store(nil)
		found, err := p.damageOf(ctx, all[0], ctx.Err)
		if err == nil && found == nil {
			p.doubted.Store(0)
		}
		if err != nil || found == nil {
			return false
		}
		damage = append(damage, found)
	}
	for _, d := range damage {
		p.log.Error("a snapshot cannot be used; another one is taken", "error", d)
	}
	return true
}

// needsOwn tells whether the log lacks what made the partition's state, where the store of snapshots has none of it: they may
// have been kept elsewhere until now, or have been lost.
func (p *Partition) needsOwn(ctx context.Context) bool {
	shape := p.shape.Load()
	if shape == nil || shape.Begin() == 1 {
		p.doubted.Store(0)
		return false
	}
	// One that continues another log begins with all that was there.
	if c, err := p.continued(ctx, shape); c != nil || err != nil {
		if err == nil {
			p.doubted.Store(0)
		}
		return false
	}
	if parent, _, err := p.childOf(ctx, shape); err == nil && parent != nil {
		p.log.Info("the partition was made by a split; a snapshot of its own is taken")
		return true
	}
	p.log.Warn("the log was trimmed, and there is no snapshot of what is gone; one is taken")
	return true
}
