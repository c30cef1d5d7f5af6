package owner

import (
	"context"

	"github.com/millrace/millrace/store"
)

// handler is how a partition answers one kind of request.
type handler struct {
	// read answers from a snapshot, beside the decider. nil sends every request to the
	// decider, and so does a nil answer.
	read func(ctx context.Context, p *Partition, r *store.Request) *store.Response

	// decide decides, on the decider's goroutine, and says whether there is something to
	// commit. A page of a fan-out changes itemsMax items at most: one that does not fit
	// into a commit is decided again, with half of them. The others pay no heed to it.
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
}

// handlerOf returns the handler of a request; nil if it asks for nothing.
func handlerOf(r *store.Request) *handler { return handlers[r.Kind()] }
