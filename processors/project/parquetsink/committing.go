package parquetsink

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// committing is one commit of rows under way.
type committing struct {
	sink   *Sink
	shares []*share
	stages []*stage
}

// next returns the manifest in which the shares are. What was staged for a manifest
// before is taken again where nothing that matters has changed.
func (c *committing) next(ctx context.Context, base *manifest, attempt int) (*manifest, error) {
	next := base.clone()
	if err := c.restage(ctx, base, attempt); err != nil {
		return nil, err
	}
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(c.sink.files.parallel)
	for _, g := range c.stages {
		if !g.ran {
			group.Go(func() error { return g.run(work, attempt == 0) })
		}
	}
	if err := group.Wait(); err != nil {
		c.stages = nil
		return nil, err
	}
	for _, g := range c.stages {
		g.apply(next)
	}
	moved := false
	for _, sh := range c.shares {
		a := next.area(sh.w.producer.Generation)
		if at, _ := a.source(sh.w.producer).at(); at != sh.upTo {
			a.record(sh.w.producer, sh.w.epoch, sh.upTo)
			moved = true
		}
	}
	if !moved && !slices.ContainsFunc(c.stages, func(g *stage) bool { return !g.idle() }) {
		return nil, nil
	}
	return next, nil
}

// restage makes a stage for each table that the shares touch, or keeps the one of
// the attempt before.
func (c *committing) restage(ctx context.Context, base *manifest, attempt int) error {
	old := c.stages
	c.stages = nil
	for _, a := range base.Areas {
		for _, t := range a.Tables {
			parts := c.parts(a, t)
			if len(parts) == 0 {
				continue
			}
			l, err := c.sink.layoutsOf(t)
			if err != nil {
				return err
			}
			g := c.sink.stage(a, t, l, base.Number)
			g.parts = parts
			for _, was := range old {
				if was.table.Name == t.Name && was.area.Generations[0] == a.Generations[0] {
					if keeps, err := was.holds(ctx, base, t, l); err != nil {
						return err
					} else if keeps {
						g = was
					}
				}
			}
			c.stages = append(c.stages, g)
		}
	}
	return nil
}

// parts returns what the shares say of a table, in their order.
func (c *committing) parts(a *area, t *table) (parts []*tableOps) {
	for _, sh := range c.shares {
		if !slices.Contains(a.Generations, sh.w.producer.Generation) {
			continue
		}
		for _, b := range sh.buffers {
			if part := b.tables[t.Name]; part != nil {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

func (c *committing) count(ctx context.Context) {
	for _, g := range c.stages {
		meters.rows.Add(ctx, int64(len(g.rows)+len(g.rejects)))
		meters.rewritten.Add(ctx, g.rowsRewritten)
		meters.files.Add(ctx, int64(len(g.added)+len(g.addedRejects)))
	}
}

// holds says whether a stage is good for a later manifest: no file that it read
// anything in, or takes the place of, has gone, and none has come that holds a row
// it is about.
func (g *stage) holds(ctx context.Context, base *manifest, t *table, l *layouts) (bool, error) {
	if base.Floor > g.from || g.l != l {
		return false, nil
	}
	for _, set := range []struct {
		was, is []file
		l       *layout
		hashes  []uint64
	}{{g.table.Files, t.Files, l.rows, g.rowHash}, {g.table.Rejects, t.Rejects, l.rejects, g.hashes}} {
		there := map[string]bool{}
		for _, f := range set.was {
			there[f.Path] = true
		}
		for i := range set.is {
			f := &set.is[i]
			if there[f.Path] {
				delete(there, f.Path)
				continue
			}
			hashes, err := g.files.hashes(ctx, f, set.l)
			if err != nil || len(common(hashes, set.hashes)) > 0 {
				return false, err
			}
		}
		for path := range there { // gone
			if g.removed[path] || len(g.hits[path]) > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// apply puts what was staged in the place of what it was staged for.
func (g *stage) apply(next *manifest) {
	if g.idle() {
		return
	}
	a := next.area(g.area.Generations[0])
	t := a.table(g.table.Name)
	for _, set := range []struct {
		files *[]file
		added []file
	}{{&t.Files, g.added}, {&t.Rejects, g.addedRejects}} {
		*set.files = slices.DeleteFunc(*set.files, func(f file) bool {
			if g.removed[f.Path] {
				next.drop(&f)
			}
			return g.removed[f.Path]
		})
		*set.files = append(*set.files, set.added...)
	}
	if a.Current {
		next.Changed = next.Number + 1
	}
}
