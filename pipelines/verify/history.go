package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/pace"
)

// errForgotten says that a log does not reach back to where it is needed.
var errForgotten = errors.New("the log does not reach back far enough to tell what its items were")

// history knows the items of one physical partition as they are at any one place
// of its log, without a snapshot that is held open.
//
// scan reads the items page by page, and between pages follows the log to the LSN of
// the page: it shows the changes of items on pages before. What follows it leaves
// out, for a page yet to come knows it. So after each page what was shown of items,
// and of changes, is together what the partition holds up to the page's end at that
// LSN, and after the last page all that it holds. From then on follow shows every
// change.
//
// A page is at least as new as the state at its LSN, and may be newer; a read behind a barrier
// that comes later has an LSN at least as new as the page. Between the two LSNs the ETag of
// each item says which of its changes the page knows. An item that is not on the page, and
// whose first change behind the LSN is no create, was deleted when the page was read: the page
// knows its changes up to the delete.
//
// A history that replay begins reads the log alone, and before it the logs of the partitions that were split into this one.
//
// One goroutine at a time uses a history. Callers close it.
type history struct {
	// Set once by verification.history.
	js        jetstream.JetStream
	pacer     *pace.Pacer
	container *store.Container
	partition feed.Partition
	span      feed.Range // of the partition

	// Owned, with all that follows, by the goroutine that uses the history.
	begun    bool     // at has a meaning
	at       feed.LSN // up to which the log was followed
	complete bool     // there are no more pages
	high     feed.LSN // at which it was complete
	replayed bool     // by the log alone

	// The last page holds the items behind the cursor from, up to the cursor to; nil
	// is behind all.
	from, to []byte
	known    map[store.ItemRef]feed.Position // the items on it, and their versions
	missed   map[store.ItemRef]bool          // items not on it: whether their changes are to be shown

	log    *feed.Log
	tail   *feed.Tail
	former *store.FormerPartition // whose log tail reads; nil: the partition's own
	cursor []byte                 // scratch
}

// event is a change that a history shows.
type event struct {
	*feed.Change
	at          feed.Position
	transaction *feed.Transaction
}

// history returns the history of one partition.
func (run *verification) history(container *store.Container, partition feed.Partition) *history {
	h := &history{js: run.js, pacer: run.pacer, container: container, partition: partition}
	info := container.Info()
	if at := slices.IndexFunc(info.Partitions, func(p store.PartitionInfo) bool { return p.Number == partition.Number }); at >= 0 {
		h.span = info.Partitions[at].Range
	} else if former := info.FormerOf(partition.Number); former != nil {
		h.span = former.Range
	}
	return h
}

// pages shows the items of a partition, some at a time, each page as it is when it
// is read.
func (run *verification) pages(ctx context.Context, container *store.Container, partition feed.Partition, visit func([]store.Item) error) error {
	page := store.Scan{ItemsMax: run.cfg.PageItems}
	for {
		result, err := container.Scan(ctx, partition, page)
		if err != nil {
			return fmt.Errorf("scan %s of container %s: %w", partition, container.Info().Name, err)
		}
		if err := visit(result.Items); err != nil {
			return err
		}
		if err := run.pacer.Pace(ctx); err != nil {
			return err
		}
		if page.After = result.Cursor; page.After == nil {
			return nil
		}
	}
}

// scan shows all items, some at a time, and changes of items that were shown.
func (h *history) scan(ctx context.Context, itemsMax int, items func([]store.Item) error, change func(*event) error) error {
	for !h.complete {
		page, err := h.readPage(ctx, itemsMax)
		if err != nil {
			return err
		}
		// What the page before may not know, as long as it is the last one:
		//
		//	page 1, LSN 40   a@38, b@41         b is newer than the LSN says
		//	log to 43        41 b, 42 c, 43 a   only 43 is shown: the page knows 41,
		//	                                    and a page to come knows 42
		//	page 2, LSN 43   c@42, d@12
		//
		// With page 2 set first, b would lie before it, and 41 be shown once too often.
		if err := h.follow(ctx, page.LSN, change); err != nil {
			return err
		}
		h.setPage(page)
		if err := items(page.Items); err != nil {
			return err
		}
		if err := h.pacer.Pace(ctx); err != nil {
			return err
		}
		if page.Cursor != nil {
			continue
		}
		// The last page may be newer than its LSN says. One more read, of whatever
		// item, waits for what was in flight then, so that its LSN is at least as new
		// as what the page knew.
		if page, err = h.readPage(ctx, 1); err != nil {
			return err
		}
		if err := h.follow(ctx, page.LSN, change); err != nil {
			return err
		}
		h.complete, h.high, h.known, h.missed = true, page.LSN, nil, nil
	}
	return nil
}

// readPage reads the items behind the last page.
func (h *history) readPage(ctx context.Context, itemsMax int) (*store.ScanResult, error) {
	result, err := h.container.Scan(ctx, h.partition, store.Scan{After: h.to, ItemsMax: itemsMax, Barrier: true})
	if err != nil {
		return nil, fmt.Errorf("scan %s of container %s: %w", h.partition, h.container.Info().Name, err)
	}
	if !h.begun {
		// Nothing before the first page counts: it knows all that came before.
		h.beginAfter(result.LSN)
	}
	return result, nil
}

// setPage makes a page the last one.
func (h *history) setPage(page *store.ScanResult) {
	// A page overlaps none before it, so only the last one has to be remembered:
	// whoever stands before `from` is known as of an LSN that was followed.
	h.from, h.to = h.to, slices.Clone(page.Cursor)
	h.known = make(map[store.ItemRef]feed.Position, len(page.Items))
	h.missed = map[store.ItemRef]bool{}
	for i := range page.Items {
		item := &page.Items[i]
		h.known[store.ItemRef{Key: item.Key, ID: item.ID}] = feed.Position(item.ETag)
	}
}

// replays says that the history is to be read from the log alone. A scan does not
// show items whose time to live has passed, though they are there, for accumulators
// and for sinks, until the log says that they have expired.
func (h *history) replays() bool { return h.container.Info().Spec.TTL != 0 }

// replay makes the history begin behind an LSN of the log and be complete where the
// log ends now.
func (h *history) replay(ctx context.Context, after feed.LSN) error {
	if err := h.openLog(ctx); err != nil {
		return err
	}
	_, last, err := h.log.Bounds(ctx)
	if err != nil {
		return err
	}
	first, err := h.first(ctx)
	if err != nil {
		return err
	}
	// A log that was cut at its beginning cannot give the items that have not
	// changed since. The caller says unjudged, not drift.
	if first > after+1 {
		return fmt.Errorf("%s begins at LSN %d: %w", h.partition, first, errForgotten)
	}
	h.beginAfter(after)
	h.complete, h.replayed, h.high = true, true, max(last, after)
	return nil
}

// replayAll makes the history begin with the first commit that the log still has, and tells
// how far it reaches.
func (h *history) replayAll(ctx context.Context) (first, last feed.LSN, err error) {
	if err := h.openLog(ctx); err != nil {
		return 0, 0, err
	}
	if _, last, err = h.log.Bounds(ctx); err != nil {
		return 0, 0, err
	}
	if first, err = h.first(ctx); err != nil {
		return 0, 0, err
	}
	h.beginAfter(max(first, 1) - 1)
	h.complete, h.replayed, h.high = true, true, last
	return first, last, nil
}

// beginAfter makes the history follow the log from behind an LSN.
func (h *history) beginAfter(after feed.LSN) { h.at, h.begun = after, true }

// logEnd returns the LSN of the last commit in the log.
func (h *history) logEnd(ctx context.Context) (feed.LSN, error) {
	if err := h.openLog(ctx); err != nil {
		return 0, err
	}
	_, last, err := h.log.Bounds(ctx)
	return last, err
}

// follow shows the changes up to an LSN that is in the log, in order.
//
// It does not rest meanwhile, except where it reads old items from the log: a reader that is
// slower than the writers would never be done.
func (h *history) follow(ctx context.Context, to feed.LSN, change func(*event) error) error {
	// The pacer does not count this time as work. Otherwise it would rest for longer the more
	// is written, and fall back further.
	if began := time.Now(); !h.replayed {
		defer func() { h.pacer.Excuse(time.Since(began)) }()
	}
	for h.at < to {
		if err := h.openTail(ctx); err != nil {
			return err
		}
		c, err := h.tail.Next(ctx)
		if err != nil {
			return fmt.Errorf("follow the log of %s: %w", h.partition, err)
		}
		if err := h.showCommit(c, change); err != nil {
			return fmt.Errorf("commit %d of %s: %w", c.LSN, h.partition, err)
		}
		// While old commits are replayed nobody waits at the end of the log, so
		// there the share of time is kept.
		h.at = c.LSN
		h.endFormer()
		if h.at > h.high || !h.replayed {
			continue
		}
		if err := h.pacer.Pace(ctx); err != nil {
			return err
		}
	}
	return nil
}

// showCommit shows the changes of one commit.
func (h *history) showCommit(c *feed.Commit, change func(*event) error) error {
	// What was read is right up to here, but others go on: whoever reads on would take their doing for drift.
	if h.former == nil {
		switch split, err := feed.SplitOf(c); {
		case err != nil:
			return err
		case split != nil:
			return errSplit
		}
	}
	e := event{at: feed.Position{LSN: c.LSN}}
	for i := range c.Transactions {
		e.transaction = &c.Transactions[i]
		for j := range e.transaction.Changes {
			if e.Change = &e.transaction.Changes[j]; h.shows(&e) {
				if err := change(&e); err != nil {
					return err
				}
			}
			e.at.Index++
		}
	}
	return nil
}

// shows tells whether a change is of an item on a page, and not known to it.
func (h *history) shows(e *event) bool {
	if h.former != nil && !h.holds(e) {
		return false
	}
	if h.complete {
		return true
	}
	h.cursor = store.AppendCursor(h.cursor[:0], e.Key, e.ID)
	switch {
	case h.to != nil && bytes.Compare(h.cursor, h.to) > 0:
		return false // the page to come knows it
	case bytes.Compare(h.cursor, h.from) <= 0:
		return true // it is on a page before the last one
	}
	ref := store.ItemRef{Key: e.Key, ID: e.ID}
	// On the last page: the page knows it up to its ETag.
	if version, ok := h.known[ref]; ok {
		return version.Before(e.at)
	}
	if h.missed[ref] {
		return true
	}
	// It stands between the page's ends and is not on it. Either it came later,
	// or it went before the page was read:
	//
	//	log behind the page's LSN          the page knows      shown
	//	create x, replace x                nothing of x        both
	//	replace x, delete x, create x      the delete          create
	//	delete x, create x                 the delete          create
	//
	// From a create, or from behind a delete on, all changes begin with no item, as
	// the page does.
	h.missed[ref] = e.Op != feed.OpReplace
	return e.Op == feed.OpCreate
}

// openLog opens the log.
func (h *history) openLog(ctx context.Context) (err error) {
	if h.log == nil {
		h.log, err = feed.OpenLog(ctx, h.js, h.partition, feed.LogConfig{})
	}
	return err
}

// openTail begins to read the log where it was not read yet.
func (h *history) openTail(ctx context.Context) error {
	if h.tail != nil {
		return nil
	}
	if h.openFormer(); h.former != nil {
		return h.tailFormer(ctx)
	}
	err := h.openLog(ctx)
	if err == nil {
		h.tail, err = h.log.Tail(ctx, h.at+1, feed.TailOptions{})
	}
	return err
}

// close frees what the history holds.
func (h *history) close() {
	if h.tail != nil {
		h.tail.Close()
	}
	if h.log != nil {
		h.log.Close()
	}
	h.tail, h.log = nil, nil
}
