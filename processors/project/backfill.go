package project

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A projection whose tables gain columns goes on with the rows that are there. Rows of
// items that change get the new columns by the feed; those of the others are backfilled by
// the processor of their partition, beside that. So are the rows of items that were
// there when a generation began without them. Page by page, in the order of the items,
// the backfiller reads what they are and writes their rows, all columns of them, under a
// producer that is a part of the processor's, whose positions count its pages.
//
// A page is read and written while RowWriter.sem is held, so no batch of the feed falls
// between the two. What the feed has brought to the sink before is contained in what is
// read, since the read waits at a barrier; what it brings later is of newer changes, or of older
// ones that lead up to what was read:
//
//	read p at 40, write its row     the feed stands at 30
//	31..40 of p come by the feed    they end with p as it was read
//	41 deletes p                    its row goes, after it was backfilled
//
// With the feed's batch of 41 between read and write, the row would come back for good. A
// crash changes nothing of it: the page and the changes are read again.
//
// While there is something to backfill, neither producer writes before the sink knows the
// epoch of both. A term that has lost its lease while it held a page, or rows of the
// feed, is refused before its successor writes: it would bring back a row that has gone
// since, or one without its new columns. So a backfill that is stopped is not done before the
// sink knows the epoch: the page may be of the one before it.

// Limits of a page.
const (
	backfillItemsMax = 5_000   // items
	backfillBytesMax = 8 << 20 // of their rows, estimated
)

// backfiller writes pages of rows.
type backfiller struct {
	*processors.Backfiller
	r *RowWriter
	// Owned by the holder of r.sem.
	writer     Writer // nil while it is not open
	at         feed.Position
	unanswered *Batch // which the sink may have taken, or may take yet; nil if there is none
	// Guarded by r.mu.
	trouble *processors.Trouble // the writer cannot be opened
}

func newBackfiller(r *RowWriter) *backfiller {
	f := &backfiller{r: r}
	f.Backfiller = processors.NewBackfiller(r.p.cfg.Backfill, r.p.cfg.Source, f.page)
	return f
}

// Run backfills what is left. It opens the writer first: where nothing is asked of the partition
// page is not called, and the backfill is done at once.
func (f *backfiller) Run(ctx context.Context) error {
	pauses := processors.NewPauses()
	for f.Left() {
		err := f.begin(ctx)
		if err == nil {
			f.noteBegin(ctx, nil)
			break
		}
		switch processors.FailureOf(ctx, err) {
		case processors.Canceled:
			return nil
		case processors.Fenced:
			processors.CountFenced(ctx, f.r.term.Resource)
			return err
		default:
		}
		f.noteBegin(ctx, err)
		if err := pauses.Wait(ctx, err); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
	return f.Backfiller.Run(ctx)
}

// begin opens the writer.
func (f *backfiller) begin(ctx context.Context) error {
	if err := f.r.acquire(ctx); err != nil {
		return err
	}
	defer f.r.release()
	return f.openWriter(ctx)
}

// noteBegin shows in the state that the writer cannot be opened, until err is nil.
func (f *backfiller) noteBegin(ctx context.Context, err error) {
	f.r.mu.Lock()
	was := f.trouble
	if f.trouble = nil; err != nil {
		f.trouble = f.r.term.Failed(ctx, was, "the backfill cannot begin now", fmt.Errorf("open the sink: %w", err))
	}
	f.r.mu.Unlock()
	if err != nil || was != nil {
		f.r.term.Changed("")
	}
}

// State adds the backfill to s. The caller holds r.mu.
func (f *backfiller) State(s *processors.State) {
	f.Backfiller.State(s)
	if s.Trouble == nil {
		s.Trouble = f.trouble
	}
}

// closeWriter frees the writer. The caller holds r.sem.
func (f *backfiller) closeWriter() {
	if f.writer == nil {
		return
	}
	if err := f.writer.Close(); err != nil {
		f.r.term.Logger.Warn("the writer of the backfill was not closed", slog.Any("error", err))
	}
	f.writer = nil
}

// openWriter begins the term of the backfiller's producer, if there is something to
// backfill. The caller holds r.sem.
func (f *backfiller) openWriter(ctx context.Context) (err error) {
	if err := f.settle(ctx); err != nil {
		return err
	}
	if f.writer != nil || !f.Left() {
		return nil
	}
	t := Term{Producer: f.r.term.Producer().Of("fill"), Epoch: f.r.term.Epoch, Heartbeat: f.r.term.Heartbeat}
	f.writer, f.at, err = f.r.p.cfg.Sink.Open(ctx, &f.r.p.schema, t)
	return err
}

// settle sees to it that no page is on its way any more: one that was not answered would put
// its old rows over what the feed has brought since.
//
//	page with row p, no answer   p is deleted: the feed drops its row   the page comes: p is back
//
// Written again, it moves its producer and is refused when it comes late. Its rows are no older
// than what the sink has, for everybody who writes to it comes by here first.
func (f *backfiller) settle(ctx context.Context) error {
	b := f.unanswered
	if b == nil {
		return nil
	}
	f.unanswered = nil
	err := f.putRows(ctx, b)
	if err != nil && f.unanswered == nil {
		// It is refused, so it is not on its way. The page is read again.
		f.closeWriter()
		return nil
	}
	return err
}

// page backfills the rows of the items that follow.
func (f *backfiller) page(ctx context.Context, next *processors.Backfill) error {
	if err := f.r.acquire(ctx); err != nil {
		return err
	}
	defer f.r.release()
	if err := f.r.openSink(ctx); err != nil {
		return f.r.endIfFatal(ctx, err)
	}
	g := newCoalescer(f.r.p, true)
	// A page of the store has up to 1,000 items and seldom as many bytes as a sink likes to
	// write at once: several are coalesced, but the feed waits for the slot meanwhile.
	for items := 0; items < backfillItemsMax && g.bytes < backfillBytesMax && !next.Done; {
		read, err := f.Scan(ctx, next, func(item *store.Item) {
			g.addItem(&ItemToRepair{ItemRef: store.ItemRef{Key: item.Key, ID: item.ID}}, nil, item.Body)
		})
		if err != nil {
			return err
		}
		items += read
	}
	next.Changed += int64(len(g.items))
	if err := f.writeRows(ctx, g); err != nil {
		return err
	}
	if next.Done {
		f.closeWriter()
	}
	return nil
}

// writeRows makes durable what was coalesced. After an error that is an answer the writer is
// closed, which discards what it holds: flushed later, those rows could come after newer ones
// of the feed.
func (f *backfiller) writeRows(ctx context.Context, g *coalescer) (err error) {
	if g.empty() {
		return nil
	}
	if err = f.putRows(ctx, g.batch(feed.Position{}, feed.Position{})); err != nil && f.unanswered == nil {
		f.closeWriter()
	}
	return err
}

// putRows writes rows and rejects, without those that the sink does not take: these stay
// as they were, and are in the dead letters.
func (f *backfiller) putRows(ctx context.Context, b *Batch) error {
	b.After, b.UpTo = f.at, feed.Position{LSN: f.at.LSN + 1}
	w, err := f.writer.Write(ctx, b)
	switch {
	case err == nil:
		if _, err := f.writer.Flush(ctx); err != nil {
			f.unanswered = b
			return f.r.unavailable(ctx, fmt.Sprintf("make %d rows durable", b.Len()), err)
		}
		f.at = b.UpTo
		f.r.countBackfilled(ctx, b, &w)
		return nil
	case processors.FailureOf(ctx, err) == processors.Unavailable:
		f.unanswered = b
		return fmt.Errorf("write %d rows: %w", b.Len(), err)
	case processors.FailureOf(ctx, err) != processors.Permanent:
		return fmt.Errorf("write %d rows: %w", b.Len(), err)
	// The sink refuses a batch as a whole. Halving finds what it does not take in a few
	// writes, each with a position of its own.
	case b.Len() == 1:
		return f.writeDeadLetter(ctx, b, err)
	}
	for _, half := range halves(b) {
		if err := f.putRows(ctx, half); err != nil {
			return err
		}
	}
	return nil
}

// halves returns two batches that are not empty and together say what b says, which
// says more than one thing.
func halves(b *Batch) [2]*Batch {
	n := b.Len()
	switch n {
	case len(b.Put):
		return [2]*Batch{{Put: b.Put[:n/2]}, {Put: b.Put[n/2:]}}
	case len(b.Drop):
		return [2]*Batch{{Drop: b.Drop[:n/2]}, {Drop: b.Drop[n/2:]}}
	case len(b.Reject):
		return [2]*Batch{{Reject: b.Reject[:n/2]}, {Reject: b.Reject[n/2:]}}
	case len(b.Drop) + len(b.Reject):
		return [2]*Batch{{Drop: b.Drop}, {Reject: b.Reject}}
	}
	return [2]*Batch{{Drop: b.Drop, Reject: b.Reject}, {Put: b.Put}}
}

// countBackfilled counts rows that were backfilled, and tells of rejects.
func (r *RowWriter) countBackfilled(ctx context.Context, b *Batch, w *Written) {
	r.measure(ctx, b, *w)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Rows += int64(len(b.Put) + len(b.Drop))
	r.counts.Rejects += int64(len(b.Reject) + w.Pending + len(w.Refused))
	r.showRejects(b.Reject)
	r.showRejects(w.Refused)
}

// writeDeadLetter writes the dead letter of the one thing in a batch that the sink does not
// take. The dead letter stands at the last change of the row's item; an item that
// has gone meanwhile takes the row with it.
func (f *backfiller) writeDeadLetter(ctx context.Context, b *Batch, cause error) error {
	var table int
	var source, what string
	switch {
	case len(b.Put) == 1:
		table, source, what = b.Put[0].Table, b.Put[0].Source, fmt.Sprint("row ", b.Put[0].Key)
	case len(b.Drop) == 1:
		table, source, what = b.Drop[0].Table, b.Drop[0].Source, fmt.Sprint("the end of row ", b.Drop[0].Key)
	default:
		table, source, what = b.Reject[0].Table, b.Reject[0].Source, "a reject"
	}
	_, key, id, err := ParseSource(source)
	if err != nil {
		return err
	}
	ref := store.ItemRef{Key: key, ID: id}
	// A dead letter needs a change to try again, and the backfill has none: the item's etag is
	// the position of its last one.
	items, err := f.r.p.cfg.Source.ReadMany(ctx, []store.ItemRef{ref}, true)
	if err != nil || bodyOf(&items[0]) == nil {
		return err
	}
	f.r.mu.Lock()
	f.r.counts.DeadLetters++
	f.r.mu.Unlock()
	return f.r.term.DeadLetter(ctx, processors.DeadLetter{
		Item: ref.String(), Position: feed.Position(items[0].ETag), Target: what + " of " + f.r.p.schema.Tables[table].Name, Reason: cause.Error(),
	})
}
