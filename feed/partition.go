package feed

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

// resourceIDLen is the length of a ResourceID: 40 random bits in base 32.
const resourceIDLen = 8

// resourceAlphabet is that of RFC 4648 in lower case: safe in a NATS subject,
// a stream name, a file name and a URL.
const resourceAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

var resourceEncoding = base32.NewEncoding(resourceAlphabet).WithPadding(base32.NoPadding)

// ResourceID names one incarnation of a container: eight characters of
// a-z and 2-7. A container that is deleted and made again has another. The
// empty ResourceID means none.
type ResourceID string

// NewResourceID returns a random ResourceID.
func NewResourceID() ResourceID {
	var b [5]byte
	rand.Read(b[:]) // never returns an error since Go 1.24
	return ResourceID(resourceEncoding.EncodeToString(b[:]))
}

// ParseResourceID checks that s has the form of a ResourceID. The error is
// ErrSyntax.
func ParseResourceID(s string) (ResourceID, error) {
	if len(s) != resourceIDLen || strings.Trim(s, resourceAlphabet) != "" {
		return "", fmt.Errorf("%w resource id %q: want %d characters of a-z and 2-7", ErrSyntax, s, resourceIDLen)
	}
	return ResourceID(s), nil
}

// Partition names a physical partition: a range of effective partition keys of
// one container, the unit of ownership, of the log and of a lease. Numbers are
// given out once in a container's life and not used again after a split.
type Partition struct {
	Container ResourceID
	Number    uint32
}

// ParsePartition reads the form that Partition.String prints, such as
// "c7k2x4ab/0". The error is ErrSyntax.
func ParsePartition(s string) (Partition, error) {
	rid, number, ok := strings.Cut(s, "/")
	if !ok {
		return Partition{}, fmt.Errorf("%w partition %q: want container/number, such as c7k2x4ab/0", ErrSyntax, s)
	}
	id, err := ParseResourceID(rid)
	if err != nil {
		return Partition{}, fmt.Errorf("partition %q: %w", s, err)
	}
	n, err := parseDecimal(number, 32)
	if err != nil {
		return Partition{}, fmt.Errorf("%w partition %q: number: %w", ErrSyntax, s, err)
	}
	return Partition{Container: id, Number: uint32(n)}, nil
}

// String prints the partition as "container/number".
func (p Partition) String() string { return p.join("", "/") }

// Stream is the name of the JetStream stream in which the partition's log began. A log that
// has moved is in another stream; StreamOf finds it.
func (p Partition) Stream() string { return p.join(streamPrefix, "_") }

// AnyStream names the streams that the log may be in, for who reads that it is in neither.
func (p Partition) AnyStream() string {
	return p.Stream() + " (or " + p.Stream() + streamMovedSuffix + ", if the log has moved)"
}

// Subject is the one subject of that stream.
func (p Partition) Subject() string { return p.join("millrace.log.", ".") }

// Indexes of locations: the stream in which a log began, and the one to which it may have
// moved.
const (
	firstLocation = 0
	movedLocation = 1
)

// locations are where the log may be: in the stream in which it began, or in the new one.
func (p Partition) locations() [2]location {
	return [2]location{{p.Stream(), p.Subject()}, {p.Stream() + streamMovedSuffix, p.Subject() + subjectMovedSuffix}}
}

// IsZero reports whether p names no partition.
func (p Partition) IsZero() bool { return p == Partition{} }

func (p Partition) join(prefix, separator string) string {
	b := make([]byte, 0, len(prefix)+len(p.Container)+len(separator)+10)
	b = append(b, prefix...)
	b = append(b, p.Container...)
	b = append(b, separator...)
	return string(strconv.AppendUint(b, uint64(p.Number), 10))
}
