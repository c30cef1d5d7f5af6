package owner

import (
	"context"
	"errors"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/heat"
	"github.com/millrace/millrace/store/queryrun"
)

var queryHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.query(ctx, r.Query)
	},
	heat: func(p *Partition, r *store.Request, resp *store.Response) heat.Work {
		var work heat.Work
		if r.Query.Key.Levels() == len(p.state.Load().schema.key) { // a prefix names many keys
			work.Keys = heat.Only(r.Query.Key)
		}
		if resp.Query != nil {
			work.Took = resp.Query.Metrics.Time // without the wait for a place
			for i := range resp.Query.Rows {
				work.Bytes += len(resp.Query.Rows[i].Body)
			}
		}
		return work
	},
}

// query answers a page of a query. It reads a snapshot beside the commit loop, and
// waits for its turn where many are under way.
func (p *Partition) query(ctx context.Context, r *store.Query) *store.Response {
	if !p.admitQuery(ctx) {
		return &store.Response{Err: &store.Error{
			Status: store.StatusTooManyRequests, RetryAfter: indexRetry,
			Message: "too many queries wait for the partition",
		}}
	}
	defer func() { <-p.queries }()
	share := p.cfg.Queries.Share()
	defer share.Free()
	snap, s := p.snapshot()
	defer snap.Close()
	seen := p.seen(s) // here, because a page takes its time, and the log goes on
	result, err := queryrun.Page(ctx, &queryrun.Source{
		Snapshot: snap, Key: s.schema.key, Indexes: s.schema.settings.Indexes, Schema: &s.schema.engine, Now: p.now(),
	}, queryrun.Limits{PageTime: p.cfg.QueryPageTime, Time: p.cfg.QueryTime, Share: share}, r)
	if refusal, ok := errors.AsType[*store.Error](err); ok {
		return &store.Response{Err: refusal}
	}
	switch {
	case err != nil:
		return p.readFailed(err)
	case !p.lease.Valid():
		return &store.Response{Err: p.notOwner()}
	}
	result.LSN = seen
	return &store.Response{Query: result}
}

// admitQuery waits for a place among the queries under way. A client over NATS may have
// gone meanwhile, so it waits no longer than a query may take.
func (p *Partition) admitQuery(ctx context.Context) bool {
	select {
	case p.queries <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.QueryTime)
	defer cancel()
	select {
	case p.queries <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
