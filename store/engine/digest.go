package engine

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/dgraph-io/badger/v4"
)

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
	if s.err != nil {
		return 0, s.err
	}
	h := xxhash.New()
	var n [8]byte
	add := func(b []byte) error {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:]) // never fails
		_, _ = h.Write(b)
		return nil
	}
	it := s.txn.NewIterator(badger.IteratorOptions{Prefix: binary.BigEndian.AppendUint32(nil, s.prefix)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().Key()[prefixLen:]
		if key[0] == kindState || key[0] == kindSynced {
			continue
		}
		_ = add(key)
		if err := it.Item().Value(add); err != nil {
			return 0, wrapRead(err)
		}
	}
	return h.Sum64(), nil
}
