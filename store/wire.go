package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// wireVersion begins every request and response; see WIRE.md.
const wireVersion = 1

// The kinds of requests on the wire.
const (
	wireTransact byte = iota + 1
	wireRead
	wireScan
	wireCount
	wirePatchMany
	wireRepair
	wireStatus
	wireError // responses only
	wireFold
	wireGroups
	wirePutRows
	wireVersions
	wireQuery
	wireClaims
	wireSources
	wirePatchUntil // patch-many with a time
)

var errWireShort = errors.New("message ends early")

// AppendRequest appends r in wire format version 1.
func AppendRequest(dst []byte, r *Request) []byte {
	w := wireWriter{dst}
	w.byte(wireVersion)
	w.byte(r.kind())
	w.str(string(r.Partition.Container))
	w.uint(uint64(r.Partition.Number))
	w.str(r.TraceParent)
	w.str(r.TraceState)
	switch {
	case r.Transact != nil:
		w.transact(r.Transact)
	case r.Read != nil:
		w.bool(r.Read.Settled)
		w.refs(r.Read.Refs)
	case r.Scan != nil:
		w.scope(&r.Scan.Scope)
		w.bytes(r.Scan.After)
		w.uint(uint64(r.Scan.ItemsMax))
		w.uint(uint64(r.Scan.BytesMax))
		w.bool(r.Scan.Settled)
	case r.Count != nil:
		w.scope(r.Count)
	case r.PatchMany != nil:
		w.patchMany(r.PatchMany)
		if r.PatchMany.Until != 0 {
			w.uint(uint64(r.PatchMany.Until))
		}
	case r.Sources != nil:
		w.readSources(r.Sources)
	case r.Repair != nil:
		w.repair(r.Repair)
	case r.Fold != nil:
		w.fold(r.Fold)
	case r.Groups != nil:
		w.readGroups(r.Groups)
	case r.PutRows != nil:
		w.putRows(r.PutRows)
	case r.Versions != nil:
		w.refs(r.Versions.Refs)
	case r.Query != nil:
		w.query(r.Query)
	case r.Claims != nil:
		w.readClaims(r.Claims)
	}
	return w.buf
}

func (r *Request) kind() byte {
	switch {
	case r.Transact != nil:
		return wireTransact
	case r.Read != nil:
		return wireRead
	case r.Scan != nil:
		return wireScan
	case r.Count != nil:
		return wireCount
	case r.PatchMany != nil && r.PatchMany.Until != 0:
		return wirePatchUntil
	case r.PatchMany != nil:
		return wirePatchMany
	case r.Sources != nil:
		return wireSources
	case r.Repair != nil:
		return wireRepair
	case r.Status != nil:
		return wireStatus
	case r.Fold != nil:
		return wireFold
	case r.Groups != nil:
		return wireGroups
	case r.PutRows != nil:
		return wirePutRows
	case r.Versions != nil:
		return wireVersions
	case r.Query != nil:
		return wireQuery
	case r.Claims != nil:
		return wireClaims
	}
	return 0
}

// DecodeRequest reads what AppendRequest wrote. The request aliases data.
func DecodeRequest(data []byte) (*Request, error) {
	d := wireReader{buf: data}
	d.version()
	kind := d.byte()
	r := &Request{}
	r.Partition.Container = feed.ResourceID(d.str())
	r.Partition.Number = uint32(d.uint())
	r.TraceParent = d.str()
	r.TraceState = d.str()
	switch kind {
	case wireTransact:
		r.Transact = d.transact()
	case wireRead:
		r.Read = &ReadItems{Settled: d.bool()}
		r.Read.Refs = d.refs()
	case wireScan:
		r.Scan = &Scan{Scope: d.scope(), After: d.bytes(), ItemsMax: d.int(), BytesMax: d.int(), Settled: d.bool()}
	case wireCount:
		s := d.scope()
		r.Count = &s
	case wirePatchMany:
		r.PatchMany = d.patchMany()
	case wirePatchUntil:
		r.PatchMany = d.patchMany()
		r.PatchMany.Until = int64(d.uint())
	case wireSources:
		r.Sources = d.readSources()
	case wireRepair:
		r.Repair = d.repair()
	case wireStatus:
		r.Status = &StatusRequest{}
	case wireFold:
		r.Fold = d.fold()
	case wireGroups:
		r.Groups = d.readGroups()
	case wirePutRows:
		r.PutRows = d.putRows()
	case wireVersions:
		r.Versions = &ReadVersions{Refs: d.refs()}
	case wireQuery:
		r.Query = d.query()
	case wireClaims:
		r.Claims = d.readClaims()
	default:
		d.fail(fmt.Errorf("unknown request kind %d", kind))
	}
	return r, d.end("request")
}

// appendResponse appends r in wire format version 1.
func appendResponse(dst []byte, r *Response, kind byte) []byte {
	w := wireWriter{dst}
	w.byte(wireVersion)
	if r.Err != nil {
		w.byte(wireError)
		w.uint(uint64(r.Err.Status))
		w.str(r.Err.Message)
		w.uint(uint64(r.Err.RetryAfter))
		return w.buf
	}
	w.byte(kind)
	switch kind {
	case wireTransact:
		w.uint(uint64(r.Transact.LSN))
		w.bool(r.Transact.Failed)
		w.uint(uint64(len(r.Transact.Results)))
		for i := range r.Transact.Results {
			res := &r.Transact.Results[i]
			w.uint(uint64(res.Status))
			w.str(res.Message)
			w.item(&res.Item)
		}
	case wireRead:
		w.uint(uint64(r.ReadLSN))
		w.items(r.Read)
	case wireScan:
		w.items(r.Scan.Items)
		w.bytes(r.Scan.Cursor)
		w.uint(uint64(r.Scan.LSN))
	case wireCount:
		w.uint(uint64(r.Count))
	case wirePatchMany, wirePatchUntil:
		w.patchManyResult(r.PatchMany)
	case wireSources:
		w.sources(r.Sources)
	case wireRepair:
		w.uint(uint64(r.Repair.LSN))
		w.uint(uint64(len(r.Repair.Statuses)))
		for i, s := range r.Repair.Statuses {
			w.uint(uint64(s))
			w.str(r.Repair.Reasons[i])
		}
	case wireStatus:
		w.json(r.Status)
	case wireFold:
		w.foldResult(r.Fold)
	case wireGroups:
		w.groups(r.Groups)
	case wirePutRows:
		w.putRowsResult(r.PutRows)
	case wireVersions:
		w.uint(uint64(len(r.Versions)))
		for _, e := range r.Versions {
			w.etag(e)
		}
	case wireQuery:
		w.queryResult(r.Query)
	case wireClaims:
		w.claims(r.Claims)
	}
	return w.buf
}

// DecodeResponse reads what EncodeResponse wrote. The response aliases data.
func DecodeResponse(data []byte) (*Response, error) {
	d := wireReader{buf: data}
	d.version()
	r := &Response{}
	switch kind := d.byte(); kind {
	case wireError:
		r.Err = &Error{Status: Status(d.uint()), Message: d.str()}
		r.Err.RetryAfter = durationOf(d.uint())
	case wireTransact:
		t := &TransactResult{LSN: feed.LSN(d.uint()), Failed: d.bool()}
		t.Results = make([]OpResult, d.count())
		for i := range t.Results {
			t.Results[i] = OpResult{Status: Status(d.uint()), Message: d.str(), Item: d.item()}
		}
		r.Transact = t
	case wireRead:
		r.ReadLSN = feed.LSN(d.uint())
		r.Read = d.items()
	case wireScan:
		r.Scan = &ScanResult{Items: d.items(), Cursor: d.bytes(), LSN: feed.LSN(d.uint())}
	case wireCount:
		r.Count = d.int()
	case wirePatchMany, wirePatchUntil:
		r.PatchMany = d.patchManyResult()
	case wireSources:
		r.Sources = d.sources()
	case wireRepair:
		r.Repair = &RepairResult{LSN: feed.LSN(d.uint())}
		for range d.count() {
			r.Repair.Statuses = append(r.Repair.Statuses, Status(d.uint()))
			r.Repair.Reasons = append(r.Repair.Reasons, d.str())
		}
	case wireStatus:
		r.Status = &PartitionStatus{}
		d.json(r.Status)
	case wireFold:
		r.Fold = d.foldResult()
	case wireGroups:
		r.Groups = d.groups()
	case wirePutRows:
		r.PutRows = d.putRowsResult()
	case wireVersions:
		r.Versions = make([]ETag, d.count())
		for i := range r.Versions {
			r.Versions[i] = d.etag()
		}
	case wireQuery:
		r.Query = d.queryResult()
	case wireClaims:
		r.Claims = d.claims()
	default:
		d.fail(fmt.Errorf("unknown response kind %d", kind))
	}
	return r, d.end("response")
}

func (w *wireWriter) transact(t *Transact) {
	w.str(t.Key.Encoded())
	w.bool(t.Batch)
	w.str(t.IdempotencyKey)
	w.uint(uint64(len(t.Ops)))
	for i := range t.Ops {
		op := &t.Ops[i]
		w.byte(byte(op.Kind))
		w.str(op.ID)
		w.bytes(op.Body)
		w.str(op.Condition)
		w.etag(op.IfMatch)
		w.etag(op.IfNoneMatch)
		if op.Kind == OpPatch {
			w.json(op.Patch)
		}
	}
}

func (d *wireReader) transact() *Transact {
	t := &Transact{Key: d.key(), Batch: d.bool(), IdempotencyKey: d.str()}
	t.Ops = make([]Operation, d.count())
	for i := range t.Ops {
		op := &t.Ops[i]
		op.Kind = OpKind(d.byte())
		op.ID = d.str()
		op.Body = d.bytes()
		op.Condition = d.str()
		op.IfMatch = d.etag()
		op.IfNoneMatch = d.etag()
		if op.Kind == OpPatch {
			op.Patch = []document.Op{}
			d.json(&op.Patch)
		}
	}
	return t
}

func (w *wireWriter) patchMany(p *PatchMany) {
	w.producer(p.Producer)
	w.uint(p.Epoch)
	w.str(p.Source)
	w.position(p.Position)
	w.position(p.FinishedBelow)
	w.bool(p.Plant)
	w.scope(&p.Scope)
	w.copy(&p.Copy)
	w.uint(p.Digest)
	w.uint(uint64(p.NotAfter))
	w.uint(uint64(p.ItemsMax))
}

func (d *wireReader) patchMany() *PatchMany {
	return &PatchMany{
		Producer: d.producer(), Epoch: d.uint(), Source: d.str(), Position: d.position(), FinishedBelow: d.position(),
		Plant: d.bool(), Scope: d.scope(), Copy: d.copy(), Digest: d.uint(), NotAfter: feed.LSN(d.uint()), ItemsMax: d.int(),
	}
}

func (w *wireWriter) patchManyResult(p *PatchManyResult) {
	w.uint(uint64(p.LSN))
	w.uint(uint64(p.Scanned))
	w.uint(uint64(p.Patched))
	w.bool(p.Done)
	w.bool(p.Superseded)
	w.position(p.Position)
	w.bytes(p.Cursor)
	w.refusals(p.Refused)
}

func (d *wireReader) patchManyResult() *PatchManyResult {
	return &PatchManyResult{
		LSN: feed.LSN(d.uint()), Scanned: d.int(), Patched: d.int(), Done: d.bool(), Superseded: d.bool(),
		Position: d.position(), Cursor: d.bytes(), Refused: d.refusals(),
	}
}

func (w *wireWriter) repair(r *Repair) {
	w.producer(r.Producer)
	w.uint(r.Epoch)
	w.uint(uint64(len(r.Items)))
	for i := range r.Items {
		it := &r.Items[i]
		w.ref(it.Ref)
		w.etag(it.IfMatch)
		w.uint(uint64(len(it.Copies)))
		for j := range it.Copies {
			w.copy(&it.Copies[j])
		}
	}
}

func (d *wireReader) repair() *Repair {
	r := &Repair{Producer: d.producer(), Epoch: d.uint()}
	r.Items = make([]RepairItem, d.count())
	for i := range r.Items {
		r.Items[i] = RepairItem{Ref: d.ref(), IfMatch: d.etag()}
		for range d.count() {
			r.Items[i].Copies = append(r.Items[i].Copies, d.copy())
		}
	}
	return r
}

func (w *wireWriter) copy(c *Copy) {
	w.str(c.Where)
	w.str(c.Each)
	w.fields(c.Match)
	w.fields(c.Set)
	w.byte(byte(c.Action))
}

func (d *wireReader) copy() Copy {
	return Copy{Where: d.str(), Each: d.str(), Match: d.fields(), Set: d.fields(), Action: CopyAction(d.byte())}
}

func (w *wireWriter) json(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("store: %T cannot be marshalled: %v", v, err))
	}
	w.bytes(data)
}

func (d *wireReader) json(v any) {
	data := d.bytes()
	if d.err == nil {
		if err := json.Unmarshal(data, v); err != nil {
			d.fail(err)
		}
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

// EncodeResponse returns the answer to r in wire format.
func EncodeResponse(resp *Response, r *Request) []byte {
	return appendResponse(make([]byte, 0, 512), resp, r.kind())
}
