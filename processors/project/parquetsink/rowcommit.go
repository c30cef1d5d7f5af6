package parquetsink

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// rowCommit is one commit of rows under way. It may take several attempts, each on top
// of a later manifest. It belongs to whoever has the turn.
type rowCommit struct {
	sink     *Sink
	parts    []*writerPart
	rewrites []*rewrite // one for each table that the parts touch
}

// nextManifest returns the manifest that holds the parts. Files that were written for an
// earlier attempt are taken again where nothing has changed that matters to them.
func (c *rowCommit) nextManifest(ctx context.Context, base *manifest, attempt int) (*manifest, error) {
	next := base.clone()
	if err := c.planRewrites(ctx, base); err != nil {
		return nil, err
	}
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(c.sink.files.parallel)
	for _, r := range c.rewrites {
		if !r.ran {
			// Only the first attempt merges small files that no op touches. Every file
			// that a rewrite removes is one more that a rival's commit may remove before
			// it, which voids the attempt; so whoever has lost once takes no more than
			// it needs.
			group.Go(func() error { return r.run(work, attempt == 0) })
		}
	}
	if err := group.Wait(); err != nil {
		c.rewrites = nil
		return nil, err
	}
	for _, r := range c.rewrites {
		r.applyTo(next)
	}
	moved := false
	for _, p := range c.parts {
		ts := next.setOf(p.w.producer.Generation)
		if at, _ := ts.source(p.w.producer).position(); at != p.upTo {
			ts.recordPosition(p.w.producer, p.w.epoch, p.upTo)
			moved = true
		}
	}
	// Nothing is to change if an earlier commit has succeeded and its answer was lost.
	if !moved && !slices.ContainsFunc(c.rewrites, func(r *rewrite) bool { return !r.changesNothing() }) {
		return nil, nil
	}
	return next, nil
}

// planRewrites makes a rewrite of each table that the parts touch, or keeps the one of
// the attempt before.
func (c *rowCommit) planRewrites(ctx context.Context, base *manifest) error {
	former := c.rewrites
	c.rewrites = nil
	for _, ts := range base.Sets {
		for _, t := range ts.Tables {
			ops := c.opsOn(ts, t)
			if len(ops) == 0 {
				continue
			}
			l, err := c.sink.layoutsOf(t)
			if err != nil {
				return err
			}
			r := c.sink.newRewrite(ts, t, l, base.Number)
			r.ops = ops
			for _, old := range former {
				if old.table.Name != t.Name || old.set.Generations[0] != ts.Generations[0] {
					continue
				}
				valid, err := old.stillValid(ctx, base, t, l)
				if err != nil {
					return err
				}
				if valid {
					r = old
				}
			}
			c.rewrites = append(c.rewrites, r)
		}
	}
	return nil
}

// opsOn returns what the parts say of a table, in their order.
func (c *rowCommit) opsOn(ts *tableSet, t *table) (ops []*tableOps) {
	for _, p := range c.parts {
		if !slices.Contains(ts.Generations, p.w.producer.Generation) {
			continue
		}
		for _, b := range p.buffers {
			if on := b.tables[t.Name]; on != nil {
				ops = append(ops, on)
			}
		}
	}
	return ops
}

func (c *rowCommit) countMetrics(ctx context.Context) {
	for _, r := range c.rewrites {
		meters.rows.Add(ctx, int64(len(r.rows)+len(r.rejects)))
		meters.rewritten.Add(ctx, r.rowsRewritten)
		meters.files.Add(ctx, int64(len(r.added)+len(r.addedRejects)))
	}
}

// stillValid says whether what was written on top of one manifest may be committed on
// top of a later one: no file that it read a row in, or takes the place of, has gone,
// and none has come that holds a row it is about. Of a rewrite of a and b that found
// its rows in b and wrote b':
//
//	then   now        valid
//	a b    a b c      if c holds none of its hashes
//	a b    a2 b       likewise of a2: somebody else has rewritten a
//	a b    a b2       no: b' lacks what b2 has
//	a b    a          no: its rows have moved or gone
//
// The hashes of a file that has come are read for this, and not its rows. Writing all
// anew would be right too, but would cost every loser of a race its whole work.
func (r *rewrite) stillValid(ctx context.Context, base *manifest, t *table, l *layouts) (bool, error) {
	// Files that began before the floor may have been removed as orphans. A layout that
	// is another has other columns.
	if base.Floor > r.from || r.l != l {
		return false, nil
	}
	for _, side := range []struct {
		was, is []file
		l       *layout
		hashes  []uint64
	}{{r.table.Files, t.Files, l.rows, r.rowHashes}, {r.table.Rejects, t.Rejects, l.rejects, r.hashes}} {
		there := map[string]bool{}
		for _, f := range side.was {
			there[f.Path] = true
		}
		for i := range side.is {
			f := &side.is[i]
			if there[f.Path] {
				delete(there, f.Path)
				continue
			}
			hashes, err := r.files.hashes(ctx, f, side.l)
			if err != nil || len(common(hashes, side.hashes)) > 0 {
				return false, err
			}
		}
		for path := range there { // gone
			if r.removed[path] || len(r.hits[path]) > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// applyTo puts the files that were written in the place of those they replace.
func (r *rewrite) applyTo(next *manifest) {
	if r.changesNothing() {
		return
	}
	ts := next.setOf(r.set.Generations[0])
	t := ts.table(r.table.Name)
	for _, side := range []struct {
		files *[]file
		added []file
	}{{&t.Files, r.added}, {&t.Rejects, r.addedRejects}} {
		*side.files = slices.DeleteFunc(*side.files, func(f file) bool {
			if r.removed[f.Path] {
				next.removeFile(ts, &f)
			}
			return r.removed[f.Path]
		})
		*side.files = append(*side.files, side.added...)
	}
	if ts.Current {
		next.Changed = next.Number + 1 // next is a copy of its base still; so that is its own number
	}
}
