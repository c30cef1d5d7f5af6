package store

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// Limits of items and requests, those of Azure Cosmos DB where it has one.
const (
	ItemBytesMax      = document.SizeMax // of one item's JSON
	IDBytesMax        = document.IDMax
	BatchOpsMax       = 100     // operations of one transactional batch
	GuardedOpsMax     = 1000    // operations of one guarded transaction
	BatchBytesMax     = 2 << 20 // of all bodies of one transactional batch
	PatchOpsMax       = 10      // operations of one client's patch
	UniqueKeysMax     = 10      // constraints of one container
	UniqueKeyPathsMax = 16
	ReadManyMax       = 1000 // items of one read request
	// CommitBytesMax bounds one commit, what was replaced included. A request
	// that would exceed it alone is refused with 413.
	CommitBytesMax = 6 << 20
)

// ETag is the version of an item: the position of its last change. It grows
// with every change of the item. The zero value means none.
type ETag feed.Position

// String returns the ETag as 16 hex digits of the LSN, a dash and the index in
// hex; "" for the zero value.
func (e ETag) String() string {
	if e == (ETag{}) {
		return ""
	}
	return fmt.Sprintf("%016x-%x", uint64(e.LSN), e.Index)
}

// ParseETag reads what String printed, with or without double quotes.
func ParseETag(s string) (ETag, error) {
	t := strings.Trim(s, `"`)
	if t == "" {
		return ETag{}, nil
	}
	var e ETag
	if n, err := fmt.Sscanf(t, "%16x-%x", &e.LSN, &e.Index); n != 2 || err != nil || e.String() != t {
		return ETag{}, Refuse(StatusBadRequest, "%q is not an etag; send one as it was received", s)
	}
	return e, nil
}

// MarshalText prints the ETag as String does.
func (e ETag) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads an ETag as ParseETag does.
func (e *ETag) UnmarshalText(text []byte) (err error) {
	*e, err = ParseETag(string(text))
	return err
}

// Item is one stored item. Body is its JSON as it was written, byte for byte.
type Item struct {
	Key  feed.PartitionKey
	ID   string
	Body []byte
	ETag ETag
	// Modified is the time of the last client's write in unix milliseconds, from
	// which its time to live runs. A pipeline's write leaves it.
	Modified int64
	// Written is the LSN of the last write that was not a pipeline's.
	Written feed.LSN
}

// ItemRef names one item of a container.
type ItemRef struct {
	Key feed.PartitionKey
	ID  string
}

func (r ItemRef) String() string { return r.Key.String() + "/" + r.ID }

// ParseItemRef reads what ItemRef.String printed.
func ParseItemRef(s string) (ItemRef, error) {
	i := feed.PartitionKeyEnd(s) // an id may hold a slash, and a key too
	if i < 0 || i == len(s) || s[i] != '/' {
		return ItemRef{}, fmt.Errorf("item %q: want its partition key as a JSON array, /, its id", s)
	}
	key, err := feed.ParsePartitionKey(s[:i])
	if err != nil {
		return ItemRef{}, fmt.Errorf("item %q: %w", s, err)
	}
	return ItemRef{Key: key, ID: s[i+1:]}, nil
}
