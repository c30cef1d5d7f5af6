package engine

import (
	"encoding/binary"

	"github.com/millrace/millrace/feed"
)

// The first byte of every value.
const (
	valueVersion = 1
	valueChunked = 2 // of a value that stands in chunks
)

// Item is one stored item.
type Item struct {
	Key      feed.PartitionKey
	ID       string
	Body     []byte
	Position feed.Position // of its last change
	Modified int64         // TTL clock, unix ms
	Written  feed.LSN      // of the last write that was not a pipeline's
	// Expires is when the item ends, in unix ms; 0 is never. It follows from Body
	// and Modified (Schema.Expires), and Put fills it in.
	Expires int64
}

// State is what a partition was made from.
type State struct {
	Log      feed.LogID
	Applied  feed.LSN      // the last commit applied
	Sum      feed.Checksum // of that commit
	Time     int64         // of that commit, unix ms
	Epoch    uint64
	Owner    string
	Settings []byte // as the owner wrote them; kept with the state
}

// appendItem appends the stored form of an item, without its key.
func appendItem(dst []byte, it *Item) []byte {
	dst = append(dst, valueVersion)
	dst = binary.AppendUvarint(dst, uint64(it.Position.LSN))
	dst = binary.AppendUvarint(dst, uint64(it.Position.Index))
	dst = binary.AppendVarint(dst, it.Modified)
	dst = binary.AppendUvarint(dst, uint64(it.Written))
	dst = binary.AppendVarint(dst, it.Expires)
	return append(dst, it.Body...)
}

// fields are those of an Item without its key, read from its stored form.
type fields struct {
	body     []byte // part of the stored form
	position feed.Position
	modified int64
	written  feed.LSN
	expires  int64
}

// item returns the item that has the fields.
func (f *fields) item(k feed.PartitionKey, id string) Item {
	return Item{
		Key: k, ID: id, Body: f.body,
		Position: f.position, Modified: f.modified, Written: f.written, Expires: f.expires,
	}
}

// decode reads a stored item; false if the bytes are none.
func (f *fields) decode(value []byte) bool {
	if len(value) == 0 || value[0] != valueVersion {
		return false
	}
	r := reader{b: value[1:]}
	f.position.LSN = feed.LSN(r.uvarint())
	f.position.Index = uint32(r.uvarint())
	f.modified = r.varint()
	f.written = feed.LSN(r.uvarint())
	f.expires = r.varint()
	f.body = r.b
	return !r.bad
}

// appendState appends the stored form of a state.
func appendState(dst []byte, s *State) []byte {
	dst = append(dst, valueVersion)
	dst = append(dst, s.Log[:]...)
	dst = binary.AppendUvarint(dst, uint64(s.Applied))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Sum))
	dst = binary.AppendVarint(dst, s.Time)
	dst = binary.AppendUvarint(dst, s.Epoch)
	dst = binary.AppendUvarint(dst, uint64(len(s.Owner)))
	dst = append(dst, s.Owner...)
	return append(dst, s.Settings...)
}

// decodeState reads a stored state.
func decodeState(value []byte) (State, error) {
	var s State
	if len(value) == 0 || value[0] != valueVersion {
		return s, corrupt("state %x", value)
	}
	r := reader{b: value[1:]}
	copy(s.Log[:], r.bytes(len(s.Log)))
	s.Applied = feed.LSN(r.uvarint())
	if sum := r.bytes(8); sum != nil {
		s.Sum = feed.Checksum(binary.BigEndian.Uint64(sum))
	}
	s.Time = r.varint()
	s.Epoch = r.uvarint()
	s.Owner = string(r.bytes(int(min(r.uvarint(), uint64(len(r.b)+1)))))
	if len(r.b) > 0 {
		s.Settings = append([]byte(nil), r.b...)
	}
	if r.bad {
		return State{}, corrupt("state %x", value)
	}
	return s, nil
}

// reader reads the parts of a stored value.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	// Most are small.
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := uint64(r.b[0])
		r.b = r.b[1:]
		return v
	}
	v, n := binary.Uvarint(r.b)
	return v + r.skip(n)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	return v + int64(r.skip(n))
}

func (r *reader) skip(n int) uint64 {
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return 0
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}
