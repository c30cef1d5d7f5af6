package sinktest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/processors/project"
)

// keeps says what the sink keeps of rejects.
func (b *bench) keeps() (rejects, pending bool) { return keeps(b.sink) }

func keeps(sink any) (rejects, pending bool) {
	if f, ok := sink.(project.Forgetful); ok {
		return f.Keeps()
	}
	return true, true
}

// contents reads all that the sink has.
func (b *bench) contents() *tables {
	b.Helper()
	got, err := contents(b.Context(), b.sink, b.schema)
	if err != nil {
		b.Fatal(err)
	}
	return got
}

func contents(ctx context.Context, sink project.Reader, schema *project.Schema) (*tables, error) {
	got := newTables()
	for table := range schema.Tables {
		name := schema.Tables[table].Name
		for r, err := range sink.Rows(ctx, schema, table) {
			if err != nil {
				return nil, fmt.Errorf("rows of %s: %w", name, err)
			}
			key := rowKey(r.Table, r.Key)
			if _, twice := got.rows[key]; twice {
				return nil, fmt.Errorf("%s: the key %v is there twice", name, r.Key)
			}
			got.rows[key] = r
		}
		for r, err := range sink.Rejects(ctx, schema, table) {
			if err != nil {
				return nil, fmt.Errorf("rejects of %s: %w", name, err)
			}
			if !r.Pending() {
				got.rejects[rejectKey(&r)] = r
				continue
			}
			if err := got.addPending(schema, &r); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}

// addPending adds a pending row that the sink has yielded.
func (m *tables) addPending(schema *project.Schema, r *project.Reject) error {
	if !strings.HasPrefix(r.Reason, project.HeldBy("")) {
		return fmt.Errorf("a pending row of %s has the reason %q", r.Source, r.Reason)
	}
	values, err := schema.Tables[r.Table].ParseRow(r.Row)
	if err != nil {
		return fmt.Errorf("the row of the reject of %s: %w", r.Source, err)
	}
	key := rowKey(r.Table, r.Key)
	if m.pending[key] == nil {
		m.pending[key] = map[string]project.Row{}
	}
	m.pending[key][r.Source] = project.Row{Table: r.Table, Key: r.Key, Values: values, Source: r.Source, Element: r.Element}
	return nil
}

// compare compares the sink with what it must hold, to the row.
func (b *bench) compare(want *tables) {
	b.Helper()
	rejects, pending := b.keeps()
	report(b, want.differences(b.contents(), rejects, pending))
}

// shownMax is how many differences a test prints.
const shownMax = 10

// report fails the test, at once, if there are differences.
func report(t testing.TB, differences []string) {
	t.Helper()
	for _, d := range differences[:min(len(differences), shownMax)] {
		t.Error(d)
	}
	if len(differences) > 0 {
		t.Fatalf("%d differences", len(differences))
	}
}

// differences compares what a sink must hold with what it has, row by row. Rejects and
// pending rows count if the sink keeps them.
func (m *tables) differences(got *tables, rejects, pending bool) []string {
	all := differentRows("row", m.rows, got.rows)
	if pending {
		all = append(all, differentRows("pending row", byTableKeySource(m.pending), byTableKeySource(got.pending))...)
	}
	if rejects {
		all = append(all, differentRejects(m.rejects, got.rejects)...)
	}
	return all
}

// byTableKeySource returns pending rows by table, key and source.
func byTableKeySource(pending map[string]map[string]project.Row) map[string]project.Row {
	all := map[string]project.Row{}
	for key, rows := range pending {
		for source, r := range rows {
			all[key+source] = r
		}
	}
	return all
}

func differentRows(what string, want, got map[string]project.Row) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w, g := want[key], got[key]
		switch _, ok := got[key]; {
		case !ok:
			all = append(all, fmt.Sprintf("%s %v of %s is missing in table %d", what, w.Values, w.Source, w.Table))
		case !project.EqualRows(&w, &g):
			all = append(all, fmt.Sprintf("%s of table %d is %v of %s %s, want %v of %s %s",
				what, w.Table, g.Values, g.Source, g.Element, w.Values, w.Source, w.Element))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			g := got[key]
			all = append(all, fmt.Sprintf("%s %v of %s should not be in table %d", what, g.Values, g.Source, g.Table))
		}
	}
	return all
}

func differentRejects(want, got map[string]project.Reject) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w, g := want[key], got[key]
		switch _, ok := got[key]; {
		case !ok:
			all = append(all, fmt.Sprintf("the reject of %s %s is missing in table %d: %s %s", w.Source, w.Element, w.Table, w.Column, w.Reason))
		case g.Column != w.Column || g.Reason != w.Reason || string(g.Row) != string(w.Row):
			all = append(all, fmt.Sprintf("the reject of %s is %s: %s, %s; want %s: %s, %s", w.Source, g.Column, g.Reason, g.Row, w.Column, w.Reason, w.Row))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			g := got[key]
			all = append(all, fmt.Sprintf("the reject of %s %s should not be in table %d", g.Source, g.Element, g.Table))
		}
	}
	return all
}
