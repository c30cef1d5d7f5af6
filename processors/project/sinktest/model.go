package sinktest

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/millrace/millrace/processors/project"
)

// tables are the model of a sink: what it must hold, in three maps.
type tables struct {
	rows    map[string]project.Row            // by table and key
	pending map[string]map[string]project.Row // by table and key, by source
	rejects map[string]project.Reject         // by table, source and element
}

func newTables() *tables {
	return &tables{rows: map[string]project.Row{}, pending: map[string]map[string]project.Row{}, rejects: map[string]project.Reject{}}
}

func (m *tables) clone() *tables {
	c := &tables{rows: maps.Clone(m.rows), pending: map[string]map[string]project.Row{}, rejects: maps.Clone(m.rejects)}
	for key, pending := range m.pending {
		c.pending[key] = maps.Clone(pending)
	}
	return c
}

// evolve returns the tables under a schema to which tables and columns were added.
func (m *tables) evolve(from, to *project.Schema) *tables {
	evolved := newTables()
	row := func(r project.Row) project.Row {
		old := &from.Tables[r.Table]
		r.Table = slices.IndexFunc(to.Tables, func(t project.TableSchema) bool { return t.Name == old.Name })
		values := make([]project.Value, len(to.Tables[r.Table].Columns))
		for i, v := range r.Values {
			values[to.Tables[r.Table].Column(old.Columns[i].Name)] = v
		}
		r.Values = values
		return r
	}
	for _, r := range m.rows {
		r = row(r)
		evolved.rows[rowKey(r.Table, r.Key)] = r
	}
	for _, pending := range m.pending {
		for _, r := range pending {
			r = row(r)
			evolved.put(&r)
		}
	}
	for _, r := range m.rejects {
		r.Table = slices.IndexFunc(to.Tables, func(t project.TableSchema) bool { return t.Name == from.Tables[r.Table].Name })
		evolved.rejects[rejectKey(&r)] = r
	}
	return evolved
}

func rowKey(table int, key []project.Value) string {
	return string(project.AppendKey(binary.AppendUvarint(nil, uint64(table)), key))
}

func rejectKey(r *project.Reject) string {
	b := binary.AppendUvarint(nil, uint64(r.Table))
	return string(append(append(append(b, r.Source...), '#'), r.Element...))
}

// apply carries out a batch, drops before puts, and returns how many of its rows became pending.
func (m *tables) apply(b *project.Batch) (pending int) {
	for i := range b.Drop {
		m.drop(&b.Drop[i])
	}
	for i := range b.Put {
		if !m.put(&b.Put[i]) {
			pending++
		}
	}
	for i := range b.Accept {
		delete(m.rejects, rejectKey(&b.Accept[i]))
	}
	for i := range b.Reject {
		m.rejects[rejectKey(&b.Reject[i])] = b.Reject[i]
	}
	return pending
}

// drop removes a row, or a pending row of the same source. Of the rows that wait for the freed
// key, the one with the least source gets it, so that every sink chooses the same.
func (m *tables) drop(r *project.Row) {
	key := rowKey(r.Table, r.Key)
	if held, ok := m.rows[key]; !ok || held.Source != r.Source {
		m.withdraw(key, r.Source)
		return
	}
	delete(m.rows, key)
	if pending := m.pending[key]; len(pending) > 0 {
		next := slices.Min(slices.Collect(maps.Keys(pending)))
		m.rows[key] = pending[next]
		m.withdraw(key, next)
	}
}

// put sets a row. It returns false if another source holds the key, so that the row is pending.
func (m *tables) put(r *project.Row) bool {
	key := rowKey(r.Table, r.Key)
	if held, ok := m.rows[key]; !ok || held.Source == r.Source {
		m.rows[key] = *r
		m.withdraw(key, r.Source)
		return true
	}
	if m.pending[key] == nil {
		m.pending[key] = map[string]project.Row{}
	}
	m.pending[key][r.Source] = *r
	return false
}

func (m *tables) withdraw(key, source string) {
	delete(m.pending[key], source)
	if len(m.pending[key]) == 0 {
		delete(m.pending, key)
	}
}

// pendingRejects returns the pending rows as rejects.
func (m *tables) pendingRejects(s *project.Schema) []project.Reject {
	var all []project.Reject
	for key, pending := range m.pending {
		held := m.rows[key]
		for _, r := range pending {
			all = append(all, project.Reject{
				Table: r.Table, Key: r.Key, Source: r.Source, Element: r.Element,
				Reason: project.HeldBy(held.Source), Row: s.Tables[r.Table].AppendRow(nil, r.Values),
			})
		}
	}
	return all
}
