package parquetsink

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// orphansInterval is the time between two looks for files that no manifest
	// names.
	orphansInterval = time.Hour
	// deletesMax bounds how many files one commit removes.
	deletesMax = 500
)

// tidy removes files that were superseded longer ago than Grace, old manifests, and files
// that crashed commits have left. What fails is tried again by the next commit. The
// caller has the turn.
func (s *Sink) tidy(ctx context.Context, m *manifest) {
	errs := []error{s.removeSuperseded(ctx, m), s.prune(ctx, m)}
	if now := time.Now(); s.collected.IsZero() || now.Sub(s.collected) >= orphansInterval {
		err := s.removeOrphans(ctx)
		if err == nil {
			s.collected = now
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "old Parquet files were not removed; trying again later", slog.Any("error", err))
	}
}

// removeSuperseded removes files that have not been live for Grace.
func (s *Sink) removeSuperseded(ctx context.Context, m *manifest) error {
	var due []string
	for _, r := range m.Removed {
		if time.Since(r.At) >= s.cfg.Grace && !s.commits.deleted[r.Path] && len(due) < deletesMax {
			due = append(due, r.Path)
		}
	}
	if len(due) > 0 {
		// The lists must not name what is deleted now. They may: another process may have
		// committed, and died or stood still before it wrote them. So write them anew,
		// whatever was published.
		clear(s.lists)
		if err := s.writeLists(ctx, m); err != nil {
			return err
		}
		if err := s.store.Delete(ctx, due...); err != nil {
			return unreachable("remove superseded files", err)
		}
		for _, name := range due {
			s.commits.deleted[name] = true
		}
	}
	if v, ok := s.store.(viewer); ok && len(due) > 0 {
		return v.Tidy(ctx, s.cfg.Grace)
	}
	return nil
}

// prune removes manifests but the last manifestsKept, many at a time: a list of the
// folder costs a request, so it waits until as many again have come.
func (s *Sink) prune(ctx context.Context, m *manifest) error {
	if m.Number < s.pruned+2*manifestsKept {
		return nil
	}
	upTo := m.Number - manifestsKept
	numbers, err := s.commits.listNumbers(ctx, "")
	if err != nil {
		return err
	}
	var old []string
	for _, number := range numbers {
		if number <= upTo && len(old) < deletesMax {
			old = append(old, manifestName(number))
		}
	}
	if len(old) > 0 {
		if err := s.store.Delete(ctx, old...); err != nil {
			return unreachable("remove old manifests", err)
		}
	}
	s.pruned = upTo
	return nil
}

// removeOrphans removes files that no manifest names and that are older than Grace:
// crashed and abandoned commits have left them. Before that it commits a manifest with a
// new Floor, without which it could delete what becomes live:
//
//	process 1: reads 41, writes file f, stands still
//	process 2: finds f, which no manifest names, and is about to delete it
//	process 1: wakes up and commits 42, which names f
//
// With the Floor, process 2 has committed 42 itself; process 1 loses 42, reads the Floor,
// and writes its files again. The clock, by Grace, decides only how much is left lying.
func (s *Sink) removeOrphans(ctx context.Context) error {
	if v, ok := s.store.(viewer); ok {
		if err := v.Tidy(ctx, s.cfg.Grace); err != nil {
			return err
		}
	}
	var orphans []string
	m, err := s.commits.advance(ctx, func(ctx context.Context, base *manifest, _ int) (next *manifest, err error) {
		if orphans, err = s.orphans(ctx, base); len(orphans) == 0 || err != nil {
			return nil, err
		}
		next = base.clone()
		next.Floor = base.Number + 1
		return next, nil
	})
	if err != nil || m == nil {
		return err
	}
	return unreachable("remove abandoned files", s.store.Delete(ctx, orphans...))
}

// orphans lists files that a manifest does not name and that began from it or
// earlier.
func (s *Sink) orphans(ctx context.Context, m *manifest) (orphans []string, err error) {
	named := map[string]bool{}
	for _, ts := range m.Sets {
		for f := range ts.files {
			named[f.Path] = true
		}
	}
	for _, r := range m.Removed {
		named[r.Path] = true
	}
	// A file that began after m may become live by a commit that m does not know yet. One
	// that is younger than Grace may too, if its commit is under way: the Floor would make
	// that write it again, which is right and costs time.
	for o, err := range s.store.List(ctx, "", "") {
		if err != nil {
			return nil, unreachable("list the files", err)
		}
		from, ok := beganFrom(o.Name)
		if ok && !named[o.Name] && from <= m.Number && time.Since(o.Modified) >= s.cfg.Grace {
			orphans = append(orphans, o.Name)
		}
	}
	return orphans, nil
}

// beganFrom returns the manifest from which the commit that wrote a file began; ok
// is false for anything else.
func beganFrom(name string) (from uint64, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) < 4 || parts[1] != "data" || path.Ext(name) != ".parquet" {
		return 0, false
	}
	number, _, ok := strings.Cut(parts[len(parts)-1], "-")
	if !ok || len(number) != 20 {
		return 0, false
	}
	from, err := strconv.ParseUint(number, 10, 64)
	return from, err == nil
}
