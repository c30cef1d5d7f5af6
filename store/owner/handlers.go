package owner

import (
	"context"
	"errors"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/heat"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/queryrun"
	"github.com/millrace/millrace/store/script"
)

// handler is how a partition answers one kind of request.
type handler struct {
	// read answers from a snapshot, beside the decider. nil sends every request to the
	// decider, and so does a nil answer.
	read func(ctx context.Context, p *Partition, r *store.Request) *store.Response
	// barrier says that a read is answered when the appends are resolved that were in flight
	// when it came; nil: none is.
	barrier func(r *store.Request) bool
	// heat tells what a read was; nil: it is of no weight in the heat of the partition.
	heat func(p *Partition, r *store.Request, resp *store.Response) heat.Work

	// decide decides, on the decider's goroutine, and says whether there is something to
	// commit. A page of a fan-out changes itemsMax items at most: one that does not fit
	// into a commit is decided again, with half of them. The other kinds ignore it.
	decide func(d *decider, t *txn, r *store.Request, itemsMax int) (resp *store.Response, write bool)
	// about says what a request asks for, in case that it holds the decider for long.
	about func(r *store.Request) string
	// paged says that requests stand in the queue of fan-outs, which gives way to clients.
	paged bool

	// evenClosed says that requests are answered by a partition that answers nothing else.
	evenClosed bool
}

// handlers has the handler of each kind of request.
var handlers = [...]*handler{
	store.KindTransact:    &transactHandler,
	store.KindRead:        &readHandler,
	store.KindScan:        &scanHandler,
	store.KindCount:       &countHandler,
	store.KindPatchMany:   &patchManyHandler,
	store.KindRepair:      &repairHandler,
	store.KindStatus:      &statusHandler,
	store.KindFold:        &foldHandler,
	store.KindGroups:      &groupsHandler,
	store.KindPutRows:     &putRowsHandler,
	store.KindVersions:    &versionsHandler,
	store.KindQuery:       &queryHandler,
	store.KindPendingRows: &pendingRowsHandler,
	store.KindSources:     &sourcesHandler,
	store.KindPatchUntil:  &patchManyHandler,
	store.KindPin:         &pinHandler,
	store.KindPinned:      &pinnedHandler,
	store.KindSnapshot:    &snapshotHandler,
	store.KindStates:      &statesHandler,
	store.KindSplit:       &splitHandler,
	store.KindGuarded:     &guardedHandler,

	store.KindFunctionQuery: &queryHandler,
}

// handlerOf returns the handler of a request; nil if it asks for nothing.
func handlerOf(r *store.Request) *handler { return handlers[r.Kind()] }

// always is handler.barrier of requests that all wait.
func always(*store.Request) bool { return true }

// single says that a request is one operation, as most are: these are measured by a sample.
func single(r *store.Request) bool { return r.Transact != nil && len(r.Transact.Ops) == 1 }

// guardedHandler sends all to the decider: what a guard asks is what was decided.
var guardedHandler = handler{
	read: func(_ context.Context, _ *Partition, r *store.Request) *store.Response {
		if refusal := checkTransact(r.Transact); refusal != nil {
			return &store.Response{Err: refusal}
		}
		return nil
	},
	decide: transactHandler.decide,
	about:  transactHandler.about,
}

// readsOne says that a request is the read of one item.
func readsOne(r *store.Request) bool {
	return single(r) && r.Transact.Ops[0].Kind == store.OpRead && !r.Transact.Guarded
}

// keysOf are the partition keys of items.
func keysOf(refs []store.ItemRef) heat.Keys {
	return heat.Keys{N: len(refs), At: func(i int) feed.PartitionKey { return refs[i].Key }}
}

// bytesOf is the size of items.
func bytesOf(items []store.Item) (n int) {
	for i := range items {
		n += len(items[i].Body)
	}
	return n
}

// measure counts what the decider has decided. t is nil where it changes nothing.
func (p *Partition) measure(span heat.Span, r *store.Request, t *txn) {
	work := heat.Work{Class: heat.Write}
	if t != nil {
		work.Bytes = t.bytes
	}
	switch {
	case r.Transact != nil:
		work.Keys = heat.Only(r.Transact.Key)
	case t != nil: // what a pipeline changed
		work.Keys = heat.Keys{N: len(t.changes), At: func(i int) feed.PartitionKey { return t.changes[i].Key }}
	}
	p.heat.End(span, work)
}

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
	var functions query.Functions
	if len(r.Functions) > 0 {
		loaded, err := p.loadFunctions(ctx, r)
		if err != nil {
			return &store.Response{Err: err}
		}
		defer loaded.Close()
		functions = loaded
	}
	share := p.cfg.Queries.Share()
	defer share.Free()
	snap, s := p.snapshot()
	defer snap.Close()
	seen := p.seen(s) // here, because a page takes its time, and the log goes on
	result, err := queryrun.Page(ctx, &queryrun.Source{
		Snapshot: snap, Key: s.schema.key, Indexes: s.schema.settings.Indexes, Schema: &s.schema.engine, Now: p.now(),
	}, queryrun.Limits{PageTime: p.cfg.QueryPageTime, Time: p.cfg.QueryTime, Share: share, Functions: functions}, r)
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

// loadFunctions gets the functions of a query ready to be called, within the time of the query.
func (p *Partition) loadFunctions(ctx context.Context, r *store.Query) (*script.Functions, *store.Error) {
	if p.cfg.Scripts == nil {
		return nil, store.Refuse(store.StatusBadRequest, "functions of containers are not run by the owner of the partition: gateway.scripts.enabled is false there")
	}
	bodies := make(map[string]string, len(r.Functions))
	for _, f := range r.Functions {
		bodies[f.Name] = f.Body
	}
	loaded, err := p.cfg.Scripts.Load(ctx, p.cfg.QueryTime, bodies)
	switch {
	case errors.Is(err, script.ErrBusy):
		return nil, &store.Error{Status: store.StatusTooManyRequests, RetryAfter: indexRetry, Message: err.Error() + " (gateway.scripts.processesMax)"}
	case err != nil:
		return nil, store.Refuse(store.StatusBadRequest, "%v", err)
	}
	return loaded, nil
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
