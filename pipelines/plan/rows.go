package plan

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// rowCount counts the rows that a projection would put and drop: those that its items
// have, against those that are in the sink. Rows are compared by what their columns
// say, so that those of the former declaration can be compared with those of the next
// one. What it takes to hold is bounded by taking the items slice by slice.
type rowCount struct {
	// Set once by rows, before the first slice.
	*counting
	projection *project.Projection
	former     *project.Projection // whose rows are in the sink; nil if there are none
	rebuilt    bool                // all rows are written, and take the place of the former
	stay       bool                // rows that are no rows any more are not dropped

	// Guarded by mu while page runs, in a goroutine for each partition; then owned by
	// countSlice.
	mu     sync.Mutex
	slices verify.SliceQueue
	rows   map[uint64]plannedRow
	more   map[uint64][]plannedRow // those that claim the key of one of rows
	items  map[uint64]struct{}     // sources that are there
	wrong  map[feed.Partition]Sample
	pairs  []rowPair // of which samples are made; of countSlice alone
}

// plannedRow is a row that must be there.
type plannedRow struct {
	digest, source uint64
	bytes          uint32
}

// plannedRowBytes is about what a row takes in memory, with its share of items.
const plannedRowBytes = 64

// rowPair is a row that would change, as it is in the sink.
type rowPair struct {
	name uint64 // of table and key
	key  string // as samples show it
	old  *project.Row
	of   project.TableSchema
}

// rows counts the effect of a projection.
func (c *counting) rows(ctx context.Context) (err error) {
	n := &rowCount{counting: c, slices: verify.NewSliceQueue(), wrong: map[feed.Partition]Sample{}}
	c.effect.Rows = true
	if n.projection, err = n.compile(c.next, c.bound); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.projection.Sink().Close()) }()
	if err := n.openFormer(ctx); err != nil {
		return err
	}
	if n.former != nil {
		defer func() { err = errors.Join(err, n.former.Sink().Close()) }()
	}
	sink := &c.declared.Spec.Project.Sink
	// A change of meaning builds all rows anew beside the former, where there is
	// room: then every row is written, changed or not. Containers have no room
	// beside, and rows that are none any more are left to repair.
	n.rebuilt = c.there.ID != "" && sink.Container == nil
	n.stay = sink.Container != nil
	for n.slices.Next() {
		if err := n.countSlice(ctx); err != nil {
			return err
		}
	}
	for _, partition := range n.source.Partitions() {
		if s, ok := n.wrong[partition]; ok && c.run.cfg.SamplesMax > 0 {
			c.extra = append(c.extra, s)
			break
		}
	}
	if c.effect.Left > 0 {
		c.note("rows that no item has any more stay in containers; millrace repair removes them")
	}
	return nil
}

// compile returns the projection of a record. If its sink cannot be made here, because
// only workers have the keys to it, rows are counted without.
func (n *rowCount) compile(rec *registry.Record, b *registry.Bound) (*project.Projection, error) {
	p, err := compile.Projection(n.run.client, rec, b, compile.Reading(n.run.registry))
	// A plan is made where an operator sits, without the workers' secrets. What
	// items will have can be counted all the same; only what is there cannot.
	if err == nil || rec.Spec.Project.Sink.Container != nil {
		return p, err
	}
	cfg, errConfig := spec.ProjectConfig(&rec.Spec)
	if errConfig != nil {
		return nil, errConfig
	}
	n.note("its sink cannot be looked at from here (%s)", err)
	cfg.Pipeline, cfg.Generation, cfg.Source, cfg.Sink = rec.ID, rec.Generation, n.source, noSink{}
	return project.Compile(cfg)
}

// noSink stands for a sink that cannot be made.
type noSink struct{}

var errNoSink = errors.New("plan: a plan writes nothing")

// Open refuses.
func (noSink) Open(context.Context, *project.Schema, project.Term) (project.Writer, feed.Position, error) {
	return nil, feed.Position{}, errNoSink
}

// Close does nothing.
func (noSink) Close() error { return nil }

// openFormer finds the rows that are there.
func (n *rowCount) openFormer(ctx context.Context) error {
	//	there               compared with
	//	nothing             nothing: every row is new
	//	a generation        its rows
	//	one being built     those of its former, which readers still see
	//	                    (none: nobody has seen any)
	//	a swap in doubt     the oldest that are there: it removes those before its own
	if n.there.ID == "" {
		return nil
	}
	// All that a record has are in one place.
	if was := n.there.Spec.Project; was == nil || !was.SameSink(n.declared.Spec.Project) {
		n.note("the rows in its former place stay there")
		return nil
	}
	seen := n.there.Seen()
	if len(seen) == 0 {
		n.note("its rows are being built and nobody reads them yet")
		return nil
	}
	var empty error
	for _, rec := range seen {
		var err error
		if empty, err = n.openSeen(ctx, rec); empty == nil || err != nil {
			return err
		}
	}
	n.note("the rows that are there cannot be read from here, so all are counted as new: %s", empty)
	return nil
}

// openSeen makes the rows of a generation those that are there, unless it has none; then, or if
// they cannot be read, empty says why.
func (n *rowCount) openSeen(ctx context.Context, rec *registry.Record) (empty, err error) {
	b, gone := rec.Bound(n.run.world.Containers)
	if gone != "" {
		return nil, nil // a container was made again, and its rows are gone
	}
	if rec, err = n.run.registry.Located(ctx, rec); err != nil {
		return nil, err
	}
	former, err := n.compile(rec, &b)
	if err != nil {
		return nil, err
	}
	reader, ok := former.Sink().(project.Reader)
	if !ok {
		return nil, nil // noted
	}
	// An empty place reads without an error, and every row would seem new. No
	// position at all says that nobody ever wrote there: another place under the
	// same name, most likely.
	at, empty := reader.Positions(ctx, former.Schema())
	if _, tells := former.Sink().(*project.ContainerSink); empty == nil && len(at) == 0 && !tells {
		empty = fmt.Errorf("nothing was written to %s yet, or it is another place seen from here", rec.Spec.Destination())
	}
	if empty != nil {
		return empty, former.Sink().Close()
	}
	n.former = former
	return nil, nil
}

// countSlice counts the rows of one slice.
func (n *rowCount) countSlice(ctx context.Context) error {
	n.rows, n.more = map[uint64]plannedRow{}, map[uint64][]plannedRow{}
	n.items, n.pairs = map[uint64]struct{}{}, nil
	if err := n.expect(ctx, n.source); err != nil {
		return err
	}
	if err := n.scan(ctx, n.source, n.page); err != nil {
		return err
	}
	var all Effect
	for _, more := range n.more {
		all.Waiting += int64(len(more))
	}
	for _, row := range n.rows {
		if n.rebuilt {
			all.Cost.Writes, all.Cost.Bytes = all.Cost.Writes+1, all.Cost.Bytes+int64(row.bytes)
		}
	}
	if n.former != nil {
		for table := range n.former.Schema().Tables {
			if err := n.compareTable(ctx, table, &all); err != nil {
				return err
			}
		}
	}
	// compareTable has taken out what is there; what is left is new.
	all.Created += int64(len(n.rows))
	for _, row := range n.rows {
		n.addCost(&all, row)
	}
	all.Compared += int64(len(n.rows))
	samples, err := n.samples(ctx)
	if err != nil {
		return err
	}
	n.found(feed.Partition{}, &all, samples)
	return nil
}

// addCost adds the cost of a row that is new or another one.
func (n *rowCount) addCost(all *Effect, row plannedRow) {
	if !n.rebuilt {
		all.Cost.Writes, all.Cost.Bytes = all.Cost.Writes+1, all.Cost.Bytes+int64(row.bytes)
	}
}

// page takes the rows of a page.
func (n *rowCount) page(_ context.Context, partition feed.Partition, items []store.Item) error {
	schema, d := n.projection.Schema(), rowDigester{}
	container := n.source.Info().Name
	// Another goroutine may halve the slice meanwhile. Then rows are made here for
	// nothing, and addRowLocked leaves them out.
	n.mu.Lock()
	slice := n.slices.Now
	n.mu.Unlock()
	var page Effect
	var wrong *Sample
	type named struct {
		name uint64
		row  plannedRow
	}
	var rows []named
	var sources []uint64
	for i := range items {
		source := maphash.String(verify.RowSeed, project.SourceOf(container, items[i].Key, items[i].ID))
		if !slice.Has(source) {
			continue // the slice only ever becomes smaller
		}
		sources = append(sources, source)
		made, rejects := n.projection.RowsOf(items[i].Key, items[i].ID, items[i].Body)
		for j := range made {
			t := &schema.Tables[made[j].Table]
			digest, size := d.row(t, &made[j])
			rows = append(rows, named{d.name(t, made[j].Key), plannedRow{digest, source, uint32(size)}})
		}
		page.Rejected += int64(len(rejects))
		if len(rejects) > 0 && wrong == nil {
			wrong = rejectSample(schema, &rejects[0])
		}
	}
	n.mu.Lock()
	if _, told := n.wrong[partition]; !told && wrong != nil {
		n.wrong[partition] = *wrong
	}
	for _, s := range sources {
		n.items[s] = struct{}{}
	}
	for _, r := range rows {
		n.addRowLocked(r.name, r.row)
	}
	for len(n.rows)*plannedRowBytes > n.run.cfg.BytesMax && n.slices.Halve() {
		n.forgetLocked()
	}
	n.mu.Unlock()
	n.found(partition, &page, nil)
	return nil
}

// addRowLocked adds one row.
func (n *rowCount) addRowLocked(name uint64, row plannedRow) {
	if !n.slices.Now.Has(row.source) {
		return
	}
	// Two items with one key: one has the row, the other waits for it. Which one
	// is decided by who wrote first, so whichever the sink shows is right.
	if first, held := n.rows[name]; held && first.source != row.source {
		n.more[name] = append(n.more[name], row)
		return
	}
	n.rows[name] = row
}

// forgetLocked leaves the rows for later that are not of the slice any more.
func (n *rowCount) forgetLocked() {
	for name, row := range n.rows {
		if !n.slices.Now.Has(row.source) {
			delete(n.rows, name)
		}
	}
	for name, more := range n.more {
		n.more[name] = slices.DeleteFunc(more, func(r plannedRow) bool { return !n.slices.Now.Has(r.source) })
		if len(n.more[name]) == 0 {
			delete(n.more, name)
		}
	}
	for source := range n.items {
		if !n.slices.Now.Has(source) {
			delete(n.items, source)
		}
	}
}

// compareTable compares the rows of one table of the sink.
func (n *rowCount) compareTable(ctx context.Context, table int, all *Effect) error {
	reader, ok := n.former.Sink().(project.Reader)
	if !ok {
		return nil
	}
	t, d := &n.former.Schema().Tables[table], rowDigester{}
	for row, err := range reader.Rows(ctx, n.former.Schema(), table) {
		if err != nil {
			return fmt.Errorf("read the rows of table %s: %w", t.Name, err)
		}
		source := maphash.String(verify.RowSeed, row.Source)
		if !n.slices.Now.Has(source) {
			continue
		}
		all.Compared++
		name := d.name(t, row.Key)
		digest, size := d.row(t, &row)
		want, asked := n.rows[name]
		switch {
		case !asked:
			n.surplus(all, t, &row, source, size)
			continue
		// Any of those that want the key may have it.
		case want.digest == digest, slices.ContainsFunc(n.more[name], func(o plannedRow) bool { return o.digest == digest }):
			all.Equal++
		default:
			all.Changed++
			n.addCost(all, want)
			n.keepPair(rowPair{name: name, key: string(verify.KeyJSON(row.Key)), old: &row, of: *t})
		}
		delete(n.rows, name)
	}
	return nil
}

// surplus takes a row of the sink that no item has.
func (n *rowCount) surplus(all *Effect, t *project.TableSchema, row *project.Row, source uint64, size int) {
	// An item that is there and has no such row has lost it by the declaration.
	// One that is not there expired or was deleted, and whose rows stay by
	// onExpire: keep cannot be told from here.
	if _, there := n.items[source]; !there && n.declared.Spec.Project.OnExpire != spec.DeleteRows {
		// Whether it expired or was deleted, only the log knows.
		all.Equal++
		return
	}
	if n.stay {
		all.Left++
		return
	}
	all.Deleted++
	if !n.rebuilt {
		all.Cost.Writes, all.Cost.Bytes = all.Cost.Writes+1, all.Cost.Bytes+int64(size)
	}
	n.keepPair(rowPair{key: string(verify.KeyJSON(row.Key)), old: row, of: *t})
}

// rowDigester tells rows apart by what they say under the names of their columns, in
// whatever order and of whatever types they are: what is compared was written by another
// generation. The digests of verify, which compares rows of one schema, go by position
// and type; of JSON both take the same one. It is not safe for concurrent use.
type rowDigester struct{ buf, raw []byte }

// name tells rows apart by table and key.
func (d *rowDigester) name(t *project.TableSchema, key []project.Value) uint64 {
	sum := maphash.String(verify.RowSeed, t.Name)
	for i, v := range key {
		sum += d.column(t.Columns[t.Key[i]].Name, v)
	}
	return max(sum, 1)
}

// row returns the digest of a row, and about how many bytes its JSON has.
func (d *rowDigester) row(t *project.TableSchema, r *project.Row) (digest uint64, size int) {
	for i, v := range r.Values {
		if !v.IsNull() {
			digest += d.column(t.Columns[i].Name, v)
			size += len(t.Columns[i].Name) + len(d.raw) + 4
		}
	}
	return digest, size + 2
}

// column is the digest of one column. Those of a row are added up.
func (d *rowDigester) column(name string, v project.Value) uint64 {
	d.raw = v.AppendJSON(d.raw[:0])
	d.buf = binary.AppendUvarint(d.buf[:0], uint64(len(name)))
	d.buf = append(d.buf, name...)
	switch document.KindOf(d.raw) {
	case document.Object, document.Array:
		// Long values can be made to collide here, as JSONDigest has no seed. Texts and
		// numbers are taken as they are, since keys consist of them.
		d.buf = binary.LittleEndian.AppendUint64(d.buf, verify.JSONDigest(d.raw))
	default:
		d.buf = document.AppendCanonical(d.buf, d.raw)
	}
	return maphash.Bytes(verify.RowSeed, d.buf)
}
