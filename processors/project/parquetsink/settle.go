package parquetsink

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"
)

// readRejects reads the claims and the other rejects that the ops are about.
func (g *stage) readRejects(ctx context.Context, e *effects) error {
	for i := range g.table.Rejects {
		f := &g.table.Rejects[i]
		if len(g.hits[f.Path]) == 0 {
			continue
		}
		err := g.find(ctx, f, g.l.rejects, &e.arena, func(hash uint64) bool { return true }, func(hash uint64, s stored) {
			if c := g.contests[hash]; c != nil && !s.row[rejectKey].IsNull() {
				c.claims = append(c.claims, s)
			}
			if c := g.plain[hash]; c != nil && s.row[rejectKey].IsNull() {
				c.rows = append(c.rows, s)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readShared settles what more than one file has a row for. That happens when two
// keys have one hash.
func (g *stage) readShared(ctx context.Context, e *effects) error {
	shared := func(hash uint64) bool { return g.contests[hash].files > 1 }
	for i := range g.table.Files {
		f := &g.table.Files[i]
		if !slices.ContainsFunc(g.hits[f.Path], shared) {
			continue
		}
		err := g.find(ctx, f, g.l.rows, &e.arena, shared, func(hash uint64, s stored) {
			c := g.contests[hash]
			c.rows = append(c.rows, s)
		})
		if err != nil {
			return err
		}
	}
	for _, hash := range slices.Sorted(maps.Keys(g.contests)) {
		if shared(hash) {
			if err := g.l.settle(g.contests[hash], e); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleFiles settles what one file has a row for, file by file.
func (g *stage) settleFiles(ctx context.Context, e *effects) error {
	each := make([]*effects, len(g.table.Files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(g.files.parallel)
	for i := range g.table.Files {
		f := &g.table.Files[i]
		if len(g.hits[f.Path]) == 0 {
			continue
		}
		each[i] = newEffects()
		group.Go(func() error { return g.settleFile(ctx, f, each[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, one := range each {
		if one != nil {
			e.merge(one)
		}
	}
	return nil
}

func (g *stage) settleFile(ctx context.Context, f *file, e *effects) error {
	alone := func(hash uint64) bool { return g.contests[hash].files == 1 }
	err := g.find(ctx, f, g.l.rows, &e.arena, alone, func(hash uint64, s stored) {
		c := g.contests[hash]
		c.rows = append(c.rows, s)
	})
	if err != nil {
		return err
	}
	for _, hash := range g.hits[f.Path] {
		if !alone(hash) {
			continue
		}
		if err := g.l.settle(g.contests[hash], e); err != nil {
			return err
		}
	}
	return nil
}

// settleRest takes the rows that no file has, in their order, and the rejects.
func (g *stage) settleRest(_ context.Context, e *effects) error {
	if len(g.contests) == 0 {
		e.added = slices.Grow(e.added, len(g.rows))
	}
	for _, o := range g.rows {
		c := g.contests[o.hash]
		switch {
		case c == nil && o.kind == opPut:
			e.added = append(e.added, o.row)
		case c != nil && c.files == 0 && c.ops[0] == o:
			if err := g.l.settle(c, e); err != nil {
				return err
			}
		default:
		}
	}
	for _, o := range g.rejects {
		if c := g.plain[o.hash]; c.ops[0] == o {
			c.settlePlain(e)
		}
	}
	return nil
}

// settlePlain decides about rejects that are no claims: the last word holds.
func (c *contest) settlePlain(e *effects) {
	for i, o := range c.ops {
		later := slices.ContainsFunc(c.ops[i+1:], func(p *op) bool { return sameReject(o.row, p.row) })
		if later {
			continue
		}
		there := false
		for j := range c.rows {
			s := &c.rows[j]
			switch {
			case !sameReject(s.row, o.row):
			case o.kind == opDrop || there:
				e.rejects.set(s, nil)
			case sameRow(s.row, o.row):
				there = true
			default:
				there = true
				e.rejects.set(s, o.row)
			}
		}
		if o.kind == opPut && !there {
			e.addedReject = append(e.addedReject, o.row)
		}
	}
}

// find calls take with a copy of each row of a file whose hash is one of those
// that were found in it and wanted.
func (g *stage) find(ctx context.Context, f *file, l *layout, a *arena, wanted func(uint64) bool, take func(uint64, stored)) error {
	hits := make(map[uint64]bool, len(g.hits[f.Path]))
	for _, hash := range g.hits[f.Path] {
		if wanted(hash) {
			hits[hash] = true
		}
	}
	data, err := g.read(ctx, f)
	if err != nil {
		return err
	}
	return g.files.heavy(ctx, func() error {
		err := scan(data, l, func(at int64, rows []parquet.Row) error {
			for i, row := range rows {
				if hash := l.hashOf(row); hits[hash] {
					take(hash, stored{file: f, at: at + int64(i), row: a.clone(row)})
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Path, err)
		}
		return nil
	})
}
