package accumulator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/accumulator"
)

// change is one change of an item.
type change struct {
	key           feed.PartitionKey
	id            string
	before, after []byte
}

// randomChanges makes a history of items and returns what is there in the end.
func randomChanges(tb testing.TB, r *rand.Rand, n int) ([]change, map[ref]string) {
	tb.Helper()
	keys := []feed.PartitionKey{mustKey(tb, "p"), mustKey(tb, "q"), mustKey(tb, 2)}
	items := map[ref]string{}
	changes := make([]change, 0, n)
	for range n {
		key := keys[r.IntN(len(keys))]
		at := ref{key.Encoded(), fmt.Sprint("i", r.IntN(12))}
		c := change{key: key, id: at.id}
		if old, ok := items[at]; ok {
			c.before = []byte(old)
		}
		if r.IntN(4) > 0 || c.before == nil {
			body := randomOrder(r, at.id)
			c.after = checkJSON(tb, body)
			items[at] = body
		} else {
			delete(items, at)
		}
		changes = append(changes, c)
	}
	return changes, items
}

func randomOrder(r *rand.Rand, id string) string {
	var b strings.Builder
	member := func(name, value string) {
		if r.IntN(10) > 0 {
			fmt.Fprintf(&b, `,%q:%s`, name, value)
		}
	}
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	number := func() string {
		if r.IntN(8) == 0 {
			return pick("null", `"3"`, "[1]", "{}", "1e-390", "1e390", "-0", "9007199254740993", "0.30", "123456789012345678.9")
		}
		return fmt.Sprintf("%d.%02d", r.IntN(40)-10, r.IntN(100))
	}
	fmt.Fprintf(&b, `{"id":%q`, id)
	member("type", pick(`"order"`, `"order"`, `"order"`, `"note"`))
	member("customer", pick(`"a"`, `"a"`, `"b"`, `"\u0061"`, "1", "1.0", "null", "[]"))
	if r.IntN(2) == 0 {
		member("at", fmt.Sprintf(`"2024-01-%02d"`, 1+r.IntN(20)))
	} else {
		member("at", pick(scalars...))
	}
	member("paid", number())
	member("to", pick(`{"city":"x"}`, `{"city": "y"}`, `{"city":7}`, "{}", "{}"))
	var lines []string
	for range r.IntN(4) {
		lines = append(lines, fmt.Sprintf(`{"sku":%s,"price":%s,"quantity":%s,"options":%s}`,
			pick(`"s"`, `"t"`, "null", "{}"), number(), pick("1", "2", "3", "0.5", `"2"`), pick(`["a","b"]`, `["a","a",4]`, "[]", "null", "3")))
	}
	member("lines", "["+strings.Join(lines, ", ")+"]")
	return b.String() + "}"
}

// TestModel_AnyOrderOfDeltasEndsAsARecomputation folds a random history in pieces
// of any size, splits, joins and sends them, applies them in any order, and
// compares with a recomputation; then it takes all back.
func TestModel_AnyOrderOfDeltasEndsAsARecomputation(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for name, run := range map[string]struct {
		spec  accumulator.Spec
		naive func(testing.TB, map[ref]string) naive
	}{"totals": {totals, naiveTotals}, "sales": {sales, naiveSales}} {
		t.Run(name, func(t *testing.T) {
			rule := mustCompile(t, run.spec)
			for round := range rounds {
				r := rand.New(rand.NewPCG(*seed, uint64(round)))
				changes, items := randomChanges(t, r, 1+r.IntN(120))
				m := accumulator.NewMemory()
				for _, d := range randomDeltas(t, r, rule, changes) {
					must(t, rule.Apply(m, d))
				}
				checkGroups(t, rule, m, run.naive(t, items))
				checkRecomputed(t, rule, m, items)
				for i := range changes {
					changes[i].before, changes[i].after = changes[i].after, changes[i].before
				}
				for _, d := range randomDeltas(t, r, rule, changes) {
					must(t, rule.Apply(m, d))
				}
				if m.Len() != 0 {
					t.Errorf("all was taken back; left are %v", dump(t, m))
				}
				if t.Failed() {
					t.Fatalf("seed %d, round %d", *seed, round)
				}
			}
		})
	}
}

// randomDeltas cuts changes into deltas that together mean the same.
func randomDeltas(tb testing.TB, r *rand.Rand, rule *accumulator.Rule, changes []change) []*accumulator.Delta {
	tb.Helper()
	var deltas []*accumulator.Delta
	for len(changes) > 0 {
		n := 1 + r.IntN(min(len(changes), 9))
		d := rule.NewDelta()
		for _, c := range changes[:n] {
			rule.Fold(d, c.key, c.id, c.before, c.after)
		}
		changes = changes[n:]
		switch r.IntN(5) {
		case 0: // over the wire
			decoded, err := rule.DecodeDelta(d.Append(nil))
			must(tb, err)
			deltas = append(deltas, decoded)
		case 1: // each group by itself
			for _, g := range d.Groups() {
				deltas = append(deltas, d.Only(func(h accumulator.Group) bool { return g == h }))
			}
		case 2: // with another
			if last := len(deltas) - 1; last >= 0 {
				joined := rule.NewDelta()
				joined.Merge(deltas[last])
				joined.Merge(d)
				deltas[last] = joined
				continue
			}
			fallthrough
		default:
			deltas = append(deltas, d)
		}
	}
	r.Shuffle(len(deltas), func(i, j int) { deltas[i], deltas[j] = deltas[j], deltas[i] })
	return deltas
}

// checkGroups compares the values of all groups with the naive ones.
func checkGroups(t *testing.T, rule *accumulator.Rule, m *accumulator.Memory, want naive) {
	t.Helper()
	var seen []accumulator.Group
	for record, err := range m.Range(nil) {
		must(t, err)
		g, whole, ok := rule.GroupOfKey(record.Key)
		if !ok {
			t.Fatalf("key %x is of no group", record.Key)
		}
		if whole {
			seen = append(seen, g)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), seen); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	for g := range want {
		state, err := rule.State(m, g)
		must(t, err)
		if state.Empty() {
			t.Errorf("group %s is empty", g)
		}
		for i, v := range state.Values() {
			f := &rule.Spec().Set[i]
			want.at(g, f.Path).check(t, g, f, v.Value)
		}
	}
}

// checkRecomputed compares all records with those of a recomputation, and the
// difference of their contents.
func checkRecomputed(t *testing.T, rule *accumulator.Rule, m *accumulator.Memory, items map[ref]string) {
	t.Helper()
	want := accumulator.NewMemory()
	all := rule.NewDelta()
	for at, body := range items {
		key, err := feed.PartitionKeyFromEncoded(at.key)
		must(t, err)
		rule.Fold(all, key, at.id, nil, []byte(body))
	}
	must(t, rule.Apply(want, all))
	if diff := cmp.Diff(dump(t, want), dump(t, m)); diff != "" {
		t.Errorf("records (-recomputed +got):\n%s", diff)
	}
	is, recomputed := rule.NewDelta(), rule.NewDelta()
	for record, err := range m.Range(nil) {
		must(t, err)
		if g, whole, _ := rule.GroupOfKey(record.Key); whole {
			must(t, rule.Content(is, m, g))
			must(t, rule.Content(recomputed, want, g))
		}
	}
	if a, b := is.Append(nil), recomputed.Append(nil); string(a) != string(b) {
		t.Errorf("contents differ:\n%x\n%x", a, b)
	}
	fresh := accumulator.NewMemory()
	must(t, rule.Apply(fresh, is))
	if diff := cmp.Diff(dump(t, m), dump(t, fresh)); diff != "" {
		t.Errorf("made from contents (-want +got):\n%s", diff)
	}
	recomputed.Negate()
	is.Merge(recomputed)
	if !is.Empty() {
		t.Errorf("the difference of equal contents is not empty: %s", is.Groups())
	}
}
