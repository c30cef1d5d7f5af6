package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Walk is what a reader begins with in place of the beginning of its log: the items of a
// snapshot that is pinned for it.
type Walk struct {
	// Container is that of the partition that is read.
	Container *store.Container
	// Snapshot is its id, LSN the commit as of which it is, Items how many it holds. They
	// are recorded with the generation: another snapshot has other items at the same
	// positions.
	Snapshot string
	LSN      feed.LSN
	Items    uint64
	// ByHand is what an operator has to do where the items cannot be read any more; "" if the generation begins
	// anew by itself.
	ByHand string
}

// PinHolder is the name under which the snapshot of a reader's walk is pinned.
func (r Resource) PinHolder() string { return r.String() }

const (
	// walkChangesMax and walkBytesMax bound one commit of a walk. How it is cut into
	// commits makes no difference: positions are those of items.
	walkChangesMax = 250
	walkBytesMax   = 256 << 10
)

// WalkError says that the items with which a generation begins cannot be read any more.
type WalkError struct {
	Resource Resource
	Walk     Walk
	Cause    error
}

// Error tells the way out first: a checkpoint keeps the beginning of a long text.
func (e *WalkError) Error() string {
	next := e.Walk.ByHand
	if next == "" {
		next = "it begins anew by itself, or with millrace rewind --to beginning"
	}
	return fmt.Sprintf("the items with which generation %d begins cannot be read any more; %s: LSN %s of %s: %v",
		e.Resource.Generation, next, e.Walk.LSN, e.Resource.Partition, e.Cause)
}

func (e *WalkError) Unwrap() error { return e.Cause }

// walkReader reads a walk, and behind it the log. One goroutine uses it.
type walkReader struct {
	walk     *Walk
	resource Resource
	log      *feed.Reader     // from the commit behind the walk on
	end      *feed.SplitError // what follows the walk, if the log has nothing behind it
	batch    int              // bounds the changes of a commit
	failed   func(*Trouble)
	warn     func(trouble *Trouble, err error) *Trouble

	next  uint64 // the ordinal of the item that is read next
	cut   []*feed.Commit
	ended bool
}

// Next returns the next commit of the walk, and of the log behind it. A read that
// fails is tried again without end: nothing behind the missing items may be read before them.
func (w *walkReader) Next(ctx context.Context) (*feed.Commit, error) {
	if w.ended && len(w.cut) == 0 {
		if w.end != nil {
			return nil, w.end
		}
		return w.log.Next(ctx)
	}
	var trouble *Trouble
	for pauses := NewPauses(); len(w.cut) == 0; {
		err := w.readPage(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if _, wrong := errors.AsType[*feed.MismatchError](err); wrong {
			return nil, err
		}
		trouble = w.warn(trouble, err)
		w.failed(trouble)
		if err := pauses.Wait(ctx, err); err != nil {
			return nil, err
		}
	}
	if trouble != nil {
		w.failed(nil)
	}
	c := w.cut[0]
	w.cut = w.cut[1:]
	return c, nil
}

// readPage reads the page at next and cuts it into commits.
func (w *walkReader) readPage(ctx context.Context) error {
	page, err := w.walk.Container.ReadPinned(ctx, w.resource.Partition, store.ReadPinned{
		Holder: w.resource.PinHolder(), ID: w.walk.Snapshot, From: w.next,
	})
	if WalkGone(err) {
		return &WalkError{w.resource, *w.walk, err}
	}
	if err != nil {
		return fmt.Errorf("read the items that are there: %w", err)
	}
	// An id names one snapshot, so its count of items cannot have changed. If it has, the page
	// is of something else, and positions in it mean nothing.
	if page.LSN != w.walk.LSN || len(page.Items) == 0 && w.next != w.walk.Items || w.next+uint64(len(page.Items)) > w.walk.Items {
		return &WalkError{w.resource, *w.walk, fmt.Errorf("it has %d items as of LSN %s behind the first %d, and %d as of LSN %s were pinned",
			len(page.Items), page.LSN, w.next, w.walk.Items, w.walk.LSN)}
	}
	if is := w.log.Log().ID(); page.Log != is {
		return &feed.MismatchError{
			Partition: w.resource.Partition, Stream: w.log.Log().Stream(), LSN: page.LSN, What: fmt.Sprintf("it is log %s, the snapshot is of log %s", is, page.Log),
		}
	}
	w.log.Expect(page.Sum) // the commit behind the walk must follow the one as of which it is
	w.cut = cutPage(page, w.next, w.batch)
	w.next += uint64(len(page.Items))
	w.ended = len(page.Items) == 0
	return nil
}

// WalkGone says whether err is that of reading a pinned snapshot that cannot be read any more. That of a partition that
// was split is such a one: its children have snapshots of their own.
func WalkGone(err error) bool {
	if _, split := errors.AsType[*store.SplitError](err); split {
		return true
	}
	refusal, ok := errors.AsType[*store.Error](err)
	return ok && (refusal.Status == store.StatusNotFound || refusal.Status == store.StatusDamaged)
}

// cutPage cuts a page, whose first item has the ordinal first, into commits of at most
// changesMax changes. The last page is empty: it becomes one commit without changes, which says
// that the walk is over.
//
//	items 500 to 749 as of LSN 40   ->   one commit of 250 creates
//	no items behind 750             ->   one commit at WalkEnd(40)
func cutPage(page *store.PinnedPage, first uint64, changesMax int) (commits []*feed.Commit) {
	begin := func(at feed.Position) *feed.Commit {
		return &feed.Commit{Log: page.Log, LSN: page.LSN, Sum: page.Sum, Time: page.Time, Walk: &feed.Walk{First: at.Index}}
	}
	if len(page.Items) == 0 {
		return []*feed.Commit{begin(feed.WalkEnd(page.LSN))}
	}
	for items := page.Items; len(items) > 0; {
		n, bytes := 0, 0
		for n < min(len(items), changesMax) && bytes < walkBytesMax {
			bytes += len(items[n].Body)
			n++
		}
		c := begin(feed.WalkPosition(page.LSN, first))
		c.Walk.Versions = make([]feed.Position, n)
		changes := make([]feed.Change, n)
		for i := range items[:n] {
			it := &items[i]
			changes[i] = feed.Change{Op: feed.OpCreate, Key: it.Key, ID: it.ID, After: it.Body, Modified: it.Modified, Written: it.Written}
			c.Walk.Versions[i] = feed.Position(it.ETag)
		}
		c.Transactions = []feed.Transaction{{Changes: changes}}
		commits = append(commits, c)
		items, first = items[n:], first+uint64(n)
	}
	return commits
}

// walkFrom returns the ordinal of the item that a term begins with; ok is false if it
// begins in the log.
func walkFrom(t *Task, cp *Checkpoint) (next uint64, ok bool, err error) {
	done, walking := cp.Position.Walked()
	switch {
	case t.Walk == nil && walking:
		return 0, false, fmt.Errorf("the checkpoint is at %s, in the items that were there, and the generation does not begin with any", cp.Position)
	case t.Walk == nil, !walking && !cp.Position.IsZero():
		return 0, false, nil
	case walking && cp.Position.LSN != t.Walk.LSN:
		return 0, false, fmt.Errorf("the checkpoint is at %s, in items as of another commit than LSN %s, with which the generation begins", cp.Position, t.Walk.LSN)
	}
	return done, true, nil
}

// openWalk opens the items behind a checkpoint, and behind them the log.
func (h *Host) openWalk(ctx context.Context, r *run, t *Task, cp *Checkpoint, next uint64) (commitReader, *feed.Reader, error) {
	behind := *cp
	behind.Position = feed.Position{LSN: t.Walk.LSN}
	log, end, err := h.openReader(ctx, t.Partition, &behind)
	if err != nil {
		return nil, nil, err
	}
	w := &walkReader{walk: t.Walk, resource: t.Resource, log: log, end: end, next: next, batch: min(walkChangesMax, h.cfg.BatchItemsMax)}
	w.failed = func(trouble *Trouble) {
		r.reading.Store(trouble)
		r.term.Changed("")
	}
	w.warn = func(was *Trouble, err error) *Trouble {
		trouble := r.term.Failed(ctx, was, "the items that are there cannot be read now", err)
		// It does not pass by itself, so nobody need wait for more attempts to be told.
		if _, gone := errors.AsType[*WalkError](err); gone {
			trouble.Attempts = max(trouble.Attempts, StuckAttempts)
		}
		return trouble
	}
	return w, log, nil
}

// itemsLeft is how many items of the walk lie behind a position.
func (r *run) itemsLeft(at feed.Position) int64 {
	done, walking := at.Walked()
	if r.walk == nil || !walking && !at.IsZero() {
		return 0
	}
	return int64(r.walk.Items) - int64(done)
}

// releaseWalk releases the snapshot when a durable checkpoint is behind it. If this never
// succeeds, the pin lapses by its time limit.
func (r *run) releaseWalk(ctx context.Context) {
	if r.walk == nil {
		return
	}
	if !r.term.Saved().Position.Reached(r.walk.LSN) {
		r.keepWalk(ctx)
		return
	}
	_, err := r.walk.Container.PinSnapshot(ctx, r.Partition, store.PinSnapshot{Holder: r.PinHolder(), Release: true})
	if err != nil {
		r.term.Logger.DebugContext(ctx, "the snapshot that was walked is not released yet", slog.Any("error", err))
		return
	}
	r.walk = nil
}

// keepWalk extends the pin while nothing is read, because a sink is away for long. It does so
// by a read at the end, where there are no items. A request for a pin would extend it too, but
// would take another snapshot where this one is gone.
func (r *run) keepWalk(ctx context.Context) {
	if time.Since(r.walkKept) < store.PinFor/24 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, measureMax)
	defer cancel()
	_, err := r.walk.Container.ReadPinned(ctx, r.Partition, store.ReadPinned{Holder: r.PinHolder(), ID: r.walk.Snapshot, From: r.walk.Items})
	if err != nil {
		r.term.Logger.DebugContext(ctx, "the snapshot that is walked is not kept for longer yet", slog.Any("error", err))
		return
	}
	r.walkKept = time.Now()
}
