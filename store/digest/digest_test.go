package digest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/engine"
)

var partition = feed.Partition{Container: "abcdefgh"}

// records has one kind, of which a final zero means nothing.
func records(kind byte, value []byte) (string, []byte) {
	return "records " + string(kind), []byte(strings.TrimRight(string(value), "\x00"))
}

func noTurn() error { return nil }

// held is a partition with n items, of which the one at large has a body in chunks, and some records.
func held(t testing.TB, n int, settings store.Settings, edit func(*engine.Batch)) *engine.Partition {
	t.Helper()
	db, err := engine.Open(t.TempDir(), engine.Config{MemTableBytes: 16 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p, err := db.Partition(partition)
	if err != nil {
		t.Fatal(err)
	}
	schema := &engine.Schema{Indexes: []engine.Index{
		{Number: 1, Path: document.Path{{Name: "n"}}}, {Number: 2, Path: document.Path{{Name: "m"}}},
	}}
	b := p.NewBatch(schema)
	key := must(feed.NewPartitionKey("k"))
	for i := range n {
		pad := "x"
		if i == 0 {
			pad = strings.Repeat("x", 3<<20)
		}
		body := fmt.Appendf(nil, `{"id":"%d","n":%d,"m":1,"pad":%q}`, i, i, pad)
		if err := b.Put(&engine.Item{Key: key, ID: fmt.Sprint(i), Body: body, Position: feed.Position{LSN: 3, Index: uint32(i)}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.PutRecord('P', []byte("a"), []byte{1, 2}); err != nil {
		t.Fatal(err)
	}
	edit(b)
	b.SetState(engine.State{Applied: 3, Settings: settings.Marshal()})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func compute(t testing.TB, p *engine.Partition) digest.Digest {
	t.Helper()
	view := p.Snapshot()
	defer view.Close()
	d, err := digest.Compute(view, records, noTurn)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Each part tells of what belongs to it, and of nothing else.
func TestCompute(t *testing.T) {
	t.Parallel()
	ready := store.Settings{PartitionKey: []string{"/k"}, Indexes: []store.IndexSetting{{Number: 1, Path: "/n", Ready: true}, {Number: 2, Path: "/m"}}}
	as := func(edit func(*engine.Batch)) digest.Digest { return compute(t, held(t, 300, ready, edit)) }
	is := as(func(*engine.Batch) {})
	names := map[string]uint64{}
	for _, p := range is.Parts {
		names[p.Name] = p.Entries
	}
	// 7 chunks of the large item; nothing of the index that is not ready.
	if diff := cmp.Diff(map[string]uint64{"items": 307, "indexes": 300, "records P": 1}, names); diff != "" || is.LSN != 3 {
		t.Errorf("as of LSN %d: %s", is.LSN, diff)
	}
	for _, c := range []struct {
		name, want string
		edit       func(*engine.Batch)
	}{
		{"the same", "", func(*engine.Batch) {}},
		{"a record that an earlier release has written shorter", "", func(b *engine.Batch) { _ = b.PutRecord('P', []byte("a"), []byte{1, 2, 0, 0}) }},
		{"another record", "records P (some of 1)", func(b *engine.Batch) { _ = b.PutRecord('P', []byte("a"), []byte{1, 3}) }},
		{"a record too many", "records Q (1 in the copy, 0 at the owner)", func(b *engine.Batch) { _ = b.PutRecord('Q', nil, nil) }},
		{"a body", "items (some of 307)", func(b *engine.Batch) {
			_ = b.PutBody(&engine.Item{Key: must(feed.NewPartitionKey("k")), ID: "7", Body: []byte(`{"id":"7","n":7,"m":1,"pad":"y"}`), Position: feed.Position{LSN: 3, Index: 7}})
		}},
	} {
		if got := as(c.edit).Differ(is); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// The error of a turn ends it.
func TestCompute_Ends(t *testing.T) {
	t.Parallel()
	p := held(t, 300, store.Settings{}, func(*engine.Batch) {})
	view := p.Snapshot()
	defer view.Close()
	stop := errors.New("stop")
	if _, err := digest.Compute(view, records, func() error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// What is told in a log is read from it, and nothing is read from what a later release tells.
func TestOf(t *testing.T) {
	t.Parallel()
	d := digest.Digest{LSN: 9, Parts: []digest.Part{{Name: "items", Entries: 3, Sum: "00ff"}}}
	commit := func(controls ...*feed.Control) *feed.Commit {
		c := &feed.Commit{Transactions: make([]feed.Transaction, 1)}
		for _, k := range controls {
			c.Transactions = append(c.Transactions, feed.Transaction{Control: k})
		}
		return c
	}
	ordered, told := digest.Of(commit(digest.Order(), d.Tell()))
	if !ordered || told == nil || cmp.Diff(d, *told) != "" {
		t.Errorf("%t, %+v", ordered, told)
	}
	for _, data := range []string{`{"v":2}`, `{"v":2,"of":3}`, `x`, ``} {
		if ordered, told := digest.Of(commit(&feed.Control{Kind: store.ControlDigest, Data: []byte(data)})); ordered || told != nil {
			t.Errorf("%q: %t, %+v", data, ordered, told)
		}
	}
	if ordered, told := digest.Of(commit(&feed.Control{Kind: store.ControlTrim, Data: []byte(`{"v":1}`)})); ordered || told != nil {
		t.Errorf("another control: %t, %+v", ordered, told)
	}
}

// Two digests of one LSN are compared, once, whichever comes first.
func TestReplica(t *testing.T) {
	t.Parallel()
	d := func(lsn feed.LSN, sum string) digest.Digest {
		return digest.Digest{LSN: lsn, Parts: []digest.Part{{Name: "items", Entries: 3, Sum: sum}}}
	}
	var r digest.Replica
	if v := r.Told(d(4, "a")); v != nil {
		t.Errorf("that nobody awaits: %+v", v)
	}
	r.Begin(5)
	if v := r.Own(d(5, "a")); v != nil {
		t.Errorf("without the owner's: %+v", v)
	}
	if v := r.Told(d(4, "b")); v != nil {
		t.Errorf("of another LSN: %+v", v)
	}
	if v := r.Told(d(5, "a")); v == nil || v.Differ != "" || v.LSN != 5 {
		t.Errorf("equal: %+v", v)
	}
	if v := r.Told(d(5, "a")); v != nil {
		t.Errorf("told again: %+v", v)
	}
	r.Begin(8)
	for lsn := feed.LSN(8); lsn < 12; lsn += 2 { // the owner goes on
		if v := r.Told(d(lsn, "b")); v != nil {
			t.Errorf("told first: %+v", v)
		}
	}
	if v := r.Own(d(8, "a")); v == nil || v.Differ == "" || v.LSN != 8 {
		t.Errorf("different: %+v", v)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := digest.NewSchedule(time.Hour)
	due := func(at feed.LSN, copies ...string) bool { return s.Due(partition, at, copies, now) }
	due(1, "b")
	now = now.Add(time.Hour)
	if due(1) {
		t.Error("due without a copy")
	}
	if !due(1, "b") {
		t.Error("not due after an interval")
	}
	s.Done(partition, 3, now)
	if due(9, "b") {
		t.Error("due at once")
	}
	now = now.Add(time.Hour)
	if due(3, "b") {
		t.Error("due where nobody has written since")
	}
	if !due(4, "b") {
		t.Error("not due after writes")
	}
	if !due(3, "b", "c") {
		t.Error("not due for a copy that is new")
	}
	s.Failed(partition, now)
	if now = now.Add(time.Minute); due(4, "b") {
		t.Error("due right after a failure")
	}
	if now = now.Add(5 * time.Minute); !due(4, "b") {
		t.Error("not due some time after a failure")
	}
	s.Done(partition, 4, now)
	if now = now.Add(23 * time.Hour); due(4, "b") {
		t.Error("due within a day where nobody has written since")
	}
	if now = now.Add(time.Hour); !due(4, "b") {
		t.Error("not due after a day, and the standby may have passed the last one over")
	}
	s.EndRound()
	s.EndRound() // nobody asks for it any more
	if s.Due(partition, 5, []string{"b"}, now.Add(-time.Second)) {
		t.Error("a partition that was gone is remembered")
	}
}

func TestDistrusted(t *testing.T) {
	t.Parallel()
	var none *digest.Distrusted
	none.MadeAnew(partition)
	if why := none.Why(partition); why != "" {
		t.Error(why)
	}
	var d digest.Distrusted
	if d.Add(partition, "it differs"); d.Why(partition) != "it differs" {
		t.Error("it is trusted")
	}
	if d.MadeAnew(partition); d.Why(partition) != "" {
		t.Error("it is distrusted when it was made anew")
	}
}
