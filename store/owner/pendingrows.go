package owner

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/store"
)

// Limits of a page of pending rows.
const (
	pendingRowsDefault  = 100
	pendingRowsMax      = 1000
	pendingRowsBytesMax = 4 << 20
)

var pendingRowsHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.pendingRows(ctx, r.PendingRows)
	},
}

// pendingRows reads the rows of a projection that wait, in the order of their keys.
func (p *Partition) pendingRows(ctx context.Context, r *store.ReadPendingRows) *store.Response {
	if refusal := p.awaitAppends(ctx); refusal != nil {
		return &store.Response{Err: refusal}
	}
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
