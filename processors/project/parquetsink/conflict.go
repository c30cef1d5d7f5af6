package parquetsink

import (
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
)

// storedRow is a row of a live file, or of a live file of rejects. The row is a copy.
type storedRow struct {
	file *file
	at   int64 // its index in the file
	row  parquet.Row
}

// keyConflict is what a commit and the live files say about the keys with one hash.
//
// An op whose hash no other op has and no live file holds needs none: a put is a new
// row, a drop has nothing to drop. Most rows of a first load are so, and cost no more
// than a look into the hashes of each file.
type keyConflict struct {
	ops     []*op       // in their order
	rows    []storedRow // of the table
	pending []storedRow // of its rejects: rows that wait for a key with this hash
	files   int         // how many files of the table hold the hash
}

// edits are the changes of rows in live files, by the path of the file and the index
// of the row in it. A nil row is to be removed.
type edits map[string]map[int64]parquet.Row

func (e edits) set(s *storedRow, row parquet.Row) {
	if e[s.file.Path] == nil {
		e[s.file.Path] = map[int64]parquet.Row{}
	}
	e[s.file.Path][s.at] = row
}

// outcome is how conflicts were resolved: what changes in live files, and what is new.
type outcome struct {
	arena        arena
	rows         edits
	added        []parquet.Row
	rejects      edits
	addedRejects []parquet.Row
}

func newOutcome() *outcome { return &outcome{rows: edits{}, rejects: edits{}} }

// merge adds the outcome of another part of the work.
func (e *outcome) merge(o *outcome) {
	for _, pair := range []struct{ to, from edits }{{e.rows, o.rows}, {e.rejects, o.rejects}} {
		for path, rows := range pair.from {
			if pair.to[path] == nil {
				pair.to[path] = rows
				continue
			}
			maps.Copy(pair.to[path], rows)
		}
	}
	e.added = append(e.added, o.added...)
	e.addedRejects = append(e.addedRejects, o.addedRejects...)
}

// resolve decides a conflict, key by key. The error says that a pending row cannot be
// read back.
func (l *layouts) resolve(c *keyConflict, e *outcome) error {
	for rest := c.ops; len(rest) > 0; {
		key := rest[0].row
		var same, others []*op
		for _, o := range rest { // two keys with one hash are rare
			if l.rows.sameKey(o.row, key) {
				same = append(same, o)
			} else {
				others = append(others, o)
			}
		}
		s := newSlot(l, c, key)
		for _, o := range same {
			if err := s.apply(o, e); err != nil {
				return err
			}
		}
		// No commit leaves pending rows on a key that nobody holds. If files that
		// somebody has changed by hand do, this is where it heals.
		if s.holder == nil {
			if err := s.promote(e); err != nil {
				return err
			}
		}
		s.recordRow(e)
		s.recordPending(c.pending, e)
		rest = others
	}
	return nil
}

// slot is one key of a table: the row that holds it and the rows that wait for it.
// It is loaded from the live files, changed by one op after the other, and then
// compared with the live files, so that only the difference is written:
//
//	                        holder       pending        written
//	files                   a of c1      b of c2
//	op: put x of c3         a of c1      b, x
//	op: drop a of c1        b of c2      x              c2 is smaller than c3
//	outcome                                             a becomes b; b leaves the
//	                                                    rejects; x is a new reject
//
// A row that comes and goes within one commit is written nowhere.
type slot struct {
	l    *layouts
	hash uint64
	key  string // as JSON, set once something is or was pending

	stored     *storedRow             // the row of the key in a live file, nil for none
	doubles    []*storedRow           // more rows with the key; there should be none
	holder     parquet.Row            // the row that will hold the key, nil for none
	pending    map[string]*pendingRow // by source
	newPending []*pendingRow          // those that no file has, in the order of their ops
}

// pendingRow is a row that waits for a key.
type pendingRow struct {
	source string
	row    parquet.Row // nil if the rejects' file alone has it
	at     *storedRow  // where it is among the rejects; nil for a new one
}

func newSlot(l *layouts, c *keyConflict, key parquet.Row) *slot {
	s := &slot{l: l, hash: l.rows.hashOf(key), pending: map[string]*pendingRow{}}
	for i := range c.rows {
		switch at := &c.rows[i]; {
		case !l.rows.sameKey(at.row, key):
		case s.stored == nil:
			s.stored, s.holder = at, at.row
		default:
			s.doubles = append(s.doubles, at)
		}
	}
	if len(c.pending) == 0 {
		return s // keyText is not cheap, and most keys have no use for it
	}
	s.key = l.rows.keyText(key)
	for i := range c.pending {
		at := &c.pending[i]
		if at.row[rejectKey].String() == s.key {
			source := at.row[rejectSource].String()
			s.pending[source] = &pendingRow{source: source, at: at}
		}
	}
	return s
}

func (s *slot) source(row parquet.Row) string { return row[s.l.rows.source].String() }

// apply carries out one op.
func (s *slot) apply(o *op, e *outcome) error {
	source := s.source(o.row)
	owned := s.holder == nil || s.source(s.holder) == source
	switch {
	case o.kind == opPut && owned:
		// A source that waited and now takes a free key waits no longer.
		s.holder = o.row
		delete(s.pending, source)
	case o.kind == opPut:
		p := s.pending[source]
		if p == nil {
			p = &pendingRow{source: source}
			s.pending[source] = p
			s.newPending = append(s.newPending, p)
		}
		p.row = o.row
	case s.holder != nil && owned:
		// Promote now, not when all ops are applied: a put that follows must find the
		// key taken, as it would if it came in the next commit.
		return s.promote(e)
	default:
		// A drop of a source that does not hold the key withdraws its pending row and
		// leaves the holder alone. So the late delete of an item that has moved does not
		// remove the row of the item at its new place.
		delete(s.pending, source)
	}
	return nil
}

// promote gives the key to the pending row with the smallest source, so that all
// sinks decide alike; to nobody if no row is pending.
func (s *slot) promote(e *outcome) error {
	s.holder = nil
	var next *pendingRow
	for _, p := range s.pending {
		if next == nil || p.source < next.source {
			next = p
		}
	}
	if next == nil {
		return nil
	}
	delete(s.pending, next.source)
	if next.row != nil {
		s.holder = next.row
		return nil
	}
	row, err := s.l.parsePending(&e.arena, next.at.row)
	s.holder = row
	return err
}

// recordRow adds the change of the key's row to the outcome.
func (s *slot) recordRow(e *outcome) {
	for _, at := range s.doubles {
		e.rows.set(at, nil)
	}
	l := s.l.rows
	switch {
	case s.stored == nil && s.holder != nil:
		e.added = append(e.added, s.holder)
	case s.stored == nil:
	case s.holder == nil:
		e.rows.set(s.stored, nil)
	case sameRow(s.stored.row, s.holder):
		// A batch that is carried out again must not rewrite a file.
	case l.partitionFolder(s.holder) == s.stored.file.Folder:
		e.rows.set(s.stored, s.holder)
	default:
		// The value of the partition column has changed: a file holds rows of one
		// partition, so the row leaves this file and goes to another.
		e.rows.set(s.stored, nil)
		e.added = append(e.added, s.holder)
	}
}

// recordPending adds the changes of the key's pending rows to the outcome. all are
// those of the conflict, of other keys too.
func (s *slot) recordPending(all []storedRow, e *outcome) {
	if len(s.pending) > 0 && s.key == "" {
		s.key = s.l.rows.keyText(s.holder)
	}
	for i := range all {
		at := &all[i]
		if at.row[rejectKey].String() != s.key {
			continue
		}
		p := s.pending[at.row[rejectSource].String()]
		if p == nil || p.at != at { // promoted, withdrawn, or there twice
			e.rejects.set(at, nil)
			continue
		}
		// Even a row that waits on as it was may change: its reason names the holder.
		if row := s.rejectOf(p, e); !sameRow(row, at.row) {
			e.rejects.set(at, row)
		}
	}
	for _, p := range s.newPending {
		if s.pending[p.source] == p { // neither promoted nor withdrawn since
			e.addedRejects = append(e.addedRejects, s.rejectOf(p, e))
		}
	}
}

// rejectOf returns a pending row in the form of a reject.
func (s *slot) rejectOf(p *pendingRow, e *outcome) parquet.Row {
	r := s.l.rejects
	reason := r.textValue(&e.arena, rejectReason, project.HeldBy(s.source(s.holder)))
	if p.row == nil {
		row := slices.Clone(p.at.row)
		row[rejectReason] = reason
		return row
	}
	l := s.l.rows
	row := e.arena.row(len(r.columns))
	row[rejectSource] = r.textValue(&e.arena, rejectSource, p.source)
	row[rejectElement] = r.nullValue(rejectElement)
	if v := p.row[l.element]; !v.IsNull() {
		row[rejectElement] = r.textValue(&e.arena, rejectElement, v.String())
	}
	row[rejectColumn] = r.nullValue(rejectColumn)
	row[rejectReason] = reason
	row[rejectRow] = r.textValue(&e.arena, rejectRow, string(l.table.AppendRow(nil, l.decodeRow(p.row))))
	row[rejectKey] = r.textValue(&e.arena, rejectKey, s.key)
	// The hash is stored because it cannot be computed from the columns of a reject: it
	// is that of the key's values, by which the row's ops find it.
	row[rejectHash] = r.inColumn(parquet.Int64Value(int64(s.hash)), rejectHash)
	return row
}

// parsePending returns the row that a pending row's reject holds.
func (l *layouts) parsePending(a *arena, reject parquet.Row) (parquet.Row, error) {
	values, err := l.rows.table.ParseRow(reject[rejectRow].ByteArray())
	if err != nil {
		return nil, err
	}
	r := project.Row{Values: values, Source: textOf(reject[rejectSource]), Element: textOf(reject[rejectElement])}
	return l.rows.encodeRow(a, &r, l.rows.allColumns())
}
