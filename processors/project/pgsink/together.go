package pgsink

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/processors/project"
)

// together writes a batch by statements that are sent together. The error is
// errCarefully if what they meet needs an answer first.
//
// Other transactions do the same at the same time, so locks are taken in one order:
//
//	put      by table and key: each waits for those before it in the order only
//	drop     } does not wait, or not for long: whoever would have to lets go of
//	rejects  } everything and comes back alone
//
// Dropping first would make a circle: one that drops k5 and puts k1 would wait for
// one that drops k1 and puts k5.
func (t *transaction) together(ctx context.Context, b *project.Batch) error {
	var calls []call
	var puts []put
	var asks []int // indexes of calls that must return nothing
	for _, part := range t.parts {
		p := t.place(part)
		for _, rows := range statementsOf(part.put) {
			puts = append(puts, put{p, rows, len(calls)})
			calls = append(calls, upsert(p, rows))
		}
	}
	calls = append(calls, call{sql: "select " + setting("lock_timeout", milliseconds(outOfOrderMax))})
	for i, part := range t.parts {
		p := t.place(part)
		for _, rows := range bounded(part.drop) {
			calls = append(calls, drop(p, rows), waiting(p, rows))
			asks = append(asks, len(calls)-1)
		}
		if ids := t.forgotten(i); len(ids) > 0 {
			calls = append(calls, forget(p, ids))
		}
		if len(part.reject) > 0 {
			calls = append(calls, writeRejects(p, part.reject))
		}
	}
	results, err := run(ctx, t.k, &t.w.args, append(calls, t.move(b))...)
	if err != nil {
		return err
	}
	for _, i := range asks {
		if len(results[i].rows) > 0 {
			return errCarefully
		}
	}
	for _, p := range puts {
		if results[p.call].affected == int64(len(p.rows)) {
			continue
		}
		if err := t.claim(ctx, p.place, p.rows); err != nil {
			return err
		}
	}
	return nil
}

// put is a statement that writes rows, and which of the calls it is.
type put struct {
	*place
	rows []*project.Row
	call int
}

// forgotten are the ids of the rejects of the part at index i that are over: those
// that were accepted, those of rows that go, and those of rows that are written if
// there can be any.
func (t *transaction) forgotten(i int) []id {
	part := t.parts[i]
	ids := slices.Clone(part.accept)
	for _, r := range part.drop {
		source := sourceText(r.Source)
		ids = append(ids, refusalID(source, r.Element), claimID(source, keyText(r.Key)))
	}
	if !t.some[i].claims && !t.some[i].refused {
		return ids
	}
	for _, r := range part.put {
		source := sourceText(r.Source)
		if t.some[i].refused {
			ids = append(ids, refusalID(source, r.Element))
		}
		if t.some[i].claims {
			ids = append(ids, claimID(source, keyText(r.Key)))
		}
	}
	return ids
}

// claim finds which of the rows that were to be written have a key that is another
// source's, and makes claims of them. The rows that have it are locked since the
// attempt to write them.
func (t *transaction) claim(ctx context.Context, p *place, rows []*project.Row) error {
	held, err := one(ctx, t.k, &t.w.args, holders(p, rows))
	if err != nil || len(held.rows) == 0 {
		return err
	}
	claims := make([]reject, len(held.rows))
	for i, row := range held.rows {
		n := binary.BigEndian.Uint64(row[0])
		if n == 0 || n > uint64(len(rows)) {
			return fmt.Errorf("row %d of %d is held", n, len(rows))
		}
		claims[i] = claimOf(p, rows[n-1], sourceOf(string(row[1])))
	}
	if !t.promoting {
		t.claimed += len(claims)
	}
	_, err = one(ctx, t.k, &t.w.args, writeRejects(p, claims))
	return err
}
