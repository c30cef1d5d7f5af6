package owner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/document"
	"github.com/millrace/millrace/store/engine"
)

// rows is a request to put rows while it is being decided.
type rows struct {
	t        *txn
	pipeline string
	gen      uint32
	claims   map[string][]byte // changed: by record key; nil value: gone
	refused  []store.Refusal
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
	w := &rows{t: t, pipeline: r.Producer.Pipeline, gen: r.Producer.Generation, claims: map[string][]byte{}}
	for i := range r.Rows {
		if refusal := w.row(&r.Rows[i]); refusal != nil {
			if refusal.Status == store.StatusInternal {
				return nil, false, refusal
			}
			w.refuse(&r.Rows[i], refusal)
		}
	}
	w.finish()
	known.Position = r.UpTo
	t.effectOf(r.Producer, known)
	result.Applied, result.Position, result.Refused = true, known.Position, w.refused
	return result, true, nil
}

func (w *rows) refuse(row *store.Row, refusal *store.Error) {
	w.refused = append(w.refused, store.Refusal{Ref: row.Ref, Status: refusal.Status, Reason: refusal.Message})
}

// row decides one row.
func (w *rows) row(row *store.Row) *store.Error {
	itemKey := engine.ItemKey(row.Ref.Key, row.Ref.ID)
	current, err := w.t.get(row.Ref.Key, row.Ref.ID, itemKey)
	if err != nil {
		return store.Refuse(store.StatusInternal, "read row %s: %v", row.Ref, err)
	}
	if current != nil && expired(current, w.t.now) {
		w.t.remove(itemKey, current, feed.OpExpire)
		current = nil
	}
	if current != nil {
		if holder := rowSource(current.Body); holder != row.Source {
			return w.claim(itemKey, row, holder)
		}
	}
	if row.Body == nil {
		if current == nil {
			return w.claim(itemKey, row, "")
		}
		return w.vacate(row.Ref, itemKey, current)
	}
	if refusal := w.write(row.Ref, itemKey, current, row.Body); refusal != nil {
		return refusal
	}
	return w.claim(itemKey, &store.Row{Ref: row.Ref, Source: row.Source}, "")
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

func (w *rows) write(ref store.ItemRef, itemKey []byte, current *engine.Item, body []byte) *store.Error {
	if current != nil && bytes.Equal(current.Body, body) {
		return nil
	}
	op := &store.Operation{Kind: store.OpUpsert, ID: ref.ID, Body: body}
	if _, refusal := w.t.bodyFor(op, ref.Key); refusal != nil {
		return refusal
	}
	return w.t.put(itemKey, &engine.Item{Key: ref.Key, ID: ref.ID, Body: body}, current, nil, true)
}

// vacate removes a row. The claim with the smallest source takes its place.
func (w *rows) vacate(ref store.ItemRef, itemKey []byte, current *engine.Item) *store.Error {
	claims, refusal := w.claimsOf(itemKey)
	if refusal != nil {
		return refusal
	}
	for _, source := range slices.Sorted(maps.Keys(claims)) {
		body := claims[source]
		delete(claims, source)
		w.setClaims(itemKey, claims)
		if refusal := w.write(ref, itemKey, current, body); refusal == nil {
			return nil
		}
	}
	w.t.remove(itemKey, current, feed.OpDelete)
	return nil
}

// claim notes that a row waits for holder's place, or with no body that it does
// not wait any more.
func (w *rows) claim(itemKey []byte, row *store.Row, holder string) *store.Error {
	claims, refusal := w.claimsOf(itemKey)
	if refusal != nil {
		return refusal
	}
	if row.Body == nil {
		if _, waits := claims[row.Source]; waits {
			delete(claims, row.Source)
			w.setClaims(itemKey, claims)
		}
		return nil
	}
	claims[row.Source] = row.Body
	w.setClaims(itemKey, claims)
	if holder == "" {
		holder = "an item that no projection made"
	}
	return store.Refuse(store.StatusConflict, "key is held by %s", holder)
}

// Claims are records of the pipeline, by the key of the item that they claim: for
// each, in order of sources, source and body.

const claimPrefix = "c"

func (w *rows) claimsOf(itemKey []byte) (map[string][]byte, *store.Error) {
	key := claimPrefix + string(itemKey)
	value, ok := w.claims[key]
	if !ok {
		var err error
		if value, err = w.t.record(recordAccumulator, rulePrefix(w.pipeline, w.gen)+key); err != nil {
			return nil, store.Refuse(store.StatusInternal, "claims: %v", err)
		}
	}
	claims, err := decodeClaims(value)
	if err != nil {
		return nil, store.Refuse(store.StatusInternal, "claims of %x: %v", itemKey, err)
	}
	return claims, nil
}

func (w *rows) setClaims(itemKey []byte, claims map[string][]byte) {
	var value []byte
	for _, source := range slices.Sorted(maps.Keys(claims)) {
		value = binary.AppendUvarint(value, uint64(len(source)))
		value = append(value, source...)
		value = binary.AppendUvarint(value, uint64(len(claims[source])))
		value = append(value, claims[source]...)
	}
	w.claims[claimPrefix+string(itemKey)] = value
}

func decodeClaims(value []byte) (map[string][]byte, error) {
	claims := map[string][]byte{}
	next := func() ([]byte, bool) {
		n, size := binary.Uvarint(value)
		if size <= 0 || n > uint64(len(value)-size) {
			return nil, false
		}
		part := value[size : size+int(n)]
		value = value[size+int(n):]
		return part, true
	}
	for len(value) > 0 {
		source, ok := next()
		body, ok2 := next()
		if !ok || !ok2 {
			return nil, errors.New("the record ends early")
		}
		claims[string(source)] = slices.Clone(body)
	}
	return claims, nil
}

// finish puts the claims that changed into the transaction.
func (w *rows) finish() {
	if len(w.claims) == 0 {
		return
	}
	f := feed.Fold{Pipeline: w.pipeline, Generation: w.gen}
	prefix := rulePrefix(w.pipeline, w.gen)
	for _, key := range slices.Sorted(maps.Keys(w.claims)) {
		f.Records = append(f.Records, feed.Record{Key: []byte(key), Value: w.claims[key]})
		w.t.setRecord(recordAccumulator, prefix+key, w.claims[key])
		w.t.bytes += len(key) + len(w.claims[key]) + recordOverhead
	}
	w.t.claims = append(w.t.claims, f)
}
