package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"net/http"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// feedTokenVersion is the version of the continuation of a read feed. It holds, one
// after the other:
//
//	version            1 byte
//	container          8 bytes, its resource id: made anew it is another
//	scope              4 bytes, a hash of the headers that name a part
//	partition          4 bytes, the number of the physical partition of the next page
//	cursor             the position in it; empty for its beginning
//	checksum           4 bytes, CRC-32 of all before
//
// in base64url. It holds nothing that the client has not seen, and stays valid over writes,
// restarts and moves of the partition.
const feedTokenVersion = 1

const feedTokenHead = 1 + 8 + 4 + 4

type feedToken struct {
	partition uint32
	cursor    []byte
}

func (c *collection) encodeToken(t feedToken, scopeHash uint32) string {
	b := make([]byte, 0, feedTokenHead+len(t.cursor)+4)
	b = append(b, feedTokenVersion)
	b = append(b, c.rid[:]...)
	b = binary.BigEndian.AppendUint32(b, scopeHash)
	b = binary.BigEndian.AppendUint32(b, t.partition)
	b = append(b, t.cursor...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func (c *collection) decodeToken(text string, scopeHash uint32) (feedToken, error) {
	bad := refuse(http.StatusBadRequest, "the continuation is not one of this container and part of it; send it as it was received, with the same headers")
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < feedTokenHead+4 || b[0] != feedTokenVersion {
		return feedToken{}, bad
	}
	body := b[:len(b)-4]
	switch {
	case crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[len(body):]),
		string(body[1:9]) != string(c.rid[:]),
		binary.BigEndian.Uint32(body[9:]) != scopeHash:
		return feedToken{}, bad
	}
	return feedToken{partition: binary.BigEndian.Uint32(body[13:]), cursor: body[feedTokenHead:]}, nil
}

// hash returns a hash of the scope, so that a token is not used with other headers: of the ranges that they name. Where they
// name none, it is of those with which the container was made, so that a token holds when one is split.
func (c *collection) hash(sc *scope) uint32 {
	if sc.ranges != nil {
		numbers := make([]uint32, len(sc.partitions))
		for i := range sc.partitions {
			numbers[i] = sc.partitions[i].Number
		}
		return sc.hashOf(numbers)
	}
	var numbers []uint32
	for i, r := range feed.EvenRanges(max(c.info.Spec.Partitions, 1)) {
		if both := intersect(r, sc.span); both.Min < both.Max {
			numbers = append(numbers, uint32(i))
		}
	}
	return sc.hashOf(numbers)
}

func (sc *scope) hashOf(numbers []uint32) uint32 {
	h := fnv.New32a()
	for _, part := range []string{sc.key.Encoded(), string(sc.span.Min), string(sc.span.Max)} {
		_, _ = h.Write([]byte(part)) // a hash takes everything
		_, _ = h.Write([]byte{0xFE}) // ends a part
	}
	for _, number := range numbers {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, number))
	}
	return h.Sum32()
}

// tokenOf reads a continuation of the scope. Who names a range may have one of the range of which it was a part.
func (c *collection) tokenOf(sc *scope, text string) (feedToken, error) {
	at, err := c.decodeToken(text, c.hash(sc))
	if err == nil || sc.ranges == nil || len(sc.partitions) != 1 {
		return at, err
	}
	part := sc.partitions[0]
	for number := range part.Number { // a child's is greater
		if c.mayHold(number, part.Range) {
			if parents, wrong := c.decodeToken(text, sc.hashOf([]uint32{number})); wrong == nil {
				return parents, nil
			}
		}
	}
	return at, err
}

// mayHold says whether a range may be a part of the one that had a number, and has been split. Of one whose log is deleted
// nobody knows what it held.
func (c *collection) mayHold(number uint32, part feed.Range) bool {
	if slices.ContainsFunc(c.info.Partitions, func(p store.PartitionInfo) bool { return p.Number == number }) {
		return false
	}
	f := c.info.FormerOf(number)
	return f == nil || f.Range.Contains(part.Min)
}

// cursorAt is the position before all items whose effective partition key is at
// least epk.
func cursorAt(levels int, epk feed.EPK) []byte {
	return append([]byte{byte(levels)}, epk...)
}
