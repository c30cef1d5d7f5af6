package accumulator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Append appends the encoding of d to dst. Equal deltas have equal encodings, because groups and
// entries are in order and each key occurs once. STATE.md describes it.
func (d *Delta) Append(dst []byte) []byte {
	dst = slices.Grow(dst, d.size+16)
	dst = binary.BigEndian.AppendUint32(append(dst, formatVersion), d.rule.digest)
	groups := d.Groups()
	dst = binary.AppendUvarint(dst, uint64(len(groups)))
	for _, g := range groups {
		s := d.shares[g]
		dst = binary.AppendUvarint(dst, uint64(len(g)))
		dst = append(dst, g...)
		dst = binary.AppendVarint(dst, s.members)
		for i := range s.parts {
			dst = s.parts[i].append(dst, &d.rule.fields[i])
		}
	}
	return dst
}

func (p *part) append(dst []byte, f *field) []byte {
	switch f.Func {
	case Count:
		return binary.AppendVarint(dst, p.count)
	case Sum:
		return appendDecimal(dst, p.sum)
	case Avg:
		return appendDecimal(binary.AppendVarint(dst, p.count), p.sum)
	case Min, Max, Latest:
	}
	entries := p.netEntries()
	dst = binary.AppendUvarint(dst, uint64(len(entries)))
	for i := range entries {
		e := &entries[i]
		dst = appendBytes(dst, e.key)
		dst = binary.AppendVarint(dst, e.n)
		// A removal needs no copy: the record of its member has one, or an addition brings it.
		if f.Func == Latest && e.n > 0 {
			dst = appendBytes(dst, e.copied)
		}
	}
	return dst
}

// DecodeDelta reads the encoding of Append. The Delta aliases data, which must not be changed any
// more. The error is ErrFormat: for damaged bytes, for a later version, and for a Delta of
// another rule.
func (r *Rule) DecodeDelta(data []byte) (*Delta, error) {
	in := read(data, "delta")
	if in.err == nil && len(in.b) < 4 {
		in.fail("the rule of the delta is cut short")
	}
	if in.err != nil {
		return nil, in.err
	}
	if digest := binary.BigEndian.Uint32(in.b); digest != r.digest {
		return nil, fmt.Errorf("%w delta: it is of another rule: %08x, want %08x", ErrFormat, digest, r.digest)
	}
	in.b = in.b[4:]
	d := r.NewDelta()
	var last Group
	for i := range in.count("count of groups", 1) {
		g := in.bytes("group")
		if n, ok := groupLen(g, len(r.match)); in.err == nil && (!ok || n != len(g)) {
			in.fail("group does not have the values of match")
		}
		// Append writes groups in order, each once. Anything else was not written by it.
		if i > 0 && string(g) <= string(last) {
			in.fail("groups are not in order")
		}
		if in.err != nil {
			return nil, in.err
		}
		last = Group(g)
		s := &Share{members: in.varint("members"), parts: make([]part, len(r.fields))}
		for j := range s.parts {
			s.parts[j].decode(&in, &r.fields[j])
		}
		d.shares[last] = s
		d.count(last, s, 1)
		if in.err == nil && s.Zero() {
			in.fail("group has no share")
		}
	}
	return d, in.end()
}

// decode reads the part of a field.
func (p *part) decode(in *reader, f *field) {
	switch f.Func {
	case Count:
		p.count = in.varint("count")
		return
	case Sum:
		p.sum = in.decimal("sum")
		return
	case Avg:
		p.count = in.varint("count")
		p.sum = in.decimal("sum")
		return
	case Min, Max, Latest:
	}
	n := in.count("count of entries", 2)
	if n == 0 {
		return
	}
	p.entries = make([]entry, n)
	for i := range p.entries {
		e := &p.entries[i]
		e.key = in.bytes("key of an entry")
		e.n = in.varint("members of an entry")
		if f.Func == Latest && e.n > 0 {
			e.copied = in.bytes("copy of an entry")
		}
		switch {
		case in.err != nil:
			return
		case !f.checkRank(e.key):
			in.fail("key of an entry")
		case e.n == 0, i > 0 && bytes.Compare(e.key, p.entries[i-1].key) <= 0:
			in.fail("entries are not in order")
		}
	}
}
