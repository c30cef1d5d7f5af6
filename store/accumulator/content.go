package accumulator

import "fmt"

// Content adds to d what would make the group, as it is in rec, from nothing. It
// reads all records of the group. With the Negate of one, two groups are compared.
func (r *Rule) Content(d *Delta, rec Records, g Group) error {
	r.own(d)
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

// GroupOfKey returns the group whose record has a key, and whether it is the
// accumulator and not one of its members; ok is false if it is no key of a record.
func (r *Rule) GroupOfKey(key []byte) (g Group, whole, ok bool) {
	n, ok := groupLen(key, len(r.match))
	if !ok || n >= len(key) || int(key[n]) > len(r.fields) {
		return "", false, false
	}
	whole = key[n] == tagState
	return Group(key[:n]), whole, whole == (len(key) == n+1)
}

// AppendEnd appends the least key that is above the keys of all records of g. It is
// where a scan goes on that passes over the members of a group.
func (g Group) AppendEnd(dst []byte) []byte {
	return append(append(dst, g...), 0xFF)
}
