package store_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

func key(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var compareKeys = cmp.Comparer(func(a, b feed.PartitionKey) bool { return a == b })

func requests(t testing.TB) []*store.Request {
	t.Helper()
	p := feed.Partition{Container: "abcdefgh", Number: 3}
	k := key(t, "bikes", true)
	producer := feed.Producer{Pipeline: "names", Generation: 2, Source: "source:abcdefgh/0"}
	c := store.Copy{
		Where: "x > 1", Each: "tags", Match: []store.Field{{Path: "id", Value: []byte(`"a"`)}},
		Set: []store.Field{{Path: "name", Value: []byte(`"b"`)}, {Path: "gone"}}, Action: store.CopySet,
	}
	return []*store.Request{
		{Partition: p, TraceParent: "00-1", TraceState: "a=b", Transact: &store.Transact{
			Key: k, Batch: true, IdempotencyKey: "once", Ops: []store.Operation{
				{Kind: store.OpCreate, Body: []byte(`{"id":"1"}`)},
				{
					Kind: store.OpPatch, ID: "1", Condition: "a = 1", IfMatch: store.ETag{LSN: 4, Index: 5},
					Patch: []document.Op{{Kind: "set", Path: "/a", Value: json.RawMessage(`1.10`)}},
				},
				{Kind: store.OpRead, ID: "1", IfNoneMatch: store.ETag{LSN: 9}},
			},
		}},
		{Partition: p, PatchMany: &store.PatchMany{
			Producer: producer, Source: "s", Position: feed.Position{LSN: 3}, Scope: store.Scope{Key: k}, Copy: c, NotAfter: 12, Until: 1700000000000,
		}},
		{Partition: p, Sources: &store.ReadSources{
			Refs: []store.ItemRef{{Key: k, ID: "x"}, {Key: k, ID: "y"}}, Wish: tombstone.Wish{Where: "a = 1", Expressions: 2, Fields: []string{"name", "b.c"}},
		}},
		{Partition: p, Sources: &store.ReadSources{Refs: []store.ItemRef{{Key: k, ID: "x"}}}},
		{Partition: p, Read: &store.ReadItems{Barrier: true, Refs: []store.ItemRef{{Key: k, ID: "x"}}}},
		{Partition: p, Versions: &store.ReadVersions{Refs: []store.ItemRef{{Key: k, ID: "x"}, {Key: k, ID: "y"}}}},
		{Partition: p, Scan: &store.Scan{Scope: store.Scope{Index: "/tags/*/id", Value: []byte(`"t"`)}, After: []byte{1}, ItemsMax: 3, BytesMax: 4}},
		{Partition: p, Count: &store.Scope{Key: k}},
		{Partition: p, PatchMany: &store.PatchMany{
			Producer: producer, Epoch: 7, Source: "s", Position: feed.Position{LSN: 3, Index: 1}, FinishedBelow: feed.Position{LSN: 2},
			Plant: true, Scope: store.Scope{Key: k}, Copy: c, Digest: 1 << 63, NotAfter: 12, ItemsMax: 5,
		}},
		{Partition: p, Repair: &store.Repair{Producer: producer, Epoch: 1, Items: []store.RepairItem{
			{Ref: store.ItemRef{Key: k, ID: "x"}, IfMatch: store.ETag{LSN: 1}, Copies: []store.Copy{c}},
		}}},
		{Partition: p, Status: &store.StatusRequest{}},
		{Partition: p, Fold: &store.FoldMany{
			Producer: producer, Epoch: 7, After: feed.Position{LSN: 3, Index: 1}, UpTo: feed.Position{LSN: 1 << 60, Index: 1 << 31}, Delta: []byte{1, 0, 255},
		}},
		{Partition: p, Fold: &store.FoldMany{Producer: producer, Epoch: 1, Ask: true}},
		{Partition: p, Fold: &store.FoldMany{Producer: producer, Epoch: 1, Delta: []byte{}, Mend: true, Content: 1 << 63}},
		{Partition: p, Groups: &store.ReadGroups{Pipeline: "totals", Generation: 1<<32 - 1, Groups: []string{"a", "", "\x08c\x00"}}},
		{Partition: p, Groups: &store.ReadGroups{Pipeline: "totals", Generation: 1, Groups: []string{}}},
		{Partition: p, Groups: &store.ReadGroups{Pipeline: "totals", Generation: 1, After: "\x08c\x00", Max: 1000}},
		{Partition: p, PutRows: &store.PutRows{
			Producer: producer, Epoch: 2, After: feed.Position{LSN: 1}, UpTo: feed.Position{LSN: 2}, Rows: []store.Row{
				{Ref: store.ItemRef{Key: k, ID: "r"}, Body: []byte(`{"id":"r"}`), Source: `customer/["c"]/o#3`},
				{Ref: store.ItemRef{Key: k, ID: "gone"}, Source: "s"},
			},
		}},
		{Partition: p, PutRows: &store.PutRows{Producer: producer, Epoch: 2, Ask: true}},
		{Partition: p, Query: &store.Query{
			Text: "SELECT * FROM c WHERE c.a = @a", Params: []store.QueryParam{{Name: "a", Value: []byte("1.50")}, {Name: "b", Value: []byte("null")}},
			Key: k, Range: feed.Range{Min: "\x01", Max: feed.EPKMax}, Now: time.UnixMicro(1700000000000001).UTC(), After: []byte{0, 1},
			Via: "/price", RowsMax: 10, BytesMax: 1 << 20, Last: true, System: true, RID: [8]byte{1, 255}, Explain: true,
		}},
		{Partition: p, Query: &store.Query{Text: "SELECT 1", Now: time.UnixMicro(0).UTC(), After: []byte{}}},
		{Partition: p, PendingRows: &store.ReadPendingRows{Pipeline: "flat", Generation: 1<<32 - 1, After: []byte("c\x00"), Max: 1000}},
		{Partition: p, PendingRows: &store.ReadPendingRows{Pipeline: "flat", Generation: 1}},
		{Partition: p, Pin: &store.PinSnapshot{Holder: "pipe/a-1/1/source/c7k2x4ab/0", LogMax: 1 << 40}},
		{Partition: p, Pin: &store.PinSnapshot{Holder: "x", Release: true}},
		{Partition: p, Pinned: &store.ReadPinned{Holder: "x", ID: "00000000000000000009-0123456789abcdef", From: 1 << 31}},
		{Partition: p, Pinned: &store.ReadPinned{}},
		{Partition: p, Snapshot: &store.ReadSnapshot{}},
		{Partition: p, Snapshot: &store.ReadSnapshot{ID: "00000000000000000005-434902f483013f96", Part: 300}},
		{Partition: p, States: &store.ReadStates{Pipeline: "totals", Generation: 7, Groups: []string{"a", "\x08c\x00"}}},
		{Partition: p, Split: &store.SplitPartition{}},
		{Partition: p, Split: &store.SplitPartition{At: "\x12\x00\xff", Dry: true}},
		{Partition: p, Split: &store.SplitPartition{Cancel: true}},
		{Partition: p, Transact: &store.Transact{
			Key: k, Batch: true, Guarded: true, Since: 8, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpDelete, ID: "1"}},
		}},
		{Partition: p, Transact: &store.Transact{Key: k, Guarded: true, Ops: []store.Operation{}}},
		{Partition: p, Query: &store.Query{
			Text: "SELECT udf.f(c.a) FROM c", Key: k, Now: time.UnixMicro(1700000000000000).UTC(),
			Functions: []store.QueryFunction{{Name: "f", Body: "function (a) { return a }"}, {Name: "g"}},
		}},
	}
}

func responses(t testing.TB) []*store.Response {
	t.Helper()
	item := store.Item{Key: key(t, "a"), ID: "i", Body: []byte(`{}`), ETag: store.ETag{LSN: 1, Index: 2}, Modified: 5, Written: 1}
	return []*store.Response{
		{Transact: &store.TransactResult{LSN: 2, Failed: true, Results: []store.OpResult{{Status: 409, Message: "taken"}, {Status: 424, Item: item}}}},
		{PatchMany: &store.PatchManyResult{LSN: 1, Done: true}},
		{Sources: &store.SourcesResult{InForce: true, Sources: []store.Source{
			{Item: item},
			{Gone: &tombstone.Stone{Position: feed.Position{LSN: 7, Index: 1}, Time: 1700000000000, Values: [][]byte{[]byte(`"a"`), nil, {}}}},
			{Gone: &tombstone.Stone{Time: -1, Values: [][]byte{}}, Expiring: true},
		}}},
		{Sources: &store.SourcesResult{}},
		{Read: []store.Item{item, {}}, ReadLSN: 9},
		{Versions: []store.ETag{{LSN: 4, Index: 1}, {}}},
		{Scan: &store.ScanResult{Items: []store.Item{item}, Cursor: []byte("c"), LSN: 4}},
		{Count: 77},
		{PatchMany: &store.PatchManyResult{
			LSN: 1, Scanned: 2, Patched: 3, Done: true, Superseded: true,
			Position: feed.Position{LSN: 8}, Cursor: []byte{}, Refused: []store.Refusal{{Ref: store.ItemRef{Key: key(t, 1.5), ID: "r"}, Status: 413, Reason: "big"}},
		}},
		{Repair: &store.RepairResult{LSN: 1, Statuses: []store.Status{200, 413}, Reasons: []string{"", "big"}}},
		{Status: &store.PartitionStatus{Owner: "o", Epoch: 1, Applied: 2, Indexes: []store.IndexState{{Path: "/a", Ready: true}}, Rules: []store.RuleState{
			{Pipeline: "totals", Generation: 2, Active: true, Folds: true, Published: true, Swept: true, Since: 9},
		}}},
		{Fold: &store.FoldResult{LSN: 4, Applied: true, Position: feed.Position{LSN: 8, Index: 3}}},
		{Fold: &store.FoldResult{LSN: 4, Position: feed.Position{LSN: 8}}},
		{Fold: &store.FoldResult{LSN: 4, Applied: true, Refused: []store.Refusal{{Ref: store.ItemRef{Key: key(t, 1.5), ID: "r"}, Status: 413, Reason: "big"}}}},
		{Groups: &store.GroupsResult{
			LSN: 5, Content: []byte{1, 2}, Digest: 1 << 63, Last: "\x08c\x00",
			Positions: []store.ProducerPosition{{Source: "source:abcdefgh/0", Position: feed.Position{LSN: 7, Index: 1}}, {Source: "repair"}},
		}},
		{Groups: &store.GroupsResult{LSN: 5, Content: []byte{}}},
		{Groups: &store.GroupsResult{LSN: 5}},
		{PutRows: &store.PutRowsResult{LSN: 6, Applied: true, Position: feed.Position{LSN: 9}, Refused: []store.Refusal{{Ref: store.ItemRef{Key: key(t, "a"), ID: "r"}, Status: 409, Reason: "held"}}}},
		{PutRows: &store.PutRowsResult{LSN: 6, Position: feed.Position{LSN: 9}}},
		{Query: &store.QueryResult{
			Rows: []store.QueryRow{{Key: []byte{1, 0}, Body: []byte(`{"a":1.50}`)}, {Key: []byte{}, Body: []byte{2}}}, More: true, Reached: []byte{3}, Via: "items",
			Metrics: store.QueryMetrics{Access: "scan", Index: "/a", Entries: 1, Items: 2, Bytes: 3, Rows: 4, Time: time.Second}, LSN: 77,
		}},
		{Query: &store.QueryResult{}},
		{PendingRows: &store.PendingRowsResult{LSN: 7, Rows: []store.PendingRow{{Source: "sale/[\"k\"]/a", Body: []byte(`{"id":"r"}`)}, {Source: "b", Body: []byte("{}")}}, Last: []byte("c\x01")}},
		{PendingRows: &store.PendingRowsResult{LSN: 7}},
		{Pin: &store.PinResult{State: store.PinReady, Trimmed: true, ID: "00000000000000000009-0123456789abcdef", LSN: 9, Items: 1 << 33, LogBytes: 5, HeldBytes: 1 << 50}},
		{Pin: &store.PinResult{}},
		{Pinned: &store.PinnedPage{Items: []store.Item{item, {}}, Log: feed.LogID{1, 2}, LSN: 9, Sum: 1 << 63, Time: 1700000000000}},
		{Pinned: &store.PinnedPage{Items: []store.Item{}}},
		{Snapshot: &store.SnapshotObject{}},
		{Snapshot: &store.SnapshotObject{ID: "00000000000000000005-434902f483013f96", Data: []byte{1, 2}}},
		{States: &store.StatesResult{States: [][]byte{{1, 2}, nil, {}}}},
		{Split: &store.SplitResult{ID: "s", Children: []store.PartitionInfo{{Number: 4, Range: feed.Range{Max: "\x12"}}}}},
		{Split: &store.SplitResult{Children: []store.PartitionInfo{}}},
		{Split: &store.SplitResult{ID: "c", Children: []store.PartitionInfo{}}},
		{Transact: &store.TransactResult{LSN: 9, Results: []store.OpResult{{Status: store.StatusNoContent, Item: store.Item{Key: key(t, "a"), ID: "1"}}}}},
		{Transact: &store.TransactResult{LSN: 7, Results: []store.OpResult{}}},
		{Query: &store.QueryResult{More: true, LSN: 4}},
	}
}

func TestWireCarriesEveryKind(t *testing.T) {
	tried := map[store.Kind]bool{}
	for i, want := range requests(t) {
		tried[want.Kind()] = true
		got, err := store.DecodeRequest(store.AppendRequest(nil, want))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if diff := cmp.Diff(want, got, compareKeys); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i, diff)
		}
		resp := responses(t)[i]
		back, err := store.DecodeResponse(store.EncodeResponse(resp, want))
		if err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
		if diff := cmp.Diff(resp, back, compareKeys); diff != "" {
			t.Errorf("response %d (-want +got):\n%s", i, diff)
		}
	}
	for k := store.Kind(1); k < 255; k++ {
		if k.String() != "unknown" && !tried[k] {
			t.Errorf("no request of the kind %q was tried", k)
		}
	}
	for _, refusal := range refusals {
		back, err := store.DecodeResponse(store.EncodeResponse(refusal, requests(t)[0]))
		if diff := cmp.Diff(refusal, back); diff != "" || err != nil {
			t.Errorf("refusal: %v (-want +got):\n%s", err, diff)
		}
	}
}

// refusals are of all kinds of numbers.
var refusals = []*store.Response{
	{Err: &store.Error{Status: 503, Message: "later", RetryAfter: 7}},
	{Err: &store.Error{Status: store.StatusFenced, Message: "late", Epoch: math.MaxUint64}},
	{Err: &store.Error{Status: store.StatusBadRequest, Message: "no such member", LSN: 7}},
	{Err: &store.Error{Status: store.StatusNotFound, Message: "gone", LSN: math.MaxUint64}},
	{Err: &store.Error{Status: store.StatusConflict, Message: "taken", LSN: 8}},
	{Err: &store.Error{Status: store.StatusPreconditionFailed, Message: "another", LSN: 9}},
	{Err: &store.Error{Status: store.StatusTooLarge, Message: "large", LSN: 1}},
	{Err: &store.Error{Status: store.StatusConflict, Message: "of an earlier release"}},
}

func TestWireRefusesWhatItCannotRead(t *testing.T) {
	for i, r := range requests(t) {
		data := store.AppendRequest(nil, r)
		for n := range data {
			if _, err := store.DecodeRequest(data[:n]); err == nil {
				t.Errorf("request %d cut to %d of %d bytes was accepted", i, n, len(data))
			}
		}
		if _, err := store.DecodeRequest(append([]byte{9}, data[1:]...)); err == nil {
			t.Errorf("request %d of a future version was accepted", i)
		}
		if _, err := store.DecodeRequest(append(data, 0)); err == nil {
			t.Errorf("request %d with a byte behind it was accepted", i)
		}
	}
}

// A message may name more elements than a request can have, each of a byte or two, which
// would cost a hundred times as much memory.
func TestWireBoundsTheElementsOfARequest(t *testing.T) {
	many := store.CommitBytesMax / 24
	r := &store.Request{Read: &store.ReadItems{Refs: make([]store.ItemRef, many)}}
	if _, err := store.DecodeRequest(store.AppendRequest(nil, r)); err != nil {
		t.Errorf("%d elements: %v", many, err)
	}
	r.Read.Refs = make([]store.ItemRef, many+1)
	if _, err := store.DecodeRequest(store.AppendRequest(nil, r)); err == nil || !strings.Contains(err.Error(), "elements") {
		t.Errorf("%d elements: %v", many+1, err)
	}
	nested := &store.Repair{Items: make([]store.RepairItem, 3)}
	for i := range nested.Items {
		nested.Items[i].Copies = make([]store.Copy, many/3)
	}
	if _, err := store.DecodeRequest(store.AppendRequest(nil, &store.Request{Repair: nested})); err == nil || !strings.Contains(err.Error(), "elements") {
		t.Errorf("%d elements in three lists: %v", many, err)
	}
}

// A list that has a limit of its own is refused by its count, before memory is made for it. What was
// refused by the owner until then took up to 650 MiB.
func TestWire_ListsThatAreTooLongAreRefusedUnread(t *testing.T) {
	const size = 8 << 20
	// A patch as JSON stands behind its length, and a batch of one byte for each member is small.
	list := []byte("[" + strings.Repeat("{},", size/3) + "{}]")
	patch := store.AppendRequest(nil, &store.Request{Transact: &store.Transact{Ops: []store.Operation{{Kind: store.OpPatch, ID: "x"}}}})
	patch = append(patch[:len(patch)-len("\x05null")], binary.AppendUvarint(nil, uint64(len(list))+1)...)
	patch = append(patch, list...)
	for name, c := range map[string]struct {
		data []byte
		want *store.Error
	}{
		"a patch": {patch, store.RefusePatch(size/3 + 1)},
		"a batch": {
			store.AppendRequest(nil, &store.Request{Transact: &store.Transact{Ops: make([]store.Operation, 200_000)}}),
			store.RefuseBatch(200_000),
		},
		"parameters": {
			store.AppendRequest(nil, &store.Request{Query: &store.Query{Params: make([]store.QueryParam, 200_000)}}),
			store.RefuseParams(200_000),
		},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := allocatedBy(func() error { _, err := store.DecodeRequest(c.data); return err })
			if got, ok := errors.AsType[*store.Error](err); !ok || *got != *c.want || made > 1<<20 {
				t.Errorf("%v, %d bytes allocated; want %v and fewer than 1 MiB", err, made, c.want)
			}
		})
	}
}

// Of a request that writes, nothing is made for somebody who may only read.
func TestWire_WritesAreRefusedUnreadToReaders(t *testing.T) {
	rows := &store.PutRows{Rows: make([]store.Row, 200_000)}
	write := store.Operation{Kind: store.OpUpsert, Body: []byte(`{}`)}
	read := store.Operation{Kind: store.OpRead, ID: "x"}
	for name, r := range map[string]*store.Request{
		"rows":            {PutRows: rows},
		"a write":         {Transact: &store.Transact{Ops: []store.Operation{write}}},
		"a write, hidden": {Transact: &store.Transact{Ops: []store.Operation{read, write}, Batch: true}},
		"no operation":    {Transact: &store.Transact{Ops: []store.Operation{{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			data := store.AppendRequest(nil, r)
			made, err := allocatedBy(func() error { _, err := store.DecodeRead(data); return err })
			if !errors.Is(err, store.ErrForbidden) || made > 1<<20 {
				t.Errorf("%v, %d bytes allocated; want 403 and fewer than 1 MiB", err, made)
			}
		})
	}
	for i, r := range requests(t) {
		_, err := store.DecodeRead(store.AppendRequest(nil, r))
		if r.Reads() != (err == nil) || err != nil && !errors.Is(err, store.ErrForbidden) {
			t.Errorf("request %d (%s): %v; it reads: %v", i, r.Kind(), err, r.Reads())
		}
	}
}

// allocatedBy returns how many bytes were allocated while f ran. No test may run beside.
func allocatedBy(f func() error) (bytes uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func FuzzDecodeRequest(f *testing.F) {
	for _, r := range requests(f) {
		f.Add(store.AppendRequest(nil, r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := store.DecodeRequest(data)
		if err != nil {
			return
		}
		again, err := store.DecodeRequest(store.AppendRequest(nil, r))
		if diff := cmp.Diff(r, again, compareKeys); err != nil || diff != "" {
			t.Errorf("decoded, encoded, decoded: %v\n%s", err, diff)
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	for i, r := range responses(f) {
		f.Add(store.EncodeResponse(r, requests(f)[i]))
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = store.DecodeResponse(data) // must not panic
	})
}

func TestETagPrintsAndParses(t *testing.T) {
	for _, want := range []store.ETag{{}, {LSN: 1}, {LSN: 1 << 60, Index: 4_000_000_000}} {
		got, err := store.ParseETag(want.String())
		if err != nil || got != want {
			t.Errorf("ParseETag(%q) = %v, %v", want, got, err)
		}
		quoted, err := store.ParseETag(`"` + want.String() + `"`)
		if err != nil || quoted != want {
			t.Errorf("quoted %q = %v, %v", want, quoted, err)
		}
	}
	for _, bad := range []string{"x", "1-1", "0000000000000001", "0000000000000001-1 ", "0000000000000001-01"} {
		if e, err := store.ParseETag(bad); err == nil {
			t.Errorf("ParseETag(%q) = %v", bad, e)
		}
	}
}

func TestTTLPrintsAndParses(t *testing.T) {
	for text, want := range map[string]store.TTL{"off": 0, "": 0, "on": -1, "36h": 129600, "90": 90, "1s": 1, "2147483647s": 2147483647} {
		var got store.TTL
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", text, got, err, want)
		}
		var back store.TTL
		if err := back.UnmarshalText([]byte(got.String())); err != nil || back != want {
			t.Errorf("%q printed as %q, read as %d, %v", text, got, back, err)
		}
	}
	for _, bad := range []string{"0", "-1", "1ms", "1.5s", "2147483648s", "yes"} {
		var got store.TTL
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was accepted as %d", bad, got)
		}
	}
}

func TestSettingsWish(t *testing.T) {
	info := &store.ContainerInfo{Spec: store.ContainerSpec{Indexes: []string{"/a", "/b"}, TTL: 5}, IndexesWanted: []string{"/c", "/a"}}
	now := store.Settings{NextNumber: 3, Indexes: []store.IndexSetting{{Number: 1, Path: "/a", Ready: true}, {Number: 2, Path: "/old", Ready: true}}}
	want := store.Settings{NextNumber: 5, TTL: 5, Indexes: []store.IndexSetting{
		{Number: 1, Path: "/a", Ready: true}, {Number: 3, Path: "/b", Ordered: true}, {Number: 4, Path: "/c", Ordered: true},
	}}
	got, changed := now.Wish(info)
	if diff := cmp.Diff(want, got); diff != "" || !changed {
		t.Errorf("changed %v (-want +got):\n%s", changed, diff)
	}
	if _, changed := got.Wish(info); changed {
		t.Error("settings as wished are wished anew")
	}
}
