package project

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// RowWriter is the processor that brings the changes of one source partition to
// the sink.
type RowWriter struct {
	// Set by Rows and Open, then only read.
	p        *Projection
	term     *processors.Term
	start    feed.Position // behind which reading began
	backfill *backfiller   // has locks of its own

	// Owned by Process and Retry, which the Host never calls side by side.
	seen feed.Position // of the last change that Process was given, whatever became of it

	// Owned by whoever holds the one slot of sem: Process, Retry, a page of the backfill,
	// and the end of Run, which keeps it. Flush alone uses writer beside them, as Writer
	// allows.
	sem            chan struct{}
	writer         Writer        // nil until it is open
	after          feed.Position // up to which the writer has been told everything
	recordedAtOpen feed.Position // what the sink had recorded when it was opened
	retriedUpTo    feed.Position // the furthest position of a retry, written or not

	// Between Process and Run. The first three have room for one token, so that giving
	// one never waits.
	broken   chan error    // ends the term
	holding  chan struct{} // the sink has begun to hold rows, or has come to hold many
	full     chan struct{} // it holds as many as it may
	runEnded chan struct{} // closed when Run flushes no more

	// Guarded by mu, which is never held during a call of the sink: State must not wait
	// for one.
	mu         sync.Mutex
	buffered   []bufferedBatch // what the sink holds and has not made durable, in order
	rows       int             // of buffered
	bytes      int             // of buffered
	flushed    chan struct{}   // closed, and made anew, when a flush by Run ends
	failure    error           // of that flush
	burst      bool            // the last flush was one because the sink was full
	behindMany bool            // the last flush was of many rows
	early      time.Time       // when the end of a burst was flushed before its time
	awaited    feed.Position   // up to which a retry waits for a flush, or has waited
	counts     processors.Counts
	rejected   []string
	processed  feed.Position // up to which changes have been processed
	durable    feed.Position // up to which they are durable, while something is buffered
	recorded   feed.Position // that the sink is known to have recorded
	trouble    *processors.Trouble
}

// bufferedBatch is a batch that the sink took.
type bufferedBatch struct {
	upTo        feed.Position
	rows, bytes int
	at          time.Time
}

// Rows returns a processor of the projection's source partition, for one term.
// It is a *RowWriter.
func (p *Projection) Rows(feed.Partition) processors.Processor {
	r := &RowWriter{
		p: p, sem: make(chan struct{}, 1), broken: make(chan error, 1),
		holding: make(chan struct{}, 1), full: make(chan struct{}, 1), flushed: make(chan struct{}), runEnded: make(chan struct{}),
	}
	r.backfill = newBackfiller(r)
	return r
}

// Open takes over the counts of the checkpoint. The sink is opened when there is
// something to write.
func (r *RowWriter) Open(_ context.Context, t *processors.Term, state processors.State) error {
	r.term, r.start = t, t.Saved().Position
	r.processed = r.start
	r.counts, r.rejected, r.recorded = state.Counts, state.Rejected, state.Recorded
	r.backfill.Open(t, state.Backfill)
	return nil
}

// State returns the counts and how far the rows are durable.
func (r *RowWriter) State() processors.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := processors.State{Counts: r.counts, Rejected: r.rejected, Recorded: r.recorded, Trouble: r.trouble}
	r.backfill.State(&s)
	// With nothing in the sink's buffer all that was processed is durable, also what made
	// no rows. That is said by no Durable at all.
	if len(r.buffered) > 0 {
		durable := r.durable
		s.Durable = &durable
	}
	return s
}

// writeBytesMax is how many bytes of rows, estimated, end a batch for the sink. A few changes
// with some thousand rows each would else be tens of times the size of the batch that they
// came in, at once.
const writeBytesMax = 8 << 20

// Process writes the rows that the batch has made, changed and removed.
func (r *RowWriter) Process(ctx context.Context, b *processors.Batch) error {
	backfilling := r.backfill.Left()
	g := newCoalescer(r.p, backfilling)
	var upTo feed.Position
	for at, change := range b.Changes() {
		// Before the next change, so that what is written last ends with the batch.
		if g.bytes >= writeBytesMax {
			if err := r.writeBatch(ctx, g, upTo); err != nil {
				return r.endIfFatal(ctx, err)
			}
			g = newCoalescer(r.p, backfilling)
		}
		r.seen = maxPosition(r.seen, at)
		if err := g.addChange(change); err != nil {
			return err
		}
		upTo = at
	}
	if !g.empty() {
		if err := r.writeBatch(ctx, g, upTo); err != nil {
			return r.endIfFatal(ctx, err)
		}
	}
	r.mu.Lock()
	r.processed = upTo
	r.mu.Unlock()
	return nil
}

// acquire waits for the writer.
func (r *RowWriter) acquire(ctx context.Context) error {
	select {
	case r.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *RowWriter) release() { <-r.sem }

// writeBatch hands what was coalesced up to a position to the sink, and waits while the
// sink holds too much. After an error of that wait the Host brings the same batch again;
// the sink has it, and only the wait is repeated.
func (r *RowWriter) writeBatch(ctx context.Context, g *coalescer, upTo feed.Position) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.release()
	if err := r.openSink(ctx); err != nil {
		return err
	}
	if r.after.Before(upTo) {
		b := g.batch(r.after, upTo)
		w, err := r.sendBatch(ctx, b)
		if err != nil {
			return err
		}
		r.after = upTo
		r.noteWritten(ctx, b, w, g.bytes)
	}
	return r.awaitRoom(ctx)
}

// openSink begins the term at the sink, and the backfiller's; see there. Its failures are
// not those of a change: they are tried again until they are over.
func (r *RowWriter) openSink(ctx context.Context) error {
	if err := r.backfill.openWriter(ctx); err != nil {
		return r.unavailable(ctx, "open the sink", err)
	}
	if r.writer != nil {
		return nil
	}
	w, at, err := r.p.cfg.Sink.Open(ctx, &r.p.schema, Term{Producer: r.term.Producer(), Epoch: r.term.Epoch, Heartbeat: r.term.Heartbeat})
	if err != nil {
		return r.unavailable(ctx, "open the sink", err)
	}
	r.mu.Lock()
	recorded := r.recorded
	r.mu.Unlock()
	// The sink never goes back, and the checkpoint holds only what the sink has said. So
	// this sink is not the one that was written: what follows must not be written into it,
	// for everything before would be missing for good.
	if at.Before(recorded) {
		return errors.Join(fatalError{fmt.Errorf("the sink has recorded the changes of %s up to %s, and %s was written: "+
			"it has been emptied or restored older; fill it again with millrace rewind %s",
			r.term.Partition, at, recorded, r.p.cfg.Pipeline)}, w.Close())
	}
	r.writer, r.after, r.recordedAtOpen = w, at, at
	// A sink may be ahead of the checkpoint, after a crash between the two. The changes
	// are read again from the checkpoint; batches begin there and the sink skips what it
	// has:
	//
	//	checkpoint 40, sink 60   batches (40, 50] and (50, 60] are skipped, (60, 70] is not
	//	                         (50, 65] is carried out as a whole: its rows are the newest
	if r.start.Before(at) {
		r.after = r.start
	}
	return nil
}

// unavailable returns an error of the sink as a whole as one that is tried again
// without end, except for that of a term that is over.
func (r *RowWriter) unavailable(ctx context.Context, what string, err error) error {
	switch processors.FailureOf(ctx, err) {
	case processors.Fenced, processors.Canceled:
		return fmt.Errorf("%s: %w", what, err)
	default:
		refusal := store.Refuse(store.StatusUnavailable, "%s: %v", what, err)
		if cause, ok := errors.AsType[*store.Error](err); ok {
			refusal.RetryAfter = cause.RetryAfter
		}
		return refusal
	}
}

// fatalError is an error that neither trying again nor giving up a change can end.
type fatalError struct{ error }

// endIfFatal returns err, unless it is fatal: then Run ends the term with it, for
// which this waits.
func (r *RowWriter) endIfFatal(ctx context.Context, err error) error {
	end, ok := errors.AsType[fatalError](err)
	if !ok {
		return err
	}
	// Returned from Process it would be taken for the fault of a change. Run ends the term
	// with it, and that ends ctx.
	select {
	case r.broken <- end.error:
	default:
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// sendBatch writes a batch under a span.
func (r *RowWriter) sendBatch(ctx context.Context, b *Batch) (Written, error) {
	ctx, span := tracer().Start(ctx, "millrace.project.write")
	defer span.End()
	if span.IsRecording() {
		r.describeSpan(span)
		span.SetAttributes(attribute.StringSlice("millrace.tables", r.tablesOf(b)), attribute.Int("millrace.rows", b.Len()),
			attribute.String("millrace.position", b.UpTo.String()))
	}
	start := time.Now()
	w, err := r.writer.Write(ctx, b)
	meters.writeDuration.Record(ctx, time.Since(start).Seconds(), r.p.measured(""))
	if err == nil {
		meters.writeRows.Record(ctx, int64(b.Len()), r.p.measured(""))
		return w, nil
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	if errors.Is(err, ErrPosition) {
		return w, fatalError{fmt.Errorf("%s: %w", r.term.Partition, err)}
	}
	return w, fmt.Errorf("write %d rows: %w", b.Len(), err)
}

// describeSpan gives a span what it is a part of.
func (r *RowWriter) describeSpan(span trace.Span) {
	span.SetAttributes(attribute.String("millrace.pipeline", r.p.cfg.Pipeline), attribute.String("millrace.sink", r.p.cfg.SinkKind),
		attribute.String("millrace.container", r.p.container), store.AttrPartition.String(r.term.Partition.String()))
}

// tablesOf are the tables that a batch is about.
func (r *RowWriter) tablesOf(b *Batch) []string {
	named := map[string]bool{}
	for _, rows := range [][]Row{b.Put, b.Drop} {
		for i := range rows {
			named[r.p.cfg.Tables[rows[i].Table].Name] = true
		}
	}
	for _, rejects := range [][]Reject{b.Reject, b.Accept} {
		for i := range rejects {
			named[r.p.cfg.Tables[rejects[i].Table].Name] = true
		}
	}
	return slices.Sorted(maps.Keys(named))
}

// noteWritten notes what the sink took.
func (r *RowWriter) noteWritten(ctx context.Context, b *Batch, w Written, bytes int) {
	r.measure(ctx, b, w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.Skipped {
		r.counts.Rows += int64(len(b.Put) + len(b.Drop))
		r.counts.Rejects += int64(len(b.Reject) + w.Pending + len(w.Refused))
		r.showRejects(b.Reject)
		r.showRejects(w.Refused)
	}
	// The buffer was empty, so all that was processed before this batch is durable; from
	// here on only flushes say how far that reaches.
	if len(r.buffered) == 0 {
		r.durable = maxPosition(r.durable, r.processed)
	}
	few := !r.manyLocked()
	r.buffered = append(r.buffered, bufferedBatch{b.UpTo, b.Len(), bytes, time.Now()})
	r.rows, r.bytes = r.rows+b.Len(), r.bytes+bytes
	r.durableLocked(w.Durable)
	if len(r.buffered) == 1 || few && r.manyLocked() { // another time may be due than before
		signal(r.holding)
	}
}

func (r *RowWriter) measure(ctx context.Context, b *Batch, w Written) {
	if w.Skipped {
		meters.skipped.Add(ctx, 1, r.p.measured(""))
		return
	}
	meters.rows.Add(ctx, int64(len(b.Put)), r.p.measured("put"))
	meters.rows.Add(ctx, int64(len(b.Drop)), r.p.measured("drop"))
	meters.rejects.Add(ctx, int64(len(b.Reject)+len(w.Refused)), r.p.measured("value"))
	meters.rejects.Add(ctx, int64(w.Pending), r.p.measured("claim"))
}

// signal sees to it that c holds a token.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// showRejects keeps the last rejects for status.
func (r *RowWriter) showRejects(rejects []Reject) {
	if len(rejects) == 0 {
		return
	}
	rejects = rejects[max(len(rejects)-processors.RejectedMax, 0):]
	told := append([]string{}, r.rejected...)
	for i := range rejects {
		j := &rejects[i]
		text := r.p.schema.Tables[j.Table].Name + " " + j.Source
		if j.Element != "" {
			text += " element " + j.Element
		}
		if j.Column != "" {
			text += " column " + j.Column
		}
		told = append(told, processors.Clip(errors.New(text+": "+j.Reason)))
	}
	r.rejected = told[max(len(told)-processors.RejectedMax, 0):]
}

// durableLocked notes up to where the sink has made durable what it took.
func (r *RowWriter) durableLocked(at feed.Position) {
	r.recorded = maxPosition(r.recorded, at)
	n := 0
	for ; n < len(r.buffered) && !r.recorded.Before(r.buffered[n].upTo); n++ {
		r.durable = maxPosition(r.durable, r.buffered[n].upTo)
		r.rows, r.bytes = r.rows-r.buffered[n].rows, r.bytes-r.buffered[n].bytes
	}
	if r.buffered = r.buffered[n:]; len(r.buffered) == 0 {
		r.buffered, r.trouble = nil, nil
	}
}
