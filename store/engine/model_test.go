package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/raced"
	"github.com/millrace/millrace/store/engine"
)

// change is one change of a log for tests.
type change struct {
	after, before *engine.Item // nil: delete, create
	bodyOnly      bool
	record        string // written if not empty, with value; deleted if value is empty
	value         string
}

// model is what a partition must hold, and the log that led there.
type model struct {
	r      *rand.Rand
	schema *engine.Schema
	keys   []feed.PartitionKey
	items  map[string]engine.Item // by item key
	record map[string]string
	log    [][]change
}

func newModel(t testing.TB, seed uint64) *model {
	t.Helper()
	ttl := int64(-1)
	schema := schemaOf(t, "/color", "/size", "/tags/*/id", "/nested/deep")
	schema.UniqueKeys = []engine.UniqueKey{{Number: 1, Paths: pathsOf(t, "/serial")}}
	schema.DefaultTTL = &ttl
	return &model{
		r: rand.New(rand.NewPCG(seed, 1)), schema: schema,
		keys:  []feed.PartitionKey{key(t, "a"), key(t, "b"), key(t, 1), key(t, nil)},
		items: map[string]engine.Item{}, record: map[string]string{},
	}
}

// body returns a random item. Its serial is unique.
func (m *model) body(id string, serial int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%q,"serial":%d`, id, serial)
	if n := m.r.IntN(6); n > 0 {
		fmt.Fprintf(&b, `,"color":%s`, []string{`"red"`, `"green"`, `"\u0072ed"`, `null`, `{"a":1}`}[n-1])
	}
	if n := m.r.IntN(5); n > 0 {
		fmt.Fprintf(&b, `,"size":%s`, []string{`1`, `1.0`, `2`, `"1"`}[n-1])
	}
	if m.r.IntN(3) > 0 {
		b.WriteString(`,"tags":[`)
		for i := range m.r.IntN(5) {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id":"t%d"}`, m.r.IntN(4))
		}
		b.WriteByte(']')
	}
	if m.r.IntN(4) == 0 {
		fmt.Fprintf(&b, `,"nested":{"deep":"%s%d"}`, strings.Repeat("d", 600), m.r.IntN(3))
	}
	if m.r.IntN(3) == 0 {
		fmt.Fprintf(&b, `,"ttl":%d`, 1+m.r.IntN(100))
	}
	if m.r.IntN(400) == 0 {
		fmt.Fprintf(&b, `,"large":"%s"`, strings.Repeat("l", 900_000+m.r.IntN(600_000)))
	}
	b.WriteByte('}')
	return []byte(b.String())
}

// next appends a random commit to the log.
func (m *model) next() {
	lsn := feed.LSN(len(m.log) + 1)
	var commit []change
	for i := range 1 + m.r.IntN(20) {
		at := feed.Position{LSN: lsn, Index: uint32(i)}
		if m.r.IntN(10) == 0 {
			c := change{record: fmt.Sprintf("r%d", m.r.IntN(5)), value: fmt.Sprint(m.r.IntN(3))}
			if m.record[c.record] = c.value; c.value == "0" {
				c.value = ""
				delete(m.record, c.record)
			}
			commit = append(commit, c)
			continue
		}
		commit = append(commit, m.change(at))
	}
	m.log = append(m.log, commit)
}

func (m *model) change(at feed.Position) change {
	k, id := m.keys[m.r.IntN(len(m.keys))], fmt.Sprintf("i%d", m.r.IntN(30))
	name := string(engine.ItemKey(k, id))
	before, had := m.items[name]
	if had && m.r.IntN(4) == 0 {
		delete(m.items, name)
		return change{before: &before}
	}
	after := engine.Item{
		Key: k, ID: id, Position: at, Modified: int64(at.LSN) * 1000, Written: at.LSN,
		Body: m.body(id, int(at.LSN)*100+int(at.Index)),
	}
	c := change{after: &after}
	if had {
		c.before = &before
		if m.r.IntN(3) == 0 { // a pipeline's write of a field that nothing is kept of
			after.Body = fmt.Appendf(nil, `%s,"copy":"%d"}`, strings.Split(strings.TrimSuffix(string(before.Body), "}"), `,"copy"`)[0], at.LSN)
			after.Modified, after.Written, after.Expires = before.Modified, before.Written, before.Expires
			c.bodyOnly = true
		}
	}
	after.Expires = m.schema.Expires(after.Body, after.Modified)
	m.items[name] = after
	return c
}

// apply applies the commits after from, up to to, each in a batch of its own.
func (m *model) apply(t testing.TB, p *engine.Partition, from, to int) {
	t.Helper()
	b := p.NewBatch(m.schema)
	for n := from; n < to; n++ {
		for _, c := range m.log[n] {
			m.write(t, b, c)
		}
		b.SetState(m.state(n + 1))
		must(t, b.Commit())
	}
}

func (m *model) state(lsn int) engine.State {
	return engine.State{
		Log: feed.LogID{1}, Applied: feed.LSN(lsn), Sum: feed.Checksum(lsn * 7), Time: int64(lsn) * 1000, Epoch: 3,
		Owner: "node/1", Settings: []byte("settings"),
	}
}

func (m *model) write(t testing.TB, b *engine.Batch, c change) {
	t.Helper()
	bare := func(it *engine.Item) *engine.Item { // the log does not say when items expire
		if it == nil {
			return nil
		}
		c := *it
		if m.r.IntN(2) == 0 {
			c.Expires = 0
		}
		return &c
	}
	switch {
	case c.record != "" && c.value == "":
		must(t, b.DeleteRecord('q', []byte(c.record)))
	case c.record != "":
		must(t, b.PutRecord('q', []byte(c.record), []byte(c.value)))
	case c.after == nil:
		must(t, b.Delete(bare(c.before)))
	case c.bodyOnly:
		must(t, b.PutBody(c.after))
	default:
		must(t, b.Put(bare(c.after), bare(c.before)))
	}
}

// check compares all that a partition holds with the model.
func (m *model) check(t testing.TB, p *engine.Partition) {
	t.Helper()
	s := p.Snapshot()
	defer s.Close()
	names := slices.Sorted(maps.Keys(m.items))
	var want, got []engine.Item
	for _, name := range names {
		want = append(want, m.items[name])
	}
	for v, err := range s.Items(nil, nil) {
		must(t, err)
		got = append(got, v.Item())
	}
	equalKeys := cmp.Comparer(func(a, b feed.PartitionKey) bool { return a == b })
	if diff := cmp.Diff(want, got, equalKeys, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Fatalf("items (-want +got):\n%.3000s", diff)
	}
	m.checkIndexes(t, s, names)
	m.checkExpiries(t, s)
	for _, it := range want {
		id, ok, err := s.Unique(it.Key, 1, m.schema.UniqueKeys[0].Values(it.Body))
		must(t, err)
		if !ok || id != it.ID {
			t.Fatalf("unique entry of %s says %q", it.ID, id)
		}
	}
	records := map[string]string{}
	for r, err := range s.Records('q', nil) {
		must(t, err)
		records[string(r.Key)] = string(r.Value)
	}
	if diff := cmp.Diff(m.record, records); diff != "" {
		t.Fatalf("records (-want +got):\n%s", diff)
	}
}

// checkIndexes compares the items under each value of each index with those that
// have the value, in order.
func (m *model) checkIndexes(t testing.TB, s *engine.Snapshot, names []string) {
	t.Helper()
	total := map[uint32]int{}
	for _, x := range m.schema.Indexes {
		var values []string
		switch x.Number {
		case 1:
			values = []string{`"red"`, `"green"`, `null`, `{"a":1}`}
		case 2:
			values = []string{`1`, `2`, `"1"`}
		case 3:
			values = []string{`"t0"`, `"t1"`, `"t2"`, `"t3"`}
		case 4:
			for i := range 3 {
				values = append(values, fmt.Sprintf(`"%s%d"`, strings.Repeat("d", 600), i))
			}
		}
		for _, value := range values {
			var want []string
			for _, name := range names {
				if m.has(m.items[name].Body, x, value) {
					want = append(want, name)
				}
			}
			var got []string
			for v, err := range s.IndexItems(x.Number, []byte(value), nil) {
				must(t, err)
				got = append(got, string(v.ItemKey()))
			}
			if !slices.Equal(want, got) {
				for _, g := range got {
					if !slices.Contains(want, g) {
						t.Logf("not wanted: %.300s", m.items[g].Body)
					}
				}
				t.Fatalf("index %d has %d items for %.20s, want %d", x.Number, len(got), value, len(want))
			}
			n, err := s.CountIndex(x.Number, []byte(value))
			must(t, err)
			if n != len(want) {
				t.Fatalf("index %d counts %d items for %.20s, want %d", x.Number, n, value, len(want))
			}
			total[x.Number] += n
		}
		n, err := s.CountIndex(x.Number, nil)
		must(t, err)
		if n != total[x.Number] {
			t.Fatalf("index %d has %d entries, want %d", x.Number, n, total[x.Number])
		}
	}
}

// has tells in the plainest way whether an item has a value in an index.
func (m *model) has(body []byte, x engine.Index, value string) bool {
	text := strings.ReplaceAll(strings.ReplaceAll(string(body), `\u0072`, "r"), "1.0", "1")
	switch x.Number {
	case 1:
		return !strings.HasPrefix(value, "{") && strings.Contains(text, `"color":`+value)
	case 2:
		return strings.Contains(text, `"size":`+value+",") || strings.Contains(text, `"size":`+value+"}")
	case 3:
		return strings.Contains(text, `{"id":`+value+`}`)
	}
	return strings.Contains(text, `"deep":`+value)
}

func (m *model) checkExpiries(t testing.TB, s *engine.Snapshot) {
	t.Helper()
	var want []engine.ItemRef
	for _, it := range m.items {
		if it.Expires != 0 {
			want = append(want, engine.ItemRef{Key: it.Key, ID: it.ID, Expires: it.Expires})
		}
	}
	order := func(a, b engine.ItemRef) int {
		if a.Expires != b.Expires {
			return int(a.Expires - b.Expires)
		}
		return strings.Compare(string(engine.ItemKey(a.Key, a.ID)), string(engine.ItemKey(b.Key, b.ID)))
	}
	slices.SortFunc(want, order)
	got, err := s.Expired(1<<62, 1<<30)
	must(t, err)
	if !slices.Equal(want, got) {
		t.Fatalf("%d items expire, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

func TestModel(t *testing.T) {
	for seed := range uint64(raced.Rounds(1, 4)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			m, p := newModel(t, seed), newPartition(t)
			for n := range 400 {
				m.next()
				m.apply(t, p, n, n+1)
				if n%40 == 0 {
					m.check(t, p)
				}
			}
			m.check(t, p)
			state, err := p.State()
			must(t, err)
			if diff := cmp.Diff(m.state(400), state); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

// TestI3_ApplyingAgainIsHarmless applies a log in several ways that all must lead
// to the same state: each commit twice, with repetitions of a stretch, in fewer
// batches, with the DB closed in between.
func TestI3_ApplyingAgainIsHarmless(t *testing.T) {
	const commits = 120
	m := newModel(t, 77)
	for range commits {
		m.next()
	}
	once := newPartition(t)
	m.apply(t, once, 0, commits)
	m.check(t, once)
	want := digest(t, once)

	for name, apply := range map[string]func(t *testing.T) *engine.Partition{
		"each twice": func(t *testing.T) *engine.Partition {
			t.Helper()
			p := newPartition(t)
			for n := range commits {
				m.apply(t, p, n, n+1)
				m.apply(t, p, n, n+1)
			}
			return p
		},
		"stretches again": func(t *testing.T) *engine.Partition {
			t.Helper()
			p := newPartition(t)
			for n := 0; n < commits; n += 10 {
				m.apply(t, p, max(0, n-25), n+10)
			}
			return p
		},
		"one batch for many commits": func(t *testing.T) *engine.Partition {
			t.Helper()
			p := newPartition(t)
			b := p.NewBatch(m.schema)
			for n := range commits {
				for _, c := range m.log[n] {
					m.write(t, b, c)
				}
				if n%30 == 29 {
					must(t, b.Commit())
				}
			}
			return p
		},
		"closed in between": func(t *testing.T) *engine.Partition {
			t.Helper()
			dir := t.TempDir()
			for n := 0; n < commits; n += 40 {
				db, err := engine.Open(dir, small, quiet)
				must(t, err)
				p := openPartition(t, db, partA)
				m.apply(t, p, n, n+40)
				must(t, db.Close())
			}
			return openPartition(t, openDB(t, dir), partA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := digest(t, apply(t)); got != want {
				t.Errorf("digest %x, want %x", got, want)
			}
		})
	}
}
