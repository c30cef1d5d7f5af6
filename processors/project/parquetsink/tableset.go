package parquetsink

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// reservedFolders are names in the root that no table takes.
var reservedFolders = []string{currentLink}

// lost is the error for a writer that has been succeeded.
func lost(p feed.Producer, format string, args ...any) error {
	return fmt.Errorf("parquet sink: %s: %s: %w", p, fmt.Sprintf(format, args...), processors.ErrFenced)
}

// succeeded is lost for a writer of an older epoch than is recorded.
func succeeded(p feed.Producer, epoch, recorded uint64) error {
	return fmt.Errorf("parquet sink: %s: epoch %d: %w", p, epoch, &processors.FencedError{Seen: recorded})
}

// admit takes a term and its schema into a manifest that may be changed, and
// says whether that changed anything. A table that was made has no files yet.
func (m *manifest) admit(s *project.Schema, t project.Term) (changed bool, err error) {
	ts, changed, err := m.joinSet(s, t.Producer)
	if err != nil {
		return false, err
	}
	for i := range s.Tables {
		more, err := ts.addTable(&s.Tables[i])
		if err != nil {
			return false, err
		}
		changed = changed || more
		if more && ts.Current {
			m.Changed = m.Number + 1 // a copy of its base still: its own number, as in applyTo
		}
	}
	recorded := ts.source(t.Producer)
	switch {
	case recorded == nil:
		ts.recordPosition(t.Producer, t.Epoch, feed.Position{})
	case recorded.Epoch > t.Epoch:
		return false, succeeded(t.Producer, t.Epoch, recorded.Epoch)
	case recorded.Epoch == t.Epoch:
		return changed, nil
	default:
		recorded.Epoch = t.Epoch // the position stays: the new term goes on from it
	}
	return true, nil
}

// joinSet returns the table set of a generation:
//
//	current set of      opened                 table set
//	none                1                      a new one, current
//	1                   2, columns were added  that of 1, which 2 joins; 1 is refused from now on
//	1                   2, a shadow            a new one beside it, until Swap
//	1, shadow of 2      3, a shadow            a new one beside that of 1; the shadow of 2 is given up, and goes
//	1, shadow of 3      2, a shadow            none: lost
//	1, shadow of 2      3, columns were added  that of 1, which 3 joins; the shadow is given up, and goes
//	2                   1                      none: lost
func (m *manifest) joinSet(s *project.Schema, p feed.Producer) (ts *tableSet, changed bool, err error) {
	if m.Pipeline == "" {
		m.Pipeline = s.Pipeline
	}
	if m.Pipeline != s.Pipeline {
		return nil, false, fmt.Errorf("parquet sink: the files there belong to pipeline %q, not to %q: give this one another path; "+
			"or, if the other was deleted, remove all that is there: it is tried again by itself, and builds its own", m.Pipeline, s.Pipeline)
	}
	ts = m.setOf(s.Generation)
	// Of a given-up shadow no set is made again, nor opened if an earlier release has left it: swap
	// relies on that.
	shadow := ts == nil && s.Shadow || ts != nil && !ts.Current
	if newest := m.newestGeneration(); shadow && newest > s.Generation {
		return nil, false, lost(p, "generation %d has begun", newest)
	}
	if ts != nil {
		if newest := ts.newestGeneration(); newest > s.Generation {
			return nil, false, lost(p, "generation %d has taken over", newest)
		}
		return ts, false, nil
	}
	current := m.current()
	if current != nil && current.newestGeneration() > s.Generation {
		return nil, false, lost(p, "generation %d has taken over", current.newestGeneration())
	}
	// Without a shadow the generation takes over the tables with their rows, and from now
	// on the newest generation alone may write them.
	if current == nil || s.Shadow {
		m.removeSets(func(other *tableSet) bool { return !other.Current && other.newestGeneration() < s.Generation })
		ts = &tableSet{Generations: []uint32{s.Generation}, Current: !s.Shadow}
		m.Sets = append(m.Sets, ts)
		return ts, true, nil
	}
	current.Generations = append(current.Generations, s.Generation)
	m.removeSetsBefore(current)
	return current, true, nil
}

// addTable adds a table, or the columns of it that are new.
func (ts *tableSet) addTable(s *project.TableSchema) (changed bool, err error) {
	t := ts.table(s.Name)
	if t == nil {
		// Names are chosen once and kept in the manifest. If they were computed anew, a table
		// that is added could take the name of another one from it.
		taken := names{}
		for _, name := range reservedFolders {
			taken.reserve(name)
		}
		for _, other := range ts.Tables {
			taken.reserve(other.As)
			taken.reserve(other.RejectsAs)
		}
		t = &table{Name: s.Name, As: taken.choose(s.Name)}
		t.RejectsAs = taken.choose(t.As + "_rejects")
		for _, i := range s.Key {
			t.Key = append(t.Key, s.Columns[i].Name)
		}
		if s.PartitionBy >= 0 {
			t.PartitionBy = s.Columns[s.PartitionBy].Name
			t.PartitionAs = plain(t.PartitionBy + "_partition")
		}
		ts.Tables = append(ts.Tables, t)
		changed = true
	}
	if err := t.checkFits(s); err != nil {
		return false, err
	}
	taken := names{}
	for _, name := range []string{sourceColumn, elementColumn, t.PartitionAs} {
		taken.reserve(name)
	}
	for _, c := range t.Columns {
		taken.reserve(c.As)
	}
	for _, c := range s.Columns {
		if slices.ContainsFunc(t.Columns, func(o tableColumn) bool { return o.Name == c.Name }) {
			continue
		}
		t.Columns = append(t.Columns, tableColumn{Name: c.Name, As: taken.choose(c.Name), Type: c.Type.String()})
		changed = true
	}
	return changed, nil
}

// checkFits says why a table that is there cannot go on with a schema.
func (t *table) checkFits(s *project.TableSchema) error {
	change := func(what, was, is string) error {
		return fmt.Errorf("parquet sink: table %s: %s was %s and is %s: rebuild it in a shadow generation", s.Name, what, was, is)
	}
	key := []string{}
	for _, i := range s.Key {
		key = append(key, s.Columns[i].Name)
	}
	if !slices.Equal(key, t.Key) {
		return change("the key", fmt.Sprint(t.Key), fmt.Sprint(key))
	}
	by := ""
	if s.PartitionBy >= 0 {
		by = s.Columns[s.PartitionBy].Name
	}
	if by != t.PartitionBy {
		return change("the column of partitions", fmt.Sprintf("%q", t.PartitionBy), fmt.Sprintf("%q", by))
	}
	for _, c := range s.Columns {
		for _, o := range t.Columns {
			if o.Name == c.Name && o.Type != c.Type.String() {
				return change("column "+c.Name, fmt.Sprintf("%q", o.Type), fmt.Sprintf("%q", c.Type))
			}
		}
	}
	return nil
}

// swap makes the table set of a generation the current one and removes those of
// generations before it. It says whether that changed anything. The error is
// project.ErrGivenUp if a later generation was begun before.
func (m *manifest) swap(generation uint32) (changed bool, err error) {
	ts := m.setOf(generation)
	if ts != nil && ts.Current && ts.newestGeneration() == generation {
		return false, nil
	}
	// Its table set is gone, or was left by a release that kept it beside that of the later
	// one. joinSet refuses both, so this stays true.
	if newest := m.newestGeneration(); newest > generation {
		return false, fmt.Errorf("parquet sink: generation %d of %s: generation %d has begun: %w", generation, m.Pipeline, newest, project.ErrGivenUp)
	}
	if ts == nil {
		return false, fmt.Errorf("parquet sink: generation %d of %s has not been opened", generation, m.Pipeline)
	}
	ts.Current = true
	m.removeSetsBefore(ts)
	return true, nil
}

// removeSetsBefore removes the table sets of generations before those of ts.
func (m *manifest) removeSetsBefore(ts *tableSet) {
	m.removeSets(func(other *tableSet) bool { return other != ts && other.newestGeneration() <= ts.newestGeneration() })
}

// removeSets removes the table sets that are of no use.
func (m *manifest) removeSets(useless func(*tableSet) bool) {
	m.Sets = slices.DeleteFunc(m.Sets, func(other *tableSet) bool {
		if !useless(other) {
			return false
		}
		for f := range other.files {
			m.removeFile(other, f)
		}
		return true
	})
}
