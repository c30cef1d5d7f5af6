package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	storepace "github.com/millrace/millrace/store/pace"
)

// BackfillRequest asks a processor to go once through the items of its partition that are
// there, all of them or some.
type BackfillRequest struct {
	// Number tells which request of the generation it is, from 1; it takes the place of
	// those before it. 0 asks for nothing.
	Number uint32
	// Key narrows it to the items of one logical partition; zero is all.
	Key feed.PartitionKey
	// Where narrows it to the items for which it is true, as they are when the backfill comes
	// to them; nil is all. It is called concurrently.
	Where func(item []byte) bool
	// None asks for no items: the request only ends the one before it.
	None bool
	// Broken says why the request cannot be carried out, nil if it can: the processor
	// tells of it and does the rest of its work.
	Broken error
}

// Backfill is how far a processor is in the items that were there. It is never changed
// once it is in a State.
type Backfill struct {
	// Number is that of the request.
	Number uint32 `json:"number"`
	// Cursor is where to go on among the items of the partition, Done whether they are
	// through.
	Cursor []byte `json:"cursor,omitempty"`
	Done   bool   `json:"done,omitempty"`
	// Began is when, in Unix milliseconds; Total and Scanned are items.
	Began   int64 `json:"began"`
	Total   int64 `json:"total,omitempty"`
	Scanned int64 `json:"scanned,omitempty"`
	// Changed are the items whose copies or rows were written.
	Changed int64 `json:"changed,omitempty"`
}

// BackfillJob is the name under which a backfill is shown among the open jobs.
const BackfillJob = "what was there"

// errSplitSince says that the partition whose items are to be gone through was split.
var errSplitSince = errors.New("processors: the partition was split")

// backfillRestMax bounds the rest after a page.
const backfillRestMax = time.Second

// backfillScanMax bounds the items that one Scan reads; it is the store's limit.
const backfillScanMax = 1000

// Backfiller goes through the items of a partition once, page by page, beside what the
// feed brings: so columns that a projection gains come into the rows that are there,
// and a generation that began without what was there gets it later, as a whole or in
// parts.
//
// The checkpoint says how far it is, so a crash repeats one page. A page that fails is tried again
// until it succeeds, and the term tells of it meanwhile. While others write to the log that the
// term reads it works for Config.BackfillPercent of its time, and rests after each page: their
// changes come first. What the backfill itself writes there is no reason to rest:
//
//	a page took 40 ms, and the feed has brought      at 50 % it rests
//	nothing                                          not at all
//	repairs of its own, by Repair                    not at all
//	a client's write, a page of a fan-out            40 ms
//
// Its Run is one goroutine, which calls page; State and Left may be called beside it.
type Backfiller struct {
	request BackfillRequest
	items   *store.Container
	page    func(ctx context.Context, next *Backfill) error
	term    *Term

	mu       sync.Mutex
	progress *Backfill // nil if none was ever asked for
	trouble  *Trouble
}

// NewBackfiller returns a Backfiller over the items of a container. page reads the next
// items by Scan, brings them to their copies or rows, and is called again from where it
// was after an error and after a crash.
func NewBackfiller(request BackfillRequest, items *store.Container, page func(ctx context.Context, next *Backfill) error) *Backfiller {
	return &Backfiller{request: request, items: items, page: page}
}

// Open begins a term with what State said for the checkpoint. It continues a backfill that was
// begun only if that is the one that is asked for.
func (f *Backfiller) Open(t *Term, was *Backfill) {
	f.term, f.progress = t, was
	switch n := f.request.Number; {
	case n == 0:
		f.progress = nil
	case was == nil || was.Number < n:
		f.progress = &Backfill{Number: n, Began: time.Now().UnixMilli()}
	}
}

// State adds the backfill to s, with a Job for people while it is not done. The Job is not
// about a change: it has no position, and FinishedBelow passes over it.
func (f *Backfiller) State(s *State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Backfill = f.progress
	if f.trouble != nil && s.Trouble == nil {
		s.Trouble = f.trouble
	}
	if f.progress == nil || f.progress.Done {
		return
	}
	s.Jobs = append(s.Jobs, Job{Source: BackfillJob, Began: f.progress.Began, Total: f.progress.Total, Scanned: f.progress.Scanned, Changed: f.progress.Changed})
}

// Left tells whether something is left to do.
func (f *Backfiller) Left() bool { return f.remaining() != nil }

// remaining returns how far the backfill is, nil if nothing is left.
func (f *Backfiller) remaining() *Backfill {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.progress == nil || f.progress.Done {
		return nil
	}
	next := *f.progress
	return &next
}

// Run does what is left, until that is done or ctx ends. An error ends the term.
func (f *Backfiller) Run(ctx context.Context) error {
	pauses := NewPauses()
	for ctx.Err() == nil {
		next := f.remaining()
		if next == nil {
			break
		}
		began := time.Now()
		err := f.processPage(ctx, next)
		if err == nil {
			pauses.Reset()
			f.pageDone(ctx, next)
			if f.term.othersWrote.Swap(false) && !next.Done {
				_ = storepace.Pause(ctx, rest(f.term.backfillShare, time.Since(began), backfillRestMax))
			}
			continue
		}
		// The items are in the children, whose processors go through them from the first on.
		if _, split := errors.AsType[*store.SplitError](err); split || errors.Is(err, errSplitSince) {
			f.mu.Lock()
			f.trouble = nil
			f.mu.Unlock()
			return nil
		}
		switch FailureOf(ctx, err) {
		case Canceled:
			return nil
		case Fenced:
			CountFenced(ctx, f.term.Resource)
			return errors.Join(ErrFenced, err)
		default:
		}
		// Tried without end. A single bad item has become a dead letter in page, so this
		// failure is about all items.
		f.noteFailure(ctx, err)
		_ = pauses.Wait(ctx, err) // that ctx has ended is seen above
	}
	return nil
}

// processPage does one page.
func (f *Backfiller) processPage(ctx context.Context, next *Backfill) error {
	if f.request.Broken != nil {
		return f.request.Broken
	}
	// Before it is asked in which partition the key is: it may be in a child. To read all items of a partition that was
	// split tells the same.
	if !f.request.Key.IsZero() && !slices.Contains(f.items.Partitions(), f.term.Partition) {
		return errSplitSince
	}
	// Most partitions have nothing of one logical partition. They are done at once, which
	// has to be in a checkpoint all the same: the request is done when all say so.
	if f.request.None || f.ofOtherPartition() {
		next.Done = true
		return nil
	}
	// Counted once, for the progress that people see; items that come meanwhile are brought
	// by the feed anyway.
	if next.Total == 0 {
		n, err := f.items.Count(ctx, f.term.Partition, f.scope())
		if err != nil {
			return fmt.Errorf("count the items that are there: %w", err)
		}
		next.Total = int64(n)
	}
	return f.page(ctx, next)
}

// ofOtherPartition tells whether the items that are asked for are those of another partition.
func (f *Backfiller) ofOtherPartition() bool {
	key := f.request.Key
	return !key.IsZero() && f.items.PartitionFor(key) != f.term.Partition
}

func (f *Backfiller) scope() store.Scope { return store.Scope{Key: f.request.Key} }

// Scan reads the items that follow, at most 1,000, behind a barrier. It calls each with those
// that are asked for, moves next behind them, and returns how many it read.
func (f *Backfiller) Scan(ctx context.Context, next *Backfill, each func(*store.Item)) (read int, err error) {
	page, err := f.items.Scan(ctx, f.term.Partition, store.Scan{
		Scope: f.scope(), After: next.Cursor, ItemsMax: backfillScanMax, Barrier: true,
	})
	if err != nil {
		return 0, err
	}
	for i := range page.Items {
		if item := &page.Items[i]; f.request.Where == nil || f.request.Where(item.Body) {
			each(item)
		}
	}
	// Only next moves here. It becomes the progress when the page has been written, so that a
	// crash between the two reads this page again.
	next.Scanned += int64(len(page.Items))
	next.Cursor, next.Done = page.Cursor, page.Cursor == nil
	return len(page.Items), nil
}

// pageDone takes a page that is done into the state.
func (f *Backfiller) pageDone(ctx context.Context, next *Backfill) {
	f.mu.Lock()
	f.progress, f.trouble = next, nil
	f.mu.Unlock()
	f.term.Heartbeat()
	f.term.Changed("")
	if next.Done {
		f.term.Logger.InfoContext(ctx, "the backfill is done",
			slog.Int64("items", next.Scanned), slog.Int64("changed", next.Changed))
	}
}

// noteFailure shows a failure in the state until a page succeeds.
func (f *Backfiller) noteFailure(ctx context.Context, err error) {
	f.mu.Lock()
	f.trouble = f.term.Failed(ctx, f.trouble, "the backfill cannot go on now", fmt.Errorf("backfill: %w", err))
	f.mu.Unlock()
	f.term.Changed("")
}
