package owner

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// table is a projection that puts rows into a partition.
type table struct {
	*shop
	producer feed.Producer
	at       feed.LSN
}

func newTable(t *testing.T, wishes ...store.RuleWish) *table {
	t.Helper()
	return &table{shop: newShop(t, wishes...), producer: feed.Producer{Pipeline: "flat", Generation: 1, Source: "source:elsewhere/0"}}
}

// put sends rows as the next interval.
func (x *table) put(rows ...store.Row) *store.PutRowsResult {
	x.t.Helper()
	r := x.ask(&store.Request{PutRows: &store.PutRows{Producer: x.producer, Epoch: 1, After: at(x.at), UpTo: at(x.at + 1), Rows: rows}})
	if r.Err != nil || !r.PutRows.Applied {
		x.t.Fatalf("%v %+v", r.Err, r.PutRows)
	}
	x.at++
	return r.PutRows
}

// of is the row r of a source, "" for the name if it goes.
func (x *table) of(source, name string) store.Row {
	x.t.Helper()
	row := store.Row{Ref: store.ItemRef{Key: x.key("k"), ID: "r"}, Source: source}
	if name != "" {
		row.Body = fmt.Appendf(nil, `{"id":"r","customerId":"k","name":%q,"_source":%q}`, name, source)
	}
	return row
}

func (x *table) row(want string) {
	x.t.Helper()
	body := x.read(x.key("k"), "r")
	if want == "" && body != "" || !strings.Contains(body, fmt.Sprintf("%q", want)) && want != "" {
		x.t.Errorf("the row is %q, want %q", body, want)
	}
}

// claims reads the claims, in pages of several sizes.
func (x *table) claims(want ...string) {
	x.t.Helper()
	for _, page := range []int{0, 1, 2, 3, 4} {
		var got []string
		ask := &store.ReadPendingRows{Pipeline: x.producer.Pipeline, Generation: x.producer.Generation, Max: page}
		for more := true; more; more = ask.After != nil {
			r := x.ask(&store.Request{PendingRows: ask})
			if r.Err != nil || page > 0 && len(r.PendingRows.Rows) > page {
				x.t.Fatalf("%v %+v", r.Err, r.PendingRows)
			}
			for _, c := range r.PendingRows.Rows {
				_, name, _ := strings.Cut(string(c.Body), `"name":"`)
				name, _, _ = strings.Cut(name, `"`)
				got = append(got, c.Source+" "+name)
			}
			ask.After = r.PendingRows.Last
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("the claims in pages of %d: %s", page, diff)
		}
	}
}

// The claims of a generation go when the next one begins, and only they.
func TestRows_ClaimsGoWithTheirGeneration(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	x.put(x.of("c", "C"))
	x.put(x.of("a", "A"))
	other := &table{shop: x.shop, producer: feed.Producer{Pipeline: "flatter", Generation: 1, Source: x.producer.Source}}
	other.put(other.of("b", "B"))
	x.claims("a A")
	first := *x
	x.producer.Generation, x.at = 2, 0
	if r := x.ask(&store.Request{PutRows: &store.PutRows{Producer: x.producer, Epoch: 1, Ask: true}}); r.Err != nil {
		t.Fatal(r.Err)
	}
	first.claims()
	other.claims("b B")
	x.put(x.of("d", "D"))
	x.claims("d D")
	x.rebuilt()
}

// A row whose key is held waits; when the holder's goes, the claim of the smallest
// source takes its place, as it was said last.
func TestRows_ClaimsWaitTheirTurn(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	if r := x.put(x.of("b", "B"), x.of("c", "C")); len(r.Refused) != 1 || r.Refused[0].Status != store.StatusConflict {
		t.Errorf("refused: %+v", r.Refused)
	}
	x.row("B")
	x.put(x.of("a", "A"), x.of("ab", "AB"))
	x.put(x.of("c", "C2"))
	x.restart(t.TempDir())
	x.claims("a A", "ab AB", "c C2")
	x.put(x.of("b", ""))
	x.row("A")
	x.put(x.of("ab", ""), x.of("a", "")) // a claim that goes, and the holder
	x.row("C2")
	x.put(x.of("c", "C3"))
	x.row("C3")
	x.put(x.of("c", ""))
	x.row("")
	x.claims()
	snap := x.engine.Snapshot()
	defer snap.Close()
	for r, err := range snap.Records(recordAccumulator, nil) {
		t.Errorf("a claim is left: %x, %v", r.Key, err)
	}
	x.rebuilt()
}

// Of however many that wait for one key, the log takes each once.
func TestRows_ManyClaimsOfOneKey(t *testing.T) {
	t.Parallel()
	const sources, pad = 300, 2000
	x := newTable(t)
	for i := range sources {
		x.put(x.of(fmt.Sprintf("s%03d", i), strings.Repeat("x", pad)+fmt.Sprint("-", i)))
	}
	size := 0
	for _, c := range x.w.commits() {
		size += len(feed.AppendCommit(nil, c))
	}
	if limit := 3 * sources * pad; size > limit {
		t.Errorf("%d rows of %d bytes, all of one key, made a log of %d bytes, more than %d", sources, pad, size, limit)
	}
	for i := range 3 {
		x.put(x.of(fmt.Sprintf("s%03d", i), ""))
		x.row(strings.Repeat("x", pad) + fmt.Sprint("-", i+1))
	}
	x.rebuilt()
}

// A row that an aggregate has given fields is not written again for them (I7).
func TestI7_ARowWithFieldsOfAnAggregate(t *testing.T) {
	spec := accumulator.Spec{
		SourceWhere: `type = "salesOrder"`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}}, TargetWhere: `name = "R"`,
		Set: []accumulator.Field{{Path: "orders", Func: accumulator.Count}},
	}
	x := newTable(t, ruled(spec, true, true))
	x.put(x.of("a", "R"))
	x.do("k", create(order("o1", "k", 1, 5)))
	row := x.of("a", "R")
	body := x.read(x.key("k"), "r")
	if !strings.Contains(body, `"orders":1`) {
		t.Fatalf("the row is %s", body)
	}
	changes := func() (n int) {
		for _, c := range x.w.commits() {
			n += c.ChangeCount()
		}
		return n
	}
	before := changes()
	x.put(row)
	if n := changes() - before; n != 0 {
		t.Errorf("the same row again made %d changes", n)
	}
	if again := x.read(x.key("k"), "r"); !bytes.Equal([]byte(again), []byte(body)) {
		t.Errorf("the row is %s, was %s", again, body)
	}
}
