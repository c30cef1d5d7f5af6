package accumulator

import "fmt"

// Content adds to d the share that would make the group, as it is in rec, from nothing. It reads
// all records of the group. Adding the Negate of another content compares two groups: equal
// ones leave nothing.
func (r *Rule) Content(d *Delta, rec Records, g Group) error {
	r.mustOwn(d)
	state, err := r.State(rec, g)
	if err != nil {
		return err
	}
	share := d.shares[g]
	if share == nil {
		share = d.newShare(g)
	}
	share.members += state.members
	for i := range r.fields {
		f, p := &r.fields[i], &share.parts[i]
		p.count += state.fields[i].count
		p.sum = p.sum.add(state.fields[i].sum)
		if f.Func != Min && f.Func != Max && f.Func != Latest {
			continue
		}
		prefix := memberPrefix(nil, g, i)
		for record, err := range rec.Range(prefix) {
			if err != nil {
				return err
			}
			m, err := f.decodeMember(record.Key[len(prefix):], record.Value)
			if err != nil {
				return fmt.Errorf("member of %s: %w", g, err)
			}
			d.addEntry(p, m.key, m.copied, m.n)
		}
	}
	return nil
}

// GroupOfKey returns the group to whose records a key belongs. whole says that it is the key of
// the accumulator, not of a member. ok is false if it is not the key of a record.
func (r *Rule) GroupOfKey(key []byte) (g Group, whole, ok bool) {
	n, ok := groupLen(key, len(r.match))
	if !ok || n >= len(key) || int(key[n]) > len(r.fields) {
		return "", false, false
	}
	whole = key[n] == tagState
	return Group(key[:n]), whole, whole == (len(key) == n+1)
}

// AppendEnd appends the least key above the keys of all records of g. A scan that skips the
// members of a group continues there.
func (g Group) AppendEnd(dst []byte) []byte {
	return append(append(dst, g...), 0xFF)
}
