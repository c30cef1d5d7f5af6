package pipelines

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/roots"
)

// placed are declarations whose directories are absolute, and what is known of these.
type placed struct {
	*Resources
	workers []roots.Worker
	world   World
	// found is what is wrong with directories.
	found Findings
}

// place makes the directories of Parquet sinks absolute, for whoever opens them later,
// a worker or a command that verifies, runs elsewhere, and holds them against what the
// workers have announced. One that is not absolute lies below the workers' first root.
func (r *Registry) place(ctx context.Context, declared *Resources, w World) (*placed, error) {
	same := *declared
	same.Pipelines = slices.Clone(declared.Pipelines)
	all := &placed{Resources: &same, world: w}
	for i := range same.Pipelines {
		p := &same.Pipelines[i]
		if p.directory() == "" {
			continue
		}
		if all.workers == nil {
			var err error
			if all.workers, err = roots.Workers(ctx, r.js, r.kv); err != nil {
				return nil, err
			}
		}
		path, err := all.absolute(p, r.cfg.SinkRoot)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: the directory %s: %w", p.Metadata, p.directory(), err)
		}
		p.Spec = p.Spec.clone()
		p.Spec.Project.Sink.Parquet.Path = path
		all.admit(p)
	}
	return all, nil
}

// check is Check, together with what is wrong with directories.
func (all *placed) check() error {
	err := all.Check(all.world)
	if found, ok := errors.AsType[Findings](err); ok || err == nil {
		return slices.Concat(found, all.found).sorted().Err()
	}
	return err
}

// directory returns the directory of a pipeline's files, "" if it has none.
func (p *Pipeline) directory() string {
	if p.Spec.Project == nil || p.Spec.Project.Sink.Parquet == nil {
		return ""
	}
	return p.Spec.Project.Sink.Parquet.Path
}

// there returns the directory that a pipeline has now, "" if it has none.
func (all *placed) there(m Metadata) string {
	at := slices.IndexFunc(all.world.Pipelines, func(r Record) bool { return r.Metadata() == m })
	if at < 0 {
		return ""
	}
	return (&Pipeline{Spec: all.world.Pipelines[at].Spec}).directory()
}

// absolute returns the directory of p as its workers know it.
func (all *placed) absolute(p *Pipeline, fallback string) (string, error) {
	path := p.directory()
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	here, err := filepath.Abs(path)
	if err != nil || here == all.there(p.Metadata) {
		return here, err // an earlier release took it for that, and the files are there
	}
	if len(all.workers) > 0 {
		return filepath.Join(all.workers[0].Roots[0], path), nil
	}
	if fallback != "" {
		return filepath.Abs(filepath.Join(fallback, path))
	}
	return here, nil
}

// admit notes what a worker would refuse. What p has already is left to the workers:
// to declare it again gives it nothing.
func (all *placed) admit(p *Pipeline) {
	path := p.directory()
	if path == all.there(p.Metadata) {
		return
	}
	const field = "spec.project.sink.parquet.path"
	for i := range all.workers {
		w := &all.workers[i]
		if roots.Outside(w.Roots, path) == nil {
			continue
		}
		all.found.add(p.places.at(field), "%s: worker %s refuses %s: its sinks write below %s only; choose a folder there, or add one to sinks.roots in the configuration of all workers",
			field, w, path, strings.Join(w.Roots, " or "))
		return
	}
}

// notes tell what an operator should know of the directory of p.
func (all *placed) notes(p *Pipeline) []string {
	path := p.directory()
	if path == "" || path == all.there(p.Metadata) {
		return nil
	}
	switch n := len(all.workers); {
	case n == 0:
		return []string{fmt.Sprintf("no worker has said where its sinks may write; one that may not write to %s refuses it and says so in millrace status", path)}
	case n > 1:
		return []string{fmt.Sprintf("its files are in the directory %s, and %d workers write them (%s): all must see the same files there, on a disk that they share; "+
			"where they do not, write s3: {bucket: ...}", path, n, all.names())}
	}
	return nil
}

// names lists the workers.
func (all *placed) names() string {
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
