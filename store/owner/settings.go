package owner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// errOldWish says that the settings in force may have been decided by a later record of
// the catalog than the one at hand.
var errOldWish = errors.New("the catalog's record is older than what is in force")

// reconcileSettings commits new settings where the catalog's wishes differ from those in
// force. Then it does what they ask for, such as building an index, in steps between
// commits so that writes go on, and commits that it is done. After an error the caller
// tries again: the log may take the settings later. errOldWish says that nothing was done.
func (p *Partition) reconcileSettings(ctx context.Context, info *store.ContainerInfo) error {
	settings, err := p.putSettings(ctx, func(s store.Settings) (store.Settings, bool) { return s.Wish(info) })
	if err == nil && settings.Outdates(info) {
		return errOldWish
	}
	return p.carryOut(ctx, settings, err)
}

// putInForce is reconcileSettings by the record at hand; if that is too old, by the record as
// it is now, which it leaves in info. A record that is gone, or is that of another container,
// asks for nothing.
func (s *Server) putInForce(ctx context.Context, p *Partition, info *store.ContainerInfo) error {
	err := p.reconcileSettings(ctx, info)
	if !errors.Is(err, errOldWish) {
		return err
	}
	now, err := s.catalog.Newest(ctx, info.Database, info.Name)
	if err != nil || now.ID != info.ID || now.State != store.ContainerReady {
		return unlessGone(err)
	}
	*info = now
	if err = p.reconcileSettings(ctx, info); !errors.Is(err, errOldWish) {
		return err
	}
	// Even the newest has a lower revision than the settings, or these have none. To tell a bucket that went
	// back from a replica that lags, the record is written again, which only a quorum takes.
	now, err = s.confirm(ctx, info)
	if err != nil || now.ID != info.ID || now.State != store.ContainerReady {
		return unlessGone(err)
	}
	*info = now
	settings, err := p.putSettings(ctx, func(s store.Settings) (store.Settings, bool) { return s.WishConfirmed(info) })
	return p.carryOut(ctx, settings, err)
}

func unlessGone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// confirmation is a container as Catalog.Confirm has returned it.
type confirmation struct {
	began time.Time
	info  store.ContainerInfo
}

// confirm is Catalog.Confirm, once for all partitions of a container that ask at the same
// time: each confirmation writes the record, which all of them note. One that began after the
// question is as good as one's own, because who asks was the owner then.
func (s *Server) confirm(ctx context.Context, info *store.ContainerInfo) (store.ContainerInfo, error) {
	asked := time.Now()
	s.confirming.Lock()
	defer s.confirming.Unlock()
	if c, ok := s.confirmed[info.ID]; ok && c.began.After(asked) {
		return c.info, nil
	}
	began := time.Now()
	now, err := s.catalog.Confirm(ctx, info.Database, info.Name)
	if err == nil {
		s.confirmed[info.ID] = confirmation{began, now}
	}
	return now, err
}

// carryOut does what the settings ask for, which were put in force unless err says that they
// were not.
func (p *Partition) carryOut(ctx context.Context, settings store.Settings, err error) error {
	// One thing at a time, each from the settings that are in force then. A process that
	// dies on the way leaves what is not ready, and the next owner goes on from there.
	for err == nil {
		at := slices.IndexFunc(settings.Indexes, func(i store.IndexSetting) bool { return !i.Ready })
		pastMissing := slices.IndexFunc(settings.Tombstones, func(t store.TombstoneSetting) bool { return !t.Ready })
		unswept := slices.IndexFunc(settings.Rules, func(r store.RuleSetting) bool { return r.Active && r.Published && !r.Swept })
		switch {
		case at >= 0:
			number := settings.Indexes[at].Number
			if err = p.buildIndex(ctx, number); err == nil {
				settings, err = p.putSettings(ctx, func(s store.Settings) (store.Settings, bool) { return s.IndexReady(number) })
			}
		case pastMissing >= 0:
			kind := settings.Tombstones[pastMissing]
			if err = p.backfillTombstones(ctx, &kind); err == nil {
				settings, err = p.putSettings(ctx, func(s store.Settings) (store.Settings, bool) { return s.TombstonesReady(kind.Number) })
			}
		case unswept >= 0:
			rule := settings.Rules[unswept].RuleWish
			if err = p.sweep(ctx, rule.Pipeline, rule.Generation); err == nil {
				settings, err = p.putSettings(ctx, func(s store.Settings) (store.Settings, bool) { return s.RuleSwept(rule.Pipeline, rule.Generation) })
			}
		default:
			return nil
		}
	}
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// putSettings decides settings from those in force, commits them if they changed, and
// returns them when they are applied. The error is errNotAppended if the log did
// not take them, errStopped if ctx ended or the partition stopped.
func (p *Partition) putSettings(ctx context.Context, decide func(store.Settings) (store.Settings, bool)) (settings store.Settings, err error) {
	for {
		var lsn feed.LSN
		var generation uint64
		first := false // something must be applied before
		var failed error
		if !p.onDecider(ctx, func(d *decider) {
			d.dropLost()
			if next, changed := decide(d.schema.settings); changed {
				if first, failed = d.expireBefore(&next); !first && failed == nil {
					d.decideSettings(next)
				}
			}
			settings, lsn, generation = d.schema.settings, d.decided(), d.generation
		}) {
			return settings, errStopped
		}
		if failed != nil {
			return settings, failed
		}
		if err := p.waitApplied(ctx, lsn, generation); err != nil || !first {
			return settings, err
		}
	}
}

// expireBefore decides deletes of items that have expired and would live again by the time to live
// of next; some says that there were such items, so that it is called again when the deletes are
// applied. Nobody has seen these items since they expired, and copies of their sources' fields have
// passed them over:
//
//	ttl 60 s    item of 10:00   category renamed 10:05, the item passed over   ttl 3600 s
//	            expired 10:01                                                  back, with the old name
//
// Until the settings are applied no page is decided (decider.sources), for it would pass over what expires
// meanwhile. While deletes are refused the settings wait: the error says why.
func (d *decider) expireBefore(next *store.Settings) (some bool, err error) {
	if next.TTL == d.schema.settings.TTL || d.schema.engine.DefaultTTL == nil {
		return false, nil
	}
	if refusal := d.p.refusing(); refusal != nil {
		return false, fmt.Errorf("delete what has expired before the time to live changes: %w", refusal)
	}
	d.refresh(true)
	refs, err := d.expired(d.view())
	if err != nil {
		return false, fmt.Errorf("look for what has expired before the time to live changes: %w", err)
	}
	if len(refs) > 0 {
		d.expire()
	}
	return len(refs) > 0, nil
}

// decideSettings puts a settings transaction into the draft and decides by it from here.
// The snapshot is taken anew: an index that is ready now was built without a
// commit, so the one at hand may be as new as the last commit and not show it.
func (d *decider) decideSettings(next store.Settings) {
	d.dropLost()
	d.refresh(true)
	v := d.view()
	next.RulesSince(&d.schema.settings, v.lsn)
	next.TombstonesSince(v.lsn)
	data := next.Marshal()
	compiled, err := compileSettings(data)
	if err != nil {
		d.p.log.Error("the catalog asks for settings that cannot be", "error", err)
		return
	}
	t := newTxn(v, d.draft)
	t.control = &feed.Control{Kind: store.ControlSettings, Data: data}
	d.draft.add(t, nil)
	d.schema = compiled
	d.cache.clear()
}

// decided is the LSN that the last decided commit has, or will have.
func (d *decider) decided() feed.LSN { return d.draft.decided() }

// onDecider runs f in the decider; it returns false if the partition stopped before.
func (p *Partition) onDecider(ctx context.Context, f func(*decider)) bool {
	ran := make(chan struct{})
	select {
	case p.deciderTasks <- func(d *decider) { f(d); close(ran) }:
	case <-p.decided: // a caller may have ctx from whoever outlives the partition
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case <-ran:
		return true
	case <-p.decided:
	}
	select {
	case <-ran: // the last that it did
		return true
	default: // f came upon damaged blocks of the engine
		return false
	}
}

// onCommitter runs f in the committer, between two commits; it returns false if ctx ended before
// that, or if f came upon damaged blocks of the engine.
func (p *Partition) onCommitter(ctx context.Context, f func(*committer)) bool {
	ended := make(chan bool, 1)
	select {
	case p.committerTasks <- func(c *committer) {
		ran := false
		defer func() { ended <- ran }()
		f(c)
		ran = true
	}:
		return <-ended
	case <-ctx.Done():
		return false
	}
}

// control appends the control transaction that make returns, which runs on the decider's goroutine, and waits as settle does.
// nil appends nothing.
func (p *Partition) control(ctx context.Context, make func(d *decider) *feed.Control) error {
	return p.settle(ctx, func(d *decider) {
		v := d.view()
		if control := make(d); control != nil {
			t := newTxn(v, d.draft)
			t.control = control
			d.draft.add(t, nil)
		}
	})
}

// settle runs f on the decider's goroutine, and waits until what it has decided is applied, is certainly not appended
// (errNotAppended), or the term ends. It does not end with ctx once that was handed over, because it may be in the log.
func (p *Partition) settle(ctx context.Context, f func(d *decider)) error {
	var lsn feed.LSN
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		f(d)
		lsn, generation = d.decided(), d.generation
	}) {
		return errStopped
	}
	return p.waitApplied(context.WithoutCancel(ctx), lsn, generation)
}

// waitApplied waits until the commit that was decided for lsn is applied. The
// error is errNotAppended if it will not be, because an append of the decider's
// generation did not happen, and errStopped if ctx ended or the partition stopped.
func (p *Partition) waitApplied(ctx context.Context, lsn feed.LSN, generation uint64) error {
	for {
		wait := p.changed.wait()
		applied := p.state.Load().lsn >= lsn // looked at first: another commit may have it
		switch {
		case p.generation.Load() != generation:
			return errNotAppended
		case applied:
			return nil
		case p.changed.closed():
			return errStopped
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return errStopped
		}
	}
}

// indexStep is how many items one step of an index build reads.
const indexStep = 2000

func (p *Partition) buildIndex(ctx context.Context, number uint32) error {
	var after []byte
	built := 0
	p.log.Info("building an index", "number", number)
	for {
		var err error
		if !p.onCommitter(ctx, func(c *committer) {
			// By the committer, which owns the applier: its schema, by which batches keep the index, does not change
			// while a step runs.
			after, err = p.engine.BuildIndexStep(c.applier.engineSchema(), number, after, indexStep)
			c.applier.built[number] = err == nil && after == nil
		}) {
			return errStopped
		}
		if err != nil {
			return err
		}
		if after == nil {
			p.log.Info("index built", "number", number, "items", built)
			return nil
		}
		built += indexStep
	}
}
