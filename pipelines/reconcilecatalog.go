package pipelines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

// reconcileCatalog brings what the catalog asks of containers to what pipelines need. What
// is missing, because who applied a pipeline died in between, is asked for at
// once. What is of no use is removed when it has been so for a while, and after a
// look at the registry itself: what was seen of it may be old.
func (s *reconciler) reconcileCatalog(ctx context.Context, w *registry.World) error {
	extra, err := s.ask(ctx, w)
	now, round := time.Now(), map[string]bool{}
	due := slices.DeleteFunc(extra, func(e unneeded) bool { return s.idle.see(e.String(), now, round) < s.cfg.Grace })
	s.idle.keep("need ", round)
	if err != nil || len(due) == 0 {
		return err
	}
	fresh, err := s.registry.World(ctx)
	if err != nil {
		return err
	}
	still, err := s.ask(ctx, &fresh)
	if err == nil {
		err = s.registry.Sound(ctx) // a record that was lost has needs
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range due {
		if slices.ContainsFunc(still, func(x unneeded) bool { return x.String() == e.String() }) {
			errs = append(errs, e.drop(ctx, s.client.Catalog()))
		}
	}
	return errors.Join(errs...)
}

// unneeded is an index, a rule or a kind of tombstones that the catalog asks for and
// no pipeline needs.
type unneeded struct {
	container  *store.ContainerInfo
	index      string // or
	pipeline   string // or
	tombstones *tombstone.Wish
}

func (e unneeded) String() string {
	if e.tombstones != nil {
		return fmt.Sprintf("need of %s: tombstones %q %q", e.container.ID, e.tombstones.Where, e.tombstones.Fields)
	}
	return fmt.Sprintf("need of %s: index %q, rule %q", e.container.ID, e.index, e.pipeline)
}

func (e unneeded) drop(ctx context.Context, catalog *store.Catalog) error {
	if e.tombstones != nil {
		return catalog.DropTombstones(ctx, e.container.Database, e.container.Name, *e.tombstones)
	}
	if e.index != "" {
		return catalog.DropIndex(ctx, e.container.Database, e.container.Name, e.index)
	}
	return catalog.DropRule(ctx, e.container.Database, e.container.Name, e.pipeline)
}

// need is what pipelines need of one container.
type need struct {
	indexes    []string
	rules      []store.RuleWish
	pipelines  []string // that have rules there
	tombstones []tombstone.Wish
	unsure     bool // it is not known which indexes or tombstones a pipeline needs
}

// ask asks for what is missing, and returns what is asked for without need.
func (s *reconciler) ask(ctx context.Context, w *registry.World) ([]unneeded, error) {
	needs := map[feed.ResourceID]*need{}
	for i := range w.Containers {
		needs[w.Containers[i].ID] = &need{}
	}
	var errs []error
	for i := range w.Pipelines {
		rec := &w.Pipelines[i]
		n, source := needs[rec.Target], needs[rec.Source]
		if source == nil {
			source = &need{}
		}
		if n == nil {
			// Which tombstones a cascade needs there, its target tells; others have none.
			source.unsure = source.unsure || rec.Spec.Kind() == spec.CascadeKind
			continue
		}
		errs = append(errs, n.add(s.client, rec, w.Containers, source))
	}
	var extra []unneeded
	for i := range w.Containers {
		c := &w.Containers[i]
		if c.State != store.ContainerReady {
			continue
		}
		errs = append(errs, s.askOne(ctx, c, needs[c.ID]))
		extra = append(extra, needs[c.ID].extra(c)...)
	}
	return extra, errors.Join(errs...)
}

// add notes what one pipeline needs of its target, and of its source.
func (n *need) add(client *store.Client, rec *registry.Record, containers []store.ContainerInfo, source *need) error {
	b, gone := rec.Bound(containers)
	if rec.Spec.Kind() == spec.AggregateKind {
		n.pipelines = append(n.pipelines, rec.ID)
		if gone == "" {
			n.rules = append(n.rules, rec.NeededRule())
		}
		return nil
	}
	if gone != "" {
		n.unsure, source.unsure = true, true
		return nil
	}
	index, stones, err := registry.IndexOf(client, rec, &b)
	if err != nil {
		n.unsure, source.unsure = true, true
		return fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if index != "" {
		n.indexes = append(n.indexes, index)
	}
	if stones != nil {
		source.tombstones = append(source.tombstones, *stones)
	}
	return nil
}

// askOne asks for what is missing in one container.
func (s *reconciler) askOne(ctx context.Context, c *store.ContainerInfo, n *need) error {
	catalog := s.client.Catalog()
	var errs []error
	for _, index := range n.indexes {
		if !registry.HasIndex(c, index) {
			errs = append(errs, catalog.WantIndex(ctx, c.Database, c.Name, index))
		}
	}
	for _, t := range n.tombstones {
		if !c.WantsTombstones(t) {
			errs = append(errs, catalog.WantTombstones(ctx, c.Database, c.Name, t))
		}
	}
	for i := range n.rules {
		if !registry.HasRule(c, &n.rules[i]) {
			errs = append(errs, catalog.WantRule(ctx, c.Database, c.Name, n.rules[i]))
		}
	}
	return errors.Join(errs...)
}

// extra returns what is asked of a container without need.
func (n *need) extra(c *store.ContainerInfo) []unneeded {
	var extra []unneeded
	for _, index := range c.IndexesWanted {
		if !n.unsure && !slices.Contains(n.indexes, index) {
			extra = append(extra, unneeded{container: c, index: index})
		}
	}
	for i := range c.Tombstones {
		if t := &c.Tombstones[i]; !n.unsure && !slices.ContainsFunc(n.tombstones, t.Equal) {
			extra = append(extra, unneeded{container: c, tombstones: t})
		}
	}
	for _, rule := range c.Rules {
		if !slices.Contains(n.pipelines, rule.Pipeline) {
			extra = append(extra, unneeded{container: c, pipeline: rule.Pipeline})
		}
	}
	return extra
}
