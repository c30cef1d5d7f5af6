package feed_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

var update = flag.Bool("update", false, "write golden files anew")

// same takes an absent byte string for an empty one: the format does not tell
// them apart everywhere. Other byte strings are compared as wholes: cmp goes through
// them byte by byte, which takes seconds with the race detector.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(func(a, b []byte) bool { return len(a) > 0 || len(b) > 0 }, cmp.Comparer(bytes.Equal)),
}

// notSum passes over checksums, which are of the bytes of a commit.
var notSum = cmpopts.IgnoreFields(feed.Commit{}, "Sum")

func mustKey(tb testing.TB, components ...any) feed.PartitionKey {
	tb.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// sample is a commit with each field that there is.
func sample(tb testing.TB) *feed.Commit {
	tb.Helper()
	const now = 1_732_158_000_123
	fill := func(b byte) (id [16]byte) { copy(id[:], bytes.Repeat([]byte{b}, 16)); return id }
	food, hierarchical := mustKey(tb, "food"), mustKey(tb, "Zoë", -1.5, feed.Missing)
	return &feed.Commit{
		ID: fill(0xA1), Log: fill(0xB2), Prev: 0x0123456789abcdef, Epoch: 7, Owner: "node-1/kx2", Time: now,
		Transactions: []feed.Transaction{
			{Control: &feed.Control{Kind: "takeover", Data: []byte(`{"from":"node-2"}`)}},
			{
				TraceParent:    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				TraceState:     "vendor=1",
				IdempotencyKey: "order-17",
				Changes: []feed.Change{
					{Op: feed.OpCreate, Key: food, ID: "1", After: []byte(`{"id":"1","n":1.10}`), Modified: now, Written: 42},
					{
						Op: feed.OpReplace, Key: food, ID: "2", After: []byte(`{"id":"2","name":"new"}`),
						Undo: []document.Splice{
							{Path: "/name", Offset: 17, Len: 5, Old: []byte(`"before"`)},
							{Path: "/extra", Offset: 9, Len: 0, Old: []byte(`,"extra":true`)},
						},
						Prev: feed.Position{LSN: 41, Index: 300}, PrevModified: now - 60_000, Modified: now, Written: 42,
					},
					{
						Op: feed.OpDelete, Key: hierarchical, ID: "3", Before: []byte(`{"id":"3"}`),
						Prev: feed.Position{LSN: 1}, PrevModified: math.MinInt64, Modified: math.MaxInt64,
					},
					{Op: feed.OpExpire, Key: hierarchical, ID: "", Before: []byte{}, Modified: now + 1, Written: math.MaxUint64},
				},
			},
			{
				Effect: &feed.Effect{
					Producer: feed.Producer{Pipeline: "category-names", Generation: 3, Source: "check:c7k2x4ab/0"},
					Epoch:    9, After: feed.Position{LSN: 5}, UpTo: feed.Position{LSN: 8, Index: 2},
				},
				Page: &feed.Page{
					Source: `["c1"]/c1`, Position: feed.Position{LSN: 8, Index: 2}, Cursor: []byte{0, 1, 0xFF}, Takeover: []byte{7},
					Wrapped: true, Done: true, FinishedBelow: feed.Position{LSN: 4, Index: 1}, Action: 2,
					Paths: []string{"/categoryName", "/tags/*/name"}, Digest: 0xfeedface,
				},
			},
		},
	}
}

// sampleFolds is a commit with the state of aggregates.
func sampleFolds(tb testing.TB) *feed.Commit {
	tb.Helper()
	const now = 1_732_158_000_123
	return &feed.Commit{
		Prev: 1, Epoch: 7, Owner: "node-1/kx2", Time: now,
		Transactions: []feed.Transaction{
			{
				Folds: []feed.Fold{
					{Pipeline: "customer-totals", Generation: math.MaxUint32, Records: []feed.Record{
						{Key: []byte{8, 'c', 0, 1}, Value: []byte{1, 2, 3}},
						{Key: []byte{8, 'c', 0, 1, 2}},
						{Key: []byte{8, 'c', 0, 1, 3}, Value: []byte{}},
						{Value: bytes.Repeat([]byte{7}, 127)},
					}},
					{Pipeline: "nothing-came-of-it"},
				},
				Changes: []feed.Change{{Op: feed.OpCreate, Key: mustKey(tb, "c"), ID: "o1", After: []byte(`{"id":"o1"}`), Modified: now}},
			},
			{Folds: []feed.Fold{{Pipeline: "a", Generation: 1, Records: []feed.Record{{Key: []byte("k"), Value: []byte("v")}}}}},
		},
	}
}

func TestCodec_Golden(t *testing.T) {
	trimmed := sampleFolds(t)
	trimmed.Trimmed = 1 << 20
	for name, want := range map[string]*feed.Commit{"commit-v1": sample(t), "commit-v1-folds": sampleFolds(t), "commit-v2-trimmed": trimmed} {
		t.Run(name, func(t *testing.T) { golden(t, name, want, feed.AppendCommit(nil, want), true) })
	}
}

// golden holds what data is, the encoding of want, against a file. exact is false where another
// encoder may come to other bytes, which all readers read.
func golden(t *testing.T, name string, want *feed.Commit, data []byte, exact bool) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(path, []byte(hexLines(data)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hexLines(golden), hexLines(data)); exact && diff != "" {
		t.Errorf("encoding differs from the golden file, which readers rely on (-want +got):\n%s", diff)
	}
	got, err := feed.DecodeCommit(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, same, notSum); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if sum := feed.Checksum(xxhash.Sum64(golden)); got.Sum != sum {
		t.Errorf("checksum of decoding %s, want %s", got.Sum, sum)
	}
	if sum := feed.Checksum(xxhash.Sum64(data)); want.Sum != sum {
		t.Errorf("checksum of encoding %s, want %s", want.Sum, sum)
	}
}

func TestCodec_ARecordThatIsGoneIsNotAnEmptyOne(t *testing.T) {
	c, err := feed.DecodeCommit(feed.AppendCommit(nil, sampleFolds(t)))
	if err != nil {
		t.Fatal(err)
	}
	records := c.Transactions[0].Folds[0].Records
	if records[1].Value != nil || records[2].Value == nil || len(records[2].Value) != 0 {
		t.Errorf("gone is %v, empty is %v", records[1].Value, records[2].Value)
	}
}

func hexLines(data []byte) string {
	var b strings.Builder
	for line := range slicesOf(data, 32) {
		b.WriteString(hex.EncodeToString(line))
		b.WriteByte('\n')
	}
	return b.String()
}

func slicesOf(data []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			k := min(n, len(data))
			if !yield(data[:k]) {
				return
			}
			data = data[k:]
		}
	}
}

func TestCodec_AppendsBehindWhatIsThere(t *testing.T) {
	c := sample(t)
	alone := feed.AppendCommit(nil, c)
	sum := c.Sum
	behind := feed.AppendCommit([]byte("head"), c)
	if !bytes.Equal(behind[4:], alone) || c.Sum != sum {
		t.Error("the encoding depends on what stands before it")
	}
	if bound := c.SizeMax(); bound < len(alone) || bound > len(alone)+600 {
		t.Errorf("SizeMax %d for %d bytes", bound, len(alone))
	}
}

func TestCodec_HeaderAndViews(t *testing.T) {
	c := sample(t)
	c.Transactions[1].Folds = sampleFolds(t).Transactions[0].Folds
	data := feed.AppendCommit(nil, c)
	h, err := feed.DecodeHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	want := feed.Header{ID: c.ID, Log: c.Log, Prev: c.Prev, Epoch: c.Epoch, Owner: c.Owner, Time: c.Time, Transactions: 3, Changes: 4, Bytes: len(data)}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestCodec_RefusesWhatIsNotAWholeCommit(t *testing.T) {
	refusesParts(t, feed.AppendCommit(nil, sample(t)))
	refusesParts(t, feed.AppendCommit(nil, sampleFolds(t)))
}

func refusesParts(t *testing.T, whole []byte) {
	t.Helper()
	for n := range whole {
		if _, err := feed.DecodeCommit(whole[:n]); !isFormat(err) {
			t.Fatalf("first %d bytes: %v", n, err)
		}
	}
	for i := range whole {
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1 << bit
			if _, err := feed.DecodeCommit(damaged); err == nil {
				t.Fatalf("bit %d of byte %d flipped: no error", bit, i)
			}
		}
	}
	if _, err := feed.DecodeCommit(append(whole, 0)); !isFormat(err) {
		t.Errorf("a byte too much: %v", err)
	}
}

func isFormat(err error) bool { _, ok := errors.AsType[*feed.FormatError](err); return ok }

func TestCodec_RefusesLaterVersionsByName(t *testing.T) {
	data := feed.AppendCommit(nil, sample(t))
	data[0] = feed.FormatVersion + 1
	_, err := feed.DecodeCommit(data)
	v, ok := errors.AsType[*feed.VersionError](err)
	if !ok || v.Version != feed.FormatVersion+1 || !strings.Contains(err.Error(), "version 4") {
		t.Errorf("error %v", err)
	}
}

func TestCodec_StringsDoNotAliasTheMessage(t *testing.T) {
	data := feed.AppendCommit(nil, sample(t))
	c, err := feed.DecodeCommit(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if got := c.Transactions[1].Changes[1].ID + c.Owner + c.Transactions[1].Changes[1].Undo[0].Path; got != "2node-1/kx2/name" {
		t.Errorf("strings changed with the message: %q", got)
	}
}

func TestCodec_RandomCommitsComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 25 {
		want := randomCommit(t, r)
		data := feed.AppendCommit(nil, want)
		if bound := want.SizeMax(); len(data) > bound {
			t.Fatalf("%d bytes above SizeMax %d", len(data), bound)
		}
		got, err := feed.DecodeCommit(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func randomCommit(tb testing.TB, r *rand.Rand) *feed.Commit {
	tb.Helper()
	text := func(n int) string {
		b := make([]byte, r.IntN(n+1))
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		return string(b)
	}
	position := func() feed.Position { return feed.Position{LSN: feed.LSN(r.Uint64N(1000)), Index: r.Uint32N(500)} }
	c := &feed.Commit{ID: feed.NewCommitID(), Log: feed.NewLogID(), Prev: feed.Checksum(r.Uint64()), Epoch: r.Uint64(), Owner: text(40), Time: int64(r.Uint64())}
	for range r.IntN(5) {
		tx := feed.Transaction{TraceParent: text(60), TraceState: text(3), IdempotencyKey: text(400)}
		if r.IntN(2) == 0 {
			tx.Effect = &feed.Effect{Producer: feed.Producer{Pipeline: text(9), Generation: r.Uint32(), Source: text(20)}, Epoch: r.Uint64(), After: position(), UpTo: position()}
		}
		if r.IntN(3) == 0 {
			tx.Page = &feed.Page{Planted: feed.LSN(r.Uint64N(3)), Source: text(9), Position: position(), Cursor: []byte(text(50)), Done: r.IntN(2) == 0, Action: uint8(r.Uint32()), Paths: []string{text(4)}, Digest: r.Uint64()}
		}
		for range r.IntN(3) {
			f := feed.Fold{Pipeline: text(9), Generation: r.Uint32()}
			for range r.IntN(4) {
				rec := feed.Record{Key: []byte(text(20))}
				if r.IntN(3) > 0 {
					rec.Value = []byte(text(200))
				}
				f.Records = append(f.Records, rec)
			}
			tx.Folds = append(tx.Folds, f)
		}
		for range r.IntN(40) {
			ch := feed.Change{
				Op: feed.Op(1 + r.IntN(4)), Key: mustKey(tb, text(1), r.IntN(3)), ID: text(300), Prev: position(), PrevModified: int64(r.Uint64()),
				Modified: int64(r.Uint64()), Written: feed.LSN(r.Uint64()),
			}
			if r.IntN(2) == 0 {
				ch.After = []byte(text(100))
			}
			for range r.IntN(4) {
				ch.Undo = append(ch.Undo, document.Splice{Path: "/" + text(2), Offset: r.Uint32(), Len: r.Uint32(), Old: []byte(text(30))})
			}
			tx.Changes = append(tx.Changes, ch)
		}
		c.Transactions = append(c.Transactions, tx)
	}
	return c
}

func FuzzDecodeCommit(f *testing.F) {
	f.Add(feed.AppendCommit(nil, sample(f)), true)
	f.Add(feed.AppendCommit(nil, sampleFolds(f)), true)
	f.Add(feed.AppendCommit(nil, &feed.Commit{}), true)
	f.Add([]byte{1}, false)
	packed := feed.AppendCompressed(nil, orders(f, 3, 2), 0)
	f.Add(packed, true)
	f.Add(packed[:len(packed)/2], true)
	f.Add(forge(f, packed, 0xFF, 0xFF, 0xFF, 0x03), true) // 8 MiB less one
	trimmed := orders(f, 1, 0)
	trimmed.Trimmed = 76
	f.Add(feed.AppendCompressed(nil, trimmed, 0), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) >= 8 {
			// Without a right checksum hardly an input would reach the fields.
			data = feed.Seal(data)
		}
		c, err := feed.DecodeCommit(data)
		if err != nil {
			return
		}
		for _, tx := range c.Transactions {
			for i := range tx.Changes {
				_ = tx.Changes[i].Key.String()
				_, _ = tx.Changes[i].BeforeBody()
			}
		}
		for form, data := range map[string][]byte{"plain": feed.AppendCommit(nil, c), "compressed": feed.AppendCompressed(nil, c, 0)} {
			again, err := feed.DecodeCommit(data)
			if err != nil {
				t.Fatalf("what was decoded does not come back, %s: %v", form, err)
			}
			if diff := cmp.Diff(c, again, same, notSum); diff != "" {
				t.Fatalf("decoded twice, %s (-first +second):\n%s", form, diff)
			}
		}
	})
}

func TestChange_BeforeBody(t *testing.T) {
	changes := sample(t).Transactions[1].Changes
	for i, want := range []string{"", `{"id":"2","extra":true,"name":"before"}`, `{"id":"3"}`} {
		got, err := changes[i].BeforeBody()
		if err != nil || string(got) != want {
			t.Errorf("%s: before %q, %v; want %q", changes[i].Op, got, err, want)
		}
	}
	bad := feed.Change{ID: "x", After: []byte("{}"), Undo: []document.Splice{{Path: "/a", Offset: 1, Len: math.MaxUint32}}}
	if _, err := bad.BeforeBody(); err == nil || !strings.Contains(err.Error(), "/a") || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("undo beyond the item: %v", err)
	}
}

func TestChange_BeforeBodyCopiesTheItemOnceForAllSplices(t *testing.T) {
	for _, n := range []int{1, 4, 16} {
		c := patched(t, n)
		if got := testing.AllocsPerRun(10, func() { _, _ = c.BeforeBody() }); got != 1 {
			t.Errorf("%d splices: %v allocations, want 1", n, got)
		}
		got, err := c.BeforeBody()
		if err != nil || bytes.Count(got, []byte("Components")) != n || len(got) != len(c.After) {
			t.Errorf("%d splices: %q, %v", n, got, err)
		}
	}
}

func TestChange_Touches(t *testing.T) {
	patch := &sample(t).Transactions[1].Changes[1]
	is := func(path string) func(string) bool { return func(p string) bool { return p == path } }
	if !patch.Touches(is("/extra")) || patch.Touches(is("/other")) {
		t.Error("a patch touches what it changed and nothing else")
	}
	if whole := &sample(t).Transactions[1].Changes[0]; !whole.Touches(is("/other")) {
		t.Error("a whole item touches everything")
	}
}
