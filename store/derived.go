package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// FoldMany adds what changes of an aggregate's members mean to the accumulators of
// one physical partition, and sets the fields of their targets, in one commit. The
// aggregate's rule is found by the producer's pipeline and generation; while it
// is not active the answer is 503.
type FoldMany struct {
	Producer feed.Producer
	Epoch    uint64
	// After and UpTo bound the interval (After, UpTo] of source positions that
	// Delta folds. It is applied only if After is the position that the partition
	// has recorded for the producer, and UpTo is recorded with it.
	After, UpTo feed.Position
	// Ask answers the recorded position and records Epoch; nothing is folded.
	Ask bool
	// Delta is an accumulator.Delta.
	Delta []byte
	// Mend applies Delta whatever positions are recorded, and records none, if
	// the contents of its groups, as ReadGroups tells them, have the digest
	// Content; else 412.
	Mend    bool
	Content uint64
}

// FoldResult is the outcome of FoldMany.
type FoldResult struct {
	LSN     feed.LSN // of the commit, or of the last commit if none was needed
	Applied bool
	// Position is the one recorded for the producer now.
	Position feed.Position
	// Refused are targets that could not take their fields; their accumulators
	// are right.
	Refused []Refusal
}

// ReadGroups reads accumulators of one aggregate in one physical partition, in one
// consistent view that waits for what is in flight.
type ReadGroups struct {
	Pipeline   string
	Generation uint32
	// Groups are those asked for; nil reads all, page by page.
	Groups []string
	After  string // the last group of the page before
	Max    int    // groups of a page, default 100, at most 1000
}

// GroupsResult is what ReadGroups read.
type GroupsResult struct {
	LSN feed.LSN
	// Content is an accumulator.Delta: what would make the groups from nothing.
	Content []byte
	// Digest is that of Content, for FoldMany.
	Digest uint64
	// Last is where the next page goes on; "" when nothing follows.
	Last string
	// Positions are those recorded for the aggregate's producers.
	Positions []ProducerPosition
}

// ProducerPosition is how far a producer has been folded.
type ProducerPosition struct {
	Source   string
	Position feed.Position
}

// PutRows makes rows of a projection be as they are told, in one commit. The
// interval has the meaning that it has in FoldMany.
type PutRows struct {
	Producer    feed.Producer
	Epoch       uint64
	After, UpTo feed.Position
	Ask         bool
	Rows        []Row
}

// Row is one row of a projection, kept as an item whose member _source names what
// it was made from. The item of another source stays: the newcomer then waits as
// a claim, which is refused with 409, and takes its place when the holder's row
// goes.
type Row struct {
	Ref    ItemRef
	Body   []byte // nil: the row, or the claim, of Source goes
	Source string
}

// RowSource is the member of a row that names its source.
const RowSource = "_source"

// PutRowsResult is the outcome of PutRows.
type PutRowsResult struct {
	LSN      feed.LSN
	Applied  bool
	Position feed.Position // recorded for the producer now
	Refused  []Refusal     // rows that wait as claims (409), or that the partition cannot take
}

// ReadClaims reads the rows of one projection that wait for a place in one physical
// partition, page by page, each in one view that waits for what is in flight.
type ReadClaims struct {
	Pipeline   string
	Generation uint32
	After      []byte // Last of the page before; nil at first
	Max        int    // claims of a page, default 100, at most 1000
}

// ClaimsResult is what ReadClaims read.
type ClaimsResult struct {
	LSN    feed.LSN
	Claims []Claim
	// Last is where the next page goes on; nil when nothing follows.
	Last []byte
}

// Claim is a row that waits: Body takes its place when the holder's row goes, unless
// another source that waits comes first.
type Claim struct {
	Source string
	Body   []byte
}

// Fold adds to accumulators of one physical partition.
func (c *Container) Fold(ctx context.Context, p feed.Partition, f *FoldMany) (*FoldResult, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, Fold: f})
	if err != nil {
		return nil, err
	}
	return resp.Fold, nil
}

// ReadGroups reads accumulators of one physical partition.
func (c *Container) ReadGroups(ctx context.Context, p feed.Partition, r *ReadGroups) (*GroupsResult, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, Groups: r})
	if err != nil {
		return nil, err
	}
	return resp.Groups, nil
}

// PutRows writes rows of a projection to one physical partition.
func (c *Container) PutRows(ctx context.Context, p feed.Partition, r *PutRows) (*PutRowsResult, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, PutRows: r})
	if err != nil {
		return nil, err
	}
	return resp.PutRows, nil
}

// ReadClaims reads the rows of a projection that wait in one physical partition.
func (c *Container) ReadClaims(ctx context.Context, p feed.Partition, r *ReadClaims) (*ClaimsResult, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, Claims: r})
	if err != nil {
		return nil, err
	}
	return resp.Claims, nil
}
