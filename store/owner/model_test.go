package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// model is the simplest machine that a partition should agree with: a map.
type model struct {
	t     testing.TB
	n     *node
	rand  *rand.Rand
	items map[string]map[string]any // by a/id
	etags map[string]store.ETag
}

func newModel(t testing.TB, n *node, seed uint64) *model {
	t.Helper()
	return &model{t: t, n: n, rand: rand.New(rand.NewPCG(seed, 7)), items: map[string]map[string]any{}, etags: map[string]store.ETag{}}
}

func (m *model) body(id, a string) map[string]any {
	doc := map[string]any{"id": id, "a": a, "n": float64(m.rand.IntN(5)), "u": float64(m.rand.IntN(30))}
	tags := []any{}
	for range m.rand.IntN(4) {
		tags = append(tags, map[string]any{"id": fmt.Sprint("t", m.rand.IntN(6)), "name": fmt.Sprint(m.rand.IntN(9))})
	}
	doc["tags"] = tags
	return doc
}

func clone(doc map[string]any) map[string]any {
	data, _ := json.Marshal(doc)
	var out map[string]any
	_ = json.Unmarshal(data, &out)
	return out
}

// taken says whether another item of the logical partition has the unique value.
func taken(items map[string]map[string]any, self, a string, doc map[string]any) bool {
	for k, other := range items {
		if k != self && other["a"] == a && other["u"] == doc["u"] {
			return true
		}
	}
	return false
}

// run makes random batches and expects what the map says.
func (m *model) run(steps int) {
	m.t.Helper()
	for range steps {
		a := fmt.Sprint("a", m.rand.IntN(3))
		items := maps.Clone(m.items)
		var ops []store.Operation
		want := store.Status(0)
		touched := map[int]string{}
		for len(ops) < 1+m.rand.IntN(5) && want == 0 {
			op, key, status := m.operation(items, a)
			ops = append(ops, op)
			touched[len(ops)-1] = key
			want = status
		}
		m.apply(a, ops, items, touched, want)
	}
	m.check()
}

// operation draws one operation, does it to items, and returns the status that
// refuses it, if any.
func (m *model) operation(items map[string]map[string]any, a string) (op store.Operation, key string, refusal store.Status) {
	id := fmt.Sprint("i", m.rand.IntN(12))
	key = a + "/" + id
	old, there := items[key]
	doc := m.body(id, a)
	body, _ := json.Marshal(doc)
	op = store.Operation{ID: id}
	switch m.rand.IntN(5) {
	case 0:
		op.Kind, op.Body = store.OpCreate, body
		if there {
			return op, key, store.StatusConflict
		}
	case 1:
		op.Kind, op.Body = store.OpReplace, body
		if !there {
			return op, key, store.StatusNotFound
		}
	case 2:
		op.Kind, op.Body = store.OpUpsert, body
	case 3:
		op.Kind = store.OpDelete
		if !there {
			return op, key, store.StatusNotFound
		}
		delete(items, key)
		return op, key, 0
	case 4:
		op.Kind = store.OpPatch
		value := float64(m.rand.IntN(30))
		op.Patch = []document.Op{set("/u", fmt.Sprint(value)), {Kind: "incr", Path: "/n", Value: []byte("1")}}
		if !there {
			return op, key, store.StatusNotFound
		}
		doc = clone(old)
		doc["u"] = value
		doc["n"] = doc["n"].(float64) + 1
	}
	if taken(items, key, a, doc) {
		return op, key, store.StatusConflict
	}
	items[key] = doc
	return op, key, 0
}

func (m *model) apply(a string, ops []store.Operation, items map[string]map[string]any, touched map[int]string, want store.Status) {
	m.t.Helper()
	r, err := m.n.batch(pk(m.t, a), ops...)
	if err != nil {
		m.t.Fatal(err)
	}
	if want != 0 {
		if last := r.Results[len(ops)-1]; !r.Failed || last.Status != want {
			m.t.Fatalf("%+v: failed %v with %+v, want %d", ops, r.Failed, last, want)
		}
		return
	}
	if r.Failed {
		m.t.Fatalf("%+v: refused: %+v", ops, r.Results)
	}
	m.items = items
	for i := range ops {
		m.etags[touched[i]] = r.Results[i].Item.ETag
	}
}

// check compares everything: reads, indexes and a scan with the map.
func (m *model) check() {
	m.t.Helper()
	byTag := map[string]int{}
	for a := range 3 {
		for i := range 12 {
			key := fmt.Sprintf("a%d/i%d", a, i)
			item, err := m.n.one(pk(m.t, fmt.Sprint("a", a)), store.Operation{Kind: store.OpRead, ID: fmt.Sprint("i", i)})
			want, there := m.items[key]
			if !there {
				if !errors.Is(err, store.ErrNotFound) {
					m.t.Fatalf("%s: %v, %s; it should not be there", key, err, item.Body)
				}
				continue
			}
			wantBody, _ := json.Marshal(want)
			if err != nil || !document.Equal(item.Body, wantBody) || item.ETag != m.etags[key] {
				m.t.Fatalf("%s: %v\n got %s %s\nwant %s %s", key, err, item.Body, item.ETag, wantBody, m.etags[key])
			}
			seen := map[string]bool{}
			for _, tag := range want["tags"].([]any) {
				id := tag.(map[string]any)["id"].(string)
				if !seen[id] {
					byTag[id]++
				}
				seen[id] = true
			}
		}
	}
	for i := range 6 {
		id := fmt.Sprint("t", i)
		scope := store.Scope{Index: "/tags/*/id", Value: []byte(`"` + id + `"`)}
		r := m.n.ask(&store.Request{Scan: &store.Scan{Scope: scope, ItemsMax: 1000}})
		c := m.n.ask(&store.Request{Count: &scope})
		if r.Err != nil || c.Err != nil {
			m.t.Fatal(r.Err, c.Err)
		}
		if len(r.Scan.Items) != byTag[id] || c.Count != byTag[id] {
			m.t.Fatalf("tag %s: %d items, counted %d, want %d", id, len(r.Scan.Items), c.Count, byTag[id])
		}
	}
	var after []byte
	total := 0
	for {
		r := m.n.ask(&store.Request{Scan: &store.Scan{After: after, ItemsMax: 7}})
		if r.Err != nil {
			m.t.Fatal(r.Err)
		}
		total += len(r.Scan.Items)
		if after = r.Scan.Cursor; after == nil {
			break
		}
	}
	if total != len(m.items) {
		m.t.Fatalf("a scan found %d items, want %d", total, len(m.items))
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{
		PartitionKey: []string{"/a"}, Indexes: []string{"/tags/*/id", "/n"}, UniqueKeys: [][]string{{"/u"}},
	})
	dir := t.TempDir()
	m := newModel(t, w.start(dir), 42)
	for range 5 {
		m.run(200)
		if err := m.n.stop(); err != nil {
			t.Fatal(err)
		}
		m.n = w.start(dir)
		m.check()
	}
	previous := map[string]feed.Position{}
	for _, c := range w.commits() {
		index := uint32(0)
		for _, tx := range c.Transactions {
			for _, change := range tx.Changes {
				k := change.Key.String() + change.ID
				if change.Prev != previous[k] {
					t.Fatalf("change %d.%d of %s names %s as what it replaced, want %s", c.LSN, index, k, change.Prev, previous[k])
				}
				previous[k] = feed.Position{LSN: c.LSN, Index: index}
				if change.Op == feed.OpDelete {
					delete(previous, k)
				}
				index++
			}
		}
	}
}
