package engine

// Digest returns a hash of items, index entries, unique entries, expiries and
// records. Two partitions that applied the same log up to the same commit have the
// same digest (while no index is being built), wherever they did it and however
// often they were interrupted. The state, which can be compared as it is, and what
// only this node knows are left out.
func (p *Partition) Digest() (uint64, error) {
	s := p.Snapshot()
	defer s.Close()
	return s.Digest()
}

// Digest is Partition.Digest of the snapshot.
func (s *Snapshot) Digest() (uint64, error) {
	d := NewDigester()
	for e, err := range s.Dump() {
		if err != nil {
			return 0, err
		}
		d.Add(e)
	}
	return d.Sum(), nil
}
