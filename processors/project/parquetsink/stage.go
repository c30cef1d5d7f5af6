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

// stage is what a commit does to one table: it finds what the ops mean for the
// live files, and writes the files that take the place of those it touches.
type stage struct {
	files *files
	from  uint64 // the manifest from which it began
	area  *area
	table *table
	l     *layouts
	parts []*tableOps // in the order in which they are carried out

	rows     []*op
	rejects  []*op
	hashes   []uint64 // of both, ascending
	rowHash  []uint64 // of rows, ascending
	contests map[uint64]*contest
	plain    map[uint64]*contest // of rejects that are no claims
	hits     map[string][]uint64 // by path: hashes that a file and the ops share
	token    string              // in the names of files

	ran      bool
	mu       sync.Mutex
	held     map[string][]byte // bytes of files that were read, to be read again
	heldSize int
	made     int // files

	removed       map[string]bool
	added         []file
	addedRejects  []file
	rowsRewritten int64
}

// run stages the files. With compact, small files that no row touches are merged
// too.
func (g *stage) run(ctx context.Context, compact bool) error {
	g.removed, g.held = map[string]bool{}, map[string][]byte{}
	g.contests, g.plain, g.hits = map[uint64]*contest{}, map[uint64]*contest{}, map[string][]uint64{}
	g.gather()
	if err := g.probe(ctx); err != nil {
		return err
	}
	e := newEffects()
	for _, step := range []func(context.Context, *effects) error{g.readRejects, g.readShared, g.settleFiles, g.settleRest} {
		if err := step(ctx, e); err != nil {
			return err
		}
	}
	w := set{g: g, l: g.l.rows, live: g.table.Files, edits: e.rows, added: e.added, compact: compact}
	if err := w.write(ctx); err != nil {
		return err
	}
	g.added = w.made
	w = set{g: g, l: g.l.rejects, live: g.table.Rejects, edits: e.rejects, added: e.addedReject, compact: compact}
	if err := w.write(ctx); err != nil {
		return err
	}
	g.addedRejects = w.made
	g.held, g.ran = nil, true
	return nil
}

// idle says whether nothing has changed.
func (g *stage) idle() bool {
	return len(g.removed) == 0 && len(g.added) == 0 && len(g.addedRejects) == 0
}

// gather collects the ops, and makes contests of the hashes that come twice.
func (g *stage) gather() {
	for _, part := range g.parts {
		g.rows, g.rowHash = gatherOps(part.rows, g.rows, g.rowHash)
		g.rejects, g.hashes = gatherOps(part.rejects, g.rejects, g.hashes)
	}
	slices.Sort(g.rowHash)
	for i := 1; i < len(g.rowHash); i++ {
		if g.rowHash[i] == g.rowHash[i-1] {
			g.contest(g.rowHash[i])
		}
	}
	if len(g.hashes) == 0 {
		g.hashes = g.rowHash
		return
	}
	g.hashes = append(g.hashes, g.rowHash...)
	slices.Sort(g.hashes)
}

func gatherOps(from *ops, all []*op, hashes []uint64) ([]*op, []uint64) {
	all, hashes = slices.Grow(all, len(from.all)), slices.Grow(hashes, len(from.all))
	for i := range from.all {
		if o := &from.all[i]; o.kind != opNone {
			all, hashes = append(all, o), append(hashes, o.hash)
		}
	}
	return all, hashes
}

func (g *stage) contest(hash uint64) *contest {
	c := g.contests[hash]
	if c == nil {
		c = &contest{}
		g.contests[hash] = c
	}
	return c
}

// probe finds the live files that hold what the ops are about.
func (g *stage) probe(ctx context.Context) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	look := func(f *file, l *layout, hashes []uint64) {
		group.Go(func() error {
			there, err := g.files.hashes(ctx, f, l)
			if err != nil {
				return err
			}
			if both := common(hashes, there); len(both) > 0 {
				mu.Lock()
				g.hits[f.Path] = both
				mu.Unlock()
			}
			return nil
		})
	}
	for i := range g.table.Files {
		look(&g.table.Files[i], g.l.rows, g.rowHash)
	}
	for i := range g.table.Rejects {
		look(&g.table.Rejects[i], g.l.rejects, g.hashes)
	}
	if err := group.Wait(); err != nil {
		return err
	}
	g.assign()
	return nil
}

// assign makes contests of the hashes that were found, and gives them their ops.
func (g *stage) assign() {
	for i := range g.table.Files {
		for _, hash := range g.hits[g.table.Files[i].Path] {
			g.contest(hash).files++
		}
	}
	for i := range g.table.Rejects {
		for _, hash := range g.hits[g.table.Rejects[i].Path] {
			if _, found := slices.BinarySearch(g.rowHash, hash); found {
				g.contest(hash)
			}
		}
	}
	if len(g.contests) > 0 {
		for _, o := range g.rows {
			if c := g.contests[o.hash]; c != nil {
				c.ops = append(c.ops, o)
			}
		}
	}
	for _, o := range g.rejects {
		if g.plain[o.hash] == nil {
			g.plain[o.hash] = &contest{}
		}
		g.plain[o.hash].ops = append(g.plain[o.hash].ops, o)
	}
}

// name returns a name for a new file.
func (g *stage) name(as, partition string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	return path.Join(folderOf(as, g.area.Generations[0], partition), fmt.Sprintf("%020d-%s-%d.parquet", g.from, g.token, g.made))
}

func (g *stage) countRewritten(rows int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rowsRewritten += rows
}
