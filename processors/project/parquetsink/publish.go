package parquetsink

import (
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"time"
)

// currentName is the object that lists the live files of all tables.
const currentName = "_current.json"

// listName is the object that lists the live files of one table.
func listName(as string) string { return as + "/_files.json" }

// currentList is the content of currentName: one state of all tables.
type currentList struct {
	Format   int       `json:"format"`
	Pipeline string    `json:"pipeline"`
	Commit   uint64    `json:"commit"`
	Time     time.Time `json:"time"`
	// Generation is the newest that writes these tables. Positions are how far they
	// follow each of its source partitions; they may have come further since without
	// a change of a row.
	Generation uint32              `json:"generation"`
	Positions  map[string]string   `json:"positions"`
	Tables     map[string][]string `json:"tables"`
}

// publish shows readers the current tables of a manifest: the lists, one by one,
// then the list of all. What readers see may be older for a moment, and after a
// crash until the next commit or Open; it is never torn, because files stay for
// Grace. The caller has the turn.
func (s *Sink) publish(ctx context.Context, m *manifest) error {
	for s.publishedAs != m.Changed {
		if m.Changed < s.publishedAs { // another directory has taken the place of this one
			clear(s.lists)
		}
		if err := s.writeLists(ctx, m); err != nil {
			return err
		}
		s.publishedAs = m.Changed
		// Another process may have committed and published meanwhile; then we have just
		// overwritten its newer lists with ours, and must write the newer ones again.
		if err := s.commits.refresh(ctx); err != nil {
			return err
		}
		m = s.commits.last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpublished = false
	return nil
}

// writeLists writes the lists of a manifest, those that have not changed since the last
// time left out. The list of all tables comes last: whoever reads it finds the view and
// the lists of single tables at least as new.
func (s *Sink) writeLists(ctx context.Context, m *manifest) error {
	lists := m.lists()
	for _, as := range slices.Sorted(maps.Keys(lists)) {
		if was, ok := s.lists[as]; ok && slices.Equal(was, lists[as]) {
			continue
		}
		if err := s.putJSON(ctx, listName(as), lists[as]); err != nil {
			return err
		}
		s.lists[as] = lists[as]
	}
	if v, ok := s.store.(viewer); ok {
		if err := v.View(ctx, m.Changed, m.view()); err != nil {
			return unreachable("link the current files", err)
		}
	}
	all := currentList{Format: formatVersion, Pipeline: m.Pipeline, Commit: m.Number, Time: m.Time, Positions: map[string]string{}, Tables: lists}
	if ts := m.current(); ts != nil {
		all.Generation, all.Positions = ts.newestGeneration(), ts.positions()
	}
	if err := s.putJSON(ctx, currentName, all); err != nil {
		return err
	}
	for as := range s.lists { // remove those of tables that a swap has removed
		if lists[as] != nil {
			continue
		}
		if err := s.store.Delete(ctx, listName(as)); err != nil {
			return unreachable("remove "+listName(as), err)
		}
		delete(s.lists, as)
	}
	return nil
}

func (s *Sink) putJSON(ctx context.Context, name string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return unreachable("write "+name, s.store.Put(ctx, name, append(data, '\n')))
}

// lists returns the live files of the current tables and of their rejects, by the
// names of folders.
func (m *manifest) lists() map[string][]string {
	lists := map[string][]string{}
	list := func(as string, files []file) {
		paths := make([]string, 0, len(files))
		for i := range files {
			paths = append(paths, files[i].Path)
		}
		lists[as] = paths
	}
	if ts := m.current(); ts != nil {
		for _, t := range ts.Tables {
			list(t.As, t.Files)
			list(t.RejectsAs, t.Rejects)
		}
	}
	return lists
}

// view returns where the current files stand in the folder of a view.
func (m *manifest) view() map[string]string {
	view := map[string]string{}
	if ts := m.current(); ts != nil {
		for _, t := range ts.Tables {
			for i := range t.Files {
				view[path.Join(t.As, t.Files[i].Folder, path.Base(t.Files[i].Path))] = t.Files[i].Path
			}
			for i := range t.Rejects {
				view[path.Join(t.RejectsAs, path.Base(t.Rejects[i].Path))] = t.Rejects[i].Path
			}
		}
	}
	return view
}

// positions are those of the producers of the newest generation.
func (ts *tableSet) positions() map[string]string {
	all := map[string]string{}
	for _, s := range ts.Sources {
		if s.Generation == ts.newestGeneration() {
			all[s.Source] = s.Position
		}
	}
	return all
}
