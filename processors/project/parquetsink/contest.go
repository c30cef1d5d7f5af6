package parquetsink

import (
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
)

// stored is a row of a live file. The row is a copy.
type stored struct {
	file *file
	at   int64
	row  parquet.Row
}

// contest is everything that is said about the rows with one hash, where that is
// more than one word.
type contest struct {
	ops    []*op    // in their order
	rows   []stored // of the table
	claims []stored // of its rejects: claims with this hash
	files  int      // of the table that hold the hash
}

// edits are the rows of files that change: by path and place, nil for one that
// goes.
type edits map[string]map[int64]parquet.Row

func (e edits) set(s *stored, row parquet.Row) {
	if e[s.file.Path] == nil {
		e[s.file.Path] = map[int64]parquet.Row{}
	}
	e[s.file.Path][s.at] = row
}

// effects are what contests come to.
type effects struct {
	arena       arena
	rows        edits
	added       []parquet.Row
	rejects     edits
	addedReject []parquet.Row
}

func newEffects() *effects { return &effects{rows: edits{}, rejects: edits{}} }

// merge takes over what another part of the work has come to.
func (e *effects) merge(o *effects) {
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
	e.addedReject = append(e.addedReject, o.addedReject...)
}

// settle decides a contest. The error says that a claim cannot be read back.
func (l *layouts) settle(c *contest, e *effects) error {
	for rest := c.ops; len(rest) > 0; {
		key := rest[0].row
		var mine, others []*op
		for _, o := range rest { // two keys with one hash are rare
			if l.rows.sameKey(o.row, key) {
				mine = append(mine, o)
			} else {
				others = append(others, o)
			}
		}
		s := newSeat(l, c, key)
		for _, o := range mine {
			if err := s.carryOut(o, e); err != nil {
				return err
			}
		}
		if s.holder == nil {
			if err := s.pass(e); err != nil {
				return err
			}
		}
		s.effects(e)
		s.claims(c.claims, e)
		rest = others
	}
	return nil
}

// seat is one key of a table: who holds it, and who waits for it.
type seat struct {
	l       *layouts
	hash    uint64
	key     string      // as JSON, where somebody waits
	held    *stored     // the row that holds it in a file
	spare   []*stored   // more rows with the key; there should be none
	holder  parquet.Row // the one that will
	waiting map[string]*claim
	newest  []*claim // claims that no file has
}

// claim is a row that waits.
type claim struct {
	source string
	row    parquet.Row // nil if it is only in the file
	at     *stored     // where it is; nil for a new one
}

func newSeat(l *layouts, c *contest, key parquet.Row) *seat {
	s := &seat{l: l, hash: l.rows.hashOf(key), waiting: map[string]*claim{}}
	for i := range c.rows {
		switch at := &c.rows[i]; {
		case !l.rows.sameKey(at.row, key):
		case s.held == nil:
			s.held, s.holder = at, at.row
		default:
			s.spare = append(s.spare, at)
		}
	}
	if len(c.claims) == 0 {
		return s
	}
	s.key = l.rows.keyText(key)
	for i := range c.claims {
		at := &c.claims[i]
		if at.row[rejectKey].String() == s.key {
			source := at.row[rejectSource].String()
			s.waiting[source] = &claim{source: source, at: at}
		}
	}
	return s
}

func (s *seat) source(row parquet.Row) string { return row[s.l.rows.source].String() }

// carryOut does what one op says.
func (s *seat) carryOut(o *op, e *effects) error {
	source := s.source(o.row)
	mine := s.holder == nil || s.source(s.holder) == source
	switch {
	case o.kind == opPut && mine:
		s.holder = o.row
		delete(s.waiting, source)
	case o.kind == opPut:
		c := s.waiting[source]
		if c == nil {
			c = &claim{source: source}
			s.waiting[source] = c
			s.newest = append(s.newest, c)
		}
		c.row = o.row
	case s.holder != nil && mine:
		return s.pass(e)
	default:
		delete(s.waiting, source)
	}
	return nil
}

// pass gives the key to the claim with the smallest source.
func (s *seat) pass(e *effects) error {
	s.holder = nil
	var next *claim
	for _, c := range s.waiting {
		if next == nil || c.source < next.source {
			next = c
		}
	}
	if next == nil {
		return nil
	}
	delete(s.waiting, next.source)
	if next.row != nil {
		s.holder = next.row
		return nil
	}
	row, err := s.l.claimed(&e.arena, next.at.row)
	s.holder = row
	return err
}

// effects adds what has become of the key.
func (s *seat) effects(e *effects) {
	for _, at := range s.spare {
		e.rows.set(at, nil)
	}
	l := s.l.rows
	switch {
	case s.held == nil && s.holder != nil:
		e.added = append(e.added, s.holder)
	case s.held == nil:
	case s.holder == nil:
		e.rows.set(s.held, nil)
	case sameRow(s.held.row, s.holder):
	case l.folder(s.holder) == s.held.file.Folder:
		e.rows.set(s.held, s.holder)
	default:
		e.rows.set(s.held, nil)
		e.added = append(e.added, s.holder)
	}
}

// claims adds what has become of those who wait. all are the claims of the contest.
func (s *seat) claims(all []stored, e *effects) {
	if len(s.waiting) > 0 && s.key == "" {
		s.key = s.l.rows.keyText(s.holder)
	}
	for i := range all {
		at := &all[i]
		if at.row[rejectKey].String() != s.key {
			continue
		}
		c := s.waiting[at.row[rejectSource].String()]
		if c == nil || c.at != at {
			e.rejects.set(at, nil)
			continue
		}
		if row := s.claim(c, e); !sameRow(row, at.row) {
			e.rejects.set(at, row)
		}
	}
	for _, c := range s.newest {
		if s.waiting[c.source] == c {
			e.addedReject = append(e.addedReject, s.claim(c, e))
		}
	}
}

// claim returns the reject that a claim is.
func (s *seat) claim(c *claim, e *effects) parquet.Row {
	r := s.l.rejects
	reason := r.text(&e.arena, rejectReason, project.HeldBy(s.source(s.holder)))
	if c.row == nil {
		row := slices.Clone(c.at.row)
		row[rejectReason] = reason
		return row
	}
	l := s.l.rows
	row := e.arena.row(len(r.columns))
	row[rejectSource] = r.text(&e.arena, rejectSource, c.source)
	row[rejectElement] = r.null(rejectElement)
	if v := c.row[l.element]; !v.IsNull() {
		row[rejectElement] = r.text(&e.arena, rejectElement, v.String())
	}
	row[rejectColumn] = r.null(rejectColumn)
	row[rejectReason] = reason
	row[rejectRow] = r.text(&e.arena, rejectRow, string(l.table.AppendRow(nil, l.values(c.row))))
	row[rejectKey] = r.text(&e.arena, rejectKey, s.key)
	row[rejectHash] = r.place(parquet.Int64Value(int64(s.hash)), rejectHash)
	return row
}

// claimed returns the row that a claim in a file holds.
func (l *layouts) claimed(a *arena, reject parquet.Row) (parquet.Row, error) {
	values, err := l.rows.table.ParseRow(reject[rejectRow].ByteArray())
	if err != nil {
		return nil, err
	}
	r := project.Row{Values: values, Source: textOf(reject[rejectSource]), Element: textOf(reject[rejectElement])}
	return l.rows.row(a, &r, l.rows.all())
}
