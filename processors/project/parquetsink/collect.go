package parquetsink

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// orphansInterval is the time between two looks for files that no manifest
	// names.
	orphansInterval = time.Hour
	// deletesMax bounds how many files are removed at once.
	deletesMax = 500
)

// tidy removes files that were superseded longer ago than Grace, old manifests, commits of
// Delta logs that checkpoints hold, and files that crashed commits have left. What fails is tried again later. The
// caller has the turn.
func (s *Sink) tidy(ctx context.Context, m *manifest) {
	errs := []error{s.removeSuperseded(ctx, m), s.prune(ctx, m), s.checkpointLogs(ctx)}
	if now := time.Now(); s.collected.IsZero() || now.Sub(s.collected) >= orphansInterval {
		lists, err := s.removeOrphans(ctx)
		if err == nil {
			s.collected = now
		}
		// What earlier releases have left waits for the next look if it cannot be removed: it
		// harms nobody, and each look lists the whole store.
		errs = append(errs, err, s.removeFormer(ctx, lists))
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "old Parquet files were not removed; trying again later", slog.Any("error", err))
	}
}

// removeSuperseded removes files that have not been live for Grace. It does so ten times
// in that time and not in each commit, because it looks at the logs of all tables.
func (s *Sink) removeSuperseded(ctx context.Context, m *manifest) error {
	if time.Since(s.swept) < s.cfg.Grace/10 {
		return nil
	}
	var due []string
	for _, r := range m.Removed {
		if time.Since(r.At) >= s.cfg.Grace && !s.commits.deleted[r.Path] {
			due = append(due, r.Path)
		}
	}
	if len(due) > 0 {
		// No log may name what is deleted now. It may: another process may have committed,
		// and died or stood still before it wrote the log. So look at all of them anew,
		// whatever was published. Of a log that was behind readers could learn of a file
		// until now, so that one stays for Grace from now on.
		if err := s.show(ctx, m, true); err != nil {
			return err
		}
		due = slices.DeleteFunc(due, func(name string) bool {
			return s.mayBeNamed(name)
		})
		// All that is due goes now: if only so many went each time, commits that supersede
		// more would let the manifest grow without end.
		for some := range slices.Chunk(due, deletesMax) {
			if err := s.store.Delete(ctx, some...); err != nil {
				return unreachable("remove superseded files", err)
			}
			for _, name := range some {
				s.commits.deleted[name] = true
			}
		}
	}
	s.swept = time.Now()
	return nil
}

// mayBeNamed says whether readers of a Delta log may need a file that is not live: it has
// gone from the log within the grace, or the log is not as it was made.
func (s *Sink) mayBeNamed(name string) bool {
	as := tableOfFile(name)
	d := s.deltas[as]
	return s.refused[as] != nil || d != nil && (d.files[name] != nil || time.Since(d.removed[name]) < s.cfg.Grace)
}

// checkpointLogs gives a checkpoint to each Delta log that has grown, and shortens it.
func (s *Sink) checkpointLogs(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(s.deltas))
	errs := make([]error, len(names))
	var group errgroup.Group
	group.SetLimit(publishParallel)
	for i, as := range names {
		if d := s.deltas[as]; s.refused[as] == nil && d.version-d.checkpointed >= s.checkpointEvery {
			group.Go(func() error {
				errs[i] = d.checkpoint(ctx, s.checkpointEvery, s.cfg.Grace)
				return nil
			})
		}
	}
	_ = group.Wait() // there is none
	return errors.Join(errs...)
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
//
// It returns the lists of earlier releases that it came upon, also beside an error.
func (s *Sink) removeOrphans(ctx context.Context) (lists []string, err error) {
	if v, ok := s.store.(tidier); ok {
		if err := v.Tidy(ctx, s.cfg.Grace); err != nil {
			return nil, err
		}
	}
	var orphans []string
	m, err := s.commits.advance(ctx, func(ctx context.Context, base *manifest, _ int) (next *manifest, err error) {
		if orphans, lists, err = s.orphans(ctx, base); len(orphans) == 0 || err != nil {
			return nil, err
		}
		next = base.clone()
		next.Floor = base.Number + 1
		return next, nil
	})
	if err != nil || m == nil {
		return lists, err
	}
	return lists, unreachable("remove abandoned files", s.store.Delete(ctx, orphans...))
}

// orphans lists files that a manifest does not name and that began from it or earlier, and
// lists of files that earlier releases have left beside Delta logs.
func (s *Sink) orphans(ctx context.Context, m *manifest) (orphans, lists []string, err error) {
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
	logged := "" // the last folder that has a Delta log
	for o, err := range s.store.List(ctx, "", "") {
		if err != nil {
			return nil, nil, unreachable("list the files", err)
		}
		if as, _, ok := strings.Cut(o.Name, deltaFolder); ok {
			logged = as
		} else if o.Name == formerListName(logged) {
			lists = append(lists, o.Name)
		}
		from, ok := beganFrom(o.Name)
		if ok && !named[o.Name] && !s.mayBeNamed(o.Name) && from <= m.Number && time.Since(o.Modified) >= s.cfg.Grace {
			orphans = append(orphans, o.Name)
		}
	}
	return orphans, lists, nil
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
