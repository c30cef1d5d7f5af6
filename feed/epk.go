package feed

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/twmb/murmur3"
)

const (
	// epkLen is the length in bytes of the hash of one level.
	epkLen = 16
	// epkFirstMask keeps the first byte of a hash below 40, so that EPKMax and
	// other markers lie above all keys.
	epkFirstMask = 0x3F
	// epkSpace is the number of values of an EPK's first two bytes.
	epkSpace = (epkFirstMask + 1) << 8
)

// EPKMax lies above every effective partition key.
const EPKMax EPK = "\xff"

// EPK is an effective partition key: the hash of a partition key, which places
// it in a container's key space. It holds raw bytes, 16 for each level, and
// compares as a string does. A prefix of the levels is a prefix of the bytes.
type EPK string

// ParseEPK reads hexadecimal digits of either case; the empty text is the
// start of the key space. The error is ErrSyntax.
func ParseEPK(text string) (EPK, error) {
	b, err := hex.DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("%w effective partition key %q: want pairs of hexadecimal digits", ErrSyntax, text)
	}
	return EPK(b), nil
}

// Hex prints upper-case hexadecimal digits.
func (e EPK) Hex() string { return strings.ToUpper(hex.EncodeToString([]byte(e))) }

// String is Hex.
func (e EPK) String() string { return e.Hex() }

// MarshalText makes an EPK its Hex in JSON and YAML, which have no raw bytes.
func (e EPK) MarshalText() ([]byte, error) { return []byte(e.Hex()), nil }

// UnmarshalText reads what MarshalText wrote.
func (e *EPK) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEPK(string(text))
	return err
}

// Hash returns the effective partition key of k: for each level the 128-bit
// MurmurHash3 (x64, seed 0) of its encoding, bytes reversed, the first masked
// with 3F. It is that of Azure Cosmos DB's version 2 ("Hash", and "MultiHash"
// for several levels), so that clients which place keys themselves agree.
func (k PartitionKey) Hash() EPK {
	var buf [KeyLevelsMax * epkLen]byte
	return EPK(k.AppendHash(buf[:0]))
}

// AppendHash appends the bytes of Hash to dst.
func (k PartitionKey) AppendHash(dst []byte) []byte {
	// Each level is hashed alone, so that a prefix of the key is a prefix of the hash. Cosmos
	// takes the 16 bytes of the hash in reverse: high word first, big-endian.
	for rest := k.enc; rest != ""; {
		n := componentLen(rest)
		low, high := murmur3.StringSum128(rest[:n])
		at := len(dst)
		dst = binary.BigEndian.AppendUint64(dst, high)
		dst = binary.BigEndian.AppendUint64(dst, low)
		dst[at] &= epkFirstMask
		rest = rest[n:]
	}
	return dst
}

// Range is a range of effective partition keys: Min belongs to it, Max does
// not. An empty Min is the start of the key space, EPKMax its end.
type Range struct {
	Min EPK `json:"min"`
	Max EPK `json:"max"`
}

// Contains reports whether e lies in the range.
func (r Range) Contains(e EPK) bool { return r.Min <= e && e < r.Max }

// String prints "[00..,10..)".
func (r Range) String() string {
	return "[" + abbreviate(r.Min) + "," + abbreviate(r.Max) + ")"
}

// abbreviate prints the first digits that tell bounds of ranges apart.
func abbreviate(e EPK) string {
	switch e {
	case "":
		return "00.."
	case EPKMax:
		return "FF"
	}
	return EPK(strings.TrimRight(string(e), "\x00")).Hex() + ".."
}

// EvenRanges cuts the key space into n ranges of equal size, in order, of
// which the first begins at the start and the last ends at EPKMax. n is at
// least 1 and at most 16384; it panics otherwise.
func EvenRanges(n int) []Range {
	if n < 1 || n > epkSpace {
		panic(fmt.Sprintf("feed: %d ranges, want 1 to %d", n, epkSpace))
	}
	ranges := make([]Range, n)
	for i := range ranges {
		if i > 0 {
			var bound [epkLen]byte
			// n ranges of epkSpace<<48 values each; the quotient is exact to
			// one part in 2^48 and never out of order.
			binary.BigEndian.PutUint64(bound[:], uint64(i)*((epkSpace<<48)/uint64(n)))
			ranges[i].Min = EPK(bound[:])
			ranges[i-1].Max = ranges[i].Min
		}
	}
	ranges[n-1].Max = EPKMax
	return ranges
}
