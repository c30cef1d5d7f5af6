package gateway

import (
	"context"

	"github.com/millrace/millrace/store"
)

// commit carries out writes of one logical partition. Each has a key by which an owner
// recognizes it, so that the client can send it again when an answer is lost. An owner that
// is giving the partition up then says so at once, and the next owner tells the outcome.
func (s *Server) commit(x *exchange, c *collection, t *store.Transact) (*store.TransactResult, error) {
	if err := x.right.admitKey(t.Key); err != nil {
		return nil, err
	}
	t.RemoteKey = s.newKey()
	resp, err := c.Do(x.ctx, &store.Request{Partition: c.PartitionFor(t.Key), Transact: t})
	if err != nil {
		return nil, err
	}
	if result := resp.Transact; !result.Failed {
		for i := range result.Results {
			c.fillBody(x.ctx, &t.Ops[i], &result.Results[i])
		}
	}
	return resp.Transact, nil
}

// fillBody reads the body for the answer to a repeated write, which an owner does not keep. If
// the item has changed since, or cannot be read now, the answer has no body, as if the client
// had asked for none: the write succeeded, and that matters more.
func (c *collection) fillBody(ctx context.Context, op *store.Operation, res *store.OpResult) {
	if len(res.Item.Body) > 0 || op.Kind == store.OpDelete || res.Status == store.StatusNotModified {
		return
	}
	now, err := c.Read(ctx, res.Item.Key, res.Item.ID)
	if err == nil && (op.Kind == store.OpRead || now.ETag == res.Item.ETag) {
		res.Item = now
	}
}
