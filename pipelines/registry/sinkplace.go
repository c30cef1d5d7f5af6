package registry

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// Placed are declarations together with where their directories are for the workers.
type Placed struct {
	*spec.Resources // as they are recorded
	workers         []roots.Worker
	// firsts are the roots below which a directory lies that is not absolute: those of
	// the workers that are known, or else the one that this process has itself.
	firsts []string
	world  World
	// found is what is wrong with directories.
	found spec.Findings
}

// Place compares the directories of Parquet sinks with the roots that the workers have
// announced. A relative one is recorded as it is: each worker, also one that comes later, and
// each reader of its files, finds it below the worker's first root.
func (r *Registry) Place(ctx context.Context, declared *spec.Resources, w World) (*Placed, error) {
	same := *declared
	same.Pipelines = slices.Clone(declared.Pipelines)
	all := &Placed{Resources: &same, world: w}
	for i := range same.Pipelines {
		p := &same.Pipelines[i]
		if p.Spec.Directory() == "" {
			continue
		}
		if all.firsts == nil {
			var err error
			if all.workers, err = roots.Workers(ctx, r.JetStream, r.KV); err != nil {
				return nil, err
			}
			all.firsts = FirstRoots(all.workers, r.cfg.SinkRoot)
		}
		path, err := all.recorded(p)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: the directory %s: %w", p.Metadata, p.Spec.Directory(), err)
		}
		p.Spec = p.Spec.In(path)
		all.admit(p)
	}
	return all, nil
}

// FirstRoots returns the first roots of workers, each once; fallback without workers.
func FirstRoots(workers []roots.Worker, fallback string) []string {
	var firsts []string
	for i := range workers {
		if all := workers[i].Roots; len(all) > 0 && !slices.Contains(firsts, all[0]) {
			firsts = append(firsts, all[0])
		}
	}
	if firsts == nil {
		firsts = []string{fallback}
	}
	return firsts
}

// Check returns what is wrong with the declarations, directories included.
func (all *Placed) Check() error {
	firsts := all.firsts
	if firsts == nil {
		firsts = []string{""} // no directory is declared; those that exist are compared with none
	}
	// Two pipelines may meet in one directory below the root of some worker only.
	for _, root := range firsts {
		declared, world, err := all.below(root)
		if err != nil {
			return err
		}
		if err = declared.Check(world.Existing()); err == nil {
			continue
		}
		found, ok := errors.AsType[spec.Findings](err)
		if !ok {
			return err
		}
		return slices.Concat(found, all.found).Sorted().Err()
	}
	return all.found.Sorted().Err()
}

// below returns what is declared and what is there, with every directory as a worker
// has it whose first root is root.
func (all *Placed) below(root string) (*spec.Resources, World, error) {
	declared, world := *all.Resources, all.world
	declared.Pipelines, world.Pipelines = slices.Clone(declared.Pipelines), slices.Clone(world.Pipelines)
	var specs []*spec.PipelineSpec
	for i := range declared.Pipelines {
		specs = append(specs, &declared.Pipelines[i].Spec)
	}
	for i := range world.Pipelines {
		specs = append(specs, &world.Pipelines[i].Spec)
	}
	for _, s := range specs {
		path := s.Directory()
		if path == "" {
			continue
		}
		at, err := roots.Below([]string{root}, path)
		if err != nil {
			return nil, world, err
		}
		*s = s.In(at)
	}
	return &declared, world, nil
}

// there returns the directory that a pipeline has now, "" if it has none.
func (all *Placed) there(m spec.Metadata) string {
	at := slices.IndexFunc(all.world.Pipelines, func(r Record) bool { return r.Metadata() == m })
	if at < 0 {
		return ""
	}
	return all.world.Pipelines[at].Spec.Directory()
}

// recorded returns the directory of p as its record keeps it: as it is declared, unless
// the record that is there names the same one in the other way.
func (all *Placed) recorded(p *spec.Pipeline) (string, error) {
	path, there := filepath.Clean(p.Spec.Directory()), all.there(p.Metadata)
	if there == "" || filepath.IsAbs(path) == filepath.IsAbs(there) {
		return path, nil
	}
	// The record names the directory the other way, absolute or relative. If both ways lead to
	// the same place, the record's stays, because another would mean that the files move:
	//
	//	recorded shop, declared /data/shop, all workers' roots are /data    shop stays
	//	recorded shop, declared /data/shop, one worker's root is /srv       /data/shop: one place
	//	                                                                    for all, on purpose
	same := 0
	for _, root := range all.firsts {
		was, errWas := roots.Below([]string{root}, there)
		is, errIs := roots.Below([]string{root}, path)
		if err := errors.Join(errWas, errIs); err != nil {
			return "", err
		}
		if was == is {
			same++
		}
	}
	if filepath.IsAbs(path) {
		// Whoever names the directory of one worker may want to have it for all.
		if same == len(all.firsts) {
			return there, nil
		}
		return path, nil
	}
	// Earlier releases recorded an absolute one: below a root, or where apply ran.
	here, err := filepath.Abs(path)
	if same > 0 || here == there {
		return there, err
	}
	return path, err
}

// admit notes what a worker would refuse. What p has already is left to the workers:
// to declare it again gives it nothing. What is not absolute is below a root of each.
func (all *Placed) admit(p *spec.Pipeline) {
	path := p.Spec.Directory()
	if !filepath.IsAbs(path) || path == all.there(p.Metadata) {
		return
	}
	const field = "spec.project.sink.parquet.path"
	for i := range all.workers {
		w := &all.workers[i]
		if roots.Outside(w.Roots, path) == nil {
			continue
		}
		all.found.Add(p.At(field), "%s: worker %s refuses %s: its sinks write below %s only; choose a folder there, or add one to sinks.roots in the configuration of all workers",
			field, w, path, strings.Join(w.Roots, " or "))
		return
	}
}

// Notes tell what an operator should know of the directory of p.
func (all *Placed) Notes(p *spec.Pipeline) []string {
	path := p.Spec.Directory()
	if path == "" || path == all.there(p.Metadata) {
		return nil
	}
	relative := !filepath.IsAbs(path)
	switch n := len(all.workers); {
	case n == 0 && relative:
		return []string{fmt.Sprintf("no worker has said where its sinks may write; each writes to %s below the first of its own sinks.roots", spec.ShownDirectory(path))}
	case n == 0:
		return []string{fmt.Sprintf("no worker has said where its sinks may write; one that may not write to %s refuses it and says so in millrace status", path)}
	case n > 1:
		if relative && len(all.firsts) > 1 {
			path = spec.ShownDirectory(path) + " below the first root of each worker, which is not the same for all: " + strings.Join(all.firsts, ", ")
		} else if at, err := roots.Below(all.firsts, path); err == nil {
			path = at
		}
		return []string{fmt.Sprintf("its files are in the directory %s, and %d workers write them (%s): all must see the same files there, on a disk that they share; "+
			"where they do not, write s3: {bucket: ...}", path, n, all.names())}
	}
	return nil
}

// Where says where the sink of s, which has one, is, with the directory that all workers find for it.
func (all *Placed) Where(s *spec.PipelineSpec) string {
	if path := s.Directory(); path != "" && len(all.workers) > 0 && len(all.firsts) == 1 {
		if at, err := roots.Below(all.firsts, path); err == nil {
			return at
		}
	}
	return s.Project.Sink.Where(s.Project)
}

// names lists the workers.
func (all *Placed) names() string {
	const shown = 4
	var names []string
	for i := range all.workers {
		names = append(names, all.workers[i].String())
	}
	if len(names) > shown {
		names = append(names[:shown], fmt.Sprintf("and %d more", len(names)-shown))
	}
	return strings.Join(names, ", ")
}

// Located returns a record with the directory of its files as this process finds it:
// among those where workers have it, and the one below this process's own root, the one
// that holds the pipeline's files; that of a worker if none does.
func (r *Registry) Located(ctx context.Context, rec *Record) (*Record, error) {
	path := rec.Spec.Directory()
	if path == "" || filepath.IsAbs(path) {
		return rec, nil
	}
	workers, err := roots.Workers(ctx, r.JetStream, r.KV)
	if err != nil {
		return nil, err
	}
	firsts := FirstRoots(workers, r.cfg.SinkRoot)
	found, err := roots.Below(firsts, path)
	if err != nil {
		return nil, err
	}
	// This process's own comes first: a worker that verifies reads what it has written.
	for _, root := range append([]string{r.cfg.SinkRoot}, firsts...) {
		at, err := roots.Below([]string{root}, path)
		if err != nil {
			return nil, err
		}
		if owner, err := parquetsink.Owner(ctx, parquetsink.NewDir(at)); err == nil && owner == rec.ID {
			found = at
			break
		}
	}
	seen := *rec
	seen.Spec = rec.Spec.In(found)
	return &seen, nil
}
