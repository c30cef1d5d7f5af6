package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// FillRequest asks a processor to go once through the items of its partition that are
// there, all of them or some.
type FillRequest struct {
	// Number tells which request of the generation it is, from 1; it takes the place of
	// those before it. 0 asks for nothing.
	Number uint32
	// Key narrows it to the items of one logical partition; zero is all.
	Key feed.PartitionKey
	// Where narrows it to the items for which it is true, as they are when the fill comes
	// to them; nil is all. It is called concurrently.
	Where func(item []byte) bool
	// None asks for no items: the request only ends the one before it.
	None bool
	// Broken says why the request cannot be carried out, nil if it can: the processor
	// tells of it and does the rest of its work.
	Broken error
}

// Fill is how far a processor is in the items that were there. It is never changed
// once it is in a State.
type Fill struct {
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

// FillJob is the name under which a fill is shown among the open jobs.
const FillJob = "what was there"

// fillRestMax bounds the rest after a page.
const fillRestMax = time.Second

// fillScanMax bounds the items that one Scan reads; it is the store's limit.
const fillScanMax = 1000

// Filling goes through the items of a partition once, page by page, beside what the
// feed brings: so columns that a projection gains come into the rows that are there,
// and a generation that began without what was there gets it later, as a whole or in
// parts.
//
// How far it is stands in the checkpoint, so a crash repeats one page. It rests after
// each page for as long as that took, so that changes come first. What fails is tried
// again until it succeeds, and the term tells of it meanwhile.
type Filling struct {
	request FillRequest
	items   *store.Container
	page    func(ctx context.Context, next *Fill) error
	term    *Term

	mu      sync.Mutex
	fill    *Fill // nil if none was ever asked for
	trouble *Trouble
}

// NewFilling returns a Filling over the items of a container. page reads the next
// items by Scan, brings them to their copies or rows, and is called again from where it
// was after an error and after a crash.
func NewFilling(request FillRequest, items *store.Container, page func(ctx context.Context, next *Fill) error) *Filling {
	return &Filling{request: request, items: items, page: page}
}

// Open begins a term with what State said for the checkpoint. What was begun is only
// gone on with if it is what is asked for.
func (f *Filling) Open(t *Term, was *Fill) {
	f.term, f.fill = t, was
	switch n := f.request.Number; {
	case n == 0:
		f.fill = nil
	case was == nil || was.Number < n:
		f.fill = &Fill{Number: n, Began: time.Now().UnixMilli()}
	}
}

// State adds the fill to s, with a Job for people while it is not done. The Job is not
// about a change: it has no position, and FinishedBelow passes over it.
func (f *Filling) State(s *State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Fill = f.fill
	if f.trouble != nil && s.Trouble == nil {
		s.Trouble = f.trouble
	}
	if f.fill == nil || f.fill.Done {
		return
	}
	s.Jobs = append(s.Jobs, Job{Source: FillJob, Began: f.fill.Began, Total: f.fill.Total, Scanned: f.fill.Scanned, Changed: f.fill.Changed})
}

// Left tells whether something is left to be filled.
func (f *Filling) Left() bool { return f.left() != nil }

// left returns what is left to be filled, nil if nothing is.
func (f *Filling) left() *Fill {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fill == nil || f.fill.Done {
		return nil
	}
	next := *f.fill
	return &next
}

// Run fills what is left, until that is done or ctx ends. An error ends the term.
func (f *Filling) Run(ctx context.Context) error {
	pauses := NewPauses()
	for ctx.Err() == nil {
		next := f.left()
		if next == nil {
			break
		}
		began := time.Now()
		err := f.turn(ctx, next)
		if err == nil {
			pauses.Reset()
			f.turned(ctx, next)
			rest(ctx, min(time.Since(began), fillRestMax))
			continue
		}
		switch FailureOf(ctx, err) {
		case Ended:
			return nil
		case Lost:
			CountFenced(ctx, f.term.Resource)
			return errors.Join(ErrLost, err)
		default:
		}
		f.failed(ctx, err)
		_ = pauses.Wait(ctx, err) // that ctx has ended is seen above
	}
	return nil
}

// turn does one page.
func (f *Filling) turn(ctx context.Context, next *Fill) error {
	if f.request.Broken != nil {
		return f.request.Broken
	}
	if f.request.None || f.elsewhere() {
		next.Done = true
		return nil
	}
	if next.Total == 0 {
		n, err := f.items.Count(ctx, f.term.Partition, f.scope())
		if err != nil {
			return fmt.Errorf("count the items that are there: %w", err)
		}
		next.Total = int64(n)
	}
	return f.page(ctx, next)
}

// elsewhere tells whether the items that are asked for are those of another partition.
func (f *Filling) elsewhere() bool {
	key := f.request.Key
	return !key.IsZero() && f.items.PartitionFor(key) != f.term.Partition
}

func (f *Filling) scope() store.Scope { return store.Scope{Key: f.request.Key} }

// Scan reads the items that follow, at most 1,000, settled, hands on those that are
// asked for, and moves next behind them. It returns how many it read.
func (f *Filling) Scan(ctx context.Context, next *Fill, each func(*store.Item)) (read int, err error) {
	page, err := f.items.Scan(ctx, f.term.Partition, store.Scan{
		Scope: f.scope(), After: next.Cursor, ItemsMax: fillScanMax, Settled: true,
	})
	if err != nil {
		return 0, err
	}
	for i := range page.Items {
		if item := &page.Items[i]; f.request.Where == nil || f.request.Where(item.Body) {
			each(item)
		}
	}
	next.Scanned += int64(len(page.Items))
	next.Cursor, next.Done = page.Cursor, page.Cursor == nil
	return len(page.Items), nil
}

// turned takes a page that is done into the state.
func (f *Filling) turned(ctx context.Context, next *Fill) {
	f.mu.Lock()
	f.fill, f.trouble = next, nil
	f.mu.Unlock()
	f.term.Heartbeat()
	f.term.Changed("")
	if next.Done {
		f.term.Logger.InfoContext(ctx, "what was there is filled",
			slog.Int64("items", next.Scanned), slog.Int64("changed", next.Changed))
	}
}

func (f *Filling) failed(ctx context.Context, err error) {
	f.mu.Lock()
	f.trouble = f.term.Failed(ctx, f.trouble, "what was there cannot be filled now", fmt.Errorf("fill what was there: %w", err))
	f.mu.Unlock()
	f.term.Changed("")
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
