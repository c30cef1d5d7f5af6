package gateway

import (
	"context"

	"github.com/millrace/millrace/store"
)

// commit carries out writes of one logical partition. Each has a key by which an
// owner knows it again, so that it can be asked for a second time where an answer got
// lost: an owner that is on its way out says at once that it is none any more, and the
// next one says what became of the write.
func (s *Server) commit(x *exchange, c *collection, t *store.Transact) (*store.TransactResult, error) {
	t.RemoteKey = s.newKey()
	resp, err := s.client.Do(x.ctx, &store.Request{Partition: c.PartitionFor(t.Key), Transact: t})
	if err != nil {
		return nil, err
	}
	if result := resp.Transact; !result.Failed {
		for i := range result.Results {
			c.fill(x.ctx, &t.Ops[i], &result.Results[i])
		}
	}
	return resp.Transact, nil
}

// fill reads the body for the answer to a repeated write, which an owner does not keep.
// Where the item has changed since, or cannot be read now, the answer stays without
// one, as if the client had asked for none: the write holds, and that is what must be
// told.
func (c *collection) fill(ctx context.Context, op *store.Operation, res *store.OpResult) {
	if len(res.Item.Body) > 0 || op.Kind == store.OpDelete || res.Status == store.StatusNotModified {
		return
	}
	now, err := c.Read(ctx, res.Item.Key, res.Item.ID)
	if err == nil && (op.Kind == store.OpRead || now.ETag == res.Item.ETag) {
		res.Item = now
	}
}
