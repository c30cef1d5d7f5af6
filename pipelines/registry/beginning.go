package registry

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// Beginning tells with what a new generation would begin, as Apply decides it, and how much
// there is of it. It pins nothing, so it says less of a log of middle size: only a snapshot
// tells what the items take.
func (r *Registry) Beginning(ctx context.Context, rec *Record, b *Bound) (string, error) {
	if rec.Spec.Kind() == spec.CascadeKind {
		walk, err := r.walks(ctx, b.Source)
		if err != nil {
			return "", err
		}
		if walk {
			items, err := r.itemsOf(ctx, b.Target)
			return fmt.Sprintf("it begins with %s of container %s, for the log of %s is long or was trimmed", items, b.Target.Name, b.Source.Name), err
		}
		return r.fromLog(ctx, b.Source)
	}
	// The same questions, in the same order, as pinItems asks, but for the last one: whether a
	// log takes more than twice what its partition holds shows only when a snapshot is pinned.
	long, trimmed, err := r.longLogs(ctx, b.Source)
	if err != nil {
		return "", err
	}
	level, err := featurelevel.Read(ctx, r.JetStream)
	if err != nil {
		return "", err
	}
	if len(long) == 0 || level < featurelevel.Trims || rec.keepsExpired(b.Source) && !trimmed {
		return r.fromLog(ctx, b.Source)
	}
	items, err := r.itemsOf(ctx, b.Source)
	if err != nil {
		return "", err
	}
	log, err := r.fromLog(ctx, b.Source)
	if trimmed || err != nil {
		return fmt.Sprintf("it begins with %s of container %s, of a snapshot, for its log was trimmed", items, b.Source.Name), err
	}
	return fmt.Sprintf("%s, or, where a log takes more than twice what its partition holds, with the items of a snapshot: %s in all", log, items), nil
}

// fromLog says how much log a container has.
func (r *Registry) fromLog(ctx context.Context, c *store.ContainerInfo) (string, error) {
	commits := uint64(0)
	for _, p := range c.Partitions {
		shape, err := r.shapeOf(ctx, feed.Partition{Container: c.ID, Number: p.Number})
		if err != nil {
			return "", err
		}
		commits += shape.Commits
	}
	return fmt.Sprintf("it begins with the log of container %s: %s", c.Name, format.Plural(int64(commits), "commit", "commits")), nil
}

// itemsOf says how many items a container has.
func (r *Registry) itemsOf(ctx context.Context, c *store.ContainerInfo) (string, error) {
	items, err := r.client.Open(*c)
	if err != nil {
		return "", err
	}
	total := uint64(0)
	for _, p := range items.Partitions() {
		n, err := items.Count(ctx, p, store.Scope{})
		if err != nil {
			return "", fmt.Errorf("count the items of %s: %w", p, err)
		}
		total += uint64(n)
	}
	return format.Plural(int64(total), "item", "items"), nil
}
