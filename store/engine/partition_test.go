package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// TestI4_SnapshotsSeeCommitsWhole reads while commits larger than a transaction of
// Badger change every item, and expects all items to be of the same commit.
func TestI4_SnapshotsSeeCommitsWhole(t *testing.T) {
	db := openDB(t, t.TempDir())
	const items, commits = 40, 20
	schema := schemaOf(t, "/n")
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for _, id := range []int{0, 1} {
		p := openPartition(t, db, partA)
		if id == 1 {
			p = openPartition(t, db, partB)
		}
		body := func(n int) string {
			return fmt.Sprintf(`{"n":%d,"pad":"%s"}`, n, strings.Repeat("p", 50_000))
		}
		k := key(t, "k")
		write := func(n int) {
			b := p.NewBatch(schema)
			for i := range items {
				after := item(k, fmt.Sprint(i), body(n))
				var before *engine.Item
				if n > 0 {
					before = item(k, fmt.Sprint(i), body(n-1))
				}
				if err := b.Put(after, before); err != nil {
					t.Error(err)
				}
			}
			b.SetState(engine.State{Applied: 1, Time: int64(n)})
			if err := b.Commit(); err != nil {
				t.Error(err)
			}
		}
		write(0)
		writers.Go(func() {
			for n := range commits {
				write(n + 1)
			}
		})
		readers.Go(func() {
			for last := int64(-1); ; {
				select {
				case <-stop:
					return
				default:
				}
				s := p.Snapshot()
				last = checkWhole(t, s, last, items)
				s.Close()
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// checkWhole expects all items of a snapshot to be of the commit that its state
// names, which is not before last.
func checkWhole(t *testing.T, s *engine.Snapshot, last int64, items int) int64 {
	t.Helper()
	state, err := s.State()
	if err != nil || state.Time < last {
		t.Errorf("commit %d after %d: %v", state.Time, last, err)
	}
	value := fmt.Sprint(state.Time)
	want := []byte(`{"n":` + value + `,`)
	seen := 0
	for v, err := range s.Items(nil, nil) {
		if seen++; err != nil || !bytes.HasPrefix(v.Body, want) {
			t.Errorf("item %s: %v; want one of commit %d", v.ID(), err, state.Time)
			return state.Time
		}
	}
	n, err := s.CountIndex(1, []byte(value))
	all, errAll := s.CountIndex(1, nil)
	if seen != items || n != items || all != items || err != nil || errAll != nil {
		t.Errorf("%d items, %d of %d entries, want %d; %v %v", seen, n, all, items, err, errAll)
	}
	return state.Time
}

func TestSnapshot_staysWhatItWas(t *testing.T) {
	p, schema := newPartition(t), schemaOf(t, "/n")
	k := key(t, "k")
	put(t, p, schema, item(k, "1", `{"n":1}`))
	old := p.Snapshot()
	defer old.Close()
	for n := 2; n < 400; n++ { // enough for old versions to be discarded
		b := p.NewBatch(schema)
		must(t, b.Put(item(k, "1", fmt.Sprintf(`{"n":%d}`, n)), item(k, "1", fmt.Sprintf(`{"n":%d}`, n-1))))
		must(t, b.Commit())
	}
	must(t, p.Clear())
	it, ok, err := old.Get(k, "1")
	must(t, err)
	if !ok || string(it.Body) != `{"n":1}` {
		t.Errorf("the snapshot shows %v %s", ok, it.Body)
	}
	if got := indexed(t, old, 1, "1"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the snapshot's index shows %v", got)
	}
	now := p.Snapshot()
	defer now.Close()
	if n, err := now.Count(nil); n != 0 || err != nil {
		t.Errorf("after Clear there are %d items, %v", n, err)
	}
}

func TestItems_cursors(t *testing.T) {
	p := newPartition(t)
	a, b := key(t, "a"), key(t, "b")
	put(t, p, schemaOf(t), item(a, "1", `{}`), item(a, "2", `{}`), item(a, "3", `{}`), item(b, "1", `{}`), item(key(t, "a", "x"), "1", `{}`))
	s := p.Snapshot()
	defer s.Close()
	list := func(from, prefix []byte) []string {
		found := []string{}
		for v, err := range s.Items(from, prefix) {
			must(t, err)
			found = append(found, v.Key().String()+v.ID())
		}
		return found
	}
	for _, c := range []struct {
		name         string
		from, prefix []byte
		want         []string
	}{
		{"a logical partition", nil, engine.LogicalPrefix(a), []string{`["a"]1`, `["a"]2`, `["a"]3`}},
		{"after an item", engine.ItemKey(a, "1"), engine.LogicalPrefix(a), []string{`["a"]2`, `["a"]3`}},
		{"after one that is not there", engine.ItemKey(a, "10"), engine.LogicalPrefix(a), []string{`["a"]2`, `["a"]3`}},
		{"after the last", engine.ItemKey(a, "3"), engine.LogicalPrefix(a), []string{}},
		{"from before the prefix", []byte{0}, engine.LogicalPrefix(a), []string{`["a"]1`, `["a"]2`, `["a"]3`}},
		{"from behind the prefix", []byte{9}, engine.LogicalPrefix(a), []string{}},
		{"a hash", nil, engine.HashPrefix(1, b.Hash()), []string{`["b"]1`}},
		{"first levels of a hierarchical key", nil, engine.HashPrefix(2, a.Hash()), []string{`["a","x"]1`}},
		{"a key without items", nil, engine.LogicalPrefix(key(t, "c")), []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, list(c.from, c.prefix)); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
	if got := list(nil, nil); len(got) != 5 {
		t.Errorf("a scan of all shows %v", got)
	}
	if n, err := s.Count(engine.LogicalPrefix(a)); n != 3 || err != nil {
		t.Errorf("Count = %d, %v", n, err)
	}
}

func TestIndexItems_cursor(t *testing.T) {
	p, schema := newPartition(t), schemaOf(t, "/tags/*/id")
	k := key(t, "k")
	var items []*engine.Item
	for n := range 50 {
		items = append(items, item(k, fmt.Sprintf("%02d", n), fmt.Sprintf(`{"tags":[{"id":%d},{"id":7},{"id":%d}]}`, n%3, n%3)))
	}
	put(t, p, schema, items...)
	s := p.Snapshot()
	defer s.Close()
	var got []string
	var after []byte
	for range 10 { // pages of five
		n := 0
		for v, err := range s.IndexItems(1, []byte("7.0"), after) {
			must(t, err)
			got = append(got, v.ID())
			after = bytes.Clone(v.ItemKey())
			if n++; n == 5 {
				break
			}
		}
	}
	if len(got) != 50 || !slices.IsSorted(got) {
		t.Errorf("pages show %v", got)
	}
	if got := indexed(t, s, 1, "1"); len(got) != 17 {
		t.Errorf("an item that has a value twice must be there once: %v", got)
	}
}

func TestLargeValues(t *testing.T) {
	p := newPartition(t)
	k, schema := key(t, "k"), schemaOf(t, "/n")
	body := func(n, size int) string {
		head := fmt.Sprintf(`{"n":%d,"pad":"`, n)
		return head + strings.Repeat(string(rune('a'+n%26)), size-len(head)-2) + `"}`
	}
	sizes := []int{100, 1<<20 - 30, 1 << 20, 1<<20 + 1, 2 << 20, 600_000, 2 << 20, 1 << 19, 1<<20 + 1<<19, 100}
	for n, size := range sizes {
		b := p.NewBatch(schema)
		it := item(k, "1", body(n, size))
		if n%2 == 0 {
			must(t, b.Put(it, nil))
		} else {
			must(t, b.PutBody(it))
		}
		must(t, b.PutRecord('r', []byte("x"), it.Body))
		must(t, b.Commit())
		s := p.Snapshot()
		got, ok, err := s.Get(k, "1")
		if err != nil || !ok || !bytes.Equal(got.Body, it.Body) {
			t.Fatalf("item of %d bytes: %v %v, %d bytes", size, ok, err, len(got.Body))
		}
		for v, err := range s.Items(nil, nil) {
			if err != nil || !bytes.Equal(v.Body, it.Body) || v.ID() != "1" {
				t.Fatalf("scan of an item of %d bytes: %v", size, err)
			}
		}
		value, _, err := s.Record('r', []byte("x"))
		if err != nil || !bytes.Equal(value, it.Body) {
			t.Fatalf("record of %d bytes: %v", size, err)
		}
		for r, err := range s.Records('r', nil) {
			if err != nil || !bytes.Equal(r.Value, it.Body) {
				t.Fatalf("records of %d bytes: %v", size, err)
			}
		}
		s.Close()
	}
	// What is left equals what a partition has that never held large values.
	other := newPartition(t)
	b := other.NewBatch(schema)
	last := item(k, "1", body(len(sizes)-1, 100))
	must(t, b.Put(last, item(k, "1", body(0, 100))))
	must(t, b.Put(item(k, "2", body(0, 100)), nil))
	must(t, b.Delete(item(k, "2", body(0, 100))))
	must(t, b.PutRecord('r', []byte("x"), last.Body))
	must(t, b.Commit())
	b = p.NewBatch(schema)
	for n := range sizes { // PutBody did not look after the index
		must(t, b.Put(item(k, "1", body(0, 100)), item(k, "1", body(n, 100))))
	}
	must(t, b.Put(last, item(k, "1", body(0, 100))))
	must(t, b.Commit())
	if digest(t, p) != digest(t, other) {
		t.Error("large values left something behind")
	}
}

func TestCommit_largerThanATransaction(t *testing.T) {
	p := newPartition(t)
	k, schema := key(t, "k"), schemaOf(t, "/tags/*")
	var tags strings.Builder
	const n = 30_000
	for i := range n {
		fmt.Fprintf(&tags, ",%d", i)
	}
	it := item(k, "1", `{"tags":[`+tags.String()[1:]+`]}`)
	put(t, p, schema, it)
	s := p.Snapshot()
	if got, err := s.CountIndex(1, nil); got != n || err != nil {
		t.Errorf("%d entries, %v; want %d", got, err, n)
	}
	s.Close()
	b := p.NewBatch(schema)
	must(t, b.Delete(it))
	must(t, b.Commit())
	if digest(t, p) != digest(t, newPartition(t)) {
		t.Error("deleting left something behind")
	}
}

func TestClearAndDrop(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	a, b := openPartition(t, db, partA), openPartition(t, db, partB)
	schema := schemaOf(t, "/n")
	fill := func(p *engine.Partition) {
		var items []*engine.Item
		for n := range 3000 {
			items = append(items, item(key(t, n%7), fmt.Sprint(n), fmt.Sprintf(`{"n":%d}`, n)))
		}
		put(t, p, schema, items...)
	}
	fill(a)
	fill(b)
	want := digest(t, b)
	must(t, db.SyncPartitions())
	stale := a.NewBatch(schema)
	must(t, stale.Put(item(key(t, 1), "x", `{}`), nil))
	must(t, a.Clear())
	if err := stale.Commit(); err == nil {
		t.Error("a batch from before Clear was committed")
	}
	if s, err := a.State(); err != nil || s.Applied != 0 {
		t.Errorf("state after Clear: %v %v", s, err)
	}
	fill(a)
	if digest(t, a) != want || digest(t, b) != want {
		t.Error("a partition differs after Clear and the same writes")
	}
	must(t, db.SetCatalogOf(partA, "first"))
	must(t, db.SetCatalogOf(partA, "second"))
	if got, err := db.CatalogOf(partA); got != "second" || err != nil {
		t.Errorf("its catalog is %q, %v", got, err)
	}
	must(t, db.DropPartition(partA))
	must(t, db.DropPartition(partA)) // nothing to drop
	for _, p := range []feed.Partition{partA, partB} {
		if got, err := db.CatalogOf(p); got != "" || err != nil {
			t.Errorf("%s: its catalog is %q, %v", p, got, err)
		}
	}
	got, err := db.Partitions()
	must(t, err)
	if len(got) != 1 || got[0] != partB {
		t.Errorf("partitions after drop: %v", got)
	}
	if digest(t, b) != want {
		t.Error("dropping a partition changed another")
	}
	if digest(t, openPartition(t, db, partA)) != digest(t, newPartition(t)) {
		t.Error("a dropped partition is not empty")
	}
}

func TestClose(t *testing.T) {
	db, err := engine.Open(t.TempDir(), small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	put(t, p, schemaOf(t), item(key(t, 1), "1", `{}`))
	s := p.Snapshot()
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	for {
		if err := p.NewBatch(schemaOf(t)).Commit(); err != nil {
			t.Fatal(err) // an empty batch needs no DB
		}
		again := p.Snapshot()
		_, err := again.Count(nil)
		again.Close()
		if errors.Is(err, engine.ErrClosed) {
			break
		}
		must(t, err)
	}
	select {
	case err := <-closed:
		t.Fatalf("Close did not wait for a snapshot: %v", err)
	default:
	}
	if _, ok, err := s.Get(key(t, 1), "1"); !ok || err != nil {
		t.Errorf("an open snapshot shows %v %v", ok, err)
	}
	s.Close()
	s.Close()
	must(t, <-closed)
	must(t, db.Close())
	b := p.NewBatch(schemaOf(t))
	must(t, b.Put(item(key(t, 1), "1", `{}`), nil))
	if err := b.Commit(); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("commit after Close: %v", err)
	}
	for name, err := range map[string]error{
		"clear":     p.Clear(),
		"partition": errOf(db.Partition(partB)),
		"digest":    errOf(p.Digest()),
		"state":     errOf(p.State()),
		"verify":    db.Verify(),
		"sync":      db.SyncPartitions(),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestSweep expects that what was dropped or cleared goes from the disk, also if the
// DB was closed before it was done.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	schema := schemaOf(t, "/n")
	fill := func(p *engine.Partition) {
		b := p.NewBatch(schema)
		for n := range 5000 {
			must(t, b.Put(item(key(t, n%7), fmt.Sprint(n), fmt.Sprintf(`{"n":%d}`, n)), nil))
		}
		must(t, b.Commit())
	}
	a, b := openPartition(t, db, partA), openPartition(t, db, partB)
	fill(a)
	fill(b)
	must(t, a.Clear())
	if left, err := engine.Sweep(db); left != 10_000 || err != nil {
		t.Errorf("after Clear %d keys are left, %v; want those of the other partition", left, err)
	}
	must(t, db.DropPartition(partB))
	must(t, db.Close())
	db = openDB(t, dir)
	if left, err := engine.Sweep(db); left != 0 || err != nil {
		t.Errorf("after a drop %d keys are left, %v", left, err)
	}
}
