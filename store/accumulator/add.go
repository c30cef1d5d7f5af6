package accumulator

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Add adds a share to the accumulator of its group, and returns the group's new state. It puts
// changed records into rec, under keys that begin with the group. The error is that of rec, or
// ErrFormat; rec may have some of the records then, and the caller must drop it.
//
// Add reads the accumulator, and for min, max and latest one record for each entry of the
// share. It ranges only if a member is removed that the value shows.
func (r *Rule) Add(rec Records, g Group, s *Share) (*State, error) {
	a := adder{Rule: r, rec: rec, g: g}
	a.buf = make([]byte, 0, a.sizeOf(s))
	key := a.appended(r.AppendKey(a.buf, g))
	value, err := rec.Get(key)
	if err != nil {
		return nil, err
	}
	state, err := r.DecodeState(g, value)
	if err != nil {
		return nil, err
	}
	state.members += s.members
	for i := range s.parts {
		p, to := &s.parts[i], &state.fields[i]
		to.count += p.count
		to.sum = to.sum.add(p.sum)
		if entries := p.netEntries(); len(entries) > 0 {
			if err := a.rank(i, to, entries); err != nil {
				return nil, err
			}
		}
	}
	// A group that comes back to nothing leaves no record, so the sum of what was added alone
	// decides the bytes that are kept.
	if state.Empty() {
		if value != nil {
			rec.Put(key, nil)
		}
		return state, nil
	}
	a.reserve(state.stateSize())
	rec.Put(key, a.appended(state.appendState(a.buf)))
	return state, nil
}

// Apply adds all shares of d.
func (r *Rule) Apply(rec Records, d *Delta) error {
	r.mustOwn(d)
	for _, g := range d.Groups() {
		if _, err := r.Add(rec, g, d.shares[g]); err != nil {
			return err
		}
	}
	return nil
}

// adder adds one share. Keys and values of records are slices of buf, so that adding a share
// allocates about once.
type adder struct {
	*Rule
	rec Records
	g   Group
	buf []byte
}

// sizeOf returns about how many bytes of buf a share needs.
func (a *adder) sizeOf(s *Share) int {
	n := 2*len(a.g) + 64
	for i := range s.parts {
		n += 32
		for _, e := range s.parts[i].netEntries() {
			n += len(a.g) + 2*len(e.key) + 2*len(e.copied) + 16
		}
	}
	return n
}

// reserve makes buf have room for n bytes.
func (a *adder) reserve(n int) {
	if cap(a.buf)-len(a.buf) < n {
		a.buf = make([]byte, 0, n)
	}
}

// appended returns what was appended to buf.
func (a *adder) appended(grown []byte) []byte {
	from := len(a.buf)
	a.buf = grown
	return grown[from:len(grown):len(grown)]
}

// rank adds the entries of a field to the records of its members, and updates the first members
// in to.
//
// to holds all members up to a key: its last one, or the end if it has all. Up to that key
// it stays exact; members behind it are only counted. So it can become too short, and is
// then read again from the records:
//
//	latest 2 of  9 8 7 6     to holds 9 8, four in all
//	9 removed                to holds 8, and what follows is not known: refill reads 8 7
//	5 added                  behind 8: counted, to stays as it is
func (a *adder) rank(i int, to *fieldState, entries []entry) error {
	f := &a.fields[i]
	old := to.top
	var bound []byte // nil: there is none
	if to.positives > int64(len(old)) && len(old) > 0 {
		bound = old[len(old)-1].key
	}
	top := topOf(f, len(old)+len(entries))
	for j := range entries {
		e := &entries[j]
		m, err := a.addMember(i, f, e, &to.positives)
		if err != nil {
			return err
		}
		if bound != nil && bytes.Compare(e.key, bound) > 0 {
			continue
		}
		// Both lists are in order: merge them. An entry replaces the member of its key.
		for len(old) > 0 && bytes.Compare(old[0].key, e.key) < 0 {
			top.push(old[0])
			old = old[1:]
		}
		if len(old) > 0 && bytes.Equal(old[0].key, e.key) {
			old = old[1:]
		}
		if m.n > 0 {
			top.push(m)
		}
	}
	for _, m := range old {
		top.push(m)
	}
	if !top.full() && to.positives > int64(len(top.list)) {
		var err error
		to.top, err = a.refill(a.rec, a.g, i)
		return err
	}
	to.top = top.list
	return nil
}

// addMember adds an entry to the record of its key, and returns the new record. positives counts
// the keys with members.
func (a *adder) addMember(i int, f *field, e *entry, positives *int64) (ranked, error) {
	a.reserve(len(a.g) + 1 + len(e.key) + len(e.copied) + 16)
	key := a.appended(append(memberPrefix(a.buf, a.g, i), e.key...))
	value, err := a.rec.Get(key)
	if err != nil {
		return ranked{}, err
	}
	m, err := f.decodeMember(e.key, value)
	if err != nil {
		return ranked{}, fmt.Errorf("member of %s: %w", a.g, err)
	}
	// The number may be negative for a moment, when a removal comes before its addition. The
	// record is kept, so that the two cancel out whatever comes between.
	before := m.n
	if m.n += e.n; m.copied == nil {
		m.copied = e.copied
	}
	switch {
	case before <= 0 && m.n > 0:
		*positives++
	case before > 0 && m.n <= 0:
		*positives--
	}
	if m.n > 0 && f.Func == Latest && m.copied == nil {
		return ranked{}, fmt.Errorf("member of %s: %w: its copy is missing", a.g, ErrFormat)
	}
	if m.n == 0 {
		a.rec.Put(key, nil)
		return m, nil
	}
	a.reserve(len(m.copied) + 16)
	a.rec.Put(key, a.appended(f.appendMember(a.buf, &m)))
	return m, nil
}

// refill reads the first members of a field from their records.
func (r *Rule) refill(rec Records, g Group, i int) ([]ranked, error) {
	f := &r.fields[i]
	prefix := memberPrefix(nil, g, i)
	top := topOf(f, int(f.shown))
	for record, err := range rec.Range(prefix) {
		if err != nil {
			return nil, err
		}
		m, err := f.decodeMember(record.Key[len(prefix):], record.Value)
		if err != nil {
			return nil, fmt.Errorf("member of %s: %w", g, err)
		}
		if m.n > 0 {
			top.push(m)
		}
		if top.full() {
			break
		}
	}
	return top.list, nil
}

// memberPrefix appends the prefix of the keys of a field's members.
func memberPrefix(dst []byte, g Group, i int) []byte {
	return append(append(dst, g...), byte(i+1))
}

// appendMember appends the record of a member.
func (f *field) appendMember(dst []byte, m *ranked) []byte {
	dst = binary.AppendVarint(append(dst, formatVersion), m.n)
	if f.Func == Latest && m.n > 0 {
		dst = append(dst, m.copied...)
	}
	return dst
}

// decodeMember reads the record of a member, with which it shares memory.
func (f *field) decodeMember(key, value []byte) (m ranked, err error) {
	m.key = key
	if value == nil {
		return m, nil
	}
	in := read(value, "member")
	m.n = in.varint("members of a key")
	if f.Func == Latest && m.n > 0 && in.err == nil {
		m.copied, in.b = in.b, nil
	}
	return m, in.end()
}
