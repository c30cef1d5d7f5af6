package sinktest

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// keeps says what the sink keeps of rejects.
func (b *bench) keeps() (rejects, claims bool) {
	if f, ok := b.sink.(project.Forgetful); ok {
		return f.Keeps()
	}
	return true, true
}

// contents reads all that the sink has.
func (b *bench) contents() *tables {
	b.Helper()
	got := newTables()
	for table := range b.schema.Tables {
		for r, err := range b.sink.Rows(b.Context(), b.schema, table) {
			if err != nil {
				b.Fatalf("rows of %s: %v", b.schema.Tables[table].Name, err)
			}
			key := rowKey(r.Table, r.Key)
			if _, twice := got.rows[key]; twice {
				b.Fatalf("%s: the key %v is there twice", b.schema.Tables[table].Name, r.Key)
			}
			got.rows[key] = r
		}
		for r, err := range b.sink.Rejects(b.Context(), b.schema, table) {
			if err != nil {
				b.Fatalf("rejects of %s: %v", b.schema.Tables[table].Name, err)
			}
			if r.Claim() {
				b.claim(got, &r)
			} else {
				got.rejects[rejectKey(&r)] = r
			}
		}
	}
	return got
}

// claim takes a claim of the sink.
func (b *bench) claim(got *tables, r *project.Reject) {
	b.Helper()
	if !strings.HasPrefix(r.Reason, project.HeldBy("")) {
		b.Errorf("a claim of %s has the reason %q", r.Source, r.Reason)
	}
	values, err := b.schema.Tables[r.Table].ParseRow(r.Row)
	if err != nil {
		b.Fatalf("the row of the claim of %s: %v", r.Source, err)
	}
	key := rowKey(r.Table, r.Key)
	if got.claims[key] == nil {
		got.claims[key] = map[string]project.Row{}
	}
	got.claims[key][r.Source] = project.Row{Table: r.Table, Key: r.Key, Values: values, Source: r.Source, Element: r.Element}
}

// compare compares the sink with what it must hold, to the row.
func (b *bench) compare(want *tables) {
	b.Helper()
	got := b.contents()
	b.compareRows("row", want.rows, got.rows)
	rejects, claims := b.keeps()
	if claims {
		b.compareRows("claim", flat(want.claims), flat(got.claims))
	}
	if rejects {
		b.compareRejects(want.rejects, got.rejects)
	}
}

// flat returns claims by table, key and source.
func flat(claims map[string]map[string]project.Row) map[string]project.Row {
	all := map[string]project.Row{}
	for key, rows := range claims {
		for source, r := range rows {
			all[key+source] = r
		}
	}
	return all
}

func (b *bench) compareRows(what string, want, got map[string]project.Row) {
	b.Helper()
	bad := 0
	differ := func(format string, args ...any) {
		if bad++; bad <= 10 {
			b.Errorf(format, args...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w, g := want[key], got[key]
		switch _, ok := got[key]; {
		case !ok:
			differ("%s %v of %s is missing in table %d", what, w.Values, w.Source, w.Table)
		case !project.EqualRows(&w, &g):
			differ("%s of table %d is %v of %s %s, want %v of %s %s", what, w.Table, g.Values, g.Source, g.Element, w.Values, w.Source, w.Element)
		}
	}
	for key, g := range got {
		if _, ok := want[key]; !ok {
			differ("%s %v of %s should not be in table %d", what, g.Values, g.Source, g.Table)
		}
	}
	if bad > 0 {
		b.Fatalf("%d differences of %d %ss", bad, len(want), what)
	}
}

func (b *bench) compareRejects(want, got map[string]project.Reject) {
	b.Helper()
	for key, w := range want {
		g, ok := got[key]
		if !ok {
			b.Fatalf("the reject of %s %s is missing in table %d", w.Source, w.Element, w.Table)
		}
		if g.Column != w.Column || g.Reason != w.Reason || string(g.Row) != string(w.Row) {
			b.Fatalf("the reject of %s is %s: %s, %s; want %s: %s, %s", w.Source, g.Column, g.Reason, g.Row, w.Column, w.Reason, w.Row)
		}
	}
	for key, g := range got {
		if _, ok := want[key]; !ok {
			b.Fatalf("the reject of %s %s should not be in table %d", g.Source, g.Element, g.Table)
		}
	}
}
