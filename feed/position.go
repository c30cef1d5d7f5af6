package feed

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrSyntax is the cause of every error of a Parse function of this package.
// The error's text quotes the input and says what was expected.
var ErrSyntax = errors.New("feed: malformed")

// LSN is the log sequence number of a commit in its physical partition: the
// sequence that JetStream gave its message. LSNs begin at 1 and have no holes;
// zero means none.
type LSN uint64

// ParseLSN reads the form that LSN.String prints: decimal digits. The error is
// ErrSyntax.
func ParseLSN(s string) (LSN, error) {
	n, err := parseDecimal(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%w LSN %q: %w", ErrSyntax, s, err)
	}
	return LSN(n), nil
}

// String prints the LSN in decimal.
func (n LSN) String() string { return strconv.FormatUint(uint64(n), 10) }

// Position is the place of a change in its physical partition: the LSN of its
// commit and its index among all changes of that commit, counted from zero
// through the commit's transactions. The zero Position is before everything
// and means none.
type Position struct {
	LSN   LSN
	Index uint32
}

// ParsePosition reads the form that Position.String prints, such as "12.3".
// The error is ErrSyntax.
func ParsePosition(s string) (Position, error) {
	lsn, index, ok := strings.Cut(s, ".")
	if !ok {
		return Position{}, fmt.Errorf("%w position %q: want LSN.index, such as 12.3", ErrSyntax, s)
	}
	n, err := parseDecimal(lsn, 64)
	if err != nil {
		return Position{}, fmt.Errorf("%w position %q: LSN: %w", ErrSyntax, s, err)
	}
	i, err := parseDecimal(index, 32)
	if err != nil {
		return Position{}, fmt.Errorf("%w position %q: index: %w", ErrSyntax, s, err)
	}
	return Position{LSN: LSN(n), Index: uint32(i)}, nil
}

// String prints the position as "LSN.index".
func (p Position) String() string {
	b := make([]byte, 0, 24)
	b = strconv.AppendUint(b, uint64(p.LSN), 10)
	b = append(b, '.')
	return string(strconv.AppendUint(b, uint64(p.Index), 10))
}

// Compare is negative if p is before q, zero if they are equal, else positive.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.LSN, q.LSN); c != 0 {
		return c
	}
	return cmp.Compare(p.Index, q.Index)
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool { return p.Compare(q) < 0 }

// IsZero reports whether p is before everything.
func (p Position) IsZero() bool { return p == Position{} }

// A walk stands in for the beginning of a log that is too long to read, or trimmed: the
// items as of commit n, in an order that never changes, as if each were a change that
// created it. After the last item the reader continues in the log with commit n+1. Item k of
// the walk, counted from zero, has the position (n, walkFirst + k).
//
//	walk of 3 items as of commit 7      positions  7.2147483648  7.2147483649  7.2147483650
//	its end                                        7.4293918720
//	commit 8                                       8.0  8.1 ...
//
// No commit has so many changes that one of them has the index walkFirst, so a position
// tells by itself whether it lies in a walk. A walk's positions lie behind those of all
// commits that its items are made of, and before those of all that follow: positions,
// intervals of positions and checkpoints mean with a walk what they mean without.
const (
	walkFirst = 1 << 31
	// Positions behind the end stay free for retries of dead letters: a retry is written
	// under a position behind all that was processed, and after a walk there may be no
	// further commit for a long time. When the end was the greatest index, each retry was
	// refused until something else was written.
	walkEnd = 1<<32 - 1<<20

	// WalkMax bounds the items of a walk.
	WalkMax = walkEnd - walkFirst
)

// WalkPosition is the position of item k of a walk as of a commit.
func WalkPosition(lsn LSN, k uint64) Position { return Position{lsn, uint32(walkFirst + k)} }

// WalkEnd is the position behind all items of a walk.
func WalkEnd(lsn LSN) Position { return Position{lsn, walkEnd} }

// Walked returns how many items of a walk are done at p. ok is false if p is not the position
// of an item of a walk: if it is in a log, or at the end of a walk or behind it.
func (p Position) Walked() (items uint64, ok bool) {
	if p.Index < walkFirst || p.Index >= walkEnd {
		return 0, false
	}
	return uint64(p.Index-walkFirst) + 1, true
}

// Reached reports whether a reader that is done up to p is done with all changes of the
// commit at lsn and of those before it. In the middle of a walk it is done with none,
// because the item of any change may still come.
func (p Position) Reached(lsn LSN) bool {
	if _, walking := p.Walked(); walking {
		return false
	}
	return p.LSN >= lsn
}

// Checksum is the xxHash64 of a commit's encoded bytes. Each commit names its
// predecessor's, which chains a log together; zero means that there is none.
type Checksum uint64

// ParseChecksum reads the form that Checksum.String prints: 16 hexadecimal
// digits. The error is ErrSyntax.
func ParseChecksum(s string) (Checksum, error) {
	if len(s) != 16 {
		return 0, fmt.Errorf("%w checksum %q: want 16 hexadecimal digits", ErrSyntax, s)
	}
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w checksum %q: want 16 hexadecimal digits", ErrSyntax, s)
	}
	return Checksum(n), nil
}

// String prints 16 lower-case hexadecimal digits.
func (s Checksum) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// LogID identifies one life of one log. A stream that was deleted and made
// anew under the same name has another.
type LogID [16]byte

// NewLogID returns a random LogID.
func NewLogID() LogID { return randomID() }

// ParseLogID reads 32 hexadecimal digits. The error is ErrSyntax.
func ParseLogID(s string) (id LogID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return LogID{}, fmt.Errorf("%w log id %q: want 32 hexadecimal digits", ErrSyntax, s)
	}
	copy(id[:], b)
	return id, nil
}

// String prints 32 lower-case hexadecimal digits.
func (id LogID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id names no log.
func (id LogID) IsZero() bool { return id == LogID{} }

// MarshalText makes a LogID a string in JSON and YAML.
func (id LogID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *LogID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseLogID(string(text))
	return err
}

// CommitID identifies one commit. Whether an append of unknown outcome succeeded is found out
// by looking for the commit's id in the log.
type CommitID [16]byte

// NewCommitID returns a random CommitID.
func NewCommitID() CommitID { return randomID() }

// String prints 32 lower-case hexadecimal digits.
func (id CommitID) String() string { return hex.EncodeToString(id[:]) }

func (id CommitID) isZero() bool { return id == CommitID{} }

// randomID returns 16 bytes that nobody has chosen before.
func randomID() (id [16]byte) {
	rand.Read(id[:]) // never returns an error since Go 1.24
	return id
}

// parseDecimal reads the one decimal form of n: digits alone, no sign, no
// leading zero.
func parseDecimal(s string, bits int) (uint64, error) {
	if s == "" || s[0] == '+' || len(s) > 1 && s[0] == '0' {
		return 0, errors.New("want decimal digits without a leading zero")
	}
	n, err := strconv.ParseUint(s, 10, bits)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("beyond %d bits", bits)
	}
	if err != nil {
		return 0, errors.New("want decimal digits")
	}
	return n, nil
}
