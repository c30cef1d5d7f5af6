package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// archive is a store with a container of items, and who tells of their versions.
type archive struct {
	*storetest.Store
	t  *testing.T
	ct *store.Container
	i  *inspect.Inspector
}

func newArchive(t *testing.T, cfg owner.Config, spec store.ContainerSpec) *archive {
	t.Helper()
	a := &archive{Store: storetest.System(t), t: t}
	// Before there are logs: beside them a registry that is not there is a lost one.
	records, err := registry.Open(t.Context(), a.JS, a.Client, registry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a.Own(t, cfg)
	spec.PartitionKey = []string{"/k"}
	a.ct = a.Container(t, "things", spec)
	a.i = inspect.New(&inspect.Config{JetStream: a.JS, Client: a.Client, Registry: records})
	t.Cleanup(a.i.Close)
	return a
}

func (a *archive) key() feed.PartitionKey {
	a.t.Helper()
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *archive) put(ctx context.Context, item string) feed.Position {
	a.t.Helper()
	written, err := a.ct.Upsert(ctx, []byte(item))
	if err != nil {
		a.t.Fatal(err)
	}
	return feed.Position(written.ETag)
}

func (a *archive) remove(id string) {
	a.t.Helper()
	if err := a.ct.Delete(a.t.Context(), a.key(), id); err != nil {
		a.t.Fatal(err)
	}
}

func (a *archive) history(id string, r inspect.HistoryRequest) *inspect.History {
	a.t.Helper()
	h, err := a.i.History(a.t.Context(), a.ct, store.ItemRef{Key: a.key(), ID: id}, r)
	if err != nil {
		a.t.Fatal(err)
	}
	return h
}

// lines are versions in a form to compare: what was done, by whom, and each field.
func lines(h *inspect.History) []string {
	all := []string{}
	for i := range h.Versions {
		v := &h.Versions[i]
		text := v.Op + " by " + v.Writer.String()
		for j := range v.Fields {
			f := &v.Fields[j]
			text += fmt.Sprintf("; %s: %s -> %s", f.Field, f.Before, f.After)
		}
		all = append(all, text)
	}
	return all
}

func wantLines(t *testing.T, h *inspect.History, ends inspect.HistoryEnd, want ...string) {
	t.Helper()
	if d := cmp.Diff(append([]string{}, want...), lines(h)); d != "" || h.Ends != ends {
		t.Errorf("it ends with %s, want %s\n%s", h.Ends, ends, d)
	}
	if h.Says() == "" {
		t.Error("it does not say why it ends")
	}
}

// before reads where a history goes on.
func before(t *testing.T, h *inspect.History) inspect.HistoryRequest {
	t.Helper()
	at, err := feed.ParsePosition(h.Before)
	if err != nil {
		t.Fatal(err)
	}
	return inspect.HistoryRequest{Before: at}
}

func TestHistory_TellsWhatChangedBackToTheBeginning(t *testing.T) {
	t.Parallel()
	a := newArchive(t, owner.Config{}, store.ContainerSpec{})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	a.put(t.Context(), `{"id":"1","k":"k","n":1.50}`)
	a.put(t.Context(), `{"id":"2","k":"k"}`)
	second := a.put(trace.ContextWithSpanContext(t.Context(), span), `{"id":"1","k":"k","n":2,"of":{"a":[1]}}`)
	a.put(t.Context(), `{"k":"k","id":"1","n":2.0,"of":{"a":[1]}}`)

	h := a.history("1", inspect.HistoryRequest{})
	wantLines(t, h, inspect.EndsWithCreate,
		"replace by client", `replace by client; n: 1.50 -> 2; of: absent -> {"a":[1]}`,
		`create by client; id: absent -> "1"; k: absent -> "k"; n: absent -> 1.50`)
	if v := h.Versions[1]; v.Trace != span.TraceID().String() || v.Position != second.String() || v.ETag != store.ETag(second) || v.LSN != second.LSN {
		t.Errorf("the second version is %+v, want that at %s with its trace", v, second)
	}
	if h.Gone || h.Note() != "" || h.Versions[0].Trace != "" {
		t.Errorf("it is there, and has a trace that nobody told: %+v", h)
	}
	// A create tells of nothing before it: the log does.
	older := a.history("1", before(t, h))
	wantLines(t, older, inspect.EndsWithLog)

	// One version at a time leads through the same.
	var steps []string
	r := inspect.HistoryRequest{Versions: 1}
	for len(steps) < len(h.Versions) {
		one := a.history("1", r)
		steps = append(steps, lines(one)...)
		r.Before = before(t, one).Before
	}
	if d := cmp.Diff(lines(h), steps); d != "" {
		t.Error(d)
	}
}

func TestHistory_ItemsThatAreGone(t *testing.T) {
	t.Parallel()
	a := newArchive(t, owner.Config{}, store.ContainerSpec{})
	wantLines(t, a.history("1", inspect.HistoryRequest{}), inspect.EndsWithLog)
	a.put(t.Context(), `{"id":"1","k":"k","n":1}`)
	a.remove("1")
	for i := range 100 { // it lies far back
		a.put(t.Context(), fmt.Sprintf(`{"id":"other","k":"k","n":%d}`, i))
	}
	first := []string{`delete by client; id: "1" -> absent; k: "k" -> absent; n: 1 -> absent`, `create by client; id: absent -> "1"; k: absent -> "k"; n: absent -> 1`}
	gone := a.history("1", inspect.HistoryRequest{})
	wantLines(t, gone, inspect.EndsWithCreate, first...)
	if !gone.Gone || gone.Note() == "" || gone.Versions[0].Bytes != 0 {
		t.Errorf("it is not said that it is gone: %+v", gone)
	}
	// It is made again: its first life is behind its create.
	a.put(t.Context(), `{"id":"1","k":"k"}`)
	again := a.history("1", inspect.HistoryRequest{})
	wantLines(t, again, inspect.EndsWithCreate, `create by client; id: absent -> "1"; k: absent -> "k"`)
	wantLines(t, a.history("1", before(t, again)), inspect.EndsWithCreate, first...)
	// Another item has its name in another logical partition.
	other, err := feed.NewPartitionKey("other")
	if err != nil {
		t.Fatal(err)
	}
	h, err := a.i.History(t.Context(), a.ct, store.ItemRef{Key: other, ID: "1"}, inspect.HistoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, h, inspect.EndsWithLog)
}

func TestHistory_OneTransactionChangesAnItemTwice(t *testing.T) {
	t.Parallel()
	a := newArchive(t, owner.Config{}, store.ContainerSpec{})
	result, err := a.ct.Batch(t.Context(), a.key(), []store.Operation{
		{Kind: store.OpCreate, Body: []byte(`{"id":"1","k":"k","n":1}`)},
		{Kind: store.OpCreate, Body: []byte(`{"id":"2","k":"k"}`)},
		{Kind: store.OpUpsert, Body: []byte(`{"id":"1","k":"k","n":2}`)},
	}, "")
	if err != nil || result.Failed {
		t.Fatal(err, result)
	}
	h := a.history("1", inspect.HistoryRequest{})
	wantLines(t, h, inspect.EndsWithCreate, "replace by client; n: 1 -> 2", `create by client; id: absent -> "1"; k: absent -> "k"; n: absent -> 1`)
	if a, b := h.Versions[0], h.Versions[1]; a.LSN != b.LSN || a.Position == b.Position || a.Together != 2 {
		t.Errorf("they are in one transaction of three changes: %+v, %+v", a, b)
	}
	// What is older than the second change is the first one, of the same commit.
	at, err := feed.ParsePosition(h.Versions[0].Position)
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, a.history("1", inspect.HistoryRequest{Before: at}), inspect.EndsWithCreate, lines(h)[1])
}

func TestHistory_Expiry(t *testing.T) {
	t.Parallel()
	a := newArchive(t, owner.Config{ExpiryInterval: 20 * time.Millisecond}, store.ContainerSpec{TTL: -1})
	a.put(t.Context(), `{"id":"1","k":"k","ttl":1}`)
	poll.Until(t, func() error {
		h := a.history("1", inspect.HistoryRequest{})
		if n := len(h.Versions); n == 1 {
			return errors.New("it has not expired") // and where it is gone already it is said so
		}
		wantLines(t, h, inspect.EndsWithCreate, `expire by expiry; id: "1" -> absent; k: "k" -> absent; ttl: 1 -> absent`,
			`create by client; id: absent -> "1"; k: absent -> "k"; ttl: absent -> 1`)
		return nil
	})
}

func TestHistory_WhatIsLargeIsCut(t *testing.T) {
	t.Parallel()
	a := newArchive(t, owner.Config{}, store.ContainerSpec{})
	const fields = 250
	body := map[string]any{"id": "1", "k": "k", "a": strings.Repeat("é", 1000)}
	for i := range fields {
		body[fmt.Sprintf("f%03d", i)] = i
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	a.put(t.Context(), string(text))
	v := a.history("1", inspect.HistoryRequest{}).Versions[0]
	if len(v.Fields)+v.More != len(body) || v.More == 0 || v.Bytes != len(text) {
		t.Errorf("%d fields and %d more of %d, %d bytes of %d", len(v.Fields), v.More, len(body), v.Bytes, len(text))
	}
	long := v.Fields[0].After
	if v.Fields[0].Field != "a" || long.JSON != nil || long.Bytes != 2002 || len(long.Beginning) > 210 || !strings.HasSuffix(long.String(), "é… (2,002 bytes)") {
		t.Errorf("a long value is %+v", long)
	}
}

// TestHistory_TrimmedLog: what the log does not hold any more is said, for an item that was written
// often, and for one of which the log has nothing.
func TestHistory_TrimmedLog(t *testing.T) {
	t.Parallel()
	a := newArchive(t, owner.Config{
		DataDir: t.TempDir(), DiskReserve: -1, Alone: true, TrimBytes: 1, CheckInterval: 50 * time.Millisecond, SyncInterval: 50 * time.Millisecond,
		Snapshots: owner.SnapshotConfig{LogBytes: 64 << 10, Rest: 50 * time.Millisecond, SharePercent: 100},
	}, store.ContainerSpec{ChangeFeed: store.ChangeFeedSpec{Retention: new(store.Retention(0))}})
	old := a.put(t.Context(), `{"id":"old","k":"k"}`)
	a.put(t.Context(), `{"id":"gone","k":"k"}`)
	a.remove("gone")
	log, err := feed.OpenLog(t.Context(), a.JS, a.ct.Partitions()[0], feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	first := feed.LSN(0)
	pad, n := strings.Repeat("x", 1000), 0
	poll.Until(t, func() error {
		for range 100 {
			n++
			a.put(t.Context(), fmt.Sprintf(`{"id":"often","k":"k","n":%d,"pad":%q}`, n, pad))
		}
		first, _, err = log.Bounds(t.Context())
		if err == nil && first <= old.LSN+2 {
			err = errors.New("the log was not trimmed")
		}
		return err
	})
	for _, id := range []string{"old", "gone"} {
		h := a.history(id, inspect.HistoryRequest{})
		wantLines(t, h, inspect.EndsWithTrim)
		if h.LogBegins < first || h.Before != "" || h.Gone != (id == "gone") || !strings.Contains(h.Says(), "before LSN "+h.LogBegins.String()) {
			t.Errorf("%s: the log begins at %s or later, it says %+v", id, first, h)
		}
	}
	// The trim may go on meanwhile: whatever is told is whole, each version what the next one replaced.
	h := a.history("often", inspect.HistoryRequest{Versions: inspect.HistoryMax})
	for i := range h.Versions {
		if want := fmt.Sprintf("n: %d -> %d", n-i-1, n-i); i < n-1 && !strings.HasSuffix(lines(h)[i], want) {
			t.Fatalf("version %d is %s, want %s", i, lines(h)[i], want)
		}
	}
	if len(h.Versions) < inspect.HistoryMax && (h.Ends != inspect.EndsWithTrim || h.LogBegins < first) {
		t.Errorf("it ends with %s and %d versions of %d: %s", h.Ends, len(h.Versions), n, h.Says())
	}
}
