package query

import (
	"errors"
	"sync/atomic"
)

// ErrNoRoom says that the queries under way hold as many bytes as they may together, and this one
// needs more: it may be asked again when others have ended.
var ErrNoRoom = errors.New("query: the queries under way hold as much memory as they may together")

// ErrTooLarge says that one query needs more bytes than all may hold together.
var ErrTooLarge = errors.New("query: the query needs more memory than all queries may hold together")

const (
	// roomFree is what each query holds without being counted, so that those which hold little, as
	// most do, run on beside others that hold all there is.
	roomFree = 64 << 10
	// roomStep is how many bytes a query takes at a time.
	roomStep = 256 << 10
)

// Room bounds the bytes that queries hold together: rows, groups, and the values that are made for one
// item. The first 64 KiB of each query are not counted. It is safe for concurrent use.
type Room struct {
	most  int64
	taken atomic.Int64
}

// NewRoom returns a room of that many bytes.
func NewRoom(bytes int64) *Room { return &Room{most: bytes} }

// Size returns how many bytes all queries may hold together; 0 of a nil room, which has no bound.
func (r *Room) Size() int64 {
	if r == nil {
		return 0
	}
	return r.most
}

// Taken returns how many bytes queries hold now.
func (r *Room) Taken() int64 { return r.taken.Load() }

// Share is what one query holds of a Room. It grows with the query and is given back as a whole. It is
// not safe for concurrent use. Nil is a share without a bound.
type Share struct {
	room *Room
	has  int64
	err  error // why it could not grow
}

// Share returns a share that holds nothing; nil of a nil room. Call Free when the query has ended,
// however it did.
func (r *Room) Share() *Share {
	if r == nil {
		return nil
	}
	return &Share{room: r}
}

// Free gives back what the share holds. It may be called twice.
func (s *Share) Free() {
	if s != nil {
		s.room.taken.Add(-s.has)
		s.has = 0
	}
}

// Hold makes the share hold that many bytes at least, for rows that are held beside what Merge
// counts. The error is ErrNoRoom or ErrTooLarge.
func (s *Share) Hold(bytes int) error {
	if s.hold(bytes) {
		return nil
	}
	return s.err
}

// hold makes the share hold that many bytes at least. It returns false if it cannot: err says why.
func (s *Share) hold(bytes int) bool {
	need := int64(bytes)
	if s == nil || need <= max(s.has, roomFree) {
		return true
	}
	if need > s.room.most {
		s.err = ErrTooLarge
		return false
	}
	more := min((need+roomStep-1)/roomStep*roomStep, s.room.most) - s.has
	if s.room.taken.Add(more) > s.room.most {
		s.room.taken.Add(-more)
		s.err = ErrNoRoom
		return false
	}
	s.has += more
	return true
}
