package plan

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// aggregateCount counts the targets whose fields are not what an aggregate would make
// them: it folds the members as they are and compares. What it takes to hold is
// bounded by taking the groups slice by slice.
type aggregateCount struct {
	*counting
	rule   *accumulator.Rule
	paths  []document.Path // of the fields
	keys   []document.Path // of the target's partition key
	slices verify.SliceQueue

	mu    sync.Mutex // guards what follows while partitions are read
	delta *accumulator.Delta
	homes map[accumulator.Group]bool // groups of delta that have a target
}

// aggregate counts the effect of an aggregate.
func (c *counting) aggregate(ctx context.Context) error {
	rule, err := accumulator.Compile(spec.AggregateSpec(&c.declared.Spec))
	if err != nil {
		return err
	}
	n := &aggregateCount{counting: c, rule: rule, paths: rule.TargetWrites(), slices: verify.NewSliceQueue()}
	for _, pointer := range c.target.Info().Spec.PartitionKey {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			return fmt.Errorf("container %s: partition key: %w", c.target.Info().Name, err)
		}
		n.keys = append(n.keys, path)
	}
	for n.slices.Next() {
		if err := n.countSlice(ctx); err != nil {
			return err
		}
	}
	return nil
}

// countSlice counts the groups of one slice. The members come first: a target is compared with
// the whole of its group, which is known only when the last source item was read.
func (n *aggregateCount) countSlice(ctx context.Context) error {
	n.delta, n.homes = n.rule.NewDelta(), map[accumulator.Group]bool{}
	if err := n.expect(ctx, n.source, n.target); err != nil {
		return err
	}
	err := n.scan(ctx, n.source, func(_ context.Context, _ feed.Partition, items []store.Item) error {
		page := n.rule.NewDelta()
		for i := range items {
			n.rule.Fold(page, items[i].Key, items[i].ID, nil, items[i].Body)
		}
		n.merge(page)
		return nil
	})
	if err != nil {
		return err
	}
	if err := n.scan(ctx, n.target, n.targets); err != nil {
		return err
	}
	return n.groups()
}

// merge adds the members of a page. When there are too many groups, it leaves half of them for
// another pass over source and target:
//
//	pass 1   all groups, too many: those whose hash begins with 1 are left out
//	pass 2   those whose hash begins with 1
func (n *aggregateCount) merge(page *accumulator.Delta) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delta.Merge(page.Only(n.has))
	for n.delta.Memory() > n.run.cfg.BytesMax && n.slices.Halve() {
		kept := n.rule.NewDelta()
		kept.Merge(n.delta.Only(n.has))
		n.delta = kept
	}
}

func (n *aggregateCount) has(g accumulator.Group) bool { return n.slices.Now.Has(verify.HashGroup(g)) }

// targets compares the targets of one page.
func (n *aggregateCount) targets(_ context.Context, partition feed.Partition, items []store.Item) error {
	var page Effect
	var samples []Sample
	room := n.room(partition)
	for i := range items {
		g, ok := n.rule.TargetGroup(items[i].Body)
		if !ok || !n.has(g) {
			continue
		}
		values, err := n.values(g, true)
		if err != nil {
			return err
		}
		page.Compared++
		s := Sample{Action: SampleChanged, Item: store.ItemRef{Key: items[i].Key, ID: items[i].ID}.String()}
		differs := false
		var edits []Edit
		for j := range values {
			has, _ := document.Get(items[i].Body, n.paths[j])
			if verify.SameRaw(has, values[j].Value) {
				continue
			}
			if differs = true; len(samples) < room {
				edits = append(edits, diffJSON(n.paths[j], has, values[j].Value)...)
			}
		}
		if !differs {
			page.Equal++
			continue
		}
		page.Changed++
		page.Cost.Writes++
		page.Cost.Bytes += int64(len(items[i].Body))
		if len(samples) < room {
			s.show(edits)
			samples = append(samples, s)
		}
	}
	n.found(partition, &page, samples)
	return nil
}

// values returns the fields of the target of a group, and notes that it has one.
func (n *aggregateCount) values(g accumulator.Group, home bool) ([]document.FieldValue, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// A group without members is no group of delta; its target gets the fields of an empty one.
	memory := accumulator.NewMemory()
	share := n.delta.Share(g)
	if share == nil {
		state, err := n.rule.State(memory, g)
		if err != nil {
			return nil, err
		}
		return state.Values(), nil
	}
	if home {
		n.homes[g] = true
	}
	state, err := n.rule.Add(memory, g, share)
	if err != nil {
		return nil, err
	}
	return state.Values(), nil
}

// groups counts the accumulators, and what becomes of groups that have no target.
func (n *aggregateCount) groups() error {
	var page Effect
	var samples []Sample
	groups := n.delta.Groups()
	page.Cost.Writes, page.Cost.Bytes = int64(len(groups)), int64(n.delta.Size())
	room := n.run.cfg.SamplesMax - len(n.samples[feed.Partition{}])
	for _, g := range groups {
		if n.homes[g] {
			continue
		}
		if !n.declared.Spec.Aggregate.Create {
			page.Dangling++
			continue
		}
		state, err := n.rule.Add(accumulator.NewMemory(), g, n.delta.Share(g))
		if err != nil {
			return err
		}
		body, ok := n.rule.NewTarget(g, state, n.keys)
		if !ok {
			page.Dangling++
			continue
		}
		page.Created++
		page.Cost.Writes++
		page.Cost.Bytes += int64(len(body))
		if len(samples) < room {
			s := Sample{Action: SampleCreated}
			if key, ok := n.rule.TargetKey(g, n.keys); ok {
				id, _ := n.rule.TargetID(g)
				s.Item = store.ItemRef{Key: key, ID: id}.String()
			}
			s.show(diffJSON(nil, []byte("{}"), body))
			samples = append(samples, s)
		}
	}
	n.found(feed.Partition{}, &page, samples)
	return nil
}
