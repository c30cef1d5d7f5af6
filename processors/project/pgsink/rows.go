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
	case project.Decimal:
		n, small := a.Unscaled()
		m, alsoSmall := b.Unscaled()
		if small && alsoSmall {
			return cmp.Compare(n, m)
		}
		return a.UnscaledBig().Cmp(b.UnscaledBig())
	default:
		return strings.Compare(a.String(), b.String())
	}
}

// statementsOf divides rows, which are ordered by key, into runs for one statement
// each: no key is twice in one, and none is larger than a statement may be. Of rows
// of one key the first comes first.
func statementsOf(rows []*project.Row) [][]*project.Row {
	var out [][]*project.Row
	for len(rows) > 0 {
		var next []*project.Row // whose key has been there
		first := rows[:0:0]
		for i, r := range rows {
			if i > 0 && slices.Equal(r.Key, rows[i-1].Key) {
				if next == nil {
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

// upsert is the call that writes rows of different keys.
func upsert(p *place, rows []*project.Row) call {
	return call{p.sql.upsert, func(a *arguments) {
		for j := range p.Columns {
			a.column(p.Columns[j].Type, len(rows), func(i int) project.Value { return rows[i].Values[j] })
		}
		sources(a, rows)
		a.texts(len(rows), func(i int) string { return rows[i].Element })
	}}
}

// holders is the call that asks who holds the keys of rows.
func holders(p *place, rows []*project.Row) call {
	return call{p.sql.holders, func(a *arguments) {
		keys(a, p, rows)
		sources(a, rows)
	}}
}

// drop is the call that removes rows.
func drop(p *place, rows []*project.Row) call {
	return call{p.sql.drop, func(a *arguments) {
		keys(a, p, rows)
		sources(a, rows)
	}}
}

// waiting is the call that asks for which of the keys of rows claims wait.
func waiting(p *place, rows []*project.Row) call {
	return call{p.sql.waiting, func(a *arguments) {
		keys(a, p, rows)
		hashes := make([]id, len(rows))
		for i, r := range rows {
			hashes[i] = keyHash(keyText(r.Key))
		}
		a.ids(hashes)
	}}
}

func keys(a *arguments, p *place, rows []*project.Row) {
	for j, column := range p.Key {
		a.column(p.Columns[column].Type, len(rows), func(i int) project.Value { return rows[i].Key[j] })
	}
}

func sources(a *arguments, rows []*project.Row) {
	a.texts(len(rows), func(i int) string { return sourceText(rows[i].Source) })
}
