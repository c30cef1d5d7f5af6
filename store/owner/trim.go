package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
)

const (
	trimInterval = time.Second
	// holdsInterval is the time between two looks at who reads, and at a log that could
	// not be trimmed.
	holdsInterval = 5 * time.Second
	// trimBytesMin is the default of Config.TrimBytes: the server frees whole blocks of 4 MiB.
	trimBytesMin     = 4 << 20
	restTrimBytesMin = 64 << 10
	// trimSharePercent is the part of its time in which one process trims.
	trimSharePercent = 20
)

// trimLoop trims the logs of the partitions of this process, one after the other.
func (s *Server) trimLoop(ctx context.Context) {
	t := newTrimmer(s)
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.round(ctx, time.Now())
	}
}

// trimmer trims the logs of one process. One goroutine runs it and owns all of it.
type trimmer struct {
	s     *Server
	pacer *pace.Pacer
	logs  map[*Partition]*trimming
	// What a trim must free at least, under writes and at rest, and what one purge takes.
	bytesMin, restBytesMin, stepBytes uint64
	// Below which a log that denies purges goes on in a new stream whole.
	wholeBytes uint64

	free        func(dir string) (int64, error) // space of a disk
	closeWithin time.Duration                   // how long a copy may take before readers are asked again

	holds   map[feed.Partition][]Hold
	notNow  string // why nothing may be trimmed whoever reads; "" if it may
	failed  error  // why holds are not known; nil if they are
	askedAt time.Time
	ends    map[*Partition]feed.LSN // where logs ended before readers were asked for
}

func newTrimmer(s *Server) *trimmer {
	return &trimmer{
		s: s, pacer: pace.New(float64(trimSharePercent)/100, func() {}), logs: map[*Partition]*trimming{},
		free: freeBytes, closeWithin: holdsInterval,
		bytesMin: uint64(s.cfg.TrimBytes), restBytesMin: uint64(min(s.cfg.TrimBytes, restTrimBytesMin)), stepBytes: trimStepBytes, wholeBytes: restBytesMin,
	}
}

// trimming is what is known of one log between two rounds.
type trimming struct {
	p *Partition
	lastWrite
	retryAt time.Time              // not before then
	said    string                 // the reason that was logged last
	cutOff  map[string]feed.LSN    // readers that were said to be cut off, and up to where
	times   map[feed.LSN]time.Time // of the commits that readers have not read
	seen    *store.SnapshotState   // the newest snapshot when kept was read
	kept    []*snapshot.Manifest   // the snapshots, the newest first
	spec    store.ChangeFeedSpec   // as the catalog wishes
	state   store.TrimState        // as it is shown
}

// round looks at each log once.
func (t *trimmer) round(ctx context.Context, now time.Time) {
	seen := map[*Partition]*trimming{}
	for _, p := range t.s.partitions() {
		spec, ok := t.s.changeFeedOf(p.id)
		if !ok || p.closedFor.Load() != nil || p.harm.Load() != nil {
			continue
		}
		l := t.logs[p]
		if l == nil {
			l = &trimming{p: p, cutOff: map[string]feed.LSN{}, times: map[feed.LSN]time.Time{}}
		}
		seen[p] = l
		l.spec = spec
		if at := p.state.Load().lsn; l.lsn != at {
			l.lastWrite = lastWrite{at, now}
		}
		if now.Before(l.retryAt) {
			continue
		}
		// At rest only the clock moves on, and who reads.
		if l.retryAt = now.Add(trimInterval); l.rests(&t.s.cfg, now) {
			l.retryAt = now.Add(holdsInterval)
		}
		t.pacer.Resume()
		if err := t.trimLog(ctx, l, now); err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
			l.retryAt = now.Add(holdsInterval)
			meters.trimsFailed.Add(ctx, 1)
			l.noteHeld(fmt.Sprintf("it could not be trimmed: %v", err))
			p.log.Warn("the log could not be trimmed; trying again", "error", err)
		}
		shown := l.state
		p.trim.Store(&shown)
	}
	t.logs = seen
}

// changeFeedOf returns for how long the changes of a partition are kept.
func (s *Server) changeFeedOf(id feed.Partition) (store.ChangeFeedSpec, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, ok := s.containers[id.Container]
	return info.Spec.ChangeFeed, ok
}

// noteHeld notes why a log is not trimmed any further.
func (l *trimming) noteHeld(why string) { l.state.HeldBy = why }

// trimLog trims one log as far as it may be.
func (t *trimmer) trimLog(ctx context.Context, l *trimming, now time.Time) (err error) {
	l.state = store.TrimState{Retention: l.spec.Kept().String(), Point: l.p.state.Load().schema.trimmed()}
	// As it was at the last check of the log: it has grown since, and its clock gone on, so
	// what follows from it is too little at most.
	shape := l.p.shape.Load()
	if shape == nil {
		return nil
	}
	l.state.First = shape.First
	if why := t.barred(l, shape); why != "" {
		l.retryAt = now.Add(holdsInterval)
		l.noteHeld(why)
		return nil
	}
	if shape.First <= l.state.Point { // a trim that did not end, of whoever was the owner
		return t.purgeUnread(ctx, l, shape, now)
	}
	point, why, err := t.trimPoint(ctx, l, shape, now)
	if err != nil {
		return err
	}
	l.noteHeld(why)
	if why != l.said {
		l.said = why
		l.p.log.Debug("how far the log may be trimmed", "point", uint64(point), "held", why)
	}
	// There is nothing that is worth a purge. What goes on in a new stream is then a log that refuses
	// purges, if anything.
	if point < shape.First {
		return t.moveWhole(ctx, l, shape, now)
	}
	frees := shape.Bytes / max(shape.Commits, 1) * uint64(point-shape.First+1)
	least := t.bytesMin
	if l.rests(&t.s.cfg, now) {
		least = t.restBytesMin
	}
	if frees < least {
		return t.moveWhole(ctx, l, shape, now)
	}
	if shape.Untrimmable && !paysToMove(shape, frees) {
		l.noteHeld("an earlier release made its stream, which denies purges; it goes on in a new one when half of it may go, and now " + why)
		return nil
	}
	// Looked at again, because nothing of what goes now is anywhere else.
	l.kept = nil
	if floor, why, err := t.snapshotFloor(ctx, l, now); err != nil || floor < point {
		l.noteHeld(why)
		return err
	}
	if whole, why, err := t.wholeSnapshot(ctx, l); err != nil || whole < point {
		l.noteHeld(why)
		return err
	}
	if err := l.p.commitTrim(ctx, point); err != nil {
		return err
	}
	l.state.Point = point
	return t.purgeUnread(ctx, l, shape, now)
}

// purgeUnread removes what lies up to the trim point, as far as nobody needs it who has come
// since that was decided. A log that begins lower than it may is no damage.
func (t *trimmer) purgeUnread(ctx context.Context, l *trimming, shape *feed.Shape, now time.Time) error {
	// The last answer is from before the trim point was raised. Whoever looked at the log then
	// may begin below it, with the log's beginning or where he is set back to:
	//
	//	asked: nobody reads   one is set back to 5   trim point 9   asked again: purged up to 4
	t.askedAt = time.Time{}
	held, barred, err := t.readers(ctx, l, now)
	if err != nil {
		return err
	}
	if barred != "" {
		l.retryAt = now.Add(holdsInterval)
		l.noteHeld(barred)
		return nil
	}
	if err := t.noteLate(ctx, l, held, clockOf(l.p, shape)); err != nil {
		return err
	}
	upTo, why := slowest(held, shape, l.state.Point)
	if most := l.spec.RetentionMax; most > 0 && upTo < l.state.Point {
		over, err := l.p.feed.LastBefore(ctx, clockOf(l.p, shape).Add(-most), l.state.Point)
		if err != nil {
			return err
		}
		upTo = max(upTo, over)
	}
	// Nor may anything go that no snapshot holds: the one by which it was decided, maybe by another
	// owner, may have been damaged since.
	if whole, none, err := t.wholeSnapshot(ctx, l); err != nil {
		return err
	} else if whole < upTo {
		upTo, why = whole, none
	}
	t.cutOff(l, held, shape, upTo)
	if upTo < l.state.Point {
		l.retryAt = now.Add(holdsInterval)
		l.noteHeld(why)
	}
	if upTo < shape.First {
		return nil
	}
	if shape.Untrimmable {
		return t.move(ctx, l, upTo)
	}
	return t.purge(ctx, l, upTo)
}

// clockOf returns the clock of the log's server, or this one's if that is behind: a clock
// that is ahead must not cost what is kept.
func clockOf(p *Partition, shape *feed.Shape) time.Time {
	if own := time.UnixMilli(p.now()); own.Before(shape.Time) {
		return own
	}
	return shape.Time
}

// barred says why a log is not trimmed at all; "" if it may be.
func (t *trimmer) barred(l *trimming, shape *feed.Shape) string {
	why := l.p.refusing()
	switch cfg := &t.s.cfg; {
	case l.spec.Kept() == store.RetentionForever:
		return "changeFeed.retention is forever"
	case cfg.level.Level() == 0:
		return "the feature level of the data is not known yet"
	case cfg.level.Level() < featurelevel.Trims:
		return "the release before can still be gone back to, and does not know trimmed logs; millrace upgrade --finish ends that"
	case cfg.snapshots == nil:
		return "no snapshots are taken (store.snapshots.store is off)"
	// A directory does not compare and set: of two stores that write snapshots of one
	// partition, a late one could put an older snapshot in the place of what was trimmed by.
	case !cfg.Alone && !cfg.Snapshots.Shared(cfg.Alone):
		return "other stores may become the owner, and a directory of snapshots is for one store alone; set store.snapshots.store to stream or s3"
	case len(shape.Missing) > 0:
		return "it is damaged"
	case l.p.splitting() != nil:
		return "the partition is being split, and its log is a part of what its children are made of"
	case why != nil && why.Status != store.StatusInsufficientDisk: // a trim makes room
		return "writes are refused: " + why.Message
	}
	return ""
}

// rests says whether nobody has written for a while.
func (l *trimming) rests(cfg *Config, now time.Time) bool { return now.Sub(l.at) >= cfg.Snapshots.Rest }

// trimPoint returns how far a log may be trimmed, and what holds it there.
//
//	never beyond:      a snapshot, what the engine has synced, the commit before the last
//	unless for longer
//	than retentionMax: retention, whoever reads
func (t *trimmer) trimPoint(ctx context.Context, l *trimming, shape *feed.Shape, now time.Time) (point feed.LSN, why string, err error) {
	lower := func(to feed.LSN, reason string) {
		if to < point {
			point, why = to, reason
		}
	}
	// The last commit carries the trim point. The one that raises it will be behind it.
	point, why = shape.Last-1, "everything is trimmed but the end"
	synced, _, err := l.p.engine.Synced()
	if err != nil {
		return 0, "", err
	}
	lower(synced, "the engine has not synced more yet")
	snapshot, reason, err := t.snapshotFloor(ctx, l, now)
	if err != nil {
		return 0, "", err
	}
	if lower(snapshot, reason); point < shape.First {
		return point, why, nil // cheap to find out; what follows is not
	}
	clock, hard := clockOf(l.p, shape), point
	kept := time.Duration(l.spec.Kept())
	old, err := l.p.feed.LastBefore(ctx, clock.Add(-kept), hard)
	if err != nil {
		return 0, "", err
	}
	if old < hard {
		lower(old, fmt.Sprintf("changeFeed.retention keeps %s", kept))
		// The place is searched for in the log: not each second for a day.
		l.retryAt = now.Add(min(max(kept/20, trimInterval), time.Minute))
	}
	held, barred, err := t.readers(ctx, l, now)
	if err != nil {
		return 0, "", err
	}
	if barred != "" {
		l.retryAt = now.Add(holdsInterval)
		return 0, barred, nil
	}
	if err := t.noteLate(ctx, l, held, clock); err != nil {
		return 0, "", err
	}
	// Readers that came since the last question are not known. Each begins at the log's end as
	// it was when it came, so nothing behind the end as of the question may go:
	//
	//	asked at 2: nobody reads   one comes, notes 2   3 is written, and in a snapshot
	//	trimmed to 3: his 3 is gone
	lower(t.ends[l.p], "who reads it is asked for now and then")
	lower(slowest(held, shape, point))
	if most := l.spec.RetentionMax; most > 0 && point < hard {
		over, err := l.p.feed.LastBefore(ctx, clock.Add(-most), hard)
		if err != nil {
			return 0, "", err
		}
		if over > point {
			point, why = over, fmt.Sprintf("changeFeed.retentionMax keeps %s", most)
		}
	}
	return point, why, nil
}

// trimStepBytes is about how much one purge takes: eight blocks of the server's store, which
// stands still meanwhile. An error in it makes the server refuse appends.
const trimStepBytes = 8 * 4 << 20

// trimData is the Data of a control transaction that raises the trim point.
type trimData struct {
	UpTo feed.LSN `json:"upTo"`
}

// commitTrim raises the trim point in the log, and waits until that is applied. Only then
// may anything go: whoever finds the log shorter must find the reason in it.
func (p *Partition) commitTrim(ctx context.Context, upTo feed.LSN) error {
	data, err := json.Marshal(trimData{upTo})
	if err != nil {
		return fmt.Errorf("trim point %d: %w", upTo, err)
	}
	var lsn feed.LSN
	var generation uint64
	if !p.onDecider(ctx, func(d *decider) {
		d.dropLost()
		if upTo > d.schema.trimmed() {
			t := newTxn(d.view(), d.draft)
			t.control = &feed.Control{Kind: store.ControlTrim, Data: data}
			d.draft.add(t, nil)
			d.draft.trimmed = upTo
			d.schema = d.schema.trimmedTo(upTo) // settings that are decided from here on repeat it
		}
		lsn, generation = d.decided(), d.generation
	}) {
		return errStopped
	}
	return p.waitApplied(ctx, lsn, generation)
}

// purge removes the commits up to upTo, at or below the trim point, in steps. A process that dies on the way
// leaves a log that begins lower, which is no damage; the next owner goes on.
func (t *trimmer) purge(ctx context.Context, l *trimming, upTo feed.LSN) error {
	began, gone := time.Now(), uint64(0)
	shape, err := l.p.feed.Shape(ctx)
	if err != nil {
		return err
	}
	before := shape
	for shape.First <= upTo {
		if l.p.isClosed() || !l.p.lease.Valid() {
			return errStopped
		}
		step := max(t.stepBytes/max(shape.Bytes/max(shape.Commits, 1), 1), 1)
		to := min(upTo, shape.First-1+feed.LSN(step))
		var purged uint64
		if purged, err = l.p.feed.Trim(ctx, to); err != nil {
			break
		}
		if gone += purged; purged == 0 {
			return fmt.Errorf("partition %s: the purge up to LSN %d took nothing", l.p.id, to)
		}
		if err = t.pacer.Pace(ctx); err != nil {
			break
		}
		now, failed := l.p.feed.Shape(ctx)
		if err = failed; err != nil {
			break
		}
		shape = now
	}
	if gone == 0 {
		return err
	}
	freed := before.Bytes - min(shape.Bytes, before.Bytes)
	l.p.logShrank(freed)
	l.state.First = shape.First
	l.p.shape.Store(shape)
	meters.trims.Add(ctx, 1)
	meters.trimmedBytes.Add(ctx, int64(freed))
	l.p.log.Info("log trimmed", "up to", uint64(upTo), "commits", gone, "bytes", freed, "left", shape.Bytes,
		"took", time.Since(began).Round(time.Millisecond))
	return err
}

// logShrank takes what was trimmed from the size of the log at the last snapshot, so that it
// goes on telling by how much the log has grown since.
func (p *Partition) logShrank(bytes uint64) {
	p.logBytes.Store(p.logBytes.Load() - min(bytes, p.logBytes.Load()))
	if last := p.copied.Load(); last != nil {
		next := *last
		next.LogBytes -= min(bytes, next.LogBytes)
		p.copied.CompareAndSwap(last, &next)
	}
}
