package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/store/engine"
)

// TestBuildIndex_besideCommits builds an index while commits change the items, and
// expects the same as where the index was there from the start.
func TestBuildIndex_besideCommits(t *testing.T) {
	without, with := schemaOf(t, "/color"), schemaOf(t, "/color", "/size", "/tags/*/id")
	m := newModel(t, 5)
	full := *m.schema
	restricted := func(s *engine.Schema) {
		s.UniqueKeys, s.DefaultTTL = full.UniqueKeys, full.DefaultTTL
		m.schema = s
	}
	for range 300 {
		m.next()
	}
	restricted(with)
	always := newPartition(t)
	m.apply(t, always, 0, 300)

	p := newPartition(t)
	restricted(without)
	m.apply(t, p, 0, 150)
	restricted(with)
	var wg sync.WaitGroup
	wg.Go(func() {
		seen := 0
		if err := p.BuildIndex(with, 2, func(n int) { seen = n }); err != nil {
			t.Error(err)
		}
		if seen == 0 {
			t.Error("no progress was told")
		}
	})
	wg.Go(func() {
		for after := []byte(nil); ; {
			next, err := p.BuildIndexStep(with, 3, after, 7)
			if err != nil {
				t.Error(err)
				return
			}
			if after = next; after == nil {
				return
			}
		}
	})
	m.apply(t, p, 150, 300)
	wg.Wait()
	want := digest(t, always)
	if digest(t, p) != want {
		t.Error("the index that was built differs from the one that was kept")
	}
	must(t, p.BuildIndex(with, 2, nil))
	if digest(t, p) != want {
		t.Error("building again changed something")
	}
	must(t, p.DropIndex(2))
	must(t, p.DropIndex(2))
	s := p.Snapshot()
	defer s.Close()
	if n, err := s.CountIndex(2, nil); n != 0 || err != nil {
		t.Errorf("a dropped index has %d entries, %v", n, err)
	}
	if n, err := s.CountIndex(3, nil); n == 0 || err != nil {
		t.Errorf("another index has %d entries, %v", n, err)
	}
	if err := p.BuildIndex(with, 9, nil); err == nil {
		t.Error("an index that is not in the schema was built")
	}
}

// TestRebuildExpiries changes the default time to live back and forth.
func TestRebuildExpiries(t *testing.T) {
	ttl := func(n int64) *engine.Schema { return &engine.Schema{DefaultTTL: &n} }
	off := &engine.Schema{}
	p := newPartition(t)
	k := key(t, "k")
	for n := range 1200 {
		body := `{}`
		if n%3 == 0 {
			body = fmt.Sprintf(`{"ttl":%d}`, n+1)
		}
		put(t, p, ttl(100), item(k, fmt.Sprintf("%04d", n), body))
	}
	first := digest(t, p)
	expired := func(at int64) int {
		s := p.Snapshot()
		defer s.Close()
		refs, err := s.Expired(at, 1<<30)
		must(t, err)
		for _, ref := range refs {
			it, ok, err := s.Get(ref.Key, ref.ID)
			must(t, err)
			if !ok || it.Expires != ref.Expires || it.Expires > at {
				t.Fatalf("expired is %v, the item says %d", ref, it.Expires)
			}
		}
		return len(refs)
	}
	for _, step := range []struct {
		schema  *engine.Schema
		at      int64
		expired int
	}{
		{ttl(100), 101_000, 800 + 34},
		{ttl(50), 51_000, 800 + 17},
		{ttl(-1), 1 << 50, 400},
		{off, 1 << 50, 0},
		{ttl(100), 100_999, 33},
	} {
		must(t, p.RebuildExpiries(step.schema))
		if got := expired(step.at); got != step.expired {
			t.Errorf("at %d %d items have expired, want %d", step.at, got, step.expired)
		}
	}
	must(t, p.RebuildExpiries(ttl(100)))
	if digest(t, p) != first {
		t.Error("the same default time to live gives other expiries than at first")
	}
}

// TestExpired_isExact leaves stale entries behind, as a replay may, and expects
// that nothing expires by them.
func TestExpired_isExact(t *testing.T) {
	n := int64(10)
	schema := &engine.Schema{DefaultTTL: &n}
	p := newPartition(t)
	k := key(t, "k")
	put(t, p, schema, item(k, "1", `{}`), item(k, "2", `{}`), item(k, "3", `{}`))
	later := item(k, "1", `{"ttl":500}`)
	put(t, p, schema, later) // as if new: the old entry stays
	b := p.NewBatch(&engine.Schema{})
	must(t, b.Delete(item(k, "2", `{}`)))
	must(t, b.Commit())
	s := p.Snapshot()
	defer s.Close()
	refs, err := s.Expired(11_000, 10)
	must(t, err)
	if len(refs) != 1 || refs[0].ID != "3" {
		t.Errorf("expired at 11 s: %v", refs)
	}
	refs, err = s.Expired(1<<60, 1)
	must(t, err)
	if len(refs) != 1 || refs[0].ID != "3" {
		t.Errorf("the first that expires: %v", refs)
	}
	refs, err = s.Expired(1<<60, 10)
	must(t, err)
	if !slices.ContainsFunc(refs, func(r engine.ItemRef) bool { return r.ID == "1" && r.Expires == 501_000 }) {
		t.Errorf("all that expires: %v", refs)
	}
	if refs, err = s.Expired(10_999, 10); len(refs) != 0 || err != nil {
		t.Errorf("expired too early: %v %v", refs, err)
	}
}
