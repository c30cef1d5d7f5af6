package engine

import "github.com/millrace/millrace/feed"

// Share says which entries of a partition belong to one of the partitions into which it is split. It is a function of
// the entry's key alone: what the applier writes to a partition that has a share, and what a dump of the partition
// that is split has in that share, are the same.
type Share struct {
	// Range is what item keys, and all entries of items, go by.
	Range feed.Range
	// Levels is how many the partition keys of the container have.
	Levels int
	// Record says whether a record of the owner belongs to it.
	Record func(kind byte, key []byte) bool
}

// Holds says whether an entry of a dump belongs to the share, by its key.
func (s *Share) Holds(key []byte) bool {
	if len(key) == 0 {
		return false
	}
	rest := key[1:]
	switch key[0] {
	case kindItem:
		return s.holdsItem(rest)
	case kindExpiry:
		return len(rest) > 8 && s.holdsItem(rest[8:])
	case kindIndex:
		if len(rest) < 4 {
			return false
		}
		n := indexValueLen(rest[4:])
		return n >= 0 && s.holdsItem(rest[4+n:])
	case kindUnique:
		return len(rest) > 4 && s.holdsUnique(rest[4:])
	case kindRecord:
		return len(rest) > 0 && s.Record(rest[0], rest[1:])
	case kindChunk: // of a value whose key stands before the number of the chunk
		return len(rest) > 4 && s.Holds(rest[:len(rest)-4])
	}
	return false
}

// holdsItem says whether the item of an item key belongs to the share.
func (s *Share) holdsItem(key []byte) bool {
	if logicalPrefixLen(key) < 0 {
		return false
	}
	return s.Range.Contains(feed.EPK(key[1 : 1+epkLen*int(key[0])]))
}

// holdsUnique says whether a unique entry does, whose partition key and values are given.
func (s *Share) holdsUnique(key []byte) bool {
	n := encodedKeyLen(key, s.Levels)
	if n < 0 {
		return false
	}
	k, err := feed.PartitionKeyFromEncoded(string(key[:n]))
	return err == nil && s.holdsKey(k)
}

// holdsKey says whether the items of a logical partition belong to the share.
func (s *Share) holdsKey(k feed.PartitionKey) bool { return s.Range.Contains(k.Hash()) }

// SetShare has the partition hold no more than a share of what is written to it from now on: what batches put or delete
// beside it is passed over. nil, as at first, is all. Nobody may write to the partition meanwhile. What it holds already
// stays, and whether it has a share is not stored.
func (p *Partition) SetShare(s *Share) { p.share = s }

// Only makes Dump and what is made of it show no more than a share.
func (s *Snapshot) Only(share *Share) { s.share = share }
