package pgsink

import (
	"context"
	"slices"

	"github.com/millrace/millrace/processors/project"
)

// carefully writes a batch step by step: a row that PostgreSQL does not take is
// found and refused, and where a row goes, the claim that is next takes its place.
func (t *transaction) carefully(ctx context.Context, b *project.Batch) error {
	// What is checked at the end of a transaction would not tell which row it was.
	if _, err := ask(ctx, t.k, "set constraints all immediate"); err != nil {
		return err
	}
	for i, part := range t.parts {
		p := t.place(part)
		if err := t.carefulPart(ctx, p, part, t.forgotten(i)); err != nil {
			return err
		}
	}
	_, err := one(ctx, t.k, &t.w.args, t.move(b))
	return err
}

func (t *transaction) carefulPart(ctx context.Context, p *place, part *part, over []id) error {
	if len(over) > 0 {
		if _, err := one(ctx, t.k, &t.w.args, forget(p, over)); err != nil {
			return err
		}
	}
	for _, rows := range bounded(part.drop) {
		if err := t.dropAll(ctx, p, rows); err != nil {
			return err
		}
	}
	for _, rows := range statementsOf(part.put) {
		if err := t.putAll(ctx, p, rows); err != nil {
			return err
		}
	}
	if len(part.reject) == 0 {
		return nil
	}
	_, err := one(ctx, t.k, &t.w.args, writeRejects(p, part.reject))
	return err
}

// putAll writes rows of different keys, but for those that PostgreSQL does not
// take.
func (t *transaction) putAll(ctx context.Context, p *place, rows []*project.Row) error {
	try := func(rows []*project.Row) error {
		done, err := one(ctx, t.k, &t.w.args, upsert(p, rows))
		if err != nil || done.affected == int64(len(rows)) {
			return err
		}
		return t.claim(ctx, p, rows)
	}
	return t.isolate(ctx, rows, try, func(r *project.Row, why error) error {
		// What the row was before it must not stay.
		if err := t.dropAll(ctx, p, []*project.Row{r}); err != nil {
			return err
		}
		if !t.promoting {
			t.refused = append(t.refused, project.Reject{Table: r.Table, Source: r.Source, Element: r.Element, Reason: refusal(answerOf(why))})
		}
		return t.refuse(ctx, p, r, why)
	})
}

// dropAll removes rows, but for those that PostgreSQL holds on to, and gives their
// keys to the claims that are next.
func (t *transaction) dropAll(ctx context.Context, p *place, rows []*project.Row) error {
	try := func(rows []*project.Row) error {
		_, err := one(ctx, t.k, &t.w.args, drop(p, rows))
		return err
	}
	err := t.isolate(ctx, rows, try, func(r *project.Row, why error) error { return t.refuse(ctx, p, r, why) })
	if err != nil {
		return err
	}
	return t.promote(ctx, p, rows)
}

func (t *transaction) refuse(ctx context.Context, p *place, r *project.Row, why error) error {
	_, err := one(ctx, t.k, &t.w.args, writeRejects(p, []reject{refusedOf(p, r, answerOf(why))}))
	return err
}

// isolate tries rows together under a savepoint; after an error that lies in them
// it tries each half, down to the row that cannot be.
func (t *transaction) isolate(ctx context.Context, rows []*project.Row, try func([]*project.Row) error, refuse func(*project.Row, error) error) error {
	const savepoint = "millrace"
	if _, err := ask(ctx, t.k, "savepoint "+savepoint); err != nil {
		return err
	}
	err := try(rows)
	if err == nil {
		_, err := ask(ctx, t.k, "release savepoint "+savepoint)
		return err
	}
	if !rowFault(err) {
		return err
	}
	if _, err := ask(ctx, t.k, "rollback to savepoint "+savepoint+"; release savepoint "+savepoint); err != nil {
		return err
	}
	if len(rows) == 1 {
		return refuse(rows[0], err)
	}
	half := len(rows) / 2
	if err := t.isolate(ctx, rows[:half], try, refuse); err != nil {
		return err
	}
	return t.isolate(ctx, rows[half:], try, refuse)
}

// promote gives each key of rows that has no row any more to the claim on it with
// the smallest source.
func (t *transaction) promote(ctx context.Context, p *place, rows []*project.Row) error {
	outer := t.promoting
	t.promoting = true
	defer func() { t.promoting = outer }()
	for {
		free, err := one(ctx, t.k, &t.w.args, waiting(p, rows))
		if err != nil || len(free.rows) == 0 {
			return err
		}
		next, err := t.takeNext(ctx, p, free.rows)
		if err != nil {
			return err
		}
		sortByKey(next)
		for _, rows := range statementsOf(next) {
			if err := t.putAll(ctx, p, rows); err != nil {
				return err
			}
		}
	}
}

// takeNext removes the next claim on each of some keys and returns its row.
func (t *transaction) takeNext(ctx context.Context, p *place, hashes [][][]byte) ([]*project.Row, error) {
	list := make([]id, len(hashes))
	for i, row := range hashes {
		list[i] = id(row[0])
	}
	all, err := one(ctx, t.k, &t.w.args, call{p.sql.claims, func(a *arguments) { a.ids(list) }})
	if err != nil {
		return nil, err
	}
	next := map[id][][]byte{} // by id, the first of each key
	keys := map[id]bool{}
	for _, row := range all.rows {
		if hash := id(row[1]); !keys[hash] {
			keys[hash], next[id(row[0])] = true, row
		}
	}
	// A transaction that withdraws a claim may have been first.
	var ids []id
	for claim := range next {
		ids = append(ids, claim)
	}
	taken, err := one(ctx, t.k, &t.w.args, forget(p, ids))
	if err != nil {
		return nil, err
	}
	var rows []*project.Row
	told := map[id]string{}
	for _, row := range taken.rows {
		claim := next[id(row[0])]
		r, err := claimed(p, claim)
		if err != nil {
			// The claim was written for other columns; it says so among the rejects.
			if err := t.unreadable(ctx, p, claim, err); err != nil {
				return nil, err
			}
			continue
		}
		rows, told[id(claim[1])] = append(rows, r), project.HeldBy(r.Source)
	}
	return rows, t.tell(ctx, p, told)
}

// claimed reads the row of a claim.
func claimed(p *place, claim [][]byte) (*project.Row, error) {
	values, err := p.ParseRow(claim[4])
	if err != nil {
		return nil, err
	}
	return &project.Row{
		Table: p.index, Key: p.KeyOf(values), Values: values, Source: sourceOf(string(claim[2])), Element: string(claim[3]),
	}, nil
}

func (t *transaction) unreadable(ctx context.Context, p *place, claim [][]byte, why error) error {
	source, element := string(claim[2]), string(claim[3])
	_, err := one(ctx, t.k, &t.w.args, writeRejects(p, []reject{{
		id: refusalID(source, element), kind: kindRefused, source: source, element: element,
		reason: printable("the key is free, and the row cannot be read: " + why.Error()), row: slices.Clone(claim[4]),
	}}))
	return err
}

// tell corrects the reasons of claims on keys that have a new holder.
func (t *transaction) tell(ctx context.Context, p *place, reasons map[id]string) error {
	if len(reasons) == 0 {
		return nil
	}
	var hashes []id
	for hash := range reasons {
		hashes = append(hashes, hash)
	}
	slices.SortFunc(hashes, id.compare)
	_, err := one(ctx, t.k, &t.w.args, call{p.sql.told, func(a *arguments) {
		a.ids(hashes)
		a.texts(len(hashes), func(i int) string { return printable(reasons[hashes[i]]) })
	}})
	return err
}
