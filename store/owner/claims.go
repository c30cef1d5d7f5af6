package owner

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/store"
)

// Limits of a page of claims.
const (
	claimsDefault  = 100
	claimsMax      = 1000
	claimsBytesMax = 4 << 20
)

var claimsHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.claims(ctx, r.Claims)
	},
}

// claims reads the rows of a projection that wait, in the order of their keys.
func (p *Partition) claims(ctx context.Context, r *store.ReadClaims) *store.Response {
	if refusal := p.settle(ctx); refusal != nil {
		return &store.Response{Err: refusal}
	}
	limit := r.Max
	if limit <= 0 {
		limit = claimsDefault
	}
	limit = min(limit, claimsMax)
	snap, s := p.snapshot()
	defer snap.Close()
	result, owner, size := &store.ClaimsResult{LSN: s.lsn}, rulePrefix(r.Pipeline, r.Generation), 0
	var last []byte
	for rec, err := range snap.RecordsFrom(recordAccumulator, append([]byte(owner), claimMark), append([]byte(owner), r.After...)) {
		if err != nil {
			return p.readFailed(err)
		}
		key := rec.Key[len(owner):]
		if bytes.Equal(key, r.After) {
			continue
		}
		if len(result.Claims) == limit || size >= claimsBytesMax {
			result.Last = last
			break
		}
		source, err := claimSource(key)
		if err != nil {
			return p.readFailed(err)
		}
		last = slices.Clone(key)
		result.Claims = append(result.Claims, store.Claim{Source: source, Body: slices.Clone(rec.Value)})
		size += len(key) + len(rec.Value)
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{Claims: result}
}

// claimSource returns the source in the key of a claim.
func claimSource(key []byte) (string, error) {
	length, n := binary.Uvarint(key[1:])
	if n <= 0 || length > uint64(len(key)-1-n) {
		return "", fmt.Errorf("the claim %x names no item", key)
	}
	return string(key[1+n+int(length):]), nil
}
