package pgsink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// attemptsMax is how often a transaction is tried that fails because another came
// in between.
const attemptsMax = 4

// errStepwise says that a batch must be written step by step.
var errStepwise = errors.New("step by step")

// writer writes for one source partition: each batch is one transaction.
type writer struct {
	s      *Sink
	schema *project.Schema
	term   project.Term
	layout *layout       // as last seen; nil to look again
	at     feed.Position // recorded, as last seen
	args   arguments
	closed bool
}

// Write writes b in one transaction with its position; in several, of which the last has the
// position, where so many rows are refused that one would take too long.
func (w *writer) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	if w.closed {
		return project.Written{}, failure(ctx, "write", errClosed)
	}
	parts, how := w.splitByTable(b), shared
	if slices.ContainsFunc(parts, (*tablePart).movesKeys) {
		how = stepwise
	}
	written := project.Written{}
	for {
		t, err := w.try(ctx, b, parts, how)
		switch {
		case err != nil:
			return project.Written{Durable: w.at}, failure(ctx, "write "+strconv.Itoa(b.Len())+" rows of "+w.term.Producer.String(), err)
		case t.skipped:
			return project.Written{Durable: w.at, Skipped: true}, nil
		}
		written.Pending += t.pending
		written.Refused = append(written.Refused, t.refused...)
		if len(t.left) == 0 {
			written.Durable = w.at
			return written, nil
		}
		parts, how = t.left, stepwise
		if w.term.Heartbeat != nil {
			w.term.Heartbeat()
		}
	}
}

// try writes parts of b in one transaction, and returns the one that did. Only one that goes step by
// step may leave some of them.
func (w *writer) try(ctx context.Context, b *project.Batch, parts []*tablePart, how mode) (*transaction, error) {
	limited, cancel := context.WithTimeout(ctx, writeMax)
	defer cancel()
	// Most batches are written at the first attempt, together with those of other
	// writers. Each reason to try again asks for more: to be alone where another
	// transaction was in the way, to go step by step where rows were.
	for attempt := 1; ; attempt++ {
		t, err := w.transact(limited, b, parts, how)
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, errStepwise), rowFault(err) && how != stepwise:
			how = stepwise
		case interrupted(err) && attempt < attemptsMax, lockBusy(err) && how == shared:
			how = max(how, alone)
		case tableMissing(err) && attempt == 1: // Swap may have renamed it
			w.layout = nil
		default:
			return nil, err
		}
	}
}

// Flush has nothing to make durable, and looks whether the term lasts.
func (w *writer) Flush(ctx context.Context) (feed.Position, error) {
	limited, cancel := context.WithTimeout(ctx, writeMax)
	defer cancel()
	at, err := w.flush(limited)
	return at, failure(ctx, "flush "+w.term.Producer.String(), err)
}

func (w *writer) flush(ctx context.Context) (feed.Position, error) {
	if w.closed {
		return feed.Position{}, errClosed
	}
	k, err := w.s.conns.acquireForWriter(ctx)
	if err != nil {
		return feed.Position{}, err
	}
	defer w.s.conns.releaseByWriter(ctx, k)
	defer rollback(ctx, k)
	results, err := simpleQueryAll(ctx, k, w.s.beginWriter(w.schema.Pipeline, shared)+w.s.termQuery(w.term.Producer))
	if err != nil {
		return feed.Position{}, err
	}
	_, at, err := w.parseTerm(results)
	return at, err
}

// Close ends the use of the writer.
func (w *writer) Close() error {
	w.closed = true
	return nil
}

// mode is how a transaction writes a batch.
type mode int

const (
	// shared is beside other transactions of the pipeline, by statements that are sent
	// together.
	shared mode = iota
	// alone is while no other transaction of the pipeline writes.
	alone
	// stepwise is one step after the other, each of which may depend on what the one
	// before has answered. It takes locks as it goes, in no order, so it is alone too.
	stepwise
)

// transact writes parts of b in one transaction.
func (w *writer) transact(ctx context.Context, b *project.Batch, parts []*tablePart, how mode) (*transaction, error) {
	k, err := w.s.conns.acquireForWriter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.s.conns.releaseByWriter(ctx, k)
	defer rollback(ctx, k)
	t := &transaction{w: w, k: k, parts: parts}
	if t.skipped, err = t.beginBatch(ctx, b, how); err != nil || t.skipped {
		return t, err
	}
	// Behind the wait for the locks, which others may hold for long.
	t.until = time.Now().Add(w.s.stepsMax)
	if how == stepwise {
		err = t.writeStepwise(ctx, b)
	} else {
		err = t.writeTogether(ctx, b)
	}
	if err == nil {
		err = commit(ctx, k)
	}
	if err != nil {
		return nil, err
	}
	if len(t.left) == 0 {
		w.at = b.UpTo
	}
	return t, nil
}

// transaction is one attempt to write a batch.
type transaction struct {
	w         *writer
	k         *conn
	parts     []*tablePart
	present   []presentRejects // of the tables of parts
	promoting bool             // what is written was a pending row, not one of the batch
	reasons   map[id]string    // by hash of key: those of rows that wait for a key which was given to another while promoting

	// How far it goes step by step.
	until   time.Time // when it leaves the rest to another one
	stepped bool      // it has got on, by one row at least
	whole   int       // what it is in the middle of, and must not leave

	skipped bool             // the batch was written before
	pending int              // rows of the batch that wait for a key
	refused []project.Reject // rows of the batch that PostgreSQL did not take
	left    []*tablePart     // what it had no time for
}

// presentRejects says what there is among the rejects of a table. Where there is nothing,
// as in most tables at most times, a put needs no statement that removes its rejects.
type presentRejects struct{ pending, refused bool }

// target is where the rows of a part go.
func (t *transaction) target(p *tablePart) *tableTarget { return &t.w.layout.tables[p.table] }

// beginBatch begins the transaction, locks the producer's position and says whether the
// batch was written before. All that it asks goes to the server in one request: a round
// trip more would be a large part of a small batch.
func (t *transaction) beginBatch(ctx context.Context, b *project.Batch, how mode) (skip bool, err error) {
	w := t.w
	sql := w.s.beginWriter(w.schema.Pipeline, how) + w.s.termQuery(w.term.Producer)
	asked := w.layout != nil
	if asked {
		sql += t.presentQuery()
	}
	results, err := simpleQueryAll(ctx, t.k, sql)
	if err != nil {
		return false, err
	}
	live, at, err := w.parseTerm(results)
	if err != nil {
		return false, err
	}
	w.at = at
	switch {
	case !at.Before(b.UpTo):
		return true, nil
	case at.Before(b.After):
		return false, fmt.Errorf("pgsink: %w: it is at %s, the batch goes from %s to %s", project.ErrPosition, at, b.After, b.UpTo)
	}
	// The layout is that of the last batch. A Swap since then has made the generation
	// live, and given its tables other names. Columns that were added since do not matter
	// to a writer that does not know them: its statements name their columns.
	if asked && w.layout.live == live {
		t.readPresent(results[preludeResults+termResults:])
		return false, nil
	}
	return false, t.findTables(ctx)
}

// parseTerm reads what begin and termQuery answered: whether the generation's
// tables are the ones that readers see, and the producer's position.
func (w *writer) parseTerm(results []*pgconn.Result) (live bool, at feed.Position, err error) {
	generation, position := results[preludeResults].Rows, results[preludeResults+1].Rows
	if len(generation) == 0 {
		return false, at, termOver(w.term, "the generation has been replaced")
	}
	at, err = w.parsePosition(position)
	return string(generation[0][0]) == "t", at, err
}

// parsePosition reads the producer's row, and refuses an older epoch than is there.
func (w *writer) parsePosition(rows [][][]byte) (feed.Position, error) {
	if len(rows) == 0 {
		return feed.Position{}, nil // somebody has removed it
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(string(rows[0][i]), 10, 64); err != nil {
			return feed.Position{}, fmt.Errorf("%s: %w", w.s.ownTable("positions"), err)
		}
	}
	if n[0] > w.term.Epoch {
		return feed.Position{}, fmt.Errorf("pgsink: %w, this is epoch %d of %s", &processors.FencedError{Seen: n[0]}, w.term.Epoch, w.term.Producer)
	}
	return feed.Position{LSN: feed.LSN(n[1]), Index: uint32(n[2])}, nil
}

// termOver is the error of a writer whose term is over.
func termOver(t project.Term, why string) error {
	return fmt.Errorf("pgsink: %w: %s, this is epoch %d of %s", processors.ErrFenced, why, t.Epoch, t.Producer)
}

// findTables finds where the tables are now, and what is in their rejects.
func (t *transaction) findTables(ctx context.Context) error {
	w := t.w
	c, err := w.s.readCatalogue(ctx, t.k, w.schema.Pipeline)
	if err != nil {
		return err
	}
	g := c.generation(w.schema.Generation)
	if g == nil {
		return termOver(w.term, "the generation has been replaced")
	}
	w.layout = w.s.layoutOf(g, w.schema)
	if !w.layout.complete() {
		return &Error{Doing: "write", Message: "a table or column is not there; the next start of the pipeline's worker makes it"}
	}
	if sql := t.presentQuery(); sql != "" {
		results, err := simpleQueryAll(ctx, t.k, sql)
		if err != nil {
			return err
		}
		t.readPresent(results)
	}
	return nil
}

// presentQuery asks what there is among the rejects of each table of the batch.
func (t *transaction) presentQuery() string {
	var sql strings.Builder
	for _, p := range t.parts {
		sql.WriteString(t.target(p).sql.present + ";\n")
	}
	return sql.String()
}

func (t *transaction) readPresent(results []*pgconn.Result) {
	t.present = make([]presentRejects, len(t.parts))
	for i, r := range results {
		t.present[i] = presentRejects{pending: string(r.Rows[0][0]) == "t", refused: string(r.Rows[0][1]) == "t"}
	}
}

// recordPosition is the call that records the position of a batch.
func (t *transaction) recordPosition(b *project.Batch) call {
	w := t.w
	return call{w.s.moveStatement(), func(a *arguments) {
		a.text(w.schema.Pipeline)
		a.int(int64(w.schema.Generation))
		a.text(w.term.Producer.Source)
		a.int(int64(w.term.Epoch))
		a.int(int64(b.UpTo.LSN))
		a.int(int64(b.UpTo.Index))
	}}
}
