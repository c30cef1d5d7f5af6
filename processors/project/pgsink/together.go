package pgsink

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/processors/project"
)

// writeTogether writes a batch by statements that are sent together, in one round trip.
// The error is errStepwise if what they meet needs an answer first.
//
// Other transactions do the same at the same time, so locks are taken in one order:
//
//	put      by table and key: each waits for those before it in the order only
//	drop     } does not wait, or not for long: whoever would have to lets go of
//	rejects  } everything and comes back alone
//
// Dropping first would make a circle: one that drops k5 and puts k1 would wait for
// one that drops k1 and puts k5. Locking all keys beforehand is no way out: a key that
// nobody has yet cannot be locked, and an advisory lock for each key would not fit into
// the server's table of locks.
func (t *transaction) writeTogether(ctx context.Context, b *project.Batch) error {
	var calls []call
	var puts []putCall
	var asks []int // indexes of calls that ask for keys to promote; none may be found
	for _, p := range t.parts {
		target := t.target(p)
		for _, rows := range statementsOf(p.put) {
			puts = append(puts, putCall{target, rows, len(calls)})
			calls = append(calls, upsertRows(target, rows))
		}
	}
	// From here on locks are out of order. Give up before the server looks for a deadlock.
	calls = append(calls, call{sql: "select " + setting("lock_timeout", milliseconds(outOfOrderMax))})
	for i, p := range t.parts {
		target := t.target(p)
		// What is dropped may free a key. Ask in the same round trip, and throw the work
		// away in the rare case that somebody waits for it.
		for _, rows := range bounded(p.drop) {
			calls = append(calls, dropRows(target, rows), promotable(target, rows))
			asks = append(asks, len(calls)-1)
		}
		if ids := t.rejectsOver(i); len(ids) > 0 {
			calls = append(calls, removeRejects(target, ids))
		}
		if len(p.reject) > 0 {
			calls = append(calls, writeRejects(target, p.reject))
		}
	}
	results, err := runCalls(ctx, t.k, &t.w.args, append(calls, t.recordPosition(b))...)
	if err != nil {
		return err
	}
	for _, i := range asks {
		if len(results[i].rows) > 0 {
			return errStepwise
		}
	}
	for _, p := range puts {
		// A row that the statement did not touch has a key that another source holds.
		if results[p.index].affected == int64(len(p.rows)) {
			continue
		}
		if err := t.makePending(ctx, p.tableTarget, p.rows); err != nil {
			return err
		}
	}
	return nil
}

// putCall is a statement that writes rows, and which of the calls it is.
type putCall struct {
	*tableTarget
	rows  []*project.Row
	index int
}

// rejectsOver are the ids of the rejects of the part at index i that are over: those
// that were accepted, those of rows that go, and those of rows that are written if
// there can be any.
func (t *transaction) rejectsOver(i int) []id {
	p := t.parts[i]
	ids := slices.Clone(p.accept)
	for _, r := range p.drop {
		source := sourceText(r.Source)
		key := keyText(r.Key)
		ids = append(ids, refusalID(source, key), formerRefusalID(source, r.Element), pendingID(source, key))
	}
	if !t.present[i].pending && !t.present[i].refused {
		return ids
	}
	for _, r := range p.put {
		source := sourceText(r.Source)
		if t.present[i].refused {
			ids = append(ids, refusalID(source, keyText(r.Key)), formerRefusalID(source, r.Element))
		}
		if t.present[i].pending {
			ids = append(ids, pendingID(source, keyText(r.Key)))
		}
	}
	return ids
}

// makePending finds which of the rows that were to be written have a key that is another
// source's, and puts them among the rejects as pending rows. The rows that hold the keys
// are locked since the attempt to write them, so none of them can go before this
// transaction ends: whoever drops one then looks for pending rows, and sees these.
func (t *transaction) makePending(ctx context.Context, target *tableTarget, rows []*project.Row) error {
	held, err := runOne(ctx, t.k, &t.w.args, holders(target, rows))
	if err != nil || len(held.rows) == 0 {
		return err
	}
	pending := make([]reject, len(held.rows))
	for i, row := range held.rows {
		n := binary.BigEndian.Uint64(row[0])
		if n == 0 || n > uint64(len(rows)) {
			return fmt.Errorf("row %d of %d is held", n, len(rows))
		}
		pending[i] = pendingOf(target, rows[n-1], sourceOf(string(row[1])))
	}
	if !t.promoting {
		t.pending += len(pending)
	}
	_, err = runOne(ctx, t.k, &t.w.args, writeRejects(target, pending))
	return err
}
