package pgsink

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// sortByKey orders rows by key, and leaves those of one key in their order. In one
// order transactions wait for each other instead of in a circle.
func sortByKey(rows []*project.Row) {
	slices.SortStableFunc(rows, compareKeys)
}

func compareKeys(a, b *project.Row) int {
	for i := range a.Key {
		if c := compareValues(a.Key[i], b.Key[i]); c != 0 {
			return c
		}
	}
	return 0
}

// compareValues orders values of one column of a key.
func compareValues(a, b project.Value) int {
	switch a.Kind() {
	case project.Text:
		return strings.Compare(a.Text(), b.Text())
	case project.Int:
		return cmp.Compare(a.Int(), b.Int())
	case project.Time:
		return cmp.Compare(a.Micros(), b.Micros())
	case project.Date:
		return cmp.Compare(a.Days(), b.Days())
	// Any order will do for locks, as long as all writers have the same. By number and not by
	// text, which would cost an allocation for each comparison.
	case project.Decimal:
		n, small := a.Unscaled()
		m, alsoSmall := b.Unscaled()
		if small && alsoSmall { // values of a column have one scale
			return cmp.Compare(n, m)
		}
		return a.UnscaledBig().Cmp(b.UnscaledBig())
	default:
		return strings.Compare(a.String(), b.String())
	}
}

// statementsOf divides rows, which are ordered by key, into runs for one statement each: no
// key is twice in one, because PostgreSQL refuses an upsert that touches a row twice, and
// none is larger than a statement may be. Of rows of one key the first comes first:
//
//	rows          a1 b1 b2 b3 c1
//	statements    a1 b1 c1 | b2 | b3
func statementsOf(rows []*project.Row) [][]*project.Row {
	var out [][]*project.Row
	for len(rows) > 0 {
		var next []*project.Row // whose key has been there
		first := rows[:0:0]
		for i, r := range rows {
			if i > 0 && slices.Equal(r.Key, rows[i-1].Key) {
				if next == nil { // until here rows itself was the run: most have no key twice
					first = slices.Clone(rows[:i])
				}
				next = append(next, r)
				continue
			}
			if next != nil {
				first = append(first, r)
			}
		}
		if next == nil {
			first = rows
		}
		out = append(out, bounded(first)...)
		rows = next
	}
	return out
}

// bounded divides rows so that no part is larger than a statement may be.
func bounded(rows []*project.Row) [][]*project.Row {
	var out [][]*project.Row
	start, bytes := 0, 0
	for i, r := range rows {
		size := rowBytes(r)
		if i > start && (i-start == statementRowsMax || bytes+size > statementBytesMax) {
			out = append(out, rows[start:i])
			start, bytes = i, 0
		}
		bytes += size
	}
	if start < len(rows) {
		out = append(out, rows[start:])
	}
	return out
}

// rowBytes estimates what a row takes in a statement.
func rowBytes(r *project.Row) int {
	n := len(r.Source) + len(r.Element) + 8
	for _, v := range r.Values {
		switch v.Kind() {
		case project.Text:
			n += 4 + len(v.Text())
		case project.JSON:
			n += 5 + len(v.JSON())
		default:
			n += 16
		}
	}
	return n
}

// upsertRows is the call that writes rows of different keys.
func upsertRows(target *tableTarget, rows []*project.Row) call {
	return call{target.sql.upsert, func(a *arguments) {
		for j := range target.Columns {
			a.column(target.Columns[j].Type, len(rows), func(i int) project.Value { return rows[i].Values[j] })
		}
		sourceArguments(a, rows)
		a.texts(len(rows), func(i int) string { return rows[i].Element })
	}}
}

// holders is the call that asks who holds the keys of rows.
func holders(target *tableTarget, rows []*project.Row) call {
	return call{target.sql.holders, func(a *arguments) {
		keyArguments(a, target, rows)
		sourceArguments(a, rows)
	}}
}

// dropRows is the call that removes rows.
func dropRows(target *tableTarget, rows []*project.Row) call {
	return call{target.sql.drop, func(a *arguments) {
		keyArguments(a, target, rows)
		sourceArguments(a, rows)
	}}
}

// promotable is the call that asks for which of the keys of rows, if nobody holds them, rows
// are pending.
func promotable(target *tableTarget, rows []*project.Row) call {
	return call{target.sql.promotable, func(a *arguments) {
		keyArguments(a, target, rows)
		hashes := make([]id, len(rows))
		for i, r := range rows {
			hashes[i] = keyHash(keyText(r.Key))
		}
		a.ids(hashes)
	}}
}

func keyArguments(a *arguments, target *tableTarget, rows []*project.Row) {
	for j, column := range target.Key {
		a.column(target.Columns[column].Type, len(rows), func(i int) project.Value { return rows[i].Key[j] })
	}
}

func sourceArguments(a *arguments, rows []*project.Row) {
	a.texts(len(rows), func(i int) string { return sourceText(rows[i].Source) })
}
