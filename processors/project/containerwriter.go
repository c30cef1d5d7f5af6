package project

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Bounds of one request to a partition.
const (
	putRowsMax  = 2000
	putBytesMax = 2 << 20
)

// containerWriter writes for one source partition. Its fields belong to the goroutine that
// calls Write; the requests that Write sends at once are each for a part of their own.
type containerWriter struct {
	term     Term
	schema   *Schema
	shapes   []*shape
	rejects  *store.Container // nil: none
	parts    map[feed.Partition]*containerPart
	order    []feed.Partition
	recorded feed.Position // the furthest that a partition has recorded
	refused  Written       // what partitions refused that no successful Write has told of yet
}

// containerPart is one physical partition of a container.
type containerPart struct {
	container  rowsContainer
	partition  feed.Partition
	position   feed.Position  // recorded for the producer
	pieces     feed.Position  // recorded for its part that sends pieces, as far as known
	answered   feed.Position  // up to here it is known which rows were refused
	unanswered *store.PutRows // the last request, if its outcome is not known
	rows       []outgoingRow  // of the batch at hand
}

// rowsContainer is what a part needs of a store.Container.
type rowsContainer interface {
	PutRows(ctx context.Context, p feed.Partition, r *store.PutRows) (*store.PutRowsResult, error)
}

// outgoingRow is a row on its way, and where it comes from in the batch; of is nil for
// what is no row of Put.
type outgoingRow struct {
	store.Row // of a row of Put without Body
	of        *Row
	shape     *shape // of of
}

// encode returns what is sent. The body of a row of Put is made for each request anew: those
// of a whole batch would be held at once, and rows of one item may share a long text.
func (r *outgoingRow) encode() store.Row {
	row := r.Row
	if r.of != nil {
		row.Body = r.shape.body(r.of)
	}
	return row
}

// begin records the epoch and learns the position. A container has no shadow, so the rows of
// this generation are written over those of the ones before: whoever still writes for one of
// them would overwrite new rows with old ones, and is refused from here on. The one right before
// may never have begun, and have refused nobody; what is refused already costs no commit.
func (p *containerPart) begin(ctx context.Context, t *Term) error {
	// Epochs are counted for each producer, and the generation before is another producer.
	for former := t.Producer; former.Generation > 1; {
		former.Generation--
		if _, err := p.container.PutRows(ctx, p.partition, &store.PutRows{Producer: former, Epoch: processors.EpochOver, Ask: true}); err != nil {
			return fmt.Errorf("refuse generation %d in partition %s: %w", former.Generation, p.partition, err)
		}
	}
	result, err := p.container.PutRows(ctx, p.partition, &store.PutRows{Producer: t.Producer, Epoch: t.Epoch, Ask: true})
	if err != nil {
		return fmt.Errorf("ask partition %s: %w", p.partition, err)
	}
	p.position, p.answered = result.Position, result.Position
	return nil
}

// Write sends each partition its rows. Partitions record positions of their own: a batch
// that is written again, after some took it, is sent to the others alone.
//
//	batch (40, 50], rows for partitions 0 and 1
//	0 records 50, 1 cannot be reached: the batch fails
//	again: 0 stands at 50 and is passed over, 1 gets its rows
//
// What 0 refused is told when the batch has been written: nobody asks 0 a second time.
func (w *containerWriter) Write(ctx context.Context, b *Batch) (Written, error) {
	if w.recorded.Before(b.After) {
		return Written{}, fmt.Errorf("%w: it begins behind %s, recorded is %s", ErrPosition, b.After, w.recorded)
	}
	if err := w.distribute(b); err != nil {
		return Written{}, err
	}
	skipped := true
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(askMax)
	for _, p := range w.order {
		part := w.parts[p]
		// A part without rows is left where it is: its position may lag, since each part
		// takes an interval from wherever it stands.
		if len(part.rows) == 0 || b.UpTo.Before(part.position) || !part.answered.Before(b.UpTo) {
			continue
		}
		skipped = false
		g.Go(func() error {
			refused, err := part.sendRows(gctx, &w.term, b.UpTo)
			if err != nil {
				return err // its rows come again, until the whole batch is answered
			}
			mu.Lock()
			defer mu.Unlock()
			w.noteRefused(part, refused)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Written{}, err
	}
	w.recorded = maxPosition(w.recorded, b.UpTo)
	if skipped {
		return Written{Durable: w.recorded, Skipped: true}, nil // what was refused is told with what is done
	}
	written := w.refused
	written.Durable, w.refused = w.recorded, Written{}
	return written, nil
}

// Flush has nothing to do.
func (w *containerWriter) Flush(context.Context) (feed.Position, error) { return w.recorded, nil }

// Close has nothing to do.
func (w *containerWriter) Close() error { return nil }

// distribute gives each partition its rows, those that go before those that come, so that a
// key that changes hands within the batch is free when its next row comes. If no partition
// has any, one records the position alone: else a restart would find an older one.
func (w *containerWriter) distribute(b *Batch) error {
	for _, part := range w.parts {
		part.rows = part.rows[:0]
	}
	for i := range b.Drop {
		r := &b.Drop[i]
		if err := w.addRow(r, true); err != nil {
			return err
		}
	}
	for i := range b.Put {
		r := &b.Put[i]
		if err := w.addRow(r, false); err != nil {
			return err
		}
	}
	if w.rejects != nil {
		for i := range b.Accept {
			if err := w.addReject(&b.Accept[i], true); err != nil {
				return err
			}
		}
		for i := range b.Reject {
			if err := w.addReject(&b.Reject[i], false); err != nil {
				return err
			}
		}
	}
	for _, part := range w.parts {
		if len(part.rows) > 0 {
			return nil
		}
	}
	// Always the same one, in the order of the schema: the others then need no request.
	first := w.parts[w.order[0]]
	first.rows = append(first.rows, outgoingRow{})
	return nil
}

// addRow gives a row to its partition; gone means that it goes.
func (w *containerWriter) addRow(r *Row, gone bool) error {
	sh := w.shapes[r.Table]
	ref, err := sh.ref(r.Key)
	if err != nil {
		return processors.Reject(fmt.Errorf("row of %s: %w", r.Source, err))
	}
	p := outgoingRow{Row: store.Row{Ref: ref, Source: r.Source}}
	if !gone {
		p.of, p.shape = r, sh
	}
	part, err := w.partFor(sh.container, ref.Key)
	if err != nil {
		return err
	}
	part.rows = append(part.rows, p)
	return nil
}

// partFor returns the part of a writer to which a key belongs. The partitions of a container that was split are others
// than those of which the writer knows the positions: another writer asks them.
func (w *containerWriter) partFor(c *store.Container, key feed.PartitionKey) (*containerPart, error) {
	p := c.PartitionFor(key)
	part := w.parts[p]
	if part == nil {
		return nil, fmt.Errorf("partition %s has come by a split since the sink was opened: %w", p, store.ErrNotOwner)
	}
	return part, nil
}

// noteRefused counts the rows that a partition refused, and forgets the rows.
func (w *containerWriter) noteRefused(part *containerPart, refused []store.Refusal) {
	// Rows that go, and rejects, have no place in Written: of is nil for them.
	rows := map[store.ItemRef]*Row{}
	for i := range part.rows {
		if of := part.rows[i].of; of != nil {
			rows[part.rows[i].Ref] = of
		}
	}
	for _, refusal := range refused {
		r := rows[refusal.Ref]
		if refusal.Status == store.StatusConflict && strings.HasPrefix(refusal.Reason, heldByPrefix) {
			w.refused.Pending++
			continue
		}
		if r != nil {
			w.refused.Refused = append(w.refused.Refused, Reject{
				Table: r.Table, Source: r.Source, Element: r.Element, Reason: fmt.Sprintf("%s (%d)", refusal.Reason, refusal.Status),
			})
		}
	}
	part.rows = nil
}

// sendRows writes the rows of a partition in as many requests as they need. The last one
// moves the recorded position to the end of the batch, so a position that is recorded says
// that all rows up to it are there, and whoever begins behind it may cut the feed anew. The
// ones before, pieces, are sent under a part of the producer, whose position counts them:
//
//	(40.0, 50.2] with 5,000 rows   producer@piece   (7.0, 8.0]     2,000 rows
//	                               producer@piece   (8.0, 9.0]     2,000 rows
//	                               producer         (40.0, 50.2]   1,000 rows
//
// No position between 40.0 and 50.2 would do for a piece: in a walk, and within a commit,
// 40.1 is the next change, which would then be passed over with some of its rows missing.
//
// After a crash in between, all rows are sent again, in batches with other ends perhaps. A
// batch says how rows are, so those that are there already do no harm. Who has been
// succeeded is refused for the part as for the whole, see feed.Producer.Of.
//
// An answer that was lost had told which rows were refused. Where a partition turns out to
// have recorded this very batch, all rows are sent once more as pieces: they are there already,
// and those that cannot be taken are refused again. They are not sent where it has recorded
// more than the batch, since they would take rows back to what they were.
func (p *containerPart) sendRows(ctx context.Context, t *Term, upTo feed.Position) ([]store.Refusal, error) {
	if err := p.settle(ctx, t); err != nil {
		return nil, err
	}
	var refused []store.Refusal
	rows, most := p.rows, putRowsMax
	for len(rows) > 0 && !upTo.Before(p.position) {
		sent, n := requestRows(rows, most)
		last := n == len(rows) && p.position.Before(upTo)
		r := &store.PutRows{Producer: t.Producer, Epoch: t.Epoch, After: p.position, UpTo: upTo, Rows: sent}
		if !last {
			r.Producer, r.After, r.UpTo = t.Producer.Of(pieceOf), p.pieces, feed.Position{LSN: p.pieces.LSN + 1}
		}
		result, err := p.putRows(ctx, t, r)
		switch {
		case errors.Is(err, store.ErrTooLarge) && n > 1:
			most = n / 2
		case err != nil:
			return refused, err
		case result.Applied:
			refused, rows = append(refused, result.Refused...), rows[n:]
		case last:
			refused, rows = nil, p.rows // the answer to a request was lost: which rows came is not known
		default: // the piece goes again, under the position that is known now
		}
	}
	if p.answered = p.position; upTo.Before(p.answered) { // settle has recorded more than the batch
		p.answered = upTo
	}
	return refused, nil
}

// pieceOf is the part of a producer that sends pieces of a batch.
const pieceOf = "piece"

// settle sees to it that the request that was not answered last is not on its way any more.
// It could come between the requests of a batch with another end, or behind them:
//
//	the end of (40, 50] gets no answer; (40, 45] is tried, and o1 changes at 45 and 50
//	piece of (40, 45]    o1 as of 45
//	end of (40, 50]      records 50, and o1 is as of 45 for good
//
// A request that is sent again moves its producer, and refuses what is on its way by that.
func (p *containerPart) settle(ctx context.Context, t *Term) error {
	r := p.unanswered
	if r == nil {
		return nil
	}
	if r.Producer != t.Producer {
		// The rows of a piece come again with their batch.
		empty := *r
		empty.Rows = nil
		r = &empty
	}
	_, err := p.putRows(ctx, t, r)
	if p.unanswered == nil {
		return nil // what was refused now is written, or given up, as what it is a part of
	}
	return err
}

// putRows sends one request, and learns the position of its producer.
func (p *containerPart) putRows(ctx context.Context, t *Term, r *store.PutRows) (*store.PutRowsResult, error) {
	p.unanswered = r
	result, err := p.container.PutRows(ctx, p.partition, r)
	if err != nil {
		if decided(ctx, err) {
			p.unanswered = nil
		}
		return nil, fmt.Errorf("put %d rows into partition %s: %w", len(r.Rows), p.partition, err)
	}
	position := &p.position
	if r.Producer != t.Producer {
		position = &p.pieces
	}
	if result.Position.Before(*position) {
		return nil, fmt.Errorf("%w: partition %s has gone back from %s to %s", ErrPosition, p.partition, *position, result.Position)
	}
	p.unanswered, *position = nil, result.Position
	if t.Heartbeat != nil {
		t.Heartbeat()
	}
	return result, nil
}

// decided says whether an error tells that the owner decided against a request. Others leave
// open whether it was, or will be, carried out.
func decided(ctx context.Context, err error) bool {
	refusal, ok := errors.AsType[*store.Error](err)
	// That ctx has ended says nothing about a request that was answered.
	ctx = context.WithoutCancel(ctx)
	return ok && (refusal.Status == store.StatusInternal || processors.FailureOf(ctx, err) == processors.Permanent)
}

// requestRows returns what goes into one request of the first rows, and how many of them. A
// row without a source is none: it is there to have a position recorded.
func requestRows(rows []outgoingRow, most int) (sent []store.Row, n int) {
	bytes := 0
	for i := range rows {
		if i > 0 && i == most {
			return sent, i
		}
		row := rows[i].encode()
		bytes += len(row.Body) + len(row.Source) + len(row.Ref.ID)
		if i > 0 && bytes > putBytesMax {
			return sent, i
		}
		if row.Source != "" {
			sent = append(sent, row)
		}
	}
	return sent, len(rows)
}

func maxPosition(a, b feed.Position) feed.Position {
	if a.Before(b) {
		return b
	}
	return a
}
