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
// items that change get the new columns by the feed; those of the others are filled by
// the processor of their partition, beside that. So are the rows of items that were
// there when a generation began without them. Page by page, in the order of the items,
// the filler reads what they are and writes their rows, all columns of them, under a
// producer that is a part of the processor's, whose positions count its pages.
//
// A page is read and written in the writer's turn. What the feed has brought to the
// sink is contained in what is read then, for the read is settled; what it brings later
// is of changes that come after, or that are older than what was read, and lead up to
// it. So a row that goes meanwhile goes after it was filled, also if a crash falls in
// between: the change is read again.

// Limits of a page that is filled.
const (
	fillItemsMax = 5_000   // items
	fillBytesMax = 8 << 20 // of their rows, estimated
)

// filler writes pages of rows.
type filler struct {
	*processors.Filling
	r      *RowWriter
	writer Writer // nil until it is open
	at     feed.Position
}

func newFiller(r *RowWriter) *filler {
	f := &filler{r: r}
	f.Filling = processors.NewFilling(r.p.cfg.Fill, r.p.cfg.Source, f.page)
	return f
}

// Run fills what is left, until that is done or ctx ends.
func (f *filler) Run(ctx context.Context) error {
	defer f.close()
	return f.Filling.Run(ctx)
}

func (f *filler) close() {
	if f.writer == nil {
		return
	}
	if err := f.writer.Close(); err != nil {
		f.r.tenure.Logger.Warn("the writer that fills rows was not closed", slog.Any("error", err))
	}
	f.writer = nil
}

// open begins the tenure of the filler's producer.
func (f *filler) open(ctx context.Context) (err error) {
	if f.writer != nil {
		return nil
	}
	t := Tenure{Producer: f.r.tenure.Producer().Of("fill"), Epoch: f.r.tenure.Epoch, Turned: f.r.tenure.Turned}
	f.writer, f.at, err = f.r.p.cfg.Sink.Open(ctx, &f.r.p.schema, t)
	return err
}

// page fills the rows of the items that follow.
func (f *filler) page(ctx context.Context, next *processors.Fill) error {
	if err := f.r.acquire(ctx); err != nil {
		return err
	}
	defer f.r.release()
	g := newGatherer(f.r.p)
	for items := 0; items < fillItemsMax && g.bytes < fillBytesMax && !next.Done; {
		read, err := f.Scan(ctx, next, func(item *store.Item) {
			g.mend(&Was{ItemRef: store.ItemRef{Key: item.Key, ID: item.ID}}, nil, item.Body)
			next.Changed++
		})
		if err != nil {
			return err
		}
		items += read
	}
	return f.write(ctx, g)
}

// write makes durable what was gathered. After an error the writer begins anew, so
// that nothing that it holds comes after what the feed brings meanwhile.
func (f *filler) write(ctx context.Context, g *gatherer) (err error) {
	if g.empty() {
		return nil
	}
	if err := f.open(ctx); err != nil {
		return err
	}
	if err = f.put(ctx, g.batch(feed.Position{}, feed.Position{})); err != nil {
		f.close()
	}
	return err
}

// put writes rows and rejects, without those that the sink does not take: these stay
// as they were.
func (f *filler) put(ctx context.Context, b *Batch) error {
	b.After, b.UpTo = f.at, feed.Position{LSN: f.at.LSN + 1}
	_, err := f.writer.Write(ctx, b)
	if err == nil {
		_, err = f.writer.Flush(ctx)
	}
	switch {
	case err == nil:
		f.at = b.UpTo
		f.r.filled(len(b.Put))
		return nil
	case processors.FailureOf(ctx, err) != processors.Rejected:
		return fmt.Errorf("write %d rows: %w", b.Len(), err)
	case b.Len() == 1:
		f.r.tenure.Logger.WarnContext(ctx, "the sink does not take a row that is filled; it stays as it was", slog.Any("error", err))
		return nil
	}
	first, second := &Batch{Put: b.Put[:len(b.Put)/2]}, &Batch{Put: b.Put[len(b.Put)/2:]}
	if len(b.Put) < 2 {
		second.Reject = b.Reject[len(b.Reject)/2:]
		b.Reject = b.Reject[:len(b.Reject)/2]
	}
	first.Reject = b.Reject
	for _, half := range []*Batch{first, second} {
		if half.Len() == 0 {
			continue
		}
		if err := f.put(ctx, half); err != nil {
			return err
		}
	}
	return nil
}

// filled counts rows that were filled.
func (r *RowWriter) filled(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Rows += int64(rows)
}
