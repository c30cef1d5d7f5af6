package parquetsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// publishParallel bounds the Delta logs that are written at once. It is requests that are
// waited for, so it has nothing to do with cores.
const publishParallel = 8

const (
	// currentName is the object that tells which versions of the Delta logs are of one
	// commit.
	currentName = "_current.json"
	// currentFormat is its format. Format 1 had the paths of all live files too.
	currentFormat = 2
)

// current is the content of currentName.
type current struct {
	Format   int       `json:"format"`
	Pipeline string    `json:"pipeline"`
	Commit   uint64    `json:"commit"`
	Time     time.Time `json:"time"`
	// Generation is the newest that writes these tables. Positions are how far they
	// follow each of its source partitions; they may have come further since without
	// a change of a row.
	Generation uint32            `json:"generation"`
	Positions  map[string]string `json:"positions"`
	// Versions are those of the tables' Delta logs that show this commit. A table whose log
	// another program has spoilt has none.
	Versions map[string]int64 `json:"versions"`
}

// publish shows readers the current tables of a manifest: the Delta logs, side by side,
// and then _current.json, which says which versions of them are of one commit. What
// readers see may be older for a moment, and after a crash until the next commit or
// Open; it is never torn, because files stay for Grace. The error matches errDelta if all
// has been shown but the Delta logs of some tables. The caller has the turn.
func (s *Sink) publish(ctx context.Context, m *manifest) error {
	if s.publishedAs != m.Changed || len(s.refused) > 0 || s.doubted {
		if err := s.show(ctx, m, false); err != nil {
			return err
		}
		s.doubted = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpublished = len(s.refused) > 0
	return s.refusal(m)
}

// refusal returns why the logs of some tables were not written, nil if all were, and how
// many files wait for an operator meanwhile.
func (s *Sink) refusal(m *manifest) error {
	var errs []error
	for _, as := range slices.Sorted(maps.Keys(s.refused)) {
		waiting := 0
		for _, r := range m.Removed {
			if tableOfFile(r.Path) == as {
				waiting++
			}
		}
		errs = append(errs, fmt.Errorf("%w (%d superseded files of %s are kept until then)", s.refused[as], waiting, as))
	}
	return errors.Join(errs...)
}

// show does the work of publish. With anew it looks at every log, also where this process
// has brought it up to date. Tables whose logs are not as they were made are in
// refused after it, and do not keep it from showing the others.
func (s *Sink) show(ctx context.Context, m *manifest, anew bool) error {
	restored := uint64(0)
	for {
		if m.Changed < s.publishedAs { // another directory has taken the place of this one
			clear(s.deltas)
		}
		ahead, err := s.deriveLogs(ctx, m, anew, restored)
		if err != nil {
			return err
		}
		if ahead == 0 {
			if err := s.writeCurrent(ctx, m); err != nil {
				return err
			}
			s.publishedAs = m.Changed
		}
		// Another process may have committed and published meanwhile; then we have just
		// overwritten its newer _current.json with ours, and must write the newer one again.
		if err := s.commits.refresh(ctx); err != nil {
			return err
		}
		m = s.commits.last
		switch {
		case ahead == 0 && m.Changed == s.publishedAs:
			return nil
		case ahead > m.Changed:
			// The log shows a manifest that was there before the newest one was read, and is
			// not there now: the manifests have been restored older. The log follows them.
			restored = max(restored, ahead)
		default:
		}
	}
}

// deriveLogs makes the Delta logs show manifest m, side by side: none decides about another,
// and the one that decides about all, the manifest, is there. Logs that do so for all that is known
// are left out unless anew is set. If it comes upon one that shows a later manifest, it
// returns the number of that.
func (s *Sink) deriveLogs(ctx context.Context, m *manifest, anew bool, restored uint64) (ahead uint64, err error) {
	tables, err := s.deltaTables(m)
	if err != nil {
		return 0, err
	}
	maps.DeleteFunc(s.refused, func(as string, _ error) bool {
		return !slices.ContainsFunc(tables, func(t deltaTable) bool { return t.as == as })
	})
	later, errs := make([]uint64, len(tables)), make([]error, len(tables))
	var group errgroup.Group
	group.SetLimit(publishParallel)
	for i := range tables {
		t, d := &tables[i], s.logOf(tables[i].as)
		look := anew || s.refused[t.as] != nil
		group.Go(func() error { // no error ends the others, for each log can come as far as m by itself
			later[i], errs[i] = s.deriveLog(ctx, d, m, t, look, restored)
			return nil
		})
	}
	_ = group.Wait() // there is none
	for i := range tables {
		as := tables[i].as
		switch {
		case errors.Is(errs[i], errDelta):
			s.refused[as], errs[i] = errs[i], nil
		case errs[i] == nil && later[i] == 0:
			delete(s.refused, as)
		default:
			ahead = max(ahead, later[i])
		}
	}
	return ahead, errors.Join(errs...)
}

// doubt makes the next publish look at the logs that were last looked at longer ago than
// lookEvery. An operator may have removed some while the pipeline was paused, and where no
// row changes nothing else would find that. Logs that were looked at since are left alone: the
// terms of many source partitions begin one after the other.
func (s *Sink) doubt() {
	for _, d := range s.deltas {
		// A log without a time is looked at when it is next derived. One of a table that is gone
		// is not derived any more, and would be in doubt for ever.
		if !d.looked.IsZero() && time.Since(d.looked) >= s.lookEvery {
			d.looked, s.doubted = time.Time{}, true
		}
	}
}

func (s *Sink) logOf(as string) *deltaLog {
	if s.deltas[as] == nil {
		s.deltas[as] = newDeltaLog(s.store, as)
	}
	return s.deltas[as]
}

// deriveLog does the work of deriveLogs for one table. It runs beside others, and changes
// nothing but d.
func (s *Sink) deriveLog(ctx context.Context, d *deltaLog, m *manifest, t *deltaTable, look bool, restored uint64) (ahead uint64, err error) {
	look = look || d.looked.IsZero()
	if d.known && !look {
		if actions, err := d.changes(m, t); err != nil || len(actions) == 0 {
			return 0, err
		}
	}
	ahead, err = d.derive(ctx, m, t, look || !d.knowsEnd(s.commits.others, s.lookEvery), restored)
	if err == nil { // else it may not have been looked at, as it must be after a commit of others
		d.others = s.commits.others
	}
	d.forget(s.cfg.Grace)
	return ahead, err
}

// deltaTables returns the tables that have a Delta log: the current ones, and, without
// rows, those that a swap has removed. Which those are is known from their files, which
// are kept for Grace. A log stays: a table of the same name that comes later goes on in it.
func (s *Sink) deltaTables(m *manifest) (tables []deltaTable, err error) {
	there := map[string]bool{}
	if ts := m.current(); ts != nil {
		for _, t := range ts.Tables {
			l, err := s.layoutsOf(t)
			if err != nil {
				return nil, err
			}
			tables = append(tables, deltaTable{as: t.As, l: l.rows, files: t.Files}, deltaTable{as: t.RejectsAs, l: l.rejects, files: t.Rejects})
			there[t.As], there[t.RejectsAs] = true, true
		}
	}
	for _, r := range m.Removed {
		if as := tableOfFile(r.Path); !there[as] {
			there[as] = true
			tables = append(tables, deltaTable{as: as})
		}
	}
	return tables, nil
}

// tableOfFile returns the folder of the table that a file is of.
func tableOfFile(name string) string {
	as, _, _ := strings.Cut(name, "/data/")
	return as
}

// writeCurrent writes currentName, last of all: whoever reads it finds logs that have come
// as far.
func (s *Sink) writeCurrent(ctx context.Context, m *manifest) error {
	c := current{Format: currentFormat, Pipeline: m.Pipeline, Commit: m.Number, Time: m.Time, Positions: map[string]string{}, Versions: map[string]int64{}}
	if ts := m.current(); ts != nil {
		c.Generation, c.Positions = ts.newestGeneration(), ts.positions()
		for _, t := range ts.Tables {
			for _, as := range []string{t.As, t.RejectsAs} {
				if s.refused[as] == nil {
					c.Versions[as] = s.deltas[as].version
				}
			}
		}
	}
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	return unreachable("write "+currentName, s.store.Put(ctx, currentName, append(data, '\n')))
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
