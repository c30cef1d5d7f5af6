package feed

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// FormatVersion is the last version of the commit format that this build reads. A commit
// is written in the first version that has what it needs, so that an earlier release can
// read a log without it. FORMAT.md describes all of them byte by byte.
const FormatVersion = 3

// The versions of the commit format.
const (
	formatFirst      = 1
	formatTrimmed    = 2 // may have a trim point
	formatCompressed = 3 // may be compressed
)

// Flags of a commit.
const (
	commitTrimmed    = 1 << iota // it has a trim point
	commitCompressed             // its transactions are compressed
)

// flagsOf returns the flags that a version defines.
func flagsOf(version byte) byte {
	switch version {
	case formatFirst:
		return 0
	case formatTrimmed:
		return commitTrimmed
	}
	return commitTrimmed | commitCompressed
}

// Fixed places of the commit format.
const (
	atFlags   = 1
	atID      = 2
	atLog     = 18
	atPrev    = 34
	atEpoch   = 42
	atTime    = 50
	atOwner   = 58
	sumBytes  = 8
	commitMin = atOwner + 3 + sumBytes
)

// Flags of a transaction: which optional fields it has.
const (
	txTraceParent = 1 << iota
	txTraceState
	txIdempotency
	txEffect
	txPage
	txControl
	txFolds
	txFlags = 1<<iota - 1
)

// Bits of a change's first byte beside the operation.
const (
	changeOp      = 0x07
	changeSameKey = 0x08
	changeAfter   = 0x10
	changeBefore  = 0x20
	changeUndo    = 0x40
	changePrev    = 0x80
)

// Flags of a page.
const (
	pageWrapped = 1 << iota
	pageDone
	pagePlanted
	pageFlags = 1<<iota - 1
)

// changeMin is the least number of bytes that a change occupies: operation,
// length of id, TTL clock and LSN of the last client's write.
const changeMin = 4

// foldMin is the least number of bytes that a fold occupies: pipeline,
// generation and count of records. recordMin is that of a record: key and value.
const (
	foldMin   = 3
	recordMin = 2
)

// spliceMin is the least number of bytes that a splice occupies: path, offset,
// length and old bytes.
const spliceMin = 4

// FormatError says that bytes are not a commit, or not a whole one. A message
// of a log that gives it is damaged, or was written by something else.
type FormatError struct {
	// Offset is where in the bytes reading failed.
	Offset int
	// What names the field, and what is wrong with it.
	What string
}

func (e *FormatError) Error() string {
	return "feed: not a commit: byte " + strconv.Itoa(e.Offset) + ": " + e.What
}

// VersionError says that a commit was written by a later version of Millrace,
// or that the message is none.
type VersionError struct {
	// Version is the first byte.
	Version byte
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("feed: commit has format version %d, this build reads up to %d: upgrade this process, or find out who else writes to the stream",
		e.Version, FormatVersion)
}

// AppendCommit appends the encoding of c, not compressed, to dst and returns the extended
// slice. It sets c.Sum to the checksum of what it appended, and changes
// nothing else of c. It allocates only to extend dst. LSN is not encoded.
//
// It panics if an operation is not one of the constants, or if a transaction
// is longer than 4 GiB.
func AppendCommit(dst []byte, c *Commit) []byte {
	start := len(dst)
	dst, _ = appendUnsealed(dst, c)
	return seal(dst, start, c)
}

// appendUnsealed appends c without its checksum, and returns where its transactions begin.
func appendUnsealed(dst []byte, c *Commit) (extended []byte, transactions int) {
	dst = slices.Grow(dst, c.SizeMax())
	if c.Trimmed == 0 {
		dst = append(dst, formatFirst, 0)
	} else {
		dst = append(dst, formatTrimmed, commitTrimmed)
	}
	dst = append(dst, c.ID[:]...)
	dst = append(dst, c.Log[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Prev))
	dst = binary.LittleEndian.AppendUint64(dst, c.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Time))
	dst = appendString(dst, c.Owner)
	if c.Trimmed != 0 {
		dst = binary.AppendUvarint(dst, uint64(c.Trimmed))
	}
	// Both counts come first, so that a decoder makes one slice of transactions and one of
	// changes for the whole commit.
	dst = binary.AppendUvarint(dst, uint64(len(c.Transactions)))
	dst = binary.AppendUvarint(dst, uint64(c.ChangeCount()))
	transactions = len(dst)
	for i := range c.Transactions {
		dst = appendTransaction(dst, &c.Transactions[i], c.Time)
	}
	return dst, transactions
}

// seal appends the checksum of the commit that begins at start, and sets c.Sum.
func seal(dst []byte, start int, c *Commit) []byte {
	// One pass gives both sums: the trailing one of all bytes before it, and
	// that of the whole.
	var digest xxhash.Digest
	digest.Reset()
	_, _ = digest.Write(dst[start:])
	dst = binary.LittleEndian.AppendUint64(dst, digest.Sum64())
	_, _ = digest.Write(dst[len(dst)-sumBytes:])
	c.Sum = Checksum(digest.Sum64())
	return dst
}

func appendTransaction(dst []byte, t *Transaction, time int64) []byte {
	// Four bytes of length and one of flags are kept free and written at the end, when both
	// are known. The length has a fixed width for that; it lets a reader find the
	// transaction's end without knowing what is in it.
	lengthAt := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0)
	flagsAt := len(dst) - 1
	var flags byte
	if t.TraceParent != "" {
		flags |= txTraceParent
		dst = appendString(dst, t.TraceParent)
	}
	if t.TraceState != "" {
		flags |= txTraceState
		dst = appendString(dst, t.TraceState)
	}
	if t.IdempotencyKey != "" {
		flags |= txIdempotency
		dst = appendString(dst, t.IdempotencyKey)
	}
	if t.Effect != nil {
		flags |= txEffect
		dst = appendEffect(dst, t.Effect)
	}
	if t.Page != nil {
		flags |= txPage
		dst = appendPage(dst, t.Page)
	}
	if t.Control != nil {
		flags |= txControl
		dst = appendString(dst, t.Control.Kind)
		dst = appendBytes(dst, t.Control.Data)
	}
	if len(t.Folds) > 0 {
		flags |= txFolds
		dst = appendFolds(dst, t.Folds)
	}
	dst[flagsAt] = flags
	dst = binary.AppendUvarint(dst, uint64(len(t.Changes)))
	// A key is written once for a run of changes that share it. Runs do not cross
	// transactions, so each transaction can be read alone.
	var last PartitionKey
	for i := range t.Changes {
		c := &t.Changes[i]
		dst = appendChange(dst, c, i > 0 && c.Key == last, time)
		last = c.Key
	}
	length := len(dst) - lengthAt - 4
	if uint64(length) > 1<<32-1 {
		panic("feed: transaction of " + strconv.Itoa(length) + " bytes")
	}
	binary.LittleEndian.PutUint32(dst[lengthAt:], uint32(length))
	return dst
}

func appendChange(dst []byte, c *Change, sameKey bool, time int64) []byte {
	if c.Op < OpCreate || c.Op > OpExpire {
		panic("feed: change with " + c.Op.String())
	}
	head := byte(c.Op)
	if sameKey {
		head |= changeSameKey
	}
	if c.After != nil {
		head |= changeAfter
	}
	if c.Before != nil {
		head |= changeBefore
	}
	if len(c.Undo) > 0 {
		head |= changeUndo
	}
	if !c.Prev.IsZero() || c.PrevModified != 0 {
		head |= changePrev
	}
	dst = append(dst, head)
	if !sameKey {
		dst = appendString(dst, c.Key.enc)
	}
	dst = appendString(dst, c.ID)
	// A TTL clock is written as its difference from the commit's time, which is short
	// because the two are close. The subtraction may overflow; the decoder's addition then
	// overflows back to the same value.
	dst = binary.AppendVarint(dst, c.Modified-time)
	dst = binary.AppendUvarint(dst, uint64(c.Written))
	if head&changePrev != 0 {
		dst = appendPosition(dst, c.Prev)
		dst = binary.AppendVarint(dst, c.PrevModified-time)
	}
	if head&changeAfter != 0 {
		dst = appendBytes(dst, c.After)
	}
	if head&changeBefore != 0 {
		dst = appendBytes(dst, c.Before)
	}
	if head&changeUndo != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(c.Undo)))
		for i := range c.Undo {
			s := &c.Undo[i]
			dst = appendString(dst, s.Path)
			dst = binary.AppendUvarint(dst, uint64(s.Offset))
			dst = binary.AppendUvarint(dst, uint64(s.Len))
			dst = appendBytes(dst, s.Old)
		}
	}
	return dst
}

func appendEffect(dst []byte, e *Effect) []byte {
	dst = appendString(dst, e.Producer.Pipeline)
	dst = binary.AppendUvarint(dst, uint64(e.Producer.Generation))
	dst = appendString(dst, e.Producer.Source)
	dst = binary.AppendUvarint(dst, e.Epoch)
	dst = appendPosition(dst, e.After)
	return appendPosition(dst, e.UpTo)
}

func appendPage(dst []byte, p *Page) []byte {
	var flags byte
	if p.Wrapped {
		flags |= pageWrapped
	}
	if p.Done {
		flags |= pageDone
	}
	if p.Planted != 0 {
		flags |= pagePlanted
	}
	dst = append(dst, flags, p.Action)
	dst = binary.LittleEndian.AppendUint64(dst, p.Digest)
	dst = appendString(dst, p.Source)
	dst = appendPosition(dst, p.Position)
	dst = appendPosition(dst, p.FinishedBelow)
	dst = appendBytes(dst, p.Cursor)
	dst = appendBytes(dst, p.Takeover)
	dst = binary.AppendUvarint(dst, uint64(len(p.Paths)))
	for _, path := range p.Paths {
		dst = appendString(dst, path)
	}
	if p.Planted != 0 {
		dst = binary.AppendUvarint(dst, uint64(p.Planted))
	}
	return dst
}

func appendFolds(dst []byte, folds []Fold) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(folds)))
	for i := range folds {
		f := &folds[i]
		dst = appendString(dst, f.Pipeline)
		dst = binary.AppendUvarint(dst, uint64(f.Generation))
		dst = binary.AppendUvarint(dst, uint64(len(f.Records)))
		for j := range f.Records {
			r := &f.Records[j]
			dst = appendBytes(dst, r.Key)
			// The length is written plus one, since a record that is gone differs from an
			// empty one:
			//
			//	nil    00
			//	""     01
			//	"ab"   03 61 62
			if r.Value == nil {
				dst = append(dst, 0)
				continue
			}
			dst = binary.AppendUvarint(dst, uint64(len(r.Value))+1)
			dst = append(dst, r.Value...)
		}
	}
	return dst
}

func appendPosition(dst []byte, p Position) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.LSN))
	return binary.AppendUvarint(dst, uint64(p.Index))
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// Bounds in bytes on the encoded size of numbers, and on the fixed part of each structure:
// everything but the texts and byte strings, whose lengths are known without encoding.
const (
	lengthMax      = 5 // of a length below 4 GiB
	uint64Max      = binary.MaxVarintLen64
	positionMax    = uint64Max + lengthMax
	changeFixed    = 1 + 2*lengthMax + 2*uint64Max + positionMax + uint64Max + 3*lengthMax
	spliceFixed    = 4 * lengthMax
	transactionMax = 4 + 1 + 3*lengthMax + 2*lengthMax
	effectFixed    = 3*lengthMax + uint64Max + 2*positionMax
	pageFixed      = 2 + 8 + 4*lengthMax + 2*positionMax + uint64Max
	foldFixed      = 3 * lengthMax
	recordFixed    = 2 * lengthMax
)

// SizeMax is an upper bound on the bytes that AppendCommit appends for c, and on what c has once
// it is decompressed. It exceeds the true size by at most a few dozen bytes for each change.
func (c *Commit) SizeMax() int {
	n := commitMin + len(c.Owner) + 4*lengthMax
	for i := range c.Transactions {
		n += c.Transactions[i].SizeMax()
	}
	return n
}

// SizeMax is a bound on what t adds to the encoding of a commit.
func (t *Transaction) SizeMax() int {
	n := transactionMax + len(t.TraceParent) + len(t.TraceState) + len(t.IdempotencyKey)
	if e := t.Effect; e != nil {
		n += effectFixed + len(e.Producer.Pipeline) + len(e.Producer.Source)
	}
	if p := t.Page; p != nil {
		n += pageFixed + len(p.Source) + len(p.Cursor) + len(p.Takeover)
		for _, path := range p.Paths {
			n += lengthMax + len(path)
		}
	}
	if t.Control != nil {
		n += 2*lengthMax + len(t.Control.Kind) + len(t.Control.Data)
	}
	for i := range t.Folds {
		n += t.Folds[i].SizeMax()
	}
	for i := range t.Changes {
		n += t.Changes[i].SizeMax()
	}
	return n
}

// SizeMax is a bound on what f adds to the encoding of a commit.
func (f *Fold) SizeMax() int {
	n := foldFixed + len(f.Pipeline)
	for i := range f.Records {
		n += recordFixed + len(f.Records[i].Key) + len(f.Records[i].Value)
	}
	return n
}

// SizeMax is a bound on what c adds to the encoding of a commit.
func (c *Change) SizeMax() int {
	n := changeFixed + len(c.Key.enc) + len(c.ID) + len(c.After) + len(c.Before)
	for i := range c.Undo {
		n += spliceFixed + len(c.Undo[i].Path) + len(c.Undo[i].Old)
	}
	return n
}
