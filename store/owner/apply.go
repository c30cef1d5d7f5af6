package owner

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// applier applies commits to the engine in order. What it does is a function of
// the commits alone: it reads no clock, and it writes absolute values, so that a
// commit may be applied again.
//
// The committer's goroutine owns all of it, and before that the one that opens the
// partition.
type applier struct {
	p      *engine.Partition
	log    *slog.Logger
	batch  *engine.Batch
	schema *schema // nil before the first commit
	last   applied
	damage *DamagedError // of the log, before what the engine holds
	// partial says that the engine was made anew, from a snapshot or from the log's beginning, and no owner has gone on
	// from it since: where the log is lost before that, nothing tells whether it has come to the log's end. The state names
	// no owner then, so that the next process knows it too; see Partition.holdsAll.
	partial bool
	// finished is nil before the first commit.
	finished *finishedFanOuts
	// built are the indexes that this process built step by step while it served,
	// so that the commit which declares them ready need not.
	built map[uint32]bool
	// stones are the kinds of tombstones of which the partition may have any.
	stones map[uint32]bool
	// parts and applying are those of the Partition; nil while nobody reads.
	parts, applying *atomic.Uint64
	// forgetMax stands for the constant; 0 outside of tests.
	forgetMax int
	// hide makes readers go by a schema before indexes that it lacks are dropped; nil
	// while there are none.
	hide func(*schema)
}

// apply applies the commits after the last one, in order. Those that can be are written at once: who looks at the engine
// sees all of them, or none.
func (a *applier) apply(commits ...*feed.Commit) error {
	for len(commits) > 0 {
		n := a.together(commits)
		if err := a.applyTogether(commits[:n]); err != nil {
			return err
		}
		commits = commits[n:]
	}
	return nil
}

// together returns how many commits, from the first on, can be written at once. What applying a commit reads of the engine
// must be as of the commit before it (I3), so whoever may read stands first:
//
//	9 10 11               changes and records: at once
//	9 | 10: a setting     what it rebuilds is read from the engine, so 9 is there before
//	9 | 10: another minute of the log's time: what is forgotten is looked for
func (a *applier) together(commits []*feed.Commit) int {
	if readsEngine(commits[0]) {
		return 1 // and a part of it may be written before the rest
	}
	n, bytes := 1, commits[0].Memory()
	for ; n < len(commits); n++ {
		c := commits[n]
		if bytes += c.Memory(); bytes > togetherBytesMax || readsEngine(c) || forgets(commits[n-1].Time, c.Time) {
			break
		}
	}
	return n
}

// togetherBytesMax bounds the commits that are written at once, in memory: about what one transaction of Badger takes.
const togetherBytesMax = 1 << 20

// readsEngine says whether a commit may do to the engine what rests on all that was applied before, beside what it writes.
func readsEngine(c *feed.Commit) bool {
	return slices.ContainsFunc(c.Transactions, func(t feed.Transaction) bool {
		return t.Control != nil && t.Control.Data != nil || beginsGeneration(&t)
	})
}

// forgets says whether the commit at a time, behind one at another, drops what is too old: once a minute of the log's
// own time.
func forgets(before, now int64) bool { return now/60000 != before/60000 }

// applyTogether applies commits that can be written at once.
func (a *applier) applyTogether(commits []*feed.Commit) error {
	if a.applying != nil {
		a.applying.Store(uint64(commits[len(commits)-1].LSN)) // before anything of them is written
	}
	for _, c := range commits {
		if err := a.stage(c); err != nil {
			return err
		}
	}
	if err := a.batch.Commit(); err != nil {
		return err
	}
	if a.inParts() {
		a.parts.Add(1)
	}
	return nil
}

// stage puts into the batch what the commit after the last one does.
func (a *applier) stage(c *feed.Commit) error {
	// Once for all commits: the map that loadFinished makes is read at each of them.
	if a.batch == nil {
		var err error
		if a.finished, err = loadFinished(a.p); err != nil {
			return err
		}
		a.batch = a.p.NewBatch(a.engineSchema())
	}
	b := a.batch
	b.SetSchema(a.engineSchema())
	// Before the changes: one of them may make a tombstone anew that is old, and what is forgotten
	// is committed in parts, of which none may hold a change.
	if err := errors.Join(a.forgetStones(b, c.Time), a.forgetIdempotencyKeys(b, c.Time)); err != nil {
		return err
	}
	for i := range c.Transactions {
		t := &c.Transactions[i]
		if t.Control != nil && t.Control.Data != nil {
			// What stands before it in this commit must be there for what it rebuilds.
			if err := a.commitPart(b); err != nil {
				return err
			}
			if err := errors.Join(a.applyControl(t.Control, c.Time), applySplit(b, t.Control)); err != nil {
				return err
			}
			b.SetSchema(a.engineSchema())
		}
		// A tombstone is made of the item before its change, which the change itself holds:
		// the engine is not asked for it, so a replay over a newer state makes the same one.
		for j := range t.Changes {
			if err := a.applyChange(b, &t.Changes[j], c.LSN, changeIndex(c, i, j)); err != nil {
				return err
			}
			if err := a.applyTombstones(b, &t.Changes[j], feed.Position{LSN: c.LSN, Index: changeIndex(c, i, j)}, c.Time); err != nil {
				return err
			}
		}
		if err := a.dropFormerRows(b, t); err != nil {
			return err
		}
		if err := a.applyRecords(b, c, i); err != nil {
			return err
		}
	}
	// From the commit itself, whatever else it holds: settings that were decided before may
	// stand behind it in the same commit.
	if c.Trimmed > a.schema.trimmed() && a.schema != nil {
		a.schema = a.schema.trimmedTo(c.Trimmed)
	}
	// The state goes into the same batch as the changes: after a crash the engine has both
	// or neither, and replay knows from where to go on.
	a.last = applied{lsn: c.LSN, sum: c.Sum, time: c.Time}
	state := engine.State{Log: c.Log, Applied: c.LSN, Sum: c.Sum, Time: c.Time, Epoch: c.Epoch, Owner: c.Owner, Settings: a.settings()}
	if a.partial {
		state.Owner = ""
	}
	b.SetState(state)
	a.finished.applyNotes()
	return nil
}

// commitPart writes what stands in b before the rest of its commit. After an error of the rest
// parts stays odd: nobody who needs whole commits reads this engine until the commit is applied
// again, by the next owner that opens it.
func (a *applier) commitPart(b *engine.Batch) error {
	if a.parts != nil && !a.inParts() {
		a.parts.Add(1)
	}
	return b.Commit()
}

// inParts says whether a part of the commit at hand may be written.
func (a *applier) inParts() bool { return a.parts != nil && a.parts.Load()%2 == 1 }

func (a *applier) engineSchema() *engine.Schema {
	if a.schema == nil {
		return &engine.Schema{}
	}
	return &a.schema.engine
}

func (a *applier) settings() []byte {
	if a.schema == nil {
		return nil
	}
	return a.schema.encoded
}

// changeIndex is the index of change j of transaction i in the commit.
func changeIndex(c *feed.Commit, i, j int) uint32 {
	for k := range i {
		j += len(c.Transactions[k].Changes)
	}
	return uint32(j)
}

func (a *applier) applyChange(b *engine.Batch, c *feed.Change, lsn feed.LSN, index uint32) error {
	// The item before is needed to take its index entries and unique keys away, and nothing
	// else: most patches touch none of them, and need not put the body before together.
	var before *engine.Item
	if c.Op != feed.OpCreate && !a.bodyOnly(c) {
		body, err := c.BeforeBody()
		if err != nil {
			return fmt.Errorf("change %s: %w", feed.Position{LSN: lsn, Index: index}, err)
		}
		before = &engine.Item{Key: c.Key, ID: c.ID, Body: body, Position: c.Prev, Modified: c.PrevModified}
	}
	if c.Op == feed.OpDelete || c.Op == feed.OpExpire {
		return b.Delete(before)
	}
	after := &engine.Item{
		Key: c.Key, ID: c.ID, Body: c.After, Position: feed.Position{LSN: lsn, Index: index}, Modified: c.Modified, Written: c.Written,
	}
	if a.bodyOnly(c) {
		after.Expires = a.schema.engine.Expires(after.Body, after.Modified)
		return b.PutBody(after)
	}
	return b.Put(after, before)
}

// bodyOnly says whether a change leaves indexes, unique keys and expiry alone:
// a patch that touched none of their paths, with the TTL clock as it was.
func (a *applier) bodyOnly(c *feed.Change) bool {
	return c.Op == feed.OpReplace && len(c.Undo) > 0 &&
		(a.schema.engine.DefaultTTL == nil || c.Modified == c.PrevModified) && !c.Touches(a.schema.touches)
}

// applyRecords keeps what a transaction says of its producer, fan-out and
// idempotency key.
func (a *applier) applyRecords(b *engine.Batch, c *feed.Commit, i int) error {
	t := &c.Transactions[i]
	if t.Effect != nil {
		known := producerState{Epoch: t.Effect.Epoch, Position: t.Effect.UpTo}
		if t.Page != nil {
			known.Finished = t.Page.FinishedBelow
		}
		if err := b.PutRecord(recordProducer, []byte(t.Effect.Producer.String()), known.encode()); err != nil {
			return err
		}
	}
	if t.Page != nil {
		f := fanOut{
			Position: t.Page.Position, Cursor: t.Page.Cursor, Takeover: t.Page.Takeover,
			Wrapped: t.Page.Wrapped, Done: t.Page.Done, Planted: t.Page.Planted,
		}
		if t.Page.Planted == c.LSN && !t.Page.FinishedBelow.IsZero() {
			if err := a.forgetFanOuts(b, t); err != nil {
				return err
			}
		}
		key := fanOutKey(t.Effect.Producer, t.Page.Source)
		if err := b.PutRecord(recordFanOut, []byte(key), f.encode()); err != nil {
			return err
		}
		a.finished.note(t.Effect.Producer.String(), key, f.Position, f.Done)
	}
	for j := range t.Folds {
		if err := applyFold(b, &t.Folds[j]); err != nil {
			return err
		}
	}
	if t.IdempotencyKey != "" {
		first := int(changeIndex(c, i, 0))
		return errors.Join(
			b.PutRecord(recordIdempotency, []byte(t.IdempotencyKey), encodeIdempotency(c.LSN, first, t.Changes)),
			b.PutRecord(recordIdemTime, idemTimeKey(c.Time, t.IdempotencyKey), nil))
	}
	return nil
}

// dropFormerRows drops the pending rows of earlier generations when a producer of a later
// generation first asks for its position: no row is promoted from them any more. Their
// accumulators went with their rule.
func (a *applier) dropFormerRows(b *engine.Batch, t *feed.Transaction) error {
	if !beginsGeneration(t) {
		return nil
	}
	e := t.Effect
	if err := a.commitPart(b); err != nil { // what stands before it must be seen
		return err
	}
	// Oldest first, up to the one that asks. One that is still a rule's keeps its records:
	// accumulators are of the same kind as pending rows.
	for {
		former, err := a.earliestGeneration(e.Producer.Pipeline)
		if err != nil || former == 0 || former >= e.Producer.Generation || a.schema.rule(e.Producer.Pipeline, former) != nil {
			return err
		}
		if err := a.p.DropRecords(recordAccumulator, []byte(rulePrefix(e.Producer.Pipeline, former))); err != nil {
			return fmt.Errorf("drop the pending rows of generation %d of %s: %w", former, e.Producer.Pipeline, err)
		}
	}
}

// beginsGeneration says whether a producer of a later generation asks for its position, as it does first.
func beginsGeneration(t *feed.Transaction) bool {
	e := t.Effect
	return e != nil && e.Producer.Generation >= 2 && e.UpTo.IsZero() && t.Page == nil && len(t.Changes)+len(t.Folds) == 0
}

// earliestGeneration returns the earliest generation of a pipeline that has pending rows or
// accumulators, 0 if none has.
func (a *applier) earliestGeneration(pipeline string) (uint32, error) {
	prefix := rulePrefix(pipeline, 0)
	prefix = prefix[:len(prefix)-4]
	snap := a.p.Snapshot()
	defer snap.Close()
	for r, err := range snap.Records(recordAccumulator, []byte(prefix)) {
		if err != nil {
			return 0, err
		}
		return binary.BigEndian.Uint32(r.Key[len(prefix):]), nil
	}
	return 0, nil
}

// applyFold keeps what a transaction says of accumulators.
func applyFold(b *engine.Batch, f *feed.Fold) error {
	var room [groupNameRoom]byte
	prefix := appendRulePrefix(room[:0], f.Pipeline, f.Generation)
	for i := range f.Records {
		key := append(prefix, f.Records[i].Key...)
		var err error
		if f.Records[i].Value == nil {
			err = b.DeleteRecord(recordAccumulator, key)
		} else {
			err = b.PutRecord(recordAccumulator, key, f.Records[i].Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetFanOuts drops the producer's finished fan-outs that it will not ask for
// again.
func (a *applier) forgetFanOuts(b *engine.Batch, t *feed.Transaction) error {
	producer := t.Effect.Producer.String()
	for _, key := range a.finished.below(producer, t.Page.FinishedBelow) {
		if err := b.DeleteRecord(recordFanOut, []byte(key)); err != nil {
			return err
		}
		a.finished.note(producer, key, feed.Position{}, false)
	}
	return nil
}

// forgetIdempotencyKeys drops idempotency keys whose window has passed by the time of the commit
// that is applied, once a minute of the log's own time.
func (a *applier) forgetIdempotencyKeys(b *engine.Batch, now int64) error {
	// By the log's time, not the clock's, so that a replay forgets the same keys at the same
	// commits: whether a repetition is known must not depend on who owns the partition.
	if !forgets(a.last.time, now) {
		return nil
	}
	snap := a.p.Snapshot()
	defer snap.Close()
	limit, count := uint64(max(now-idempotencyWindow.Milliseconds(), 0)), 0
	for r, err := range snap.Records(recordIdemTime, nil) {
		if err != nil {
			return err
		}
		if len(r.Key) < 8 || binary.BigEndian.Uint64(r.Key) >= limit {
			return nil
		}
		// The entry by time goes last: a crash may leave a part of the batch, and whoever applies
		// the commit again finds the rest by it.
		if err := errors.Join(b.DeleteRecord(recordIdempotency, r.Key[8:]), b.DeleteRecord(recordIdemTime, r.Key)); err != nil {
			return err
		}
		count++
		if err := a.forgot(b, count); err != nil {
			return err
		}
	}
	return nil
}

// forgetMax is how many keys or tombstones are forgotten in one batch of the engine.
const forgetMax = 10_000

// forgot commits what is forgotten so far when it is as much as one batch may hold.
func (a *applier) forgot(b *engine.Batch, count int) error {
	// After an hour of many writes, and then none, one commit forgets all of that hour: 300,000
	// keys in one batch took 268 MB. The state still names the commit before, so after a crash
	// between two batches this commit is applied again and forgets the rest. Nobody misses
	// meanwhile what is gone: by the time of this commit, which is in the log, it is too old.
	if count%cmp.Or(a.forgetMax, forgetMax) != 0 {
		return nil
	}
	return b.Commit()
}

// applyControl puts new settings in force and does to the engine what they ask.
func (a *applier) applyControl(c *feed.Control, time int64) error {
	switch c.Kind {
	case store.ControlGenesis, store.ControlSettings:
	case store.ControlTakeover, store.ControlTrim, feed.ControlMove, feed.ControlPrepareSplit, feed.ControlSplit, feed.ControlAbandonSplit:
		return nil
	case store.ControlParent, store.ControlDigest:
		return nil
	case store.ControlState:
		return a.applyState(c.Data)
	case store.ControlTombstones:
		return a.applyPastTombstones(c.Data, time)
	default:
		return fmt.Errorf("control transaction %q is not known to this release; run a newer one", c.Kind)
	}
	next, err := compileSettings(c.Data)
	if err != nil {
		return err
	}
	old := a.schema
	a.schema = next
	if old == nil {
		return nil
	}
	if old.settings.TTL != next.settings.TTL {
		if err := a.p.RebuildExpiries(&next.engine); err != nil {
			return fmt.Errorf("rebuild expiries: %w", err)
		}
	}
	// Readers first: entries go page by page, and a query that was planned with the index
	// missed 500 of 2,000 items while it was being dropped.
	if a.hide != nil {
		a.hide(old.within(next))
	}
	for _, index := range old.settings.Indexes {
		if !hasIndex(next, index.Number) {
			if err := a.p.DropIndex(index.Number); err != nil {
				return fmt.Errorf("drop index %s: %w", index.Path, err)
			}
		}
	}
	if err := a.dropStones(old, next); err != nil {
		return err
	}
	for _, r := range old.settings.Rules {
		if next.rule(r.Pipeline, r.Generation) == nil {
			if err := a.p.DropRecords(recordAccumulator, []byte(rulePrefix(r.Pipeline, r.Generation))); err != nil {
				return fmt.Errorf("drop the accumulators of %s: %w", r.Pipeline, err)
			}
		}
	}
	// While it served, this process built the index in steps beforehand. In a replay nobody
	// did, and it is built here, from the state that the log has reached.
	for _, index := range next.settings.Indexes {
		if index.Ready && !wasReady(old, index.Number) && !a.built[index.Number] {
			if err := a.p.BuildIndex(&next.engine, index.Number, nil); err != nil {
				return fmt.Errorf("build index %s: %w", index.Path, err)
			}
		}
	}
	return nil
}

func hasIndex(s *schema, number uint32) bool {
	for _, i := range s.settings.Indexes {
		if i.Number == number {
			return true
		}
	}
	return false
}

func wasReady(s *schema, number uint32) bool {
	for _, i := range s.settings.Indexes {
		if i.Number == number {
			return i.Ready
		}
	}
	return false
}
