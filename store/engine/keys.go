package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/feed"
)

// Kinds of keys: the byte behind the prefix of a partition. KEYS.md says what
// follows each and what their values are.
const (
	kindChunk   = 'b'
	kindExpiry  = 'e'
	kindItem    = 'i'
	kindRecord  = 'r'
	kindState   = 's'
	kindUnique  = 'u'
	kindIndex   = 'x'
	kindSynced  = 'y'
	kindWitness = 'z'
)

// Kinds of the engine's own keys, under the prefix zero.
const (
	metaCatalog   = 'c'
	metaGarbage   = 'g'
	metaNext      = 'n'
	metaPartition = 'p'
	metaReached   = 'f'
	metaVersion   = 'v'
)

const (
	prefixLen = 4
	epkLen    = 16

	// metaPrefix is the prefix of the engine's own keys.
	metaPrefix = 0
)

// appendPrefix appends the prefix of a partition and a kind.
func appendPrefix(dst []byte, prefix uint32, kind byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, prefix), kind)
}

// metaKey returns one of the engine's own keys.
func metaKey(kind byte, rest string) []byte {
	return append(appendPrefix(make([]byte, 0, prefixLen+1+len(rest)), metaPrefix, kind), rest...)
}

// ItemKey returns the key of an item inside its physical partition: the number of
// levels of its partition key, the hash of the key, the encoded key, the id. Item
// keys are ordered as items are in scans, and serve as cursors.
func ItemKey(k feed.PartitionKey, id string) []byte {
	return AppendItemKey(make([]byte, 0, 1+epkLen*k.Levels()+len(k.Encoded())+len(id)), k, id)
}

// AppendItemKey appends ItemKey(k, id) to dst.
func AppendItemKey(dst []byte, k feed.PartitionKey, id string) []byte {
	return append(AppendLogicalPrefix(dst, k), id...)
}

// LogicalPrefix returns what the keys of all items of a logical partition begin
// with, and those of no others.
func LogicalPrefix(k feed.PartitionKey) []byte {
	return AppendLogicalPrefix(nil, k)
}

// AppendLogicalPrefix appends LogicalPrefix(k) to dst.
func AppendLogicalPrefix(dst []byte, k feed.PartitionKey) []byte {
	dst = append(dst, byte(k.Levels()))
	return append(k.AppendHash(dst), k.Encoded()...)
}

// HashPrefix returns what the keys of all items begin with whose container has
// that many levels of partition key and whose effective partition key begins with
// epk: those of a range of hashes, or of the first levels of a hierarchical key.
// Another key with the same hash shares the prefix, so look at the items' keys too.
func HashPrefix(levels int, epk feed.EPK) []byte {
	return append([]byte{byte(levels)}, epk...)
}

// ParseItemKey splits what ItemKey made. The error is ErrItemKey.
func ParseItemKey(key []byte) (feed.PartitionKey, string, error) {
	n := logicalPrefixLen(key)
	if n < 0 {
		return feed.PartitionKey{}, "", fmt.Errorf("%w: %x", ErrItemKey, key)
	}
	k, err := feed.PartitionKeyFromEncoded(string(key[1+epkLen*int(key[0]) : n]))
	if err != nil {
		return feed.PartitionKey{}, "", fmt.Errorf("%w: %x: %w", ErrItemKey, key, err)
	}
	return k, string(key[n:]), nil
}

// logicalPrefixLen returns how many bytes of an item key stand before the id, or
// -1 if it is none.
func logicalPrefixLen(key []byte) int {
	if len(key) == 0 || key[0] == 0 || key[0] > feed.KeyLevelsMax {
		return -1
	}
	levels := int(key[0])
	at := 1 + epkLen*levels
	if at > len(key) {
		return -1
	}
	n := encodedKeyLen(key[at:], levels)
	if n < 0 {
		return -1
	}
	return at + n
}

// encodedKeyLen returns how many bytes of key are an encoded partition key of so many levels, behind which something
// stands; -1 if it does not begin with one.
func encodedKeyLen(key []byte, levels int) int {
	at := 0
	for range levels {
		if at >= len(key) {
			return -1
		}
		switch key[at] {
		case 0x05: // a number
			at += 9
		case 0x08: // a string, which ends with a byte that UTF-8 does not have
			end := bytes.IndexByte(key[at:], 0xFF)
			if end < 0 {
				return -1
			}
			at += end + 1
		default:
			at++
		}
	}
	if at >= len(key) {
		return -1
	}
	return at
}
