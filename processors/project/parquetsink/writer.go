package parquetsink

import (
	"context"
	"fmt"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// Writer is a project.Writer: it takes batches into memory, and Flush, or the
// sink when it holds much, commits them together with those of the sink's other
// writers. Write is called by one goroutine at a time.
type Writer struct {
	sink     *Sink
	producer feed.Producer
	epoch    uint64
	tables   []writerTable
	arena    arena

	// What follows is guarded by the sink's mu.
	ended   error         // why it takes nothing any more
	active  *buffer       // taken
	sealed  []*buffer     // being committed
	taken   feed.Position // up to which batches were taken
	durable feed.Position
}

// writerTable is a table of the schema with which the writer was opened.
type writerTable struct {
	l       *layouts
	columns []int // where those of the schema stand
	key     int   // how many columns the key has
}

// Write takes a batch. It waits while the sink holds as much as it may.
func (w *Writer) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	// Wait before encoding: what is encoded takes memory that the sink does not count yet.
	if err := w.sink.waitForRoom(ctx); err != nil {
		return project.Written{}, err
	}
	skip, err := w.checkFollows(b)
	if err != nil || skip {
		return project.Written{Durable: w.durableUpTo(), Skipped: skip && err == nil}, err
	}
	e, err := w.encodeBatch(b)
	if err != nil {
		return project.Written{}, err
	}
	return w.addBatch(b, e)
}

// checkFollows says whether a batch was taken before, or why it cannot be taken.
func (w *Writer) checkFollows(b *project.Batch) (skip bool, err error) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	switch {
	case w.ended != nil:
		return false, w.ended
	case b.UpTo == b.After:
		return false, nil
	case b.UpTo.Compare(w.taken) <= 0: // after a restart the checkpoint may be behind the sink
		return true, nil
	case w.taken.Before(b.After):
		return false, fmt.Errorf("parquet sink: %s: a batch after %s, recorded is %s: %w", w.producer, b.After, w.taken, project.ErrPosition)
	}
	return false, nil
}

func (w *Writer) durableUpTo() feed.Position {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	return w.durable
}

// encoded is a batch in the form of files.
type encoded struct {
	drops, puts, accepts, rejects []encodedRow
	bytes                         int
}

type encodedRow struct {
	table int
	hash  uint64
	row   parquet.Row
}

// encodeBatch brings a batch into the form of files, and finds what is wrong with its
// rows. That is done here, by the goroutine of the writer and not by the commit, because
// whoever calls Write can still say whose row it was; a commit holds rows of many writers.
func (w *Writer) encodeBatch(b *project.Batch) (*encoded, error) {
	e, before := &encoded{}, w.arena.size
	var err error
	if e.drops, err = w.encodeRows(b.Drop, w.encodeKeyRow); err != nil {
		return nil, err
	}
	if e.puts, err = w.encodeRows(b.Put, w.encodeRow); err != nil {
		return nil, err
	}
	for i := range b.Accept {
		if e.accepts, err = w.addReject(e.accepts, &b.Accept[i]); err != nil {
			return nil, err
		}
	}
	for i := range b.Reject {
		if e.rejects, err = w.addReject(e.rejects, &b.Reject[i]); err != nil {
			return nil, err
		}
	}
	e.bytes = w.arena.size - before
	return e, nil
}

func (w *Writer) encodeRows(rows []project.Row, encode func(*writerTable, *project.Row) (parquet.Row, error)) ([]encodedRow, error) {
	all := make([]encodedRow, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		if r.Table < 0 || r.Table >= len(w.tables) {
			return nil, processors.Reject(fmt.Errorf("parquet sink: a row of table %d, there are %d", r.Table, len(w.tables)))
		}
		t := &w.tables[r.Table]
		row, err := encode(t, r)
		if err != nil {
			return nil, err
		}
		all = append(all, encodedRow{table: r.Table, hash: t.l.rows.hashOf(row), row: row})
	}
	return all, nil
}

func (w *Writer) encodeKeyRow(t *writerTable, r *project.Row) (parquet.Row, error) {
	return t.l.rows.encodeKeyRow(&w.arena, r)
}

func (w *Writer) encodeRow(t *writerTable, r *project.Row) (parquet.Row, error) {
	if len(r.Values) != len(t.columns) {
		return nil, processors.Reject(fmt.Errorf("parquet sink: table %s: a row of %d values for %d columns", t.l.rows.as, len(r.Values), len(t.columns)))
	}
	row, err := t.l.rows.encodeRow(&w.arena, r, t.columns)
	if err != nil {
		return nil, err
	}
	if column, reason := t.l.rows.cannotHold(row); reason != "" {
		return nil, t.l.rows.refuse(column, reason)
	}
	return row, nil
}

func (w *Writer) addReject(all []encodedRow, r *project.Reject) ([]encodedRow, error) {
	if r.Table < 0 || r.Table >= len(w.tables) {
		return nil, processors.Reject(fmt.Errorf("parquet sink: a reject of table %d, there are %d", r.Table, len(w.tables)))
	}
	row, hash := w.tables[r.Table].l.rejects.encodeReject(&w.arena, r)
	return append(all, encodedRow{table: r.Table, hash: hash, row: row}), nil
}

// addBatch adds a batch to what the writer holds.
func (w *Writer) addBatch(b *project.Batch, e *encoded) (project.Written, error) {
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended != nil { // since checkFollows: encoding is done without the lock
		return project.Written{}, w.ended
	}
	bytes, rows := w.active.bytes, w.active.rows
	w.active.addBatch(w.tables, e)
	if w.taken.Before(b.UpTo) {
		w.taken = b.UpTo
	}
	s.countLocked(w.active.rows-rows, w.active.bytes-bytes)
	return project.Written{Durable: w.durable}, nil
}

// Flush commits what the writers of the sink hold, and returns the position up to
// which all that this one took is durable. It may be called beside a Write, which it
// does not wait for, and beside another Flush.
func (w *Writer) Flush(ctx context.Context) (feed.Position, error) {
	s := w.sink
	upTo := w.takenUpTo()
	for {
		dirty, err := w.dirty(upTo)
		if err != nil {
			return feed.Position{}, err
		}
		if !dirty {
			return w.durableUpTo(), nil
		}
		if err := s.waitForTurn(ctx); err != nil {
			return feed.Position{}, err
		}
		if err := s.takeTurn(ctx); err != nil {
			return feed.Position{}, err
		}
		// Whoever had the turn may have committed what this writer holds, too.
		if dirty, err = w.dirty(upTo); err == nil && dirty {
			err = s.commit(ctx)
		}
		s.endTurn()
		if err != nil {
			return feed.Position{}, err
		}
	}
}

// takenUpTo is the position up to which w took batches.
func (w *Writer) takenUpTo() feed.Position {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	return w.taken
}

// dirty says whether something that w took up to a position is not durable, or cannot be
// seen by readers yet.
func (w *Writer) dirty(upTo feed.Position) (bool, error) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	return w.durable.Before(upTo) || w.sink.unpublished, w.ended
}

// Close discards what was not flushed.
func (w *Writer) Close() error {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.writers[w.producer] == w {
		delete(w.sink.writers, w.producer)
	}
	w.sink.discardLocked(w, errClosed)
	return nil
}

// discardLocked ends a writer for a reason.
func (s *Sink) discardLocked(w *Writer, why error) {
	if w.ended != nil {
		return
	}
	w.ended = why
	s.rows, s.bytes = s.rows-w.active.rows, s.bytes-w.active.bytes
	for _, b := range w.sealed {
		s.sealedRows, s.sealedBytes = s.sealedRows-b.rows, s.sealedBytes-b.bytes
	}
	w.active, w.sealed = newBuffer(nil), nil
}
