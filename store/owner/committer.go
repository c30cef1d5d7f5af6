package owner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// committer appends decided commits to the log, one at a time, applies them to
// the engine and answers. One goroutine runs it and owns all of it.
type committer struct {
	p       *Partition
	applier *applier
	buf     []byte
	draft   *draft // at hand
}

func newCommitter(p *Partition) *committer {
	s := p.state.Load()
	p.showSplit()
	return &committer{p: p, applier: &applier{
		p: p.engine, log: p.log, schema: s.schema, last: *s, built: map[uint32]bool{}, hide: p.showSchema, parts: &p.parts, applying: &p.applying,
	}}
}

// run commits until finished is closed and nothing is under way, ctx ends, or
// the partition must not be served any more, which is the error.
func (c *committer) run(ctx context.Context, finished <-chan struct{}) (err error) {
	defer func() {
		if wrong := c.p.engine.Caught(recover()); wrong != nil {
			// Its append may have begun, or be in the log: it comes upon damage as it is applied.
			if c.draft != nil {
				c.draft.fail(errOutcome)
			}
			err = wrong
		}
	}()
	for {
		select {
		case d := <-c.p.commits:
			c.draft = d
			if err := c.commit(ctx, d); err != nil {
				return err
			}
			c.draft = nil
			c.p.lease.Progress()
		case f := <-c.p.committerTasks:
			f(c)
		case <-finished:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// commit makes one draft durable, applies it and answers. The error means that
// this process must stop serving the partition.
func (c *committer) commit(ctx context.Context, d *draft) error {
	// The decider handed the draft over before it knew of an append that did not happen.
	if d.generation != c.p.generation.Load() {
		d.fail(errNotAppended)
		return nil
	}
	// The lease narrows the time in which two processes might append; it does not close
	// it. The log does, by the sequence that each append expects, and what it took needs no other proof.
	if !c.p.mayAppend(ctx) {
		d.fail(c.p.notOwner())
		return fmt.Errorf("partition %s: %w", c.p.id, errLeaseLost)
	}
	// What was decided on damaged blocks of the engine must not reach the log.
	if wrong := c.p.engine.Sound(); wrong != nil {
		d.fail(c.p.rebuilding(wrong))
		return fmt.Errorf("partition %s: %w", c.p.id, wrong)
	}
	if len(d.txns) == 0 {
		c.answerUnappended(ctx, d)
		return nil
	}
	commit := d.commit(c.p.feed.ID(), &applied{sum: c.applier.last.sum, schema: c.applier.schema}, c.p.lease.Epoch(), c.p.owner)
	start := time.Now()
	c.buf = c.p.cfg.appendEncoded(c.buf[:0], commit)
	// Before the append: a follower of the log may see the commit before the answer to the
	// append is here, and a read that it makes then has to wait for it (awaitAppends).
	c.p.inFlight.Store(uint64(d.lsn))
	since := c.p.lease.Now()
	if err := c.append(ctx, d, commit); err != nil || commit.LSN == 0 {
		return err
	}
	c.p.lease.Extend(since)
	appended := time.Now()
	c.p.appendTook.Store(int64(appended.Sub(start)))
	// The write has happened, whatever becomes of its application: nobody may be told that
	// it did not. The next owner, or this one after a restart, applies it from the log.
	if err := c.applier.apply(commit); err != nil {
		c.p.engine.Fail(err)
		d.fail(&store.Error{Status: store.StatusUnknown, Message: "the write is in the log and could not be applied: " + err.Error()})
		return fmt.Errorf("partition %s: apply commit %s: %w", c.p.id, commit.LSN, err)
	}
	if d.applied != nil {
		d.applied()
	}
	if ofSplits(commit) {
		c.p.showSplit()
	}
	// Shown before it is answered: whoever has the answer must read what was written.
	c.publish()
	c.p.compression.note(c.buf)
	record(ctx, commit, len(c.buf), len(d.replies), start, appended)
	d.answer()
	if d.ends != nil {
		return fmt.Errorf("partition %s: %w", c.p.id, d.ends)
	}
	return nil
}

// answerUnappended answers a draft of which nothing is appended, so nothing but the lease says that what was decided is
// true: that it is valid at some time from now on. While it is in doubt others need not wait, for an append may prove it.
func (c *committer) answerUnappended(ctx context.Context, d *draft) {
	if c.p.lease.Valid() {
		d.answer()
		return
	}
	go func() {
		if c.p.trusted(ctx) {
			d.answer()
		} else {
			d.fail(c.p.notOwner())
		}
	}()
}

// compressBytesMin is the default of Config.CompressBytesMin.
const compressBytesMin = 2 << 10

// appendEncoded appends the encoding of c in the form that the configuration and the data's
// feature level ask for. A level that is not known yet asks for the one that all read.
func (cfg *Config) appendEncoded(dst []byte, c *feed.Commit) []byte {
	if cfg.CompressBytesMin < 0 || cfg.level.Level() < featurelevel.Compresses {
		return feed.AppendCommit(dst, c)
	}
	return feed.AppendCompressed(dst, c, cfg.CompressBytesMin)
}

// compression tells by how much the commits of a log that this process has written or replayed were
// compressed. Safe for concurrent use.
type compression struct{ plain, stored atomic.Uint64 }

// note counts an encoded commit.
func (c *compression) note(encoded []byte) {
	if h, err := feed.DecodeHeader(encoded); err == nil {
		c.plain.Add(uint64(h.Bytes))
		c.stored.Add(uint64(len(encoded)))
	}
}

// plainBytes returns what so many bytes of the log are when they are read, as far as is known. Reading
// costs time by these, and items are counted so too; 50 orders in one commit take a quarter of them.
func (c *compression) plainBytes(stored uint64) uint64 {
	plain, of := c.plain.Load(), c.stored.Load()
	if of == 0 {
		return stored
	}
	return uint64(float64(stored) * max(1, float64(plain)/float64(of)))
}

var errLeaseLost = errors.New("the lease is not trusted any more")

// append appends the encoded commit. If the append certainly did not happen, it tells the
// callers so, voids all later decisions and leaves commit.LSN at 0.
func (c *committer) append(ctx context.Context, d *draft, commit *feed.Commit) error {
	lsn, err := c.p.feed.Append(ctx, d.lsn-1, commit.ID, c.buf)
	switch {
	case err == nil && lsn == d.lsn:
		commit.LSN = lsn
		return nil
	case err == nil:
		panic(fmt.Sprintf("owner: commit decided for LSN %d of %s was stored at %d", d.lsn, c.p.id, lsn))
	case errors.Is(err, feed.ErrFenced):
		meters.fenced.Add(ctx, 1)
		c.p.fenced.Store(true) // before anybody is refused because this process stops
		d.fail(c.p.notOwner())
		return fmt.Errorf("partition %s: %w", c.p.id, err)
	case !neverHappened(err), ctx.Err() != nil:
		d.fail(errOutcome)
		if feed.Damaged(err) || errors.Is(err, feed.ErrNoLog) {
			c.p.log.Error("the log is not what it was; the partition is opened anew", "lsn", uint64(d.lsn), "error", err)
			return fmt.Errorf("partition %s: %w: %w", c.p.id, errLogChanged, err)
		}
		return fmt.Errorf("partition %s: %w", c.p.id, err)
	}
	commit.LSN = 0
	c.p.inFlight.Store(uint64(d.lsn - 1))
	c.p.generation.Add(1)
	c.p.changed.notify() // who waits for it to be applied waits in vain
	c.p.log.Error("the log refused a commit; nothing was changed", "lsn", uint64(d.lsn), "error", err)
	refusal := &store.Error{
		Status: store.StatusUnavailable, RetryAfter: 250 * time.Millisecond,
		Message: fmt.Sprintf("the log could not be written, nothing was changed: %v", err),
	}
	if errors.Is(err, feed.ErrStorage) {
		refusal.Status = store.StatusInsufficientDisk
	}
	d.fail(refusal)
	return nil
}

// neverHappened says whether an append certainly did not happen. What is not known to mean that
// does not: nobody may be told that nothing was changed by what is in the log.
func neverHappened(err error) bool {
	return !errors.Is(err, feed.ErrUnknown) && (errors.Is(err, feed.ErrStorage) || errors.Is(err, feed.ErrUnavailable) ||
		errors.Is(err, feed.ErrTooLarge) || errors.Is(err, feed.ErrNoLog))
}

// errLogChanged ends a term under whose appends the log was found damaged, or gone. The next one,
// under the same lease, finds out what is wrong and says it. To give up the lease would give the
// partition to a process that may not have applied what is gone.
var errLogChanged = errors.New("the log is not what it was")

// publish shows what was applied to readers and to the decider.
func (c *committer) publish() {
	s := c.applier.last
	s.schema = c.applier.schema
	c.p.state.Store(&s)
	c.p.changed.notify()
}

// showSchema shows readers a schema in place of the one that was applied.
func (p *Partition) showSchema(s *schema) {
	shown := *p.state.Load()
	shown.schema = s
	p.state.Store(&shown)
}
