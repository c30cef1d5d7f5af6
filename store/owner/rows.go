package owner

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
)

// rows is a request to put rows while it is being decided.
type rows struct {
	t        *txn
	pipeline string
	gen      uint32
	pending  map[string][]byte // rows that changed, by the keys of their records; nil for what is gone
	refused  []store.Refusal
}

var putRowsHandler = handler{
	decide: func(_ *decider, t *txn, r *store.Request, _ int) (*store.Response, bool) {
		result, write, refusal := decidePutRows(t, r.PutRows)
		if refusal != nil {
			return &store.Response{Err: refusal}, false
		}
		return &store.Response{PutRows: result}, write
	},
	about: func(r *store.Request) string { return "rows of pipeline " + r.PutRows.Producer.Pipeline },
}

// decidePutRows decides the rows of a source interval.
func decidePutRows(t *txn, r *store.PutRows) (result *store.PutRowsResult, write bool, refusal *store.Error) {
	known, plant, refusal := t.fence(r.Producer, r.Epoch)
	if refusal != nil {
		return nil, false, refusal
	}
	result = &store.PutRowsResult{LSN: t.lsn, Position: known.Position}
	known.Epoch = r.Epoch
	if r.Ask || r.After != known.Position {
		t.effectOf(r.Producer, known)
		return result, plant, nil
	}
	if !known.Position.Before(r.UpTo) {
		return nil, false, store.Refuse(store.StatusBadRequest, "the interval (%s, %s] is empty", r.After, r.UpTo)
	}
	w := &rows{t: t, pipeline: r.Producer.Pipeline, gen: r.Producer.Generation, pending: map[string][]byte{}}
	for i := range r.Rows {
		if refusal := w.decideRow(&r.Rows[i]); refusal != nil {
			if refusal.Status == store.StatusInternal {
				return nil, false, refusal
			}
			w.addRefusal(&r.Rows[i], refusal)
		}
	}
	w.recordPending()
	known.Position = r.UpTo
	t.effectOf(r.Producer, known)
	result.Applied, result.Position, result.Refused = true, known.Position, w.refused
	return result, true, nil
}

func (w *rows) addRefusal(row *store.Row, refusal *store.Error) {
	w.refused = append(w.refused, store.Refusal{Ref: row.Ref, Status: refusal.Status, Reason: refusal.Message})
}

// decideRow decides one row.
func (w *rows) decideRow(row *store.Row) *store.Error {
	itemKey := engine.ItemKey(row.Ref.Key, row.Ref.ID)
	current, err := w.t.get(row.Ref.Key, row.Ref.ID, itemKey)
	if err != nil {
		return store.Refuse(store.StatusInternal, "read row %s: %v", row.Ref, err)
	}
	if current != nil && expired(current, w.t.now) {
		w.t.remove(itemKey, current, feed.OpExpire)
		current = nil
	}
	// An item moves from shop 1 to shop 2, which are two feeds. Whichever is ahead, it ends
	// with the row of shop 2:
	//
	//	delete in 1, create in 2     the key is freed, then taken
	//	create in 2, delete in 1     the new row waits, and takes the key when it is freed
	if current != nil {
		if holder := rowSource(current.Body); holder != row.Source {
			return w.setPending(itemKey, row, holder)
		}
	}
	if row.Body == nil {
		if current == nil {
			return w.setPending(itemKey, row, "")
		}
		return w.vacateKey(row.Ref, itemKey, current)
	}
	if refusal := w.writeRow(row.Ref, itemKey, current, row.Body); refusal != nil {
		return refusal
	}
	// It may have waited for the very key that it has now.
	return w.setPending(itemKey, &store.Row{Ref: row.Ref, Source: row.Source}, "")
}

// rowSource returns what a row was made from; "" for an item that is no row.
func rowSource(body []byte) string {
	raw, ok := document.Get(body, rowSourcePath)
	if !ok {
		return ""
	}
	source, _ := document.Text(raw)
	return source
}

var rowSourcePath = document.Path{{Name: store.RowSource}}

func (w *rows) writeRow(ref store.ItemRef, itemKey []byte, current *engine.Item, body []byte) *store.Error {
	// What is sent again after a crash makes no change (I7).
	if current != nil && bytes.Equal(current.Body, body) {
		return nil
	}
	op := &store.Operation{Kind: store.OpUpsert, ID: ref.ID, Body: body}
	if _, refusal := w.t.bodyFor(op, ref.Key); refusal != nil {
		return refusal
	}
	return w.t.put(itemKey, &engine.Item{Key: ref.Key, ID: ref.ID, Body: body}, current, nil, true)
}

// vacateKey removes a row. The pending row with the smallest source takes its place.
func (w *rows) vacateKey(ref store.ItemRef, itemKey []byte, current *engine.Item) *store.Error {
	// Keys of pending rows end with the source, so the smallest comes first: every sink
	// decides alike. One that the partition cannot take goes on waiting.
	for next, err := range w.t.derived(rulePrefix(w.pipeline, w.gen), pendingRowKey(itemKey, ""), maps.All(w.pending)) {
		if err != nil {
			return store.Refuse(store.StatusInternal, "pending rows: %v", err)
		}
		if refusal := w.writeRow(ref, itemKey, current, next.Value); refusal == nil {
			w.pending[string(next.Key)] = nil
			return nil
		}
	}
	w.t.remove(itemKey, current, feed.OpDelete)
	return nil
}

// setPending records that a row waits for a key that holder has, and refuses the row with that
// reason. With no body it records that the row does not wait any more.
func (w *rows) setPending(itemKey []byte, row *store.Row, holder string) *store.Error {
	// A record a row. All that wait for one key in one record were written anew for each
	// newcomer: 300 rows of 2 KB made a log of 93 MB.
	key := string(pendingRowKey(itemKey, row.Source))
	said, changed := w.pending[key]
	if !changed {
		var err error
		if said, err = w.t.record(recordAccumulator, rulePrefix(w.pipeline, w.gen)+key); err != nil {
			return store.Refuse(store.StatusInternal, "pending rows: %v", err)
		}
	}
	if !bytes.Equal(said, row.Body) {
		w.pending[key] = row.Body
	}
	if row.Body == nil {
		return nil
	}
	if holder == "" {
		holder = "an item that no projection made"
	}
	return store.Refuse(store.StatusConflict, "key is held by %s", holder)
}

// pendingRowMark begins the key of a pending row.
const pendingRowMark = 'c'

// pendingRowKey is the key of the record of a pending row: a mark, the length of the key
// of the item that it waits for, that key, and the source. So the rows that wait for one
// item stand together, in the order of their sources. The value is the row.
func pendingRowKey(itemKey []byte, source string) []byte {
	key := make([]byte, 0, 1+binary.MaxVarintLen32+len(itemKey)+len(source))
	key = binary.AppendUvarint(append(key, pendingRowMark), uint64(len(itemKey)))
	return append(append(key, itemKey...), source...)
}

// recordPending puts the pending rows that changed into the transaction.
func (w *rows) recordPending() {
	if len(w.pending) == 0 {
		return
	}
	f := feed.Fold{Pipeline: w.pipeline, Generation: w.gen}
	prefix := rulePrefix(w.pipeline, w.gen)
	for _, key := range slices.Sorted(maps.Keys(w.pending)) {
		f.Records = append(f.Records, feed.Record{Key: []byte(key), Value: w.pending[key]})
		w.t.setRecord(recordAccumulator, prefix+key, w.pending[key])
		w.t.bytes += len(key) + len(w.pending[key]) + recordOverhead
	}
	w.t.rowFolds = append(w.t.rowFolds, f)
}

// Limits of a page of pending rows.
const (
	pendingRowsDefault  = 100
	pendingRowsMax      = 1000
	pendingRowsBytesMax = 4 << 20
)

var pendingRowsHandler = handler{
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response {
		return p.pendingRows(r.PendingRows)
	},
	barrier: always,
	heat:    func(*Partition, *store.Request, *store.Response) heat.Work { return heat.Work{} },
}

// pendingRows reads the rows of a projection that wait, in the order of their keys.
func (p *Partition) pendingRows(r *store.ReadPendingRows) *store.Response {
	limit := r.Max
	if limit <= 0 {
		limit = pendingRowsDefault
	}
	limit = min(limit, pendingRowsMax)
	snap, s := p.snapshot()
	defer snap.Close()
	result, owner, size := &store.PendingRowsResult{LSN: s.lsn}, rulePrefix(r.Pipeline, r.Generation), 0
	var last []byte
	for rec, err := range snap.RecordsFrom(recordAccumulator, append([]byte(owner), pendingRowMark), append([]byte(owner), r.After...)) {
		if err != nil {
			return p.readFailed(err)
		}
		key := rec.Key[len(owner):]
		if bytes.Equal(key, r.After) {
			continue
		}
		if len(result.Rows) == limit || size >= pendingRowsBytesMax {
			result.Last = last
			break
		}
		source, err := pendingRowSource(key)
		if err != nil {
			return p.readFailed(err)
		}
		last = slices.Clone(key)
		result.Rows = append(result.Rows, store.PendingRow{Source: source, Body: slices.Clone(rec.Value)})
		size += len(key) + len(rec.Value)
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{PendingRows: result}
}

// pendingRowSource returns the source in the key of a pending row.
func pendingRowSource(key []byte) (string, error) {
	length, n := binary.Uvarint(key[1:])
	if n <= 0 || length > uint64(len(key)-1-n) {
		return "", fmt.Errorf("the pending row %x names no item", key)
	}
	return string(key[1+n+int(length):]), nil
}
