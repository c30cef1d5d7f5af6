package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

// Pipelines ask two things of the containers that they write to: the index by
// which a cascade's fan-outs find their items, and the rule by which a partition
// keeps an aggregate. A cascade asks the container that it reads for tombstones of
// the items that it follows. All are asked for in the catalog, and all follow from the
// records of the registry alone.

// wantIndex asks for the tombstones that rec needs, and for the index that its
// fan-outs need, and returns that, "" if they need none.
func (r *Registry) wantIndex(ctx context.Context, rec *Record, b *Bound) (string, error) {
	index, stones, err := IndexOf(r.client, rec, b)
	if err != nil {
		return "", err
	}
	if stones != nil && !b.Source.WantsTombstones(*stones) {
		if err := r.client.Catalog().WantTombstones(ctx, b.Source.Database, b.Source.Name, *stones); err != nil {
			return "", err
		}
	}
	if index == "" {
		return "", nil
	}
	return index, r.client.Catalog().WantIndex(ctx, b.Target.Database, b.Target.Name, index)
}

// IndexOf returns the index that a pipeline needs in its target, "" if it needs
// none, and the tombstones that it needs of its source, nil if none.
func IndexOf(client *store.Client, rec *Record, b *Bound) (string, *tombstone.Wish, error) {
	if rec.Spec.Kind() != spec.CascadeKind {
		return "", nil, nil
	}
	c, err := rec.Cascade(client, b, cascade.Limits{})
	if err != nil {
		return "", nil, err
	}
	stones := c.Tombstones()
	return c.Index(), &stones, nil
}

// HasIndex tells whether a container has an index, or the catalog asks for it.
func HasIndex(c *store.ContainerInfo, path string) bool {
	return slices.Contains(c.Spec.Indexes, path) || slices.Contains(c.IndexesWanted, path)
}

// NeededRule returns the rule that an aggregate needs in the partitions of its
// target.
func (r *Record) NeededRule() store.RuleWish {
	return store.RuleWish{
		Pipeline: r.ID, Generation: r.Generation, Spec: *r.Rule,
		Source: r.Spec.Aggregate.Consistency == spec.Transactional, Published: r.Published,
	}
}

// Agree makes the rules in the catalog agree with a record that has taken the place of
// another.
func (r *Registry) Agree(ctx context.Context, was, is *Record) error {
	if was.Spec.Kind() == spec.AggregateKind && was.ID != "" && (is.Spec.Kind() != spec.AggregateKind || was.Target != is.Target) {
		if err := r.dropRule(ctx, was); err != nil {
			return err
		}
	}
	if is.Spec.Kind() != spec.AggregateKind {
		return nil
	}
	target, err := r.client.Catalog().Get(ctx, is.Database, is.Spec.Target())
	if err != nil || target.ID != is.Target {
		return err
	}
	return r.wantRule(ctx, is, &target)
}

// wantRule asks for the rule of an aggregate unless the catalog asks for it
// already.
func (r *Registry) wantRule(ctx context.Context, rec *Record, target *store.ContainerInfo) error {
	need := rec.NeededRule()
	if HasRule(target, &need) {
		return nil
	}
	return r.client.Catalog().WantRule(ctx, target.Database, target.Name, need)
}

// HasRule tells whether the catalog asks for a rule, compared as it would write
// it.
func HasRule(c *store.ContainerInfo, need *store.RuleWish) bool {
	want, err := json.Marshal(need)
	return err == nil && slices.ContainsFunc(c.Rules, func(is store.RuleWish) bool {
		there, err := json.Marshal(is)
		return err == nil && bytes.Equal(there, want)
	})
}

// dropRule forgets the rule of an aggregate. Its accumulators go, the fields stay.
func (r *Registry) dropRule(ctx context.Context, rec *Record) error {
	err := r.client.Catalog().DropRule(ctx, rec.Database, rec.Spec.Target(), rec.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // with its container
	}
	return err
}

// Cascade returns the cascade that a record declares between the containers for which
// it was registered.
func (r *Record) Cascade(client *store.Client, b *Bound, limits cascade.Limits) (*cascade.Cascade, error) {
	cfg := spec.CascadeConfig(&r.Spec)
	cfg.Pipeline, cfg.Generation, cfg.Limits = r.ID, r.Generation, limits
	cfg.Backfill = r.BackfillScope.Request(r.Backfills)
	var err error
	if cfg.Source, err = client.Open(*b.Source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", r.Metadata(), err)
	}
	if cfg.Target, err = client.Open(*b.Target); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", r.Metadata(), err)
	}
	return cascade.Compile(cfg)
}
