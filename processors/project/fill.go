package project

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A projection whose tables gain columns goes on with the rows that are there. Rows of
// items that change get the new columns by the feed; those of the others are filled by
// the processor of their partition, beside that. Page by page, in the order of the
// items, it reads what they are and writes their rows, all columns of them, under a
// producer that is a part of the processor's, whose positions count its pages.
//
// A page is read and written in the writer's turn. What the feed has brought to the
// sink is contained in what is read then, for the read is settled; what it brings later
// is of changes that come after, or that are older than what was read, and lead up to
// it. So a row that goes meanwhile goes after it was filled, also if a crash falls in
// between: the change is read again.
//
// How far it is stands in the checkpoint, so a crash repeats one page. It rests after
// each page for as long as that took, so that changes come first.

// Limits of a page that is filled.
const (
	fillItemsMax = 5_000   // items
	fillBytesMax = 8 << 20 // of their rows, estimated
	fillRestMax  = time.Second
)

// fillJob is the name under which a fill is shown among the open jobs.
const fillJob = "added columns"

// beginFill goes on with what a checkpoint says of columns that are to be filled.
func (r *RowWriter) beginFill(was *processors.Fill) {
	r.fill = was
	if n := r.p.cfg.Fill; n > 0 && (was == nil || was.Number < n) {
		r.fill = &processors.Fill{Number: n, Began: time.Now().UnixMilli()}
	}
}

// filling returns what is left to be filled, nil if nothing is.
func (r *RowWriter) filling() *processors.Fill {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fill == nil || r.fill.Done {
		return nil
	}
	f := *r.fill
	return &f
}

// count counts rows that were filled.
func (r *RowWriter) count(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Rows += int64(rows)
}

// jobLocked shows a fill that is not done. The caller holds mu.
func (r *RowWriter) jobLocked() []processors.Job {
	if r.fill == nil || r.fill.Done {
		return nil
	}
	return []processors.Job{{
		Source: fillJob, Position: r.through, Began: r.fill.Began, Total: r.fill.Total, Scanned: r.fill.Scanned, Changed: r.fill.Scanned,
	}}
}

// fillAll fills the columns that were added, until that is done or ctx ends.
func (r *RowWriter) fillAll(ctx context.Context) error {
	if r.filling() == nil {
		return nil
	}
	f := &filler{r: r}
	defer f.close()
	pauses := processors.NewPauses()
	for {
		began := time.Now()
		done, err := f.page(ctx)
		switch failure := processors.FailureOf(ctx, err); {
		case err == nil && done:
			r.tenure.Logger.InfoContext(ctx, "the columns that were added are filled")
			return nil
		case err == nil:
			pauses.Reset()
			if err := wait(ctx, min(time.Since(began), fillRestMax)); err != nil {
				return nil
			}
			continue
		case failure == processors.Ended:
			return nil
		case failure == processors.Lost:
			processors.CountFenced(ctx, r.tenure.Resource)
			return err
		}
		r.failed(ctx, fmt.Errorf("fill the columns that were added: %w", err))
		if err := pauses.Wait(ctx, err); err != nil {
			return nil
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// filler writes pages of rows.
type filler struct {
	r      *RowWriter
	writer Writer // nil until it is open
	at     feed.Position
}

func (f *filler) close() {
	if f.writer == nil {
		return
	}
	if err := f.writer.Close(); err != nil {
		f.r.tenure.Logger.Warn("the writer that fills columns was not closed", slog.Any("error", err))
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

// page fills one page, and says whether it was the last.
func (f *filler) page(ctx context.Context) (done bool, err error) {
	r := f.r
	next := r.filling()
	if next.Total == 0 {
		n, err := r.p.cfg.Source.Count(ctx, r.tenure.Partition, store.Scope{})
		if err != nil {
			return false, err
		}
		next.Total = int64(n)
	}
	if err := r.acquire(ctx); err != nil {
		return false, err
	}
	defer r.release()
	g := newGatherer(r.p)
	for items := 0; items < fillItemsMax && g.bytes < fillBytesMax && !next.Done; {
		page, err := r.p.cfg.Source.Scan(ctx, r.tenure.Partition, store.Scan{After: next.Cursor, ItemsMax: 1000, Settled: true})
		if err != nil {
			return false, err
		}
		for i := range page.Items {
			item := &page.Items[i]
			g.mend(&Was{ItemRef: store.ItemRef{Key: item.Key, ID: item.ID}}, nil, item.Body)
		}
		items += len(page.Items)
		next.Scanned += int64(len(page.Items))
		next.Cursor, next.Done = page.Cursor, page.Cursor == nil
	}
	if err := f.write(ctx, g); err != nil {
		return false, err
	}
	r.mu.Lock()
	r.fill = next
	r.trouble = nil
	r.mu.Unlock()
	r.tenure.Turned()
	r.tenure.Changed("")
	return next.Done, nil
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
		f.r.count(len(b.Put))
		return nil
	case processors.FailureOf(ctx, err) != processors.Rejected:
		return fmt.Errorf("write %d rows: %w", b.Len(), err)
	case b.Len() == 1:
		f.r.tenure.Logger.WarnContext(ctx, "the sink does not take a row with the columns that were added; it stays as it was", slog.Any("error", err))
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
