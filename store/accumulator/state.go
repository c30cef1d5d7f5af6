package accumulator

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/feed/document"
)

// State is the state of one group at one moment. Later changes of the group do not change it.
type State struct {
	rule    *Rule
	members int64
	fields  []fieldState
}

// fieldState is the state of one field.
type fieldState struct {
	count int64
	sum   decimal
	// top are the first members of min, max and latest, as many as the value shows;
	// positives is how many keys have members in all.
	top       []ranked
	positives int64
}

// ranked is a key and the number n of its members.
type ranked struct {
	key, copied []byte
	n           int64
}

// Members is the number of members of the group, whatever the fields' where say. It
// can be negative for a moment where removals were added before their additions.
func (s *State) Members() int64 { return s.members }

// Empty reports whether the group has no members. A target is made for a group that
// is not empty.
func (s *State) Empty() bool {
	if s.members != 0 {
		return false
	}
	for i := range s.fields {
		f := &s.fields[i]
		if f.count != 0 || f.sum.sign() != 0 || f.positives != 0 {
			return false
		}
	}
	return true
}

// Values returns the fields of the target item in the order of Spec.Set, raw JSON; a
// nil Value means that the field is absent. A count below zero, which is one for a
// moment only, is shown as 0.
func (s *State) Values() []document.FieldValue {
	values := make([]document.FieldValue, len(s.fields))
	buf := make([]byte, 0, s.textSize())
	for i := range s.fields {
		f := &s.rule.fields[i]
		values[i].Path = f.path
		at := len(buf)
		if buf = s.fields[i].appendValue(buf, f); len(buf) > at {
			values[i].Value = buf[at:len(buf):len(buf)]
		}
	}
	return values
}

// textSize returns about how many bytes all values together have.
func (s *State) textSize() int {
	n := 0
	for i := range s.fields {
		n += 24
		for _, m := range s.fields[i].top {
			if m.copied == nil {
				n += len(m.key)
			}
			n += len(m.copied) + 2
		}
	}
	return n
}

// appendValue appends the value of a field; nothing if it is absent.
func (s *fieldState) appendValue(dst []byte, f *field) []byte {
	switch f.Func {
	case Count:
		return strconv.AppendInt(dst, max(s.count, 0), 10)
	case Sum:
		return s.sum.appendText(dst)
	case Avg:
		if s.count <= 0 {
			return dst
		}
		return s.sum.quotient(s.count).appendText(dst)
	case Min, Max:
		if len(s.top) == 0 {
			return dst
		}
		return appendRanked(dst, s.top[0].key, f.mask)
	case Latest:
		wanted := f.shown
		dst = append(dst, '[')
		// Equal members share a key, and each is shown.
		for _, m := range s.top {
			for range min(m.n, wanted) {
				if wanted < f.shown {
					dst = append(dst, ',')
				}
				dst = append(dst, m.copied...)
				wanted--
			}
		}
		return append(dst, ']')
	}
	return dst
}

// zero returns the state of a group without records.
func (r *Rule) zero() *State {
	return &State{rule: r, fields: make([]fieldState, len(r.fields))}
}

// State returns the state of a group, which is Empty if it has no records. The error is that of
// rec, or ErrFormat.
func (r *Rule) State(rec Records, g Group) (*State, error) {
	value, err := r.StateRecord(rec, g)
	if err != nil {
		return nil, err
	}
	return r.DecodeState(g, value)
}

// StateRecord returns the record of the accumulator of a group, for DecodeState; nil if it has
// none. It belongs to rec, as what Get returns. The error is that of rec.
func (r *Rule) StateRecord(rec Records, g Group) ([]byte, error) {
	return rec.Get(r.AppendKey(nil, g))
}

// AppendKey appends the key of the accumulator of a group: that of the one record which each group with members has.
func (r *Rule) AppendKey(dst []byte, g Group) []byte {
	return append(append(dst, g...), tagState)
}

// The byte behind the group in a key: the accumulator, or the number of a field, 1
// for the first one, whose members follow.
const tagState = 0

// appendState appends the accumulator. Afterwards keys and copies of s alias the appended bytes,
// and no longer a Delta, whose memory is soon used again.
func (s *State) appendState(dst []byte) []byte {
	dst = append(dst, formatVersion)
	dst = binary.AppendVarint(dst, s.members)
	for i := range s.fields {
		f := &s.fields[i]
		switch s.rule.fields[i].Func {
		case Count:
			dst = binary.AppendVarint(dst, f.count)
		case Sum:
			dst = appendDecimal(dst, f.sum)
		case Avg:
			dst = binary.AppendVarint(dst, f.count)
			dst = appendDecimal(dst, f.sum)
		case Min, Max, Latest:
			dst = binary.AppendUvarint(dst, uint64(f.positives))
			dst = binary.AppendUvarint(dst, uint64(len(f.top)))
			for j := range f.top {
				m := &f.top[j]
				dst = appendBytes(dst, m.key)
				m.key = dst[len(dst)-len(m.key) : len(dst) : len(dst)]
				dst = binary.AppendUvarint(dst, uint64(m.n))
				if s.rule.fields[i].Func == Latest {
					dst = appendBytes(dst, m.copied)
					m.copied = dst[len(dst)-len(m.copied) : len(dst) : len(dst)]
				}
			}
		}
	}
	return dst
}

// stateSize is about how long an accumulator is.
func (s *State) stateSize() int {
	n := 8
	for i := range s.fields {
		n += 24
		for _, m := range s.fields[i].top {
			n += len(m.key) + len(m.copied) + 8
		}
	}
	return n
}

// DecodeState reads the record of an accumulator. The state shares memory with value; nil gives the
// state that is Empty. The error is ErrFormat.
func (r *Rule) DecodeState(g Group, value []byte) (*State, error) {
	s := r.zero()
	if value == nil {
		return s, nil
	}
	in := read(value, "accumulator")
	s.members = in.varint("members")
	for i := range s.fields {
		s.fields[i].decode(&in, &r.fields[i])
	}
	if err := in.end(); err != nil {
		return nil, fmt.Errorf("accumulator of %s: %w", g, err)
	}
	return s, nil
}

func (s *fieldState) decode(in *reader, f *field) {
	switch f.Func {
	case Count:
		s.count = in.varint("count")
	case Sum:
		s.sum = in.decimal("sum")
	case Avg:
		s.count = in.varint("count")
		s.sum = in.decimal("sum")
	case Min, Max, Latest:
		s.positives = int64(in.uvarint("positives") & (1<<63 - 1))
		n := in.count("count of members", 2)
		if n == 0 {
			return
		}
		s.top = make([]ranked, n)
		for i := range s.top {
			m := &s.top[i]
			m.key = in.bytes("key of a member")
			m.n = int64(in.uvarint("members of a key") & (1<<63 - 1))
			if f.Func == Latest {
				m.copied = in.bytes("copy of a member")
			}
		}
	}
}
