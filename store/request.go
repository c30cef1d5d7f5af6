package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// Handler answers requests for the physical partitions that it owns. The owner
// implements it; a Client reaches it directly inside one process and over NATS
// between processes. Handle never returns nil and is safe for concurrent use.
type Handler interface {
	Handle(ctx context.Context, r *Request) *Response
}

// Request asks something of the owner of one physical partition. Exactly one of
// the pointers is set.
type Request struct {
	Partition   feed.Partition
	TraceParent string // W3C trace context of the asker; may be empty
	TraceState  string

	Transact    *Transact
	Read        *ReadItems
	Sources     *ReadSources
	Versions    *ReadVersions
	Query       *Query
	Scan        *Scan
	Count       *Scope
	PatchMany   *PatchMany
	Repair      *Repair
	Fold        *FoldMany
	Groups      *ReadGroups
	States      *ReadStates
	PutRows     *PutRows
	PendingRows *ReadPendingRows
	Status      *StatusRequest
	Pin         *PinSnapshot
	Pinned      *ReadPinned
	Snapshot    *ReadSnapshot
	Split       *SplitPartition
}

// Response answers a Request. Err is set if the request as a whole was refused
// and then nothing else is.
type Response struct {
	Err         *Error
	Transact    *TransactResult
	Read        []Item // in the order asked; a missing item has a zero ETag
	ReadLSN     feed.LSN
	Sources     *SourcesResult
	Versions    []ETag // in the order asked; a missing item has a zero ETag
	Query       *QueryResult
	Scan        *ScanResult
	Count       int
	PatchMany   *PatchManyResult
	Repair      *RepairResult
	Fold        *FoldResult
	Groups      *GroupsResult
	States      *StatesResult
	PutRows     *PutRowsResult
	PendingRows *PendingRowsResult
	Status      *PartitionStatus
	Pin         *PinResult
	Pinned      *PinnedPage
	Snapshot    *SnapshotObject
	Split       *SplitResult
}
