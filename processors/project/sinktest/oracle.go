package sinktest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// Equal fails the test if the sink of a projection that is at rest does not hold
// exactly what its items make; see Differences.
func Equal(t testing.TB, p *project.Projection, items []store.Item) {
	t.Helper()
	report(t, Differences(t.Context(), p, items))
}

// Differences makes the rows of all items of a source anew and compares them, one by
// one, with what the sink holds: also what it must not hold is a difference. It knows
// nothing of changes in flight: pipelines/verify judges a pipeline at work. A sink
// that cannot be read is one difference.
func Differences(ctx context.Context, p *project.Projection, items []store.Item) []string {
	got, err := contents(ctx, p.Sink().(project.Reader), p.Schema())
	if err != nil {
		return []string{err.Error()}
	}
	all := newItemRows()
	for i := range items {
		rows, rejects := p.RowsOf(items[i].Key, items[i].ID, items[i].Body)
		all.apply(&project.Batch{Put: rows, Reject: rejects})
	}
	rejects, pending := keeps(p.Sink())
	return all.resolvedAs(got).differences(got, rejects, pending)
}

// itemRows are what items say, where every item has its own row of a key.
type itemRows struct {
	rows    map[string]map[string]project.Row // by table and key, by source
	rejects map[string]project.Reject
}

func newItemRows() *itemRows {
	return &itemRows{rows: map[string]map[string]project.Row{}, rejects: map[string]project.Reject{}}
}

// apply carries out a batch.
func (c *itemRows) apply(b *project.Batch) {
	for i := range b.Drop {
		delete(c.rows[rowKey(b.Drop[i].Table, b.Drop[i].Key)], b.Drop[i].Source)
	}
	for i := range b.Put {
		key := rowKey(b.Put[i].Table, b.Put[i].Key)
		if c.rows[key] == nil {
			c.rows[key] = map[string]project.Row{}
		}
		c.rows[key][b.Put[i].Source] = b.Put[i]
	}
	for i := range b.Accept {
		delete(c.rejects, rejectKey(&b.Accept[i]))
	}
	for i := range b.Reject {
		c.rejects[rejectKey(&b.Reject[i])] = b.Reject[i]
	}
}

// resolvedAs returns what a sink must hold: of the items that want a key, the one that has the row
// in got has it, and the others wait. Which one that is depends on the order in which
// the sink heard of them.
func (c *itemRows) resolvedAs(got *tables) *tables {
	want := newTables()
	want.rejects = c.rejects
	for key, rows := range c.rows {
		if len(rows) == 0 {
			continue
		}
		holder := got.rows[key].Source
		if _, known := rows[holder]; !known {
			holder = slices.Min(slices.Collect(maps.Keys(rows)))
		}
		want.rows[key] = rows[holder]
		others := maps.Clone(rows)
		if delete(others, holder); len(others) > 0 {
			want.pending[key] = others
		}
	}
	return want
}
