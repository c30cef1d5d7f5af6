package parquetsink

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// layouts are those of a table and of its rejects.
type layouts struct{ rows, rejects *layout }

// rewrite is what a commit does to one table: it finds the rows of the live files that
// the ops are about, and writes the files that take the place of those that change.
//
//	live files          a: k1 k2 k3     b: k4 k5     c: k6
//	ops                 put k2, drop k5, put k7
//	written             a': k1 k2' k3   b': k4 k7
//	removed             a, b            c is not even read, if its hashes are known
type rewrite struct {
	// Set by newRewrite and its caller.
	files *files
	from  uint64 // the manifest from which it began
	set   *tableSet
	table *table
	l     *layouts
	ops   []*tableOps // in the order in which they are carried out
	token string      // in the names of files

	// Set by run, step by step. Goroutines of a step read them; findFiles alone writes
	// one of them, hits, from several, under a lock of its own.
	rows            []*op
	rejects         []*op
	hashes          []uint64 // of both, ascending
	rowHashes       []uint64 // of rows, ascending
	conflicts       map[uint64]*keyConflict
	rejectConflicts map[uint64]*keyConflict // of rejects that are no pending rows
	hits            map[string][]uint64     // by path: hashes that a file and the ops share

	// Guarded by mu, because several files are rewritten at once.
	mu            sync.Mutex
	cached        map[string][]byte // of files that were read and are read again
	cachedBytes   int
	named         int // files that have got a name
	rowsRewritten int64

	// What run has come to. ran is false until it has succeeded.
	ran          bool
	removed      map[string]bool // by path
	added        []file
	addedRejects []file
}

// run writes the files; a manifest makes them live later. With compact it also merges
// small files that no op touches.
func (r *rewrite) run(ctx context.Context, compact bool) error {
	r.removed, r.cached = map[string]bool{}, map[string][]byte{}
	r.conflicts, r.rejectConflicts, r.hits = map[uint64]*keyConflict{}, map[uint64]*keyConflict{}, map[string][]uint64{}
	r.gatherOps()
	if err := r.findFiles(ctx); err != nil {
		return err
	}
	e := newOutcome()
	// The rejects are read first: whoever resolves a key needs the rows that wait for it.
	for _, step := range []func(context.Context, *outcome) error{r.readRejects, r.resolveShared, r.resolveByFile, r.resolveNew, r.resolveRejects} {
		if err := step(ctx, e); err != nil {
			return err
		}
	}
	w := fileSet{rewrite: r, l: r.l.rows, live: r.table.Files, edits: e.rows, added: e.added, compact: compact}
	if err := w.writeAll(ctx); err != nil {
		return err
	}
	r.added = w.made
	w = fileSet{rewrite: r, l: r.l.rejects, live: r.table.Rejects, edits: e.rejects, added: e.addedRejects, compact: compact}
	if err := w.writeAll(ctx); err != nil {
		return err
	}
	r.addedRejects = w.made
	r.cached, r.ran = nil, true
	return nil
}

// changesNothing says whether the files stay as they are.
func (r *rewrite) changesNothing() bool {
	return len(r.removed) == 0 && len(r.added) == 0 && len(r.addedRejects) == 0
}

// gatherOps lists the ops, and makes a conflict of each hash that several ops have.
func (r *rewrite) gatherOps() {
	for _, part := range r.ops {
		r.rows, r.rowHashes = collectOps(part.rows, r.rows, r.rowHashes)
		r.rejects, r.hashes = collectOps(part.rejects, r.rejects, r.hashes)
	}
	// Equal hashes are neighbours in the sorted list. A map of all of them would hold
	// an entry for every row of a first load, in which no two are equal.
	slices.Sort(r.rowHashes)
	for i := 1; i < len(r.rowHashes); i++ {
		if r.rowHashes[i] == r.rowHashes[i-1] {
			r.conflictOf(r.rowHashes[i])
		}
	}
	if len(r.hashes) == 0 { // without ops on rejects the two lists are one
		r.hashes = r.rowHashes
		return
	}
	r.hashes = append(r.hashes, r.rowHashes...)
	slices.Sort(r.hashes)
}

func collectOps(from *ops, all []*op, hashes []uint64) ([]*op, []uint64) {
	all, hashes = slices.Grow(all, len(from.all)), slices.Grow(hashes, len(from.all))
	for i := range from.all {
		// The ops are pointed at, not copied: a commit may have hundreds of thousands.
		if o := &from.all[i]; o.kind != opNone {
			all, hashes = append(all, o), append(hashes, o.hash)
		}
	}
	return all, hashes
}

// conflictOf returns the conflict of a hash, which it makes if there is none.
func (r *rewrite) conflictOf(hash uint64) *keyConflict {
	c := r.conflicts[hash]
	if c == nil {
		c = &keyConflict{}
		r.conflicts[hash] = c
	}
	return c
}

// findFiles finds the live files that hold what the ops are about, by hashes: those of
// a file are in the index, or are read once from the columns of its key.
func (r *rewrite) findFiles(ctx context.Context) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	look := func(f *file, l *layout, hashes []uint64) {
		group.Go(func() error {
			there, err := r.files.hashes(ctx, f, l)
			if err != nil {
				return err
			}
			if both := common(hashes, there); len(both) > 0 {
				mu.Lock()
				r.hits[f.Path] = both
				mu.Unlock()
			}
			return nil
		})
	}
	for i := range r.table.Files {
		look(&r.table.Files[i], r.l.rows, r.rowHashes)
	}
	// Rejects are looked for under the hashes of rows too, because a pending row has
	// the hash of its key.
	for i := range r.table.Rejects {
		look(&r.table.Rejects[i], r.l.rejects, r.hashes)
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.assignOps()
	return nil
}

// assignOps makes conflicts of the hashes that were found in files, and gives each
// conflict its ops.
func (r *rewrite) assignOps() {
	for i := range r.table.Files {
		for _, hash := range r.hits[r.table.Files[i].Path] {
			r.conflictOf(hash).files++
		}
	}
	for i := range r.table.Rejects {
		for _, hash := range r.hits[r.table.Rejects[i].Path] {
			// A hit among the rejects may be that of a reject that no key waits for.
			if _, found := slices.BinarySearch(r.rowHashes, hash); found {
				r.conflictOf(hash)
			}
		}
	}
	if len(r.conflicts) > 0 {
		for _, o := range r.rows {
			if c := r.conflicts[o.hash]; c != nil {
				c.ops = append(c.ops, o)
			}
		}
	}
	for _, o := range r.rejects {
		if r.rejectConflicts[o.hash] == nil {
			r.rejectConflicts[o.hash] = &keyConflict{}
		}
		r.rejectConflicts[o.hash].ops = append(r.rejectConflicts[o.hash].ops, o)
	}
}

// nameFile returns a name for a new file. It is used by nobody else, ever: the token is
// random. The manifest in it tells which abandoned files may be removed.
func (r *rewrite) nameFile(as, partition string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named++
	return path.Join(folderOf(as, r.set.Generations[0], partition), fmt.Sprintf("%020d-%s-%d.parquet", r.from, r.token, r.named))
}

func (r *rewrite) countRewritten(rows int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rowsRewritten += rows
}
