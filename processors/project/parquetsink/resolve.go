package parquetsink

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"
)

// readRejects reads the pending rows and the other rejects that the ops are about.
func (r *rewrite) readRejects(ctx context.Context, e *outcome) error {
	for i := range r.table.Rejects {
		f := &r.table.Rejects[i]
		if len(r.hits[f.Path]) == 0 {
			continue
		}
		err := r.findRows(ctx, f, r.l.rejects, &e.arena, func(uint64) bool { return true }, func(hash uint64, s storedRow) {
			// The hash of a key and that of a reject may be equal by chance, so the two
			// are told apart by the column key, which pending rows alone have.
			if c := r.conflicts[hash]; c != nil && !s.row[rejectKey].IsNull() {
				c.pending = append(c.pending, s)
			}
			if c := r.rejectConflicts[hash]; c != nil && s.row[rejectKey].IsNull() {
				c.rows = append(c.rows, s)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resolveShared resolves the conflicts whose hash more than one file holds. No two live
// files hold one key, so these are different keys with one hash, and rare. They are
// resolved before the others and by one goroutine, because each changes several files.
func (r *rewrite) resolveShared(ctx context.Context, e *outcome) error {
	shared := func(hash uint64) bool { return r.conflicts[hash].files > 1 }
	for i := range r.table.Files {
		f := &r.table.Files[i]
		if !slices.ContainsFunc(r.hits[f.Path], shared) {
			continue
		}
		err := r.findRows(ctx, f, r.l.rows, &e.arena, shared, func(hash uint64, s storedRow) {
			c := r.conflicts[hash]
			c.rows = append(c.rows, s)
		})
		if err != nil {
			return err
		}
	}
	for _, hash := range slices.Sorted(maps.Keys(r.conflicts)) {
		if shared(hash) {
			if err := r.l.resolve(r.conflicts[hash], e); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolveByFile resolves the conflicts whose hash one file holds, several files at once.
// Each file has an outcome of its own, so no lock is held while rows are decoded; they
// are merged in the order of the files, so that what is written does not depend on
// which goroutine was faster.
func (r *rewrite) resolveByFile(ctx context.Context, e *outcome) error {
	each := make([]*outcome, len(r.table.Files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.files.parallel)
	for i := range r.table.Files {
		f := &r.table.Files[i]
		if len(r.hits[f.Path]) == 0 {
			continue
		}
		each[i] = newOutcome()
		group.Go(func() error { return r.resolveFile(ctx, f, each[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, part := range each {
		if part != nil {
			e.merge(part)
		}
	}
	return nil
}

func (r *rewrite) resolveFile(ctx context.Context, f *file, e *outcome) error {
	alone := func(hash uint64) bool { return r.conflicts[hash].files == 1 }
	err := r.findRows(ctx, f, r.l.rows, &e.arena, alone, func(hash uint64, s storedRow) {
		c := r.conflicts[hash]
		c.rows = append(c.rows, s)
	})
	if err != nil {
		return err
	}
	for _, hash := range r.hits[f.Path] {
		if !alone(hash) {
			continue
		}
		if err := r.l.resolve(r.conflicts[hash], e); err != nil {
			return err
		}
	}
	return nil
}

// resolveNew takes the ops whose hash no file of the table holds, in their order.
func (r *rewrite) resolveNew(_ context.Context, e *outcome) error {
	if len(r.conflicts) == 0 { // a first load: all are new
		e.added = slices.Grow(e.added, len(r.rows))
	}
	for _, o := range r.rows {
		c := r.conflicts[o.hash]
		switch {
		case c == nil && o.kind == opPut:
			e.added = append(e.added, o.row)
		case c != nil && c.files == 0 && c.ops[0] == o: // once, at its first op
			if err := r.l.resolve(c, e); err != nil {
				return err
			}
		default: // resolved, or a drop of what is not there
		}
	}
	return nil
}

// resolveRejects takes the ops on rejects that are no pending rows.
func (r *rewrite) resolveRejects(_ context.Context, e *outcome) error {
	for _, o := range r.rejects {
		if c := r.rejectConflicts[o.hash]; c.ops[0] == o {
			c.resolveReject(e)
		}
	}
	return nil
}

// resolveReject decides about rejects that are no pending rows: of several ops on one
// the last one holds.
func (c *keyConflict) resolveReject(e *outcome) {
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
			case o.kind == opDrop || there: // gone, or there twice
				e.rejects.set(s, nil)
			case sameRow(s.row, o.row):
				there = true
			default:
				there = true
				e.rejects.set(s, o.row)
			}
		}
		if o.kind == opPut && !there {
			e.addedRejects = append(e.addedRejects, o.row)
		}
	}
}

// findRows calls found with a copy of each row of a file whose hash the ops share and
// wanted accepts.
func (r *rewrite) findRows(ctx context.Context, f *file, l *layout, a *arena, wanted func(uint64) bool, found func(uint64, storedRow)) error {
	hits := make(map[uint64]bool, len(r.hits[f.Path]))
	for _, hash := range r.hits[f.Path] {
		if wanted(hash) {
			hits[hash] = true
		}
	}
	// Read before a core is asked for: a bucket may take its time, and a core that
	// waits for it would decode nothing.
	data, err := r.read(ctx, f)
	if err != nil {
		return err
	}
	return r.files.withSlot(ctx, func() error {
		err := scan(data, l, func(at int64, rows []parquet.Row) error {
			for i, row := range rows {
				if hash := l.hashOf(row); hits[hash] {
					found(hash, storedRow{file: f, at: at + int64(i), row: a.clone(row)})
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
