package pgsink

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/processors/project"
)

// writeStepwise writes a batch step by step: it finds and refuses a row that PostgreSQL does
// not take, and where a row goes, the pending row that is next takes its place. Rejects that
// are over go first, then the rows that are dropped, then come those that are put: nobody else
// writes meanwhile, so no order of locks has to be kept.
//
// What it has no time for is left to another transaction, and the position to the last one:
//
//	(40, 50] with 9,000 rows that are refused   begin   3,000 of them              commit
//	                                            begin   3,000 of them              commit
//	                                            begin   3,000 of them, record 50   commit
//
// A term that ends in between writes all of them again, in batches with other ends perhaps. A
// batch says how rows are, so those that are there already do no harm.
func (t *transaction) writeStepwise(ctx context.Context, b *project.Batch) error {
	// What is checked at the end of a transaction would not tell which row it was.
	if _, err := simpleQuery(ctx, t.k, "set constraints all immediate"); err != nil {
		return err
	}
	for i, p := range t.parts {
		rest, err := t.writePart(ctx, t.target(p), p, t.rejectsOver(i))
		if err != nil {
			return err
		}
		if rest != nil {
			t.left = append([]*tablePart{rest}, t.parts[i+1:]...)
			return nil
		}
	}
	_, err := runOne(ctx, t.k, &t.w.args, t.recordPosition(b))
	return err
}

// writePart returns what there was no time for, nil for nothing.
func (t *transaction) writePart(ctx context.Context, target *tableTarget, p *tablePart, over []id) (rest *tablePart, err error) {
	if len(over) > 0 {
		if _, err := runOne(ctx, t.k, &t.w.args, removeRejects(target, over)); err != nil {
			return nil, err
		}
	}
	dropped := 0
	for _, rows := range bounded(p.drop) {
		done, err := t.dropAll(ctx, target, rows)
		if err != nil {
			return nil, err
		}
		if dropped += done; done < len(rows) {
			return &tablePart{table: p.table, drop: p.drop[dropped:], put: p.put, reject: p.reject}, nil
		}
	}
	runs := statementsOf(p.put)
	for i, rows := range runs {
		done, err := t.putAll(ctx, target, rows)
		if err != nil {
			return nil, err
		}
		if done < len(rows) {
			// Rows of one key stay in their order: they are in different runs.
			left := slices.Concat(rows[done:], slices.Concat(runs[i+1:]...))
			sortByKey(left)
			return &tablePart{table: p.table, put: left, reject: p.reject}, nil
		}
	}
	if len(p.reject) == 0 {
		return nil, nil
	}
	_, err = runOne(ctx, t.k, &t.w.args, writeRejects(target, p.reject))
	return nil, err
}

// putAll writes rows of different keys, but for those that PostgreSQL does not
// take, and returns how many of them it had time for.
func (t *transaction) putAll(ctx context.Context, target *tableTarget, rows []*project.Row) (done int, err error) {
	try := func(rows []*project.Row) error {
		done, err := runOne(ctx, t.k, &t.w.args, upsertRows(target, rows))
		if err != nil || done.affected == int64(len(rows)) {
			return err
		}
		return t.makePending(ctx, target, rows)
	}
	return t.isolateFaults(ctx, rows, try, func(r *project.Row, why error) error {
		// What the row was before it must not stay.
		if _, err := t.dropAll(ctx, target, []*project.Row{r}); err != nil {
			return err
		}
		if !t.promoting {
			t.refused = append(t.refused, project.Reject{Table: r.Table, Source: r.Source, Element: r.Element, Reason: refusal(answerOf(why))})
		}
		return t.rejectRefused(ctx, target, r, why)
	})
}

// dropAll removes rows, but for those that PostgreSQL holds on to, and gives their
// keys to the pending rows that are next. It returns how many of them it had time for.
func (t *transaction) dropAll(ctx context.Context, target *tableTarget, rows []*project.Row) (done int, err error) {
	try := func(rows []*project.Row) error {
		_, err := runOne(ctx, t.k, &t.w.args, dropRows(target, rows))
		return err
	}
	done, err = t.isolateFaults(ctx, rows, try, func(r *project.Row, why error) error { return t.rejectRefused(ctx, target, r, why) })
	if err != nil || done == 0 {
		return done, err
	}
	return done, t.promote(ctx, target, rows[:done])
}

func (t *transaction) rejectRefused(ctx context.Context, target *tableTarget, r *project.Row, why error) error {
	_, err := runOne(ctx, t.k, &t.w.args, writeRejects(target, []reject{refusedOf(target, r, answerOf(why))}))
	return err
}

// isolateFaults tries rows together under a savepoint; after an error that lies in them
// it tries each half, down to the row that cannot be:
//
//	1 2 3 4 5 6 7 8      fails
//	1 2 3 4              succeeds
//	        5 6 7 8      fails
//	        5 6          fails
//	        5            succeeds
//	          6          refused
//	            7 8      succeeds
//
// One bad row among n costs about 2 log n statements. A savepoint for each row would cost
// n, also where no row is bad.
//
// It returns how many of the rows, from the first one on, it had time for.
func (t *transaction) isolateFaults(
	ctx context.Context, rows []*project.Row, try func([]*project.Row) error, refuse func(*project.Row, error) error,
) (done int, err error) {
	if t.timeIsUp() {
		return 0, nil
	}
	const savepoint = "millrace"
	if _, err := simpleQuery(ctx, t.k, "savepoint "+savepoint); err != nil {
		return 0, err
	}
	// An error ends a PostgreSQL transaction but for what was before a savepoint.
	err = try(rows)
	if err == nil {
		t.stepped = true
		_, err := simpleQuery(ctx, t.k, "release savepoint "+savepoint)
		return len(rows), err
	}
	if !rowFault(err) {
		return 0, err
	}
	if _, err := simpleQuery(ctx, t.k, "rollback to savepoint "+savepoint+"; release savepoint "+savepoint); err != nil {
		return 0, err
	}
	if len(rows) == 1 {
		t.stepped = true
		t.whole++
		defer func() { t.whole-- }()
		return 1, refuse(rows[0], err)
	}
	half := len(rows) / 2
	if done, err = t.isolateFaults(ctx, rows[:half], try, refuse); err != nil || done < half {
		return done, err
	}
	more, err := t.isolateFaults(ctx, rows[half:], try, refuse)
	return done + more, err
}

// timeIsUp says whether the rows that follow are left to another transaction. It is false before the
// first of them, so that each transaction gets on, and within a step: a row that was refused
// and is still there, or a key that is free while rows wait for it, must not be committed.
func (t *transaction) timeIsUp() bool {
	return t.stepped && t.whole == 0 && time.Now().After(t.until)
}

// promote gives each key of rows that has no row any more to the pending row with the
// smallest source. It goes on until no key is promotable: PostgreSQL may refuse a row that
// was promoted, and then the key is the next one's.
func (t *transaction) promote(ctx context.Context, target *tableTarget, rows []*project.Row) error {
	// putAll counts rows of the batch that wait or are refused; promoted ones are not of it.
	outer := t.promoting
	t.promoting = true
	t.whole++
	defer func() {
		t.promoting = outer
		t.whole--
	}()
	if !outer {
		t.reasons = map[id]string{}
	}
	for {
		free, err := runOne(ctx, t.k, &t.w.args, promotable(target, rows))
		if err != nil || len(free.rows) == 0 && outer {
			return err
		}
		// When all keys have their rows: each one that is refused would else have the reasons of all that
		// wait behind it written once more.
		if len(free.rows) == 0 {
			return t.updateReasons(ctx, target)
		}
		next, err := t.takeNextPending(ctx, target, free.rows)
		if err != nil {
			return err
		}
		sortByKey(next)
		for _, rows := range statementsOf(next) {
			if _, err := t.putAll(ctx, target, rows); err != nil {
				return err
			}
		}
	}
}

// takeNextPending removes the next pending row of each of some keys from the rejects and
// returns the rows.
func (t *transaction) takeNextPending(ctx context.Context, target *tableTarget, hashes [][][]byte) ([]*project.Row, error) {
	list := make([]id, len(hashes))
	for i, row := range hashes {
		list[i] = id(row[0])
	}
	all, err := runOne(ctx, t.k, &t.w.args, call{target.sql.pending, func(a *arguments) { a.ids(list) }})
	if err != nil {
		return nil, err
	}
	next := map[id][][]byte{} // by id
	for _, row := range all.rows {
		next[id(row[0])] = row
	}
	// Only what this transaction itself has removed is promoted: whatever withdraws a
	// pending row may have been first.
	ids := slices.Collect(maps.Keys(next))
	taken, err := runOne(ctx, t.k, &t.w.args, removeRejects(target, ids))
	if err != nil {
		return nil, err
	}
	var rows []*project.Row
	for _, row := range taken.rows {
		pending := next[id(row[0])]
		r, err := parsePending(target, pending)
		if err != nil {
			// It was written for other columns; it says so among the rejects.
			if err := t.rejectUnreadable(ctx, target, pending, err); err != nil {
				return nil, err
			}
			continue
		}
		rows, t.reasons[id(pending[1])] = append(rows, r), project.HeldBy(r.Source)
	}
	return rows, nil
}

// parsePending reads a pending row from among the rejects.
func parsePending(target *tableTarget, pending [][]byte) (*project.Row, error) {
	values, err := target.ParseRow(pending[4])
	if err != nil {
		return nil, err
	}
	return &project.Row{
		Table: target.index, Key: target.KeyOf(values), Values: values, Source: sourceOf(string(pending[2])), Element: string(pending[3]),
	}, nil
}

func (t *transaction) rejectUnreadable(ctx context.Context, target *tableTarget, pending [][]byte, why error) error {
	source, element, key := string(pending[2]), string(pending[3]), string(pending[5])
	_, err := runOne(ctx, t.k, &t.w.args, writeRejects(target, []reject{{
		id: refusalID(source, key), kind: kindRefused, source: source, element: element, key: key,
		reason: printable("the key is free, and the row cannot be read: " + why.Error()), row: slices.Clone(pending[4]),
	}}))
	return err
}

// updateReasons corrects the reasons of pending rows whose keys have a new holder.
func (t *transaction) updateReasons(ctx context.Context, target *tableTarget) error {
	if len(t.reasons) == 0 {
		return nil
	}
	hashes := slices.SortedFunc(maps.Keys(t.reasons), id.compare)
	_, err := runOne(ctx, t.k, &t.w.args, call{target.sql.updateReasons, func(a *arguments) {
		a.ids(hashes)
		a.texts(len(hashes), func(i int) string { return printable(t.reasons[hashes[i]]) })
	}})
	return err
}
