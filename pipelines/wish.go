package pipelines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

// Pipelines ask two things of the containers that they write to: the index by
// which a cascade's fan-outs find their items, and the rule by which a partition
// keeps an aggregate. A cascade asks the container that it reads for tombstones of
// the items that it follows. All are wishes in the catalog, and all follow from the
// records of the registry alone.

// wantIndex asks for the tombstones that rec needs, and for the index that its
// fan-outs need, and returns that, "" if they need none.
func (r *Registry) wantIndex(ctx context.Context, rec *Record, b *bound) (string, error) {
	index, stones, err := indexOf(r.client, rec, b)
	if err != nil {
		return "", err
	}
	if stones != nil && !b.source.WantsTombstones(*stones) {
		if err := r.client.Catalog().WantTombstones(ctx, b.source.Database, b.source.Name, *stones); err != nil {
			return "", err
		}
	}
	if index == "" {
		return "", nil
	}
	return index, r.client.Catalog().WantIndex(ctx, b.target.Database, b.target.Name, index)
}

// indexOf returns the index that a pipeline needs in its target, "" if it needs
// none, and the tombstones that it needs of its source, nil if none.
func indexOf(client *store.Client, rec *Record, b *bound) (string, *tombstone.Wish, error) {
	if rec.Spec.Kind() != CascadeKind {
		return "", nil, nil
	}
	c, err := rec.cascade(client, b, cascade.Limits{})
	if err != nil {
		return "", nil, err
	}
	stones := c.Tombstones()
	return c.Index(), &stones, nil
}

func hasIndex(c *store.ContainerInfo, path string) bool {
	return slices.Contains(c.Spec.Indexes, path) || slices.Contains(c.IndexesWanted, path)
}

// ruleWish returns the rule that an aggregate needs in the partitions of its
// target.
func (r *Record) ruleWish() store.RuleWish {
	return store.RuleWish{
		Pipeline: r.ID, Generation: r.Generation, Spec: *r.Rule,
		Source: r.Spec.Aggregate.Consistency == Transactional, Published: r.Published,
	}
}

// agree makes the rules in the catalog be what a record says that has taken the
// place of another.
func (r *Registry) agree(ctx context.Context, was, is *Record) error {
	if was.Spec.Kind() == AggregateKind && was.ID != "" && (is.Spec.Kind() != AggregateKind || was.Target != is.Target) {
		if err := r.dropRule(ctx, was); err != nil {
			return err
		}
	}
	if is.Spec.Kind() != AggregateKind {
		return nil
	}
	target, err := r.client.Catalog().Get(ctx, is.Database, is.Spec.target())
	if err != nil || target.ID != is.Target {
		return err
	}
	return r.wantRule(ctx, is, &target)
}

// wantRule asks for the rule of an aggregate unless the catalog asks for it
// already.
func (r *Registry) wantRule(ctx context.Context, rec *Record, target *store.ContainerInfo) error {
	wish := rec.ruleWish()
	if hasRule(target, &wish) {
		return nil
	}
	return r.client.Catalog().WantRule(ctx, target.Database, target.Name, wish)
}

// hasRule tells whether the catalog asks for a rule, compared as it would write
// it.
func hasRule(c *store.ContainerInfo, wish *store.RuleWish) bool {
	want, err := json.Marshal(wish)
	return err == nil && slices.ContainsFunc(c.Rules, func(is store.RuleWish) bool {
		there, err := json.Marshal(is)
		return err == nil && bytes.Equal(there, want)
	})
}

// dropRule forgets the rule of an aggregate. Its accumulators go, the fields stay.
func (r *Registry) dropRule(ctx context.Context, rec *Record) error {
	err := r.client.Catalog().DropRule(ctx, rec.Database, rec.Spec.target(), rec.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // with its container
	}
	return err
}

// cascade returns the cascade that a record declares between the containers for which
// it was registered.
func (r *Record) cascade(client *store.Client, b *bound, limits cascade.Limits) (*cascade.Cascade, error) {
	cfg := cascadeConfig(&r.Spec)
	cfg.Pipeline, cfg.Generation, cfg.Limits = r.ID, r.Generation, limits
	cfg.Fill = r.FillScope.request(r.Fills)
	var err error
	if cfg.Source, err = client.Open(*b.source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", r.Metadata(), err)
	}
	if cfg.Target, err = client.Open(*b.target); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", r.Metadata(), err)
	}
	return cascade.Compile(cfg)
}
