package accumulator_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// folded is what one change means.
func folded(rule *accumulator.Rule, key feed.PartitionKey, id, before, after string) *accumulator.Delta {
	d := rule.NewDelta()
	body := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	rule.Fold(d, key, id, body(before), body(after))
	return d
}

func TestValues_OverNothing(t *testing.T) {
	rule := mustCompile(t, totals)
	state, err := rule.State(accumulator.NewMemory(), mustGroup(t, `"a"`))
	must(t, err)
	want := map[string]string{"lines": "0", "orders": "0", "paid": "0", "recent": "[]", "spent": "0"}
	if diff := cmp.Diff(want, texts(state)); diff != "" || !state.Empty() {
		t.Errorf("empty %v (-want +got):\n%s", state.Empty(), diff)
	}
	if got := len(state.Values()); got != len(totals.Set) {
		t.Errorf("%d values, want one of each field, absent ones too", got)
	}
}

func TestAdd_ARemovalBeforeItsAddition(t *testing.T) {
	rule := mustCompile(t, totals)
	key, g, m := mustKey(t, "p"), mustGroup(t, `"a"`), accumulator.NewMemory()
	first := `{"id":"o","type":"order","customer":"a","at":"2024-01-01","paid":2,"lines":[{"price":1.10,"quantity":3}]}`
	second := `{"id":"o","type":"order","customer":"a","at":"2024-01-02","paid":4,"lines":[{"price":1.10,"quantity":2}]}`
	state, err := rule.Add(m, g, folded(rule, key, "o", first, second).Share(g))
	must(t, err)
	want := map[string]string{
		"best": "", "first": `"2024-01-02"`, "last": `"2024-01-02"`, "lines": "0", "orders": "0", "paid": "0",
		"recent": `[{"id":"o","at":"2024-01-02"}]`, "spent": "-1.1",
	}
	delete(want, "best")
	if diff := cmp.Diff(want, texts(state)); diff != "" {
		t.Errorf("before the addition (-want +got):\n%s", diff)
	}
	state, err = rule.Add(m, g, folded(rule, key, "o", "", first).Share(g))
	must(t, err)
	want = map[string]string{
		"avgPaid": "4", "best": "1.10", "first": `"2024-01-02"`, "last": `"2024-01-02"`, "lines": "1", "orders": "1", "paid": "1",
		"recent": `[{"id":"o","at":"2024-01-02"}]`, "spent": "2.2",
	}
	if diff := cmp.Diff(want, texts(state)); diff != "" {
		t.Errorf("then (-want +got):\n%s", diff)
	}
	state, err = rule.Add(m, g, folded(rule, key, "o", second, "").Share(g))
	must(t, err)
	if !state.Empty() || m.Len() != 0 {
		t.Errorf("all is taken back, left are %v and %v", texts(state), dump(t, m))
	}
}

// counting counts what is asked of Records.
type counting struct {
	*accumulator.Memory
	gets, ranges int
	fail         error
}

func (c *counting) Get(key []byte) ([]byte, error) {
	c.gets++
	if c.fail != nil {
		return nil, c.fail
	}
	return c.Memory.Get(key)
}

func (c *counting) Range(prefix []byte) iter.Seq2[feed.Record, error] {
	c.ranges++
	if c.fail != nil {
		return func(yield func(feed.Record, error) bool) { yield(feed.Record{}, c.fail) }
	}
	return c.Memory.Range(prefix)
}

// TestAdd_RangesOnlyWhereAShownMemberGoes adds and removes members of one group at
// random and compares lists of several lengths with what was put in.
func TestAdd_RangesOnlyWhereAShownMemberGoes(t *testing.T) {
	for _, n := range []int{1, 2, 5, 20} {
		t.Run(fmt.Sprint("n=", n), func(t *testing.T) {
			rule := mustCompile(t, accumulator.Spec{
				Match: []accumulator.Pair{{Target: "id", Source: "g"}},
				Set:   []accumulator.Field{{Path: "list", Func: accumulator.Latest, N: n, By: "at", Fields: []string{"at"}}},
			})
			r := rand.New(rand.NewPCG(*seed, uint64(n)))
			m, key, g := &counting{Memory: accumulator.NewMemory()}, mustKey(t, "p"), mustGroup(t, `"g"`)
			there := map[int]string{}
			for range 2000 {
				d, shown := rule.NewDelta(), false
				for range 1 + r.IntN(4) {
					at := r.IntN(60)
					body := fmt.Sprintf(`{"g":"g","at":%d}`, at)
					if there[at] == "" {
						rule.Fold(d, key, fmt.Sprint(at), nil, []byte(body))
						there[at] = body
						continue
					}
					rule.Fold(d, key, fmt.Sprint(at), []byte(body), nil)
					delete(there, at)
					shown = true
				}
				m.ranges = 0
				before := m.Len()
				if d.Empty() {
					continue
				}
				state, err := rule.Add(m, g, d.Share(g))
				must(t, err)
				if m.ranges > 1 || m.ranges == 1 && (!shown || before-1 <= n) {
					t.Fatalf("%d ranges, where a member went: %v, of %d", m.ranges, shown, before-1)
				}
				var want []string
				for at := 60; at >= 0 && len(want) < n; at-- {
					if there[at] != "" {
						want = append(want, fmt.Sprintf(`{"at":%d}`, at))
					}
				}
				if got := texts(state)["list"]; got != "["+strings.Join(want, ",")+"]" {
					t.Fatalf("list is %s, want %s", got, want)
				}
			}
		})
	}
}

func TestAdd_AMemberBeyondTheShownCostsOneRead(t *testing.T) {
	rule := mustCompile(t, customerTotals)
	m, key := &counting{Memory: accumulator.NewMemory()}, mustKey(t, "c")
	for i := range 200 {
		must(t, rule.Apply(m, folded(rule, key, fmt.Sprint(i), "", string(anOrder(1, i)))))
	}
	m.gets, m.ranges = 0, 0
	must(t, rule.Apply(m, folded(rule, key, "7", string(anOrder(1, 7)), "")))
	if m.gets != 3 || m.ranges != 0 {
		t.Errorf("%d reads and %d ranges; want the accumulator, and one record for max and latest each", m.gets, m.ranges)
	}
}

// TestLatest_ListsHaveAnEnd: copies that no item can hold do not pile up in the
// accumulator, and the list gets short enough again when members go.
func TestLatest_ListsHaveAnEnd(t *testing.T) {
	rule := mustCompile(t, accumulator.Spec{
		Match: []accumulator.Pair{{Target: "id", Source: "g"}},
		Set:   []accumulator.Field{{Path: "list", Func: accumulator.Latest, N: 1000, By: "at", Fields: []string{"at", "text"}}},
	})
	m, key, g := accumulator.NewMemory(), mustKey(t, "p"), mustGroup(t, `"g"`)
	body := func(i int) string {
		return fmt.Sprintf(`{"g":"g","at":%d,"text":%q}`, i, strings.Repeat("x", 100_000))
	}
	apply := func(d *accumulator.Delta) *accumulator.State {
		state, err := rule.Add(m, g, d.Share(g))
		must(t, err)
		return state
	}
	var state *accumulator.State
	for i := range 40 {
		state = apply(folded(rule, key, fmt.Sprint(i), "", body(i)))
	}
	if n := len(texts(state)["list"]); n < document.SizeMax || n > document.SizeMax+200_000 {
		t.Errorf("the list has %d bytes", n)
	}
	for i := range 35 {
		state = apply(folded(rule, key, fmt.Sprint(39-i), body(39-i), ""))
	}
	if got := texts(state)["list"]; strings.Count(got, `"at"`) != 5 || !strings.HasPrefix(got, `[{"at":4,`) {
		t.Errorf("the list is %.50s", got)
	}
}

func TestAdd_ErrorsOfRecordsComeOut(t *testing.T) {
	rule := mustCompile(t, totals)
	lost := errors.New("lost")
	m, g := &counting{Memory: accumulator.NewMemory(), fail: lost}, mustGroup(t, `"a"`)
	d := folded(rule, mustKey(t, "p"), "o", "", `{"type":"order","customer":"a","at":1}`)
	if _, err := rule.Add(m, g, d.Share(g)); !errors.Is(err, lost) {
		t.Errorf("Add: %v", err)
	}
	if err := rule.Content(rule.NewDelta(), m, g); !errors.Is(err, lost) {
		t.Errorf("Content: %v", err)
	}
	m.fail = nil
	for _, value := range []string{"", "\x00", "\x02", "\x01", "\x01\x02\xff"} {
		m.Put(append([]byte(g), 0), []byte(value))
		if _, err := rule.Add(m, g, d.Share(g)); !errors.Is(err, accumulator.ErrFormat) {
			t.Errorf("accumulator %x: %v", value, err)
		}
	}
}

func TestDelta_IsUsedAnew(t *testing.T) {
	rule := mustCompile(t, customerTotals)
	m, key, d := accumulator.NewMemory(), mustKey(t, "c"), rule.NewDelta()
	g := mustGroup(t, `"00000001"`)
	var states []*accumulator.State
	var want []map[string]string
	for i := range 20 {
		d.Reset()
		rule.Fold(d, key, fmt.Sprint(i), nil, anOrder(1, i))
		state, err := rule.Add(m, g, d.Share(g))
		must(t, err)
		states, want = append(states, state), append(want, texts(state))
	}
	for i := range states {
		if diff := cmp.Diff(want[i], texts(states[i])); diff != "" {
			t.Fatalf("state %d has changed since:\n%s", i, diff)
		}
	}
	d.Reset()
	if d.Size() != 0 || !d.Empty() || d.Share(g) != nil {
		t.Error("Reset leaves something")
	}
}

// TestMerge_LeavesOutWhatCancelsOut replaces one order again and again: each change takes an
// entry away that the one before has added. Merged into an empty Delta the one entry is left
// that no change has taken away, and what it takes in memory is counted anew.
func TestMerge_LeavesOutWhatCancelsOut(t *testing.T) {
	rule := mustCompile(t, customerTotals)
	key, g := mustKey(t, "c"), mustGroup(t, `"00000001"`)
	d := rule.NewDelta()
	for i := range 1000 {
		before := anOrder(1, i)
		if i == 0 {
			before = nil
		}
		rule.Fold(d, key, "o", before, anOrder(1, i+1))
	}
	once := rule.NewDelta()
	rule.Fold(once, key, "o", nil, anOrder(1, 1000))
	merged := rule.NewDelta()
	merged.Merge(d)
	if diff := cmp.Diff(once.Append(nil), merged.Append(nil)); diff != "" {
		t.Fatalf("merged is not the last order alone:\n%s", diff)
	}
	if got, want := merged.Memory(), once.Memory(); got != want || d.Memory() < 100*want {
		t.Errorf("%d bytes of %d are left, of one order there are %d", got, d.Memory(), want)
	}
	merged.Remove(g)
	if !merged.Empty() || merged.Share(g) != nil || merged.Memory() != 0 || merged.Size() != 0 {
		t.Errorf("removed, it has %d bytes in memory and %d encoded", merged.Memory(), merged.Size())
	}
}

func TestDelta_OfAnotherRulePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	mustCompile(t, totals).Fold(mustCompile(t, sales).NewDelta(), mustKey(t, 1), "i", nil, []byte("{}"))
}

// TestFold_Allocations: an order with four lines costs a group and, for each line,
// a product; nothing else while the delta is used again.
func TestFold_Allocations(t *testing.T) {
	rule := mustCompile(t, customerTotals)
	key, order, d := mustKey(t, "c"), anOrder(1, 1), rule.NewDelta()
	got := testing.AllocsPerRun(100, func() {
		d.Reset()
		rule.Fold(d, key, "o", nil, order)
	})
	// 5, and under the race detector what sync.Pool forgets there of frames.
	if got > 10 {
		t.Errorf("%v allocations, want at most 10", got)
	}
}

// TestRule_OneGroupOfAll: without match there is one group, whose target where fixes.
func TestRule_OneGroupOfAll(t *testing.T) {
	rule := mustCompile(t, accumulator.Spec{
		TargetWhere: `id = "all"`,
		Create:      true,
		Set:         []accumulator.Field{{Path: "n", Func: accumulator.Count}, {Path: "top", Func: accumulator.Max, Expr: "n"}},
	})
	d := rule.NewDelta()
	for i := range 3 {
		d.Merge(folded(rule, mustKey(t, "p"), fmt.Sprint(i), "", fmt.Sprintf(`{"n":%d}`, i)))
	}
	d, err := rule.DecodeDelta(d.Append(nil))
	must(t, err)
	m := accumulator.NewMemory()
	must(t, rule.Apply(m, d))
	g, ok := rule.TargetGroup([]byte(`{"id":"all"}`))
	if groups := d.Groups(); !ok || len(groups) != 1 || groups[0] != g {
		t.Fatalf("groups %v, the target's is %v", groups, g)
	}
	state, err := rule.State(m, g)
	must(t, err)
	body, ok := rule.NewTarget(g, state, mustPaths(t, "/id"))
	if want := `{"id":"all","n":3,"top":2}`; !ok || string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
}
