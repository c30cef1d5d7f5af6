package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// container plans what becomes of a container, and notes how it would be.
func (run *planning) container(ctx context.Context, d *spec.Container) error {
	r := Resource{Outcome: registry.Outcome{Kind: spec.KindContainer, Database: d.Metadata.Database, Name: d.Metadata.Name, Action: registry.Unchanged}}
	at := slices.IndexFunc(run.after, func(c store.ContainerInfo) bool {
		return c.Database == d.Metadata.Database && c.Name == d.Metadata.Name
	})
	if at < 0 {
		r.Action = registry.Created
		// It gets an id when it is made. Until then its name tells it apart.
		run.after = append(run.after, store.ContainerInfo{
			Database: d.Metadata.Database, Name: d.Metadata.Name, ID: feed.ResourceID("planned " + d.Metadata.String()),
			State: store.ContainerReady, Spec: d.Spec,
		})
		run.plan.Resources = append(run.plan.Resources, r)
		return nil
	}
	info := &run.after[at]
	was := info.Spec
	info.Spec = d.Spec
	switch {
	case info.State == store.ContainerCreating:
		r.Action, info.State = registry.Created, store.ContainerReady
	case !registry.SameSpec(&was, &d.Spec):
		r.Action = registry.Changed
		var err error
		if r.Definition, err = definition(was, d.Spec); err != nil {
			return err
		}
		if r.Indexes, err = run.declaredIndexes(ctx, info, &was); err != nil {
			return err
		}
		for _, path := range was.Indexes {
			if !registry.HasIndex(info, path) {
				r.Notes = append(r.Notes, fmt.Sprintf("index %s goes", path))
			}
		}
	}
	run.plan.Resources = append(run.plan.Resources, r)
	return nil
}

// declaredIndexes returns the indexes that a container's declaration adds.
func (run *planning) declaredIndexes(ctx context.Context, info *store.ContainerInfo, was *store.ContainerSpec) ([]Index, error) {
	before := *info
	before.Spec = *was
	var added []Index
	for _, path := range info.Spec.Indexes {
		if registry.HasIndex(&before, path) {
			continue
		}
		index, err := run.index(ctx, info, path, "")
		if err != nil {
			return nil, err
		}
		added = append(added, index)
	}
	return added, nil
}

// index tells of an index that is added to a container.
func (run *planning) index(ctx context.Context, c *store.ContainerInfo, path, where string) (Index, error) {
	items, err := run.items(ctx, c)
	return Index{Container: c.Name, Path: path, Where: where, Items: items}, err
}

// items counts the items of a container.
func (run *planning) items(ctx context.Context, info *store.ContainerInfo) (total int64, err error) {
	c, err := run.client.Open(*info)
	if err != nil {
		return 0, err
	}
	for _, partition := range c.Partitions() {
		n, err := c.Count(ctx, partition, store.Scope{})
		if err != nil {
			return 0, fmt.Errorf("count the items of %s: %w", partition, err)
		}
		total += int64(n)
	}
	return total, nil
}

// pipeline plans what becomes of a pipeline. It returns why Apply refuses it, "" if it
// does not.
func (run *planning) pipeline(ctx context.Context, d *spec.Pipeline) (refused string, err error) {
	r := Resource{Outcome: registry.Outcome{Kind: spec.KindPipeline, Database: d.Metadata.Database, Name: d.Metadata.Name}}
	b, gone := registry.BoundBy(d, run.after)
	if gone != "" {
		return "", fmt.Errorf("pipeline %s: %w", d.Metadata, &store.NoContainerError{Database: d.Metadata.Database, Name: gone})
	}
	var there registry.Record
	if at := slices.IndexFunc(run.world.Pipelines, func(r registry.Record) bool { return r.Metadata() == d.Metadata }); at >= 0 {
		there = run.world.Pipelines[at]
	}
	opts := run.opts
	what := there.Change(&d.Spec, &b, &opts)
	if reason := opts.Refusal(&there, d, what); reason != "" {
		if opts.Backfill || opts.FromNow {
			return reason, nil
		}
		r.Choice, run.plan.Choice = reason, true
		opts.Backfill = true
	}
	next := there.Next(d, &b, what, &opts, &r.Outcome)
	r.Generation = next.Generation
	if what != registry.ChangeNew && what != registry.ChangeNone {
		if r.Definition, err = definition(there.Spec, d.Spec); err != nil {
			return "", err
		}
	}
	if next.Generation != there.Generation {
		if err := run.anew(ctx, &r, &next, &b); err != nil {
			return "", err
		}
		r.Notes = append(r.Notes, there.Spec.Leaves(&d.Spec)...)
		if !opts.FromNow {
			run.works = append(run.works, planWork{len(run.plan.Resources), d, there, next, b})
		}
	}
	r.Notes = append(r.Notes, run.placed.Notes(d)...)
	run.plan.Resources = append(run.plan.Resources, r)
	return "", nil
}

// anew tells what a new generation asks of the containers that it writes to.
func (run *planning) anew(ctx context.Context, r *Resource, next *registry.Record, b *registry.Bound) error {
	path, _, err := registry.IndexOf(run.client, next, b)
	if err != nil {
		return err
	}
	if path != "" && !registry.HasIndex(b.Target, path) {
		index, err := run.index(ctx, b.Target, path, "")
		if err != nil {
			return err
		}
		r.Indexes = append(r.Indexes, index)
		r.Notes = append(r.Notes, fmt.Sprintf("index %s is added to container %s", path, b.Target.Name))
		b.Target.IndexesWanted = append(slices.Clip(b.Target.IndexesWanted), path) // for those that follow
	}
	if next.Spec.Kind() == spec.AggregateKind {
		return run.rule(ctx, r, next, b)
	}
	return nil
}

// rule tells how the partitions of its target keep an aggregate.
func (run *planning) rule(ctx context.Context, r *Resource, next *registry.Record, b *registry.Bound) error {
	spec := spec.AggregateSpec(&next.Spec)
	next.Rule = &spec
	partitions := "the partition"
	if n := b.Target.Spec.Partitions; n > 1 {
		partitions = fmt.Sprintf("each of the %d partitions", n)
	}
	r.Notes = append(r.Notes, fmt.Sprintf("its rule is put in force in %s of container %s, %s", partitions, b.Target.Name, next.Spec.Aggregate.Consistency))
	// The settings of a partition without any rule show which indexes the rule brings: they are
	// asked for by the same code as in an owner.
	planned := store.ContainerInfo{Rules: []store.RuleWish{next.NeededRule()}}
	settings, _ := store.Settings{}.Wish(&planned)
	for _, i := range settings.Indexes {
		index, err := run.index(ctx, b.Target, i.Path, i.Where)
		if err != nil {
			return err
		}
		r.Indexes = append(r.Indexes, index)
	}
	return nil
}

// definition returns where two specs differ, as they are written.
func definition(was, is any) ([]Edit, error) {
	before, errWas := declaredJSON(was)
	after, errIs := declaredJSON(is)
	if err := errors.Join(errWas, errIs); err != nil {
		return nil, err
	}
	return diffJSON(document.Path{{Name: "spec"}}, before, after), nil
}

// declaredJSON returns a spec as JSON with the texts of its YAML, such as 168h,
// without what is empty.
func declaredJSON(declared any) ([]byte, error) {
	var n yaml.Node
	if err := n.Encode(declared); err != nil {
		return nil, fmt.Errorf("show a declaration: %w", err)
	}
	dropEmpty(&n)
	w := spec.YamlWriter{}
	w.Value(&n, "")
	return w.Out.Bytes(), nil
}

// dropEmpty removes the fields that are null, and lists of nothing.
func dropEmpty(n *yaml.Node) {
	for _, child := range n.Content {
		dropEmpty(child)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	kept := n.Content[:0:0]
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; !spec.IsNull(v) && (v.Kind != yaml.SequenceNode || len(v.Content) > 0) {
			kept = append(kept, n.Content[i], v)
		}
	}
	n.Content = kept
}
