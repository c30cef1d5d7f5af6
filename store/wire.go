package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// wireVersion begins every request and response; see WIRE.md.
const wireVersion = 1

// unknownKindMessage is in what an owner answers to a request that only later releases know.
const unknownKindMessage = "unknown request kind"

var (
	errWireShort = errors.New("message ends early")
	errElements  = fmt.Errorf("lists of more than %d elements in all", requestElementsMax)
)

// AppendRequest appends r in wire format version 1.
func AppendRequest(dst []byte, r *Request) []byte {
	w := wireWriter{dst}
	k := r.Kind()
	w.byte(wireVersion)
	w.byte(byte(k))
	w.str(string(r.Partition.Container))
	w.uint(uint64(r.Partition.Number))
	w.str(r.TraceParent)
	w.str(r.TraceState)
	if k != 0 { // a request that asks for nothing is encoded too; its reader refuses it
		kinds[k].encode(&w, r)
	}
	return w.buf
}

// DecodeRequest reads the encoding of AppendRequest. The request aliases data. The error names the
// byte at which reading failed, or is an *Error if a list has more elements than it may have.
func DecodeRequest(data []byte) (*Request, error) {
	return decodeRequest(&wireReader{buf: data, elements: requestElementsMax})
}

// DecodeRead is DecodeRequest for a sender who may only read. The error is ErrForbidden for a request
// that writes, of which no list is decoded.
func DecodeRead(data []byte) (*Request, error) {
	r, err := decodeRequest(&wireReader{buf: data, elements: requestElementsMax, readsOnly: true})
	if err == nil && !r.Reads() {
		err = errWrites
	}
	return r, err
}

var errWrites = Refuse(StatusForbidden, "a request that writes came to the subject of reads")

func decodeRequest(d *wireReader) (*Request, error) {
	d.version()
	k := Kind(d.byte())
	r := &Request{}
	r.Partition.Container = feed.ResourceID(d.str())
	r.Partition.Number = uint32(d.uint())
	r.TraceParent = d.str()
	r.TraceState = d.str()
	switch {
	case d.err != nil:
	// Its text is read by clients of later releases (unknownKind), which wait for this owner's upgrade.
	case !k.known():
		d.fail(fmt.Errorf(unknownKindMessage+" %d", k))
	// Before the lists, for which whoever may not write could ask much memory. A kind of which some requests
	// change nothing is decoded, and fails at the first thing that writes.
	case d.readsOnly && kinds[k].writes != nil && !kinds[k].mayRead:
		return r, errWrites
	default:
		kinds[k].decode(d, r)
	}
	return r, d.end("request")
}

// EncodeResponse returns the answer to r in wire format version 1.
func EncodeResponse(resp *Response, r *Request) []byte {
	w := wireWriter{make([]byte, 0, 512)}
	w.byte(wireVersion)
	if resp.Err != nil {
		w.byte(byte(kindError))
		w.uint(uint64(resp.Err.Status))
		w.str(resp.Err.Message)
		w.refusalNumber(resp.Err)
		return w.buf
	}
	k := r.Kind()
	w.byte(byte(k))
	kinds[k].encodeAnswer(&w, resp)
	return w.buf
}

// DecodeResponse reads what EncodeResponse wrote. The response aliases data.
func DecodeResponse(data []byte) (*Response, error) {
	d := wireReader{buf: data, elements: len(data)} // from an owner, who is trusted
	d.version()
	r := &Response{}
	switch k := Kind(d.byte()); {
	case k == kindError:
		r.Err = &Error{Status: Status(d.uint()), Message: d.str()}
		d.refusalNumber(r.Err)
	case k.known():
		kinds[k].decodeAnswer(&d, r)
	default:
		d.fail(fmt.Errorf("unknown response kind %d", k))
	}
	return r, d.end("response")
}

// refusalNumber appends the number at the end of a refusal, whose status says what it counts.
func (w *wireWriter) refusalNumber(e *Error) {
	switch {
	case e.Status == StatusFenced:
		w.uint(e.Epoch)
	case e.Status.TellsLSN():
		w.uint(uint64(e.LSN))
	default:
		w.uint(uint64(e.RetryAfter))
	}
}

func (d *wireReader) refusalNumber(e *Error) {
	n := d.uint()
	switch {
	case e.Status == StatusFenced:
		e.Epoch = n
	case e.Status.TellsLSN():
		e.LSN = feed.LSN(n)
	default:
		e.RetryAfter = durationOf(n)
	}
}

// wireWriter appends primitives: unsigned varints, and byte strings behind their
// length plus one, zero meaning nil.
type wireWriter struct{ buf []byte }

func (w *wireWriter) byte(b byte)   { w.buf = append(w.buf, b) }
func (w *wireWriter) uint(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }
func (w *wireWriter) bool(b bool) {
	if b {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

func (w *wireWriter) str(s string) {
	w.uint(uint64(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *wireWriter) bytes(b []byte) {
	if b == nil {
		w.uint(0)
		return
	}
	w.uint(uint64(len(b)) + 1)
	w.buf = append(w.buf, b...)
}

func (w *wireWriter) position(p feed.Position) {
	w.uint(uint64(p.LSN))
	w.uint(uint64(p.Index))
}

func (w *wireWriter) etag(e ETag) { w.position(feed.Position(e)) }

func (w *wireWriter) ref(r ItemRef) {
	w.str(r.Key.Encoded())
	w.str(r.ID)
}

func (w *wireWriter) refs(refs []ItemRef) {
	w.uint(uint64(len(refs)))
	for _, r := range refs {
		w.ref(r)
	}
}

func (w *wireWriter) producer(p feed.Producer) {
	w.str(p.Pipeline)
	w.uint(uint64(p.Generation))
	w.str(p.Source)
}

func (w *wireWriter) item(it *Item) {
	w.str(it.Key.Encoded())
	w.str(it.ID)
	w.bytes(it.Body)
	w.etag(it.ETag)
	w.uint(uint64(it.Modified))
	w.uint(uint64(it.Written))
}

func (w *wireWriter) items(items []Item) {
	w.uint(uint64(len(items)))
	for i := range items {
		w.item(&items[i])
	}
}

func (w *wireWriter) json(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("store: %T cannot be marshalled: %v", v, err))
	}
	w.bytes(data)
}

// wireReader reads primitives. After the first fault all reads return zero values, so callers
// read on and check once, with end.
type wireReader struct {
	buf []byte
	at  int
	err error
	// elements is how many more elements of lists may be read.
	elements int
	// readsOnly says that reading fails with errWrites at the first thing that writes.
	readsOnly bool
}

// requestElementsMax bounds the elements of all lists of one request. One byte of a message can
// stand for an element that takes 200 bytes of memory, and whoever may only read may send
// a message of the largest size: without a bound it costs the owner more than a gigabyte to
// find that the message makes no sense. Rows are what most of a request can be; a message of
// CommitBytesMax has at most as many, of 24 bytes each.
const requestElementsMax = CommitBytesMax / 24

func (d *wireReader) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// end reports the first fault, or bytes that are left over.
func (d *wireReader) end(what string) error {
	if d.err == nil && d.at != len(d.buf) {
		d.err = fmt.Errorf("%d bytes left over", len(d.buf)-d.at)
	}
	if d.err != nil {
		return fmt.Errorf("decode %s at byte %d: %w", what, d.at, d.err)
	}
	return nil
}

func (d *wireReader) version() {
	if v := d.byte(); d.err == nil && v != wireVersion {
		d.fail(fmt.Errorf("wire format version %d is not known to this release (it knows %d)", v, wireVersion))
	}
}

func (d *wireReader) byte() byte {
	if d.err != nil || d.at >= len(d.buf) {
		d.fail(errWireShort)
		return 0
	}
	d.at++
	return d.buf[d.at-1]
}

func (d *wireReader) bool() bool { return d.byte() == 1 }

func (d *wireReader) uint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.buf[d.at:])
	if n <= 0 {
		d.fail(errWireShort)
		return 0
	}
	d.at += n
	return v
}

func (d *wireReader) int() int { return int(min(d.uint(), 1<<62)) }

// count reads a number of elements, each at least a byte long. A number that the rest of the
// message cannot hold, or that is too high for a request, is refused before memory is made for it.
func (d *wireReader) count() int {
	n := d.uint()
	if n > uint64(len(d.buf)-d.at) {
		d.fail(errWireShort)
		return 0
	}
	if n > uint64(d.elements) {
		d.fail(errElements)
		return 0
	}
	d.elements -= int(n)
	return int(n)
}

// countMax is count of a list that has a limit of its own. refuse refuses a list of more, given how
// many it has.
func (d *wireReader) countMax(most int, refuse func(n int) *Error) int {
	n := d.count()
	if n > most {
		d.fail(refuse(n))
		return 0
	}
	return n
}

func (d *wireReader) take(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.buf)-d.at) {
		d.fail(errWireShort)
		return nil
	}
	// Cut at its end too: whoever appends to it makes a copy, and does not write over what follows in the
	// message.
	b := d.buf[d.at : d.at+int(n) : d.at+int(n)]
	d.at += int(n)
	return b
}

func (d *wireReader) str() string { return string(d.take(d.uint())) }

func (d *wireReader) bytes() []byte {
	n := d.uint()
	if n == 0 {
		return nil
	}
	return d.take(n - 1)
}

func (d *wireReader) position() feed.Position {
	return feed.Position{LSN: feed.LSN(d.uint()), Index: uint32(d.uint())}
}

func (d *wireReader) etag() ETag { return ETag(d.position()) }

func (d *wireReader) key() feed.PartitionKey {
	enc := d.str()
	// No key, as of a request that is not for one logical partition. As an encoding it would be an error.
	if enc == "" || d.err != nil {
		return feed.PartitionKey{}
	}
	k, err := feed.PartitionKeyFromEncoded(enc)
	if err != nil {
		d.fail(err)
	}
	return k
}

func (d *wireReader) ref() ItemRef { return ItemRef{Key: d.key(), ID: d.str()} }

func (d *wireReader) refs() []ItemRef {
	refs := make([]ItemRef, d.count())
	for i := range refs {
		refs[i] = d.ref()
	}
	return refs
}

func (d *wireReader) producer() feed.Producer {
	return feed.Producer{Pipeline: d.str(), Generation: uint32(d.uint()), Source: d.str()}
}

func (d *wireReader) item() Item {
	return Item{
		Key: d.key(), ID: d.str(), Body: d.bytes(), ETag: d.etag(),
		Modified: int64(d.uint()), Written: feed.LSN(d.uint()),
	}
}

func (d *wireReader) items() []Item {
	items := make([]Item, d.count())
	for i := range items {
		items[i] = d.item()
	}
	return items
}

// durationOf bounds a duration that a peer states: nobody is told to wait for longer than an hour.
func durationOf(v uint64) time.Duration { return time.Duration(min(v, uint64(time.Hour))) }

// patch reads the operations of a patch.
func (d *wireReader) patch() []document.Op {
	data := d.bytes()
	if d.err != nil {
		return nil
	}
	ops, n, err := document.DecodeList[document.Op](data, PatchOpsMax)
	switch {
	case err != nil:
		d.fail(err)
	case n > PatchOpsMax:
		d.fail(RefusePatch(n))
	}
	return ops
}

func (d *wireReader) json(v any) {
	data := d.bytes()
	if d.err == nil {
		if err := json.Unmarshal(data, v); err != nil {
			d.fail(err)
		}
	}
}
