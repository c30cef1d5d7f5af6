package feed

import (
	"encoding/binary"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed/document"
)

// Header is what a commit says before its transactions.
type Header struct {
	ID    CommitID
	Log   LogID
	Prev  Checksum
	Epoch uint64
	Owner string
	// Time is in Unix milliseconds.
	Time int64
	// Trimmed is as Commit.Trimmed.
	Trimmed LSN
	// Transactions and Changes count what follows.
	Transactions, Changes int
	// Bytes is how many bytes the commit has when it is not compressed.
	Bytes int
}

// DecodeHeader reads the header of an encoded commit and nothing else; it does
// not verify the checksum, nor decompress. The error is *FormatError or *VersionError.
func DecodeHeader(data []byte) (Header, error) {
	d := decoder{data: data}
	h := d.header()
	return h, d.err
}

// DecodeCommit reads an encoded commit and sets its Sum. Its byte slices alias
// data, which must not be changed any more, or the buffer into which it was decompressed;
// its strings alias neither. The error is *FormatError, which covers a wrong checksum, or
// *VersionError.
func DecodeCommit(data []byte) (*Commit, error) {
	d := decoder{data: data}
	h := d.header()
	c := &Commit{ID: h.ID, Log: h.Log, Prev: h.Prev, Epoch: h.Epoch, Owner: h.Owner, Time: h.Time, Trimmed: h.Trimmed}
	if d.err == nil {
		c.Sum = d.verify()
	}
	if d.compressed {
		d.decompress()
	}
	if d.err != nil {
		return nil, d.err
	}
	// One allocation each for the whole commit. header has checked that the transactions are long
	// enough for both counts, so a forged count cannot ask for gigabytes.
	c.Transactions = make([]Transaction, h.Transactions)
	changes := make([]Change, h.Changes)
	d.strings.expect(48 * (h.Transactions + h.Changes))
	for i := range c.Transactions {
		var n int
		t := &c.Transactions[i]
		d.transactions = h.Transactions - i
		end := d.transactionHead(t, &n)
		if n > len(changes) {
			d.fail("transaction " + strconv.Itoa(i) + ": more changes than the header says")
		}
		if d.err != nil {
			return nil, d.err
		}
		if n > 0 {
			t.Changes, changes = changes[:n:n], changes[n:]
		}
		d.changesBehind = len(changes)
		d.changes(t.Changes, h.Time)
		d.endTransaction(end)
		if d.err != nil {
			return nil, d.err
		}
	}
	if len(changes) > 0 {
		d.fail("fewer changes than the header says")
	}
	if d.at != len(d.data) {
		d.fail("bytes after the last transaction")
	}
	return c, d.err
}

// decoder reads fields one after the other. After its first error every read returns
// zero, so callers may check err late. They must check it before they allocate memory by
// a number that they read. One call of DecodeCommit or DecodeHeader owns it.
type decoder struct {
	data    []byte
	at      int
	err     error
	strings arena
	splices []document.Splice // not yet given out
	folds   []Fold            // likewise
	records []Record          // likewise
	path    string            // of the last splice: a fan-out repeats it

	compressed   bool // the transactions are
	plainBytes   int  // of the transactions when they are decompressed
	decompressed bool // data is what they were decompressed to

	// How many transactions and changes are still to come, the present one included. Pools
	// of splices, folds and records are made for that many.
	transactions  int
	changesToCome int
	changesBehind int // changes behind those of the present transaction
}

func (d *decoder) fail(what string) {
	if d.err != nil {
		return
	}
	if d.decompressed {
		what = "of the decompressed transactions: " + what
	}
	d.err = &FormatError{Offset: d.at, What: what}
}

// header reads up to the first transaction and cuts the trailing checksum off
// the data.
func (d *decoder) header() (h Header) {
	if len(d.data) == 0 {
		d.fail("empty")
		return h
	}
	if v := d.data[0]; v > FormatVersion {
		d.err = &VersionError{Version: v}
		return h
	}
	if len(d.data) < commitMin || d.data[0] == 0 {
		d.fail("version " + strconv.Itoa(int(d.data[0])) + " in " + strconv.Itoa(len(d.data)) + " bytes")
		return h
	}
	// A flag stands for bytes that follow. A reader that does not know a flag would take
	// those bytes for the next field, so it refuses the commit.
	flags := d.data[atFlags]
	if flags&^flagsOf(d.data[0]) != 0 {
		d.at = atFlags
		d.fail("unknown flags " + strconv.Itoa(int(flags)))
		return h
	}
	h.ID = CommitID(d.data[atID:atLog])
	h.Log = LogID(d.data[atLog:atPrev])
	h.Prev = Checksum(binary.LittleEndian.Uint64(d.data[atPrev:]))
	h.Epoch = binary.LittleEndian.Uint64(d.data[atEpoch:])
	h.Time = int64(binary.LittleEndian.Uint64(d.data[atTime:]))
	d.at = atOwner
	// No field may reach into the checksum. verify gets it back by the slice's capacity.
	d.data = d.data[:len(d.data)-sumBytes]
	h.Owner = d.string("owner")
	if flags&commitTrimmed != 0 {
		h.Trimmed = LSN(d.uvarint("trim point"))
	}
	transactions, changes := d.uvarint("count of transactions"), d.uvarint("count of changes")
	stored := len(d.data) - d.at
	d.plainBytes = stored
	if d.compressed = flags&commitCompressed != 0; d.compressed {
		d.plainBytes = d.blockLength()
	}
	h.Bytes = len(d.data) + sumBytes - stored + d.plainBytes
	// Each transaction and change takes at least so many bytes, so a number is refused that the
	// transactions cannot hold.
	h.Transactions = d.fit("count of transactions", transactions, transactionMin, d.plainBytes)
	h.Changes = d.fit("count of changes", changes, changeMin, d.plainBytes-h.Transactions*transactionMin)
	return h
}

// transactionMin is the least number of bytes of a transaction: length, flags
// and count of changes.
const transactionMin = 6

// verify compares the trailing checksum and returns that of the whole.
func (d *decoder) verify() Checksum {
	whole := d.data[:len(d.data)+sumBytes]
	var digest xxhash.Digest
	digest.Reset()
	_, _ = digest.Write(d.data)
	if got, want := digest.Sum64(), binary.LittleEndian.Uint64(whole[len(d.data):]); got != want {
		d.at = len(d.data)
		d.fail("checksum " + Checksum(want).String() + ", the bytes have " + Checksum(got).String())
	}
	_, _ = digest.Write(whole[len(d.data):])
	return Checksum(digest.Sum64())
}

// transactionHead reads up to the first change and returns where the
// transaction ends.
func (d *decoder) transactionHead(t *Transaction, changes *int) (end int) {
	if len(d.data)-d.at < transactionMin {
		d.fail("transaction is cut short")
		return 0
	}
	length := uint64(binary.LittleEndian.Uint32(d.data[d.at:]))
	d.at += 4
	if length > uint64(len(d.data)-d.at) || length < transactionMin-4 {
		d.fail("transaction of " + strconv.FormatUint(length, 10) + " bytes")
		return 0
	}
	end = d.at + int(length)
	flags := d.byte("transaction's flags")
	if flags&^txFlags != 0 {
		d.at--
		d.fail("unknown flags of a transaction: " + strconv.Itoa(int(flags)))
	}
	if flags&txTraceParent != 0 {
		t.TraceParent = d.string("trace parent")
	}
	if flags&txTraceState != 0 {
		t.TraceState = d.string("trace state")
	}
	if flags&txIdempotency != 0 {
		t.IdempotencyKey = d.string("idempotency key")
	}
	if flags&txEffect != 0 {
		t.Effect = d.effect()
	}
	if flags&txPage != 0 {
		t.Page = d.page()
	}
	if flags&txControl != 0 {
		t.Control = &Control{Kind: d.string("control kind"), Data: d.bytes("control data")}
	}
	if flags&txFolds != 0 {
		t.Folds = d.readFolds()
	}
	*changes = d.count("count of changes", changeMin)
	return end
}

func (d *decoder) endTransaction(end int) {
	if d.err == nil && d.at != end {
		d.fail("transaction ends at byte " + strconv.Itoa(end))
	}
}

func (d *decoder) effect() *Effect {
	e := new(Effect)
	e.Producer.Pipeline = d.string("pipeline")
	e.Producer.Generation = d.uint32("generation")
	e.Producer.Source = d.string("source")
	e.Epoch = d.uvarint("epoch")
	e.After = d.position("after")
	e.UpTo = d.position("up to")
	return e
}

func (d *decoder) page() *Page {
	p := new(Page)
	flags := d.byte("page's flags")
	if flags&^pageFlags != 0 {
		d.at--
		d.fail("unknown flags of a page: " + strconv.Itoa(int(flags)))
	}
	p.Wrapped, p.Done = flags&pageWrapped != 0, flags&pageDone != 0
	p.Action = d.byte("page's action")
	if len(d.data)-d.at < 8 {
		d.fail("page's digest is cut short")
		return p
	}
	p.Digest = binary.LittleEndian.Uint64(d.data[d.at:])
	d.at += 8
	p.Source = d.string("page's source")
	p.Position = d.position("page's position")
	p.FinishedBelow = d.position("finished below")
	p.Cursor = d.bytes("cursor")
	p.Takeover = d.bytes("takeover")
	if n := d.count("count of paths", 1); n > 0 {
		p.Paths = make([]string, n)
		for i := range p.Paths {
			p.Paths[i] = d.string("page's path")
		}
	}
	if flags&pagePlanted != 0 {
		p.Planted = LSN(d.uvarint("page's first commit"))
	}
	return p
}

func (d *decoder) readFolds() []Fold {
	n := d.count("count of folds", foldMin)
	if n == 0 {
		d.fail("folds of no aggregate")
		return nil
	}
	var folds []Fold
	folds, d.folds = cutFromPool(d.folds, n, d.transactions)
	for i := range folds {
		f := &folds[i]
		f.Pipeline = d.string("fold's pipeline")
		f.Generation = d.uint32("fold's generation")
		f.Records = d.readRecords()
	}
	return folds
}

func (d *decoder) readRecords() []Record {
	n := d.count("count of records", recordMin)
	if n == 0 {
		return nil
	}
	var records []Record
	records, d.records = cutFromPool(d.records, n, d.transactions)
	for i := range records {
		records[i].Key = d.bytes("record's key")
		// A zero in place of the length plus one: the record is gone, Value stays nil.
		if d.err == nil && d.at < len(d.data) && d.data[d.at] == 0 {
			d.at++
			continue
		}
		records[i].Value = d.value("record's value")
	}
	return records
}

// cutFromPool takes n elements from pool and returns them and the rest. A pool that is too
// short is replaced: by one for all owners that are still to come, if each needs n, but
// of at most 64 elements, or n. Unused elements live as long as the commit, and most
// commits are small: with pools of always 64, one order with its aggregate took seven
// times the bytes of its message.
func cutFromPool[T any](pool []T, n, owners int) (taken, rest []T) {
	if n > len(pool) {
		pool = make([]T, max(n, min(64, n*owners)))
	}
	return pool[:n:n], pool[n:]
}

func (d *decoder) changes(changes []Change, time int64) {
	for i := range changes {
		c := &changes[i]
		d.changesToCome = len(changes) - i + d.changesBehind
		head := d.byte("change")
		if c.Op = Op(head & changeOp); c.Op < OpCreate || c.Op > OpExpire {
			d.at--
			d.fail("change " + strconv.Itoa(i) + ": unknown " + c.Op.String())
		}
		switch {
		case head&changeSameKey == 0:
			c.Key = d.key(i)
		case i == 0:
			d.fail("first change refers to a key before it")
		default:
			c.Key = changes[i-1].Key
		}
		c.ID = d.string("id")
		c.Modified = d.varint("TTL clock") + time
		c.Written = LSN(d.uvarint("written"))
		if head&changePrev != 0 {
			c.Prev = d.position("previous position")
			c.PrevModified = d.varint("previous TTL clock") + time
		}
		if head&changeAfter != 0 {
			c.After = d.present("item after")
		}
		if head&changeBefore != 0 {
			c.Before = d.present("item before")
		}
		if head&changeUndo != 0 {
			c.Undo = d.undo()
		}
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) key(change int) PartitionKey {
	enc := d.string("partition key")
	if enc == "" {
		return PartitionKey{}
	}
	if err := checkKey(enc); err != nil {
		d.fail("change " + strconv.Itoa(change) + ": partition key: " + err.Error())
		return PartitionKey{}
	}
	return PartitionKey{enc: enc}
}

func (d *decoder) undo() []document.Splice {
	n := d.count("count of splices", spliceMin)
	if n == 0 {
		d.fail("undo of no splice")
		return nil
	}
	var undo []document.Splice
	undo, d.splices = cutFromPool(d.splices, n, d.changesToCome)
	for i := range undo {
		s := &undo[i]
		// A fan-out patches the same path in each of its items; the comparison does not
		// allocate, so one string serves all of them.
		if path := d.present("splice's path"); string(path) != d.path {
			d.path = d.strings.add(path)
		}
		s.Path = d.path
		s.Offset = d.uint32("splice's offset")
		s.Len = d.uint32("splice's length")
		s.Old = d.bytes("splice's old bytes")
	}
	return undo
}
