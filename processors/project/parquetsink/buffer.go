package parquetsink

import (
	"github.com/parquet-go/parquet-go"
)

// opKind is what an op does.
type opKind uint8

const (
	opNone opKind = iota // taken back by a later one
	opPut
	opDrop
)

// op is the newest state of a row, or of a reject that is no pending row.
type op struct {
	hash uint64
	row  parquet.Row // of a drop: what identifies it alone
	prev int32       // the op before with this hash, -1 for none
	kind opKind
}

// ops are in the order in which they came, without those that later ones made void:
//
//	came                       left
//	put a1 of k, put a2 of k   put a2           at the place of a1
//	put a of k, drop a of k    drop a           a live file may have the row
//	drop a, put a, drop a      drop a           at the place of the first
//	drop a, put a              drop a, put a    both: the drop frees the key for others first
type ops struct {
	all    []op
	latest map[uint64]int32 // the last op with a hash
	same   func(a, b parquet.Row) bool
}

// opBytes is what an op takes beside its row.
const opBytes = 80

// newOps returns ops with room for some.
func newOps(same func(a, b parquet.Row) bool, room int) *ops {
	return &ops{all: make([]op, 0, room), latest: make(map[uint64]int32, room), same: same}
}

// put takes the newest state of a row, in the place of an earlier put that no drop has
// followed: the row has wanted its key since then, and comes before others that want it.
func (o *ops) put(hash uint64, row parquet.Row) {
	if at := o.find(hash, row); at >= 0 && o.all[at].kind == opPut {
		o.all[at].row = row
		return
	}
	o.push(op{hash: hash, row: row, kind: opPut})
}

// drop takes that a row is gone. One drop is enough, at the place of the first.
func (o *ops) drop(hash uint64, row parquet.Row) {
	// Walk back over all ops on the row: a drop makes every put void, not the last alone.
	dropped := false
	for at := o.find(hash, row); at >= 0; at = o.next(o.all[at].prev, row) {
		switch o.all[at].kind {
		case opPut:
			o.all[at].kind = opNone
		case opDrop:
			dropped = true
		default:
		}
	}
	if !dropped {
		o.push(op{hash: hash, row: row, kind: opDrop})
	}
}

func (o *ops) push(next op) {
	next.prev = -1
	if at, ok := o.latest[next.hash]; ok {
		next.prev = at
	}
	o.latest[next.hash] = int32(len(o.all))
	o.all = append(o.all, next)
}

// find returns the last op on what row identifies, -1 for none.
func (o *ops) find(hash uint64, row parquet.Row) int32 {
	at, ok := o.latest[hash]
	if !ok {
		return -1
	}
	return o.next(at, row)
}

func (o *ops) next(at int32, row parquet.Row) int32 {
	for at >= 0 && (o.all[at].kind == opNone || !o.same(o.all[at].row, row)) {
		at = o.all[at].prev
	}
	return at
}

// tableOps are the ops on one table.
type tableOps struct {
	rows    *ops
	rejects *ops
}

// buffer is what a writer took and no commit holds yet.
type buffer struct {
	tables map[string]*tableOps // by declared name
	former map[string]int       // how many rows of a table the buffer before held
	rows   int
	bytes  int
}

// newBuffer returns a buffer that will hold about as much as the one before, which
// may be nil.
func newBuffer(before *buffer) *buffer {
	b := &buffer{tables: map[string]*tableOps{}, former: map[string]int{}}
	if before != nil {
		for name, t := range before.tables {
			b.former[name] = len(t.rows.all)
		}
	}
	return b
}

func (b *buffer) empty() bool { return b.rows == 0 }

// table returns the ops on a table.
func (b *buffer) table(l, rejects *layout) *tableOps {
	t := b.tables[l.table.Name]
	if t == nil {
		t = &tableOps{
			rows: newOps(func(a, b parquet.Row) bool {
				return parquet.Equal(a[l.source], b[l.source]) && l.sameKey(a, b)
			}, b.former[l.table.Name]),
			rejects: newOps(sameReject, 0),
		}
		b.tables[l.table.Name] = t
	}
	return t
}

// sameReject says whether two rejects that are no pending rows are of one element of one
// item.
func sameReject(a, b parquet.Row) bool {
	return parquet.Equal(a[rejectSource], b[rejectSource]) && parquet.Equal(a[rejectElement], b[rejectElement])
}

// addBatch takes a batch, what goes before what comes: so a key may pass from one source
// to another in one batch.
func (b *buffer) addBatch(tables []writerTable, e *encoded) {
	for _, part := range []struct {
		rows []encodedRow
		do   func(t *tableOps, r *encodedRow)
	}{
		{e.drops, func(t *tableOps, r *encodedRow) { t.rows.drop(r.hash, r.row) }},
		{e.puts, func(t *tableOps, r *encodedRow) { t.rows.put(r.hash, r.row) }},
		{e.accepts, func(t *tableOps, r *encodedRow) { t.rejects.drop(r.hash, r.row) }},
		{e.rejects, func(t *tableOps, r *encodedRow) { t.rejects.put(r.hash, r.row) }},
	} {
		for i := range part.rows {
			r := &part.rows[i]
			l := tables[r.table].l
			part.do(b.table(l.rows, l.rejects), r)
		}
		b.rows += len(part.rows)
		b.bytes += opBytes * len(part.rows)
	}
	b.bytes += e.bytes
}
