package pipelines_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
)

const (
	bikes = `{"id":"c1","type":"category","name":"Bikes"}`
	parts = `{"id":"c2","type":"category","name":"Parts"}`
	red   = `{"id":"t1","type":"tag","name":"red"}`
	blue  = `{"id":"t2","type":"tag","name":"blue"}`
)

// newShop is a node with the WebStore's pipelines and 40 products, all equal.
func newShop(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.apply(t, load(t, "testdata/shop"))
	n.put(t, "productMeta", bikes, parts, red, blue)
	var products []string
	for i := range 40 {
		products = append(products, fmt.Sprintf(`{"id":"p%d","categoryId":"c%d","tags":[{"id":"t1"},{"id":"t2","name":"old"}]}`, i, i%2+1))
	}
	n.put(t, "product", products...)
	n.idle(t)
	return n
}

// TestVerifyWebStore compares all copies of the real data set, before and after
// renames, while the pipelines work.
func TestVerifyWebStore(t *testing.T) {
	t.Parallel()
	products, meta := webstore(t, "product.json"), webstore(t, "productMeta.json")
	n := newNode(t)
	n.apply(t, load(t, "testdata/shop"))
	n.put(t, "productMeta", meta...)
	n.put(t, "product", products...)
	check := func(when string) {
		t.Helper()
		r, by := n.verify(t, verify.Config{Timeout: poll.Most})
		if r.Verdict != verify.VerdictEqual || by["category-names"].Copies != 295 || by["tag-names"].Copies != 767 {
			t.Errorf("%s:\n%s", when, text(r))
		}
	}
	check("loaded")
	for _, item := range meta {
		for _, name := range []string{"Accessories, Tires and Tubes", "Tag-5"} {
			if old := fmt.Sprintf(`"name": %q`, name); strings.Contains(item, old) {
				n.put(t, "productMeta", strings.Replace(item, old, fmt.Sprintf(`"name": "new %s"`, name), 1))
			}
		}
	}
	check("renamed")
	n.idle(t)
	check("at rest")
}

// TestVerifyCatchesDrift changes a copy behind the pipeline's back: the check's
// checkpoint is set past it.
func TestVerifyCatchesDrift(t *testing.T) {
	t.Parallel()
	n := newShop(t)
	rec, err := n.registry.Pause(t.Context(), "default", "category-names")
	if err != nil {
		t.Fatal(err)
	}
	n.released(t, rec.ID)
	product := n.container(t, "product")
	key, err := feed.NewPartitionKey("c1")
	if err != nil {
		t.Fatal(err)
	}
	item, err := product.Patch(t.Context(), key, "p4", []document.Op{{Kind: "set", Path: "/categoryName", Value: []byte(`"Byks"`)}})
	if err != nil {
		t.Fatal(err)
	}

	r, by := n.verify(t, verify.Config{})
	if p := by["category-names"]; p.Verdict != verify.VerdictBehind || p.Behind != 1 || !strings.Contains(p.Differences[0].Reason, "paused") {
		t.Errorf("paused:\n%s", text(r))
	}

	n.skip(t, processors.Resource{
		Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleTarget, Partition: product.PartitionFor(key),
	}, feed.Position(item.ETag))
	if _, err := n.registry.Resume(t.Context(), "default", "category-names"); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	r, by = n.verify(t, verify.Config{})
	p := by["category-names"]
	if r.Verdict != verify.VerdictDrift || p.Drift != 1 || p.Copies != 40 || by["tag-names"].Verdict != verify.VerdictEqual {
		t.Fatalf("behind its back:\n%s", text(r))
	}
	if got, want := p.Differences[0].String(), `drift ["c1"]/p4: categoryName is "Byks", of its source "Bikes" (source ["category"]/c1)`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// released waits until no worker holds anything of a pipeline.
func (n *node) released(t *testing.T, id string) {
	t.Helper()
	poll.Until(t, func() error {
		all, err := leases.List(t.Context(), n.js, "")
		if err != nil {
			return err
		}
		for _, l := range all {
			if strings.HasPrefix(l.Resource, "pipe/"+id+"/") && l.Owner != "" {
				return errors.New(l.Resource + " is held by " + l.Owner)
			}
		}
		return nil
	})
}

// skip sets the checkpoint of a paused processor to a position.
func (n *node) skip(t *testing.T, r processors.Resource, to feed.Position) {
	t.Helper()
	n.set(t, r, func(cp *processors.Checkpoint) {
		// Of the commit there nothing is known, or the reader would see that it is another.
		cp.Position, cp.Log, cp.Sum = to, feed.LogID{}, 0
	})
}

// set changes the checkpoint of a paused processor.
func (n *node) set(t *testing.T, r processors.Resource, change func(*processors.Checkpoint)) {
	t.Helper()
	m := storetest.Manager(t, n.js, "worker")
	m.SetResources([]string{r.String()}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var saved error
	err := m.Run(ctx, func(ctx context.Context, h *leases.Held) error {
		defer cancel()
		cp, err := processors.DecodeCheckpoint(h.Checkpoint())
		if err == nil {
			change(cp)
			err = h.Save(context.WithoutCancel(ctx), cp.Encode())
		}
		saved = err
		return err
	})
	if err != nil || saved != nil {
		t.Fatalf("set the checkpoint: %v, %v", err, saved)
	}
}

// TestVerifyListsDangling names a source that never was. One that was deleted and whose
// copies are kept has left a tombstone to compare with.
func TestVerifyListsDangling(t *testing.T) {
	t.Parallel()
	n := newShop(t)
	key, err := feed.NewPartitionKey("category")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.container(t, "productMeta").Delete(t.Context(), key, "c2"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		n.put(t, "product", fmt.Sprintf(`{"id":"q%d","categoryId":"c3","categoryName":"x"}`, i))
	}
	r, by := n.verify(t, verify.Config{ListMax: 3})
	p := by["category-names"]
	if r.Verdict != verify.VerdictEqual || p.Dangling != 20 || p.Copies != 40 || len(p.Differences) != 3 {
		t.Errorf("a deleted category:\n%s", text(r))
	}
	if got := text(r); !strings.Contains(got, "and 17 more") || !strings.Contains(got, `there is no source ["category"]/c3`) {
		t.Errorf("printed:\n%s", got)
	}
}

// TestVerifyWaitsForClear deletes a source whose copies go: while they do they
// are in flight, and no dangling references.
func TestVerifyWaitsForClear(t *testing.T) {
	t.Parallel()
	n := newShop(t)
	key, err := feed.NewPartitionKey("tag")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.container(t, "productMeta").Delete(t.Context(), key, "t2"); err != nil {
		t.Fatal(err)
	}
	r, by := n.verify(t, verify.Config{})
	if p := by["tag-names"]; p.Verdict != verify.VerdictEqual || p.Dangling != 0 || p.Copies != 40 {
		t.Errorf("a deleted tag:\n%s", text(r))
	}
	if got := n.read(t, "product", "c1", "p0", "tags"); got != `[{"id":"t1","name":"red"}]` {
		t.Errorf("tags are %s", got)
	}
}

// TestVerifyWhileWriting verifies again and again while sources and targets
// change: nothing that is in flight is taken for drift.
func TestVerifyWhileWriting(t *testing.T) {
	n := newShop(t)
	ctx, cancel := context.WithCancel(t.Context())
	meta, product := n.container(t, "productMeta"), n.container(t, "product")
	done := make(chan error, 1)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			for _, write := range []func() error{
				func() error {
					_, err := meta.Upsert(ctx, fmt.Appendf(nil, `{"id":"c1","type":"category","name":"Bikes %d"}`, i))
					return err
				},
				func() error {
					_, err := meta.Upsert(ctx, fmt.Appendf(nil, `{"id":"t2","type":"tag","name":"blue %d"}`, i))
					return err
				},
				func() error {
					_, err := product.Upsert(ctx, fmt.Appendf(nil, `{"id":"p%d","categoryId":"c1","tags":[{"id":"t2"}]}`, i%40))
					return err
				},
			} {
				if err := write(); err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	for range 4 {
		r, _ := n.verify(t, verify.Config{PageItems: 7, PollInterval: 10 * time.Millisecond, Timeout: time.Second})
		for _, p := range r.Pipelines {
			if p.Drift > 0 {
				t.Errorf("in flight:\n%s", text(r))
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("at rest:\n%s", text(r))
	}
}

// TestStatusOfWork follows a pipeline from its registration to rest, a pause and
// back.
func TestStatusOfWork(t *testing.T) {
	t.Parallel()
	n := newShop(t)
	s, err := n.monitor.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Healthy() || len(s.Pipelines) != 2 {
		t.Fatalf("%+v", s)
	}
	p := s.Pipelines[0]
	if p.Name != "category-names" || p.Counts.Copies < 40 || len(p.Processors) != 1+4 || p.Processors[0].Owner == "" {
		t.Errorf("at rest: %+v", p)
	}
	rec, err := n.registry.Pause(t.Context(), "default", "category-names")
	if err != nil {
		t.Fatal(err)
	}
	n.released(t, rec.ID)
	n.put(t, "productMeta", `{"id":"c1","type":"category","name":"Cycles"}`)
	poll.Until(t, func() error {
		if s, err = n.monitor.Read(t.Context()); err != nil {
			return err
		}
		if p := s.Pipelines[0]; p.State != status.Paused || p.Lag.Commits == 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if got := n.read(t, "product", "c1", "p0", "categoryName"); got != `"Bikes"` {
		t.Errorf("while paused the copy became %s", got)
	}
	if _, err := n.registry.Resume(t.Context(), "default", "category-names"); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	if got := n.read(t, "product", "c1", "p0", "categoryName"); got != `"Cycles"` {
		t.Errorf("after it the copy is %s", got)
	}
}
