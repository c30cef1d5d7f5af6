package store

import (
	"context"
	"errors"

	"github.com/millrace/millrace/feed"
)

// Scope selects items of one physical partition: those of a logical partition,
// those under a value of a declared index, or all of them.
type Scope struct {
	Key   feed.PartitionKey // zero: not by logical partition
	Index string            // declared index path such as /tags/*/id; "": not by index
	Value []byte            // the index value, a JSON scalar
}

// Scan reads a page of items in item order.
type Scan struct {
	Scope
	After    []byte // Cursor of the page before; nil begins
	ItemsMax int    // default 100, at most 1000
	BytesMax int    // default and limit 4 MiB
	Barrier  bool
}

// ScanResult is one page. Cursor is nil when nothing follows.
type ScanResult struct {
	Items  []Item
	Cursor []byte
	LSN    feed.LSN // of the state that was read
}

var scanKind = kind{
	name:  "scan",
	asked: func(r *Request) bool { return r.Scan != nil },
	encode: func(w *wireWriter, r *Request) {
		w.scope(&r.Scan.Scope)
		w.bytes(r.Scan.After)
		w.uint(uint64(r.Scan.ItemsMax))
		w.uint(uint64(r.Scan.BytesMax))
		w.bool(r.Scan.Barrier)
	},
	decode: func(d *wireReader, r *Request) {
		r.Scan = &Scan{Scope: d.scope(), After: d.bytes(), ItemsMax: d.int(), BytesMax: d.int(), Barrier: d.bool()}
	},
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.items(r.Scan.Items)
		w.bytes(r.Scan.Cursor)
		w.uint(uint64(r.Scan.LSN))
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Scan = &ScanResult{Items: d.items(), Cursor: d.bytes(), LSN: feed.LSN(d.uint())}
	},
}

// AppendCursor appends to dst the cursor of a scan that ends at an item: the number
// of levels of its partition key, the hash of that, its encoding, and the id. Scans
// show items in the order of their cursors.
func AppendCursor(dst []byte, key feed.PartitionKey, id string) []byte {
	dst = append(dst, byte(key.Levels()))
	dst = append(dst, key.Hash()...)
	dst = append(dst, key.Encoded()...)
	return append(dst, id...)
}

func (w *wireWriter) scope(s *Scope) {
	w.str(s.Key.Encoded())
	w.str(s.Index)
	w.bytes(s.Value)
}

func (d *wireReader) scope() Scope { return Scope{Key: d.key(), Index: d.str(), Value: d.bytes()} }

// Scan reads a page of items of one physical partition. If that was split, and s.Barrier is not set, it is a page of its
// children, one after the other: their items are in the order of its own. With s.Barrier somebody follows the
// partition's log beside, and gets *SplitError.
func (c *Container) Scan(ctx context.Context, p feed.Partition, s Scan) (*ScanResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Scan: &s})
	if _, split := errors.AsType[*SplitError](err); split && !s.Barrier {
		return c.scanHeirs(ctx, p, s, err)
	}
	if err != nil {
		return nil, err
	}
	return resp.Scan, nil
}

// scanHeirs is Scan of a partition that was split, as split says.
func (c *Container) scanHeirs(ctx context.Context, p feed.Partition, s Scan, split error) (*ScanResult, error) {
	info := c.present()
	heirs := info.HeirsOf(p.Number)
	for i, heir := range heirs {
		// A cursor is the number of levels, and from there on in the order of hashes.
		if len(s.After) > 0 && string(s.After[1:]) >= string(heir.Range.Max) {
			continue
		}
		page, err := c.Scan(ctx, feed.Partition{Container: p.Container, Number: heir.Number}, s)
		if err == nil && page.Cursor == nil && i < len(heirs)-1 {
			page.Cursor = append([]byte{byte(len(info.Spec.PartitionKey))}, heir.Range.Max...)
		}
		return page, err
	}
	return nil, split
}

var countKind = kind{
	name:   "count",
	asked:  func(r *Request) bool { return r.Count != nil },
	encode: func(w *wireWriter, r *Request) { w.scope(r.Count) },
	decode: func(d *wireReader, r *Request) {
		scope := d.scope()
		r.Count = &scope
	},
	encodeAnswer: func(w *wireWriter, r *Response) { w.uint(uint64(r.Count)) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Count = d.int() },
}

// Count counts the items in a scope of one physical partition; of its children, if that was split.
func (c *Container) Count(ctx context.Context, p feed.Partition, s Scope) (int, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Count: &s})
	if err == nil {
		return resp.Count, nil
	}
	heirs := c.present().HeirsOf(p.Number)
	if _, split := errors.AsType[*SplitError](err); !split || len(heirs) == 0 {
		return 0, err
	}
	all := 0
	for _, heir := range heirs {
		n, err := c.Count(ctx, feed.Partition{Container: p.Container, Number: heir.Number}, s)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}
