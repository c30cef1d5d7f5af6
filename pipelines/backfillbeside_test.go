package pipelines_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// putTenants puts products of a category whose name is old in them, of as many tenants.
func (n *node) putTenants(t testing.TB, tenants, products int) {
	t.Helper()
	var items []string
	for i := range products {
		items = append(items, fmt.Sprintf(`{"id":"p%d","tenant":"t%d","categoryId":"c%d","categoryName":"old","size":%d}`, i, i%tenants, i%10, i))
	}
	n.put(t, "product", items...)
}

// TestI6_ABackfillBesideWrites lets a cascade and a projection go through what is there
// while sources are renamed and removed, and targets come, change, move and go. When the
// writes stop, all is equal.
func TestI6_ABackfillBesideWrites(t *testing.T) {
	const tenants, products, writers = 7, 4_000, 4
	n := newNode(t)
	n.apply(t, decode(t, tenantContainers))
	for i := range 10 {
		n.put(t, "category", fmt.Sprintf(`{"id":"c%d","name":"name 0"}`, i))
	}
	n.putTenants(t, tenants, products)
	n.apply(t, decode(t, tenantPipelines), registry.ApplyOptions{FromNow: true})
	n.idle(t)

	stop := make(chan struct{})
	category, product := n.container(t, "category"), n.container(t, "product")
	var g errgroup.Group
	for writer := range writers {
		rng := rand.New(rand.NewPCG(1, uint64(writer)))
		g.Go(func() error {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				began := time.Now()
				c, p := rng.IntN(10), rng.IntN(products)
				key, err := feed.NewPartitionKey(fmt.Sprint("t", p%tenants))
				if err != nil {
					return err
				}
				switch rng.IntN(8) {
				case 0, 1:
					_, err = category.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"c%d","name":"name %d of %d"}`, c, i, writer))
				case 2:
					err = product.Delete(t.Context(), key, fmt.Sprint("p", p))
				case 3:
					_, err = product.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"n%d-%d","tenant":"t%d","categoryId":"c%d","categoryName":"stale","size":1}`, writer, i, p%tenants, c))
				default:
					_, err = product.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"p%d","tenant":"t%d","categoryId":"c%d","categoryName":"stale","size":%d}`, p, p%tenants, c, i))
				}
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					return err
				}
				poll.Rest(t.Context(), began)
			}
		})
	}
	for _, name := range []string{"names", "flat-products"} {
		if _, err := n.registry.Backfill(t.Context(), "default", name, registry.BackfillScope{}, leases.DefaultBucket); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"names", "flat-products"} {
		poll.Until(t, func() error {
			if !n.record(t, name).InForce {
				return errors.New(name + " is not in force")
			}
			return nil
		})
	}
	close(stop)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	r, by := n.verify(t, verify.Config{PollInterval: 10 * time.Millisecond})
	if r.Verdict != verify.VerdictEqual || by["names"].Copies < products/2 || by["flat-products"].Copies < products/2 {
		t.Errorf("%d copies, %d rows:\n%s", by["names"].Copies, by["flat-products"].Copies, text(r))
	}
}

// turnstile lets a worker scan as often as it has tokens, and without end when they are
// closed.
type turnstile struct {
	gate
	tokens chan struct{}
}

func (s *turnstile) Handle(ctx context.Context, r *store.Request) *store.Response {
	if r.Scan != nil {
		select {
		case <-s.tokens:
		case <-ctx.Done():
			return &store.Response{Err: store.Refuse(store.StatusUnavailable, "%v", context.Cause(ctx))}
		}
	}
	return s.gate.Handle(ctx, r)
}

// TestStatusOfABackfill reads the status of a cascade from when a backfill is asked for
// until it is done: it is backfilling all the time, of which scope, how far, and for how
// long still; and it is behind for who verifies.
func TestStatusOfABackfill(t *testing.T) {
	t.Parallel()
	const products = 2_500 // three pages
	behind, gate := &store.Local{}, &turnstile{tokens: make(chan struct{})}
	n := newNodeThrough(t, func(s *system) *store.Client {
		gate.inner = s.client
		return store.NewClient(s.nc, s.client.Catalog(), store.ClientConfig{Local: behind})
	})
	n.apply(t, decode(t, strings.ReplaceAll(tenantContainers, "partitions: 2", "partitions: 1")))
	for _, p := range n.container(t, "product").Partitions() {
		behind.Add(p, gate)
	}
	for i := range 10 {
		n.put(t, "category", fmt.Sprintf(`{"id":"c%d","name":"new"}`, i))
	}
	n.putTenants(t, 3, products)
	declared := decode(t, tenantPipelines)
	declared.Pipelines = declared.Pipelines[:1]
	n.apply(t, declared, registry.ApplyOptions{FromNow: true})
	n.idle(t)

	st := func() *status.Pipeline {
		t.Helper()
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return &s.Pipelines[0]
	}
	if _, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{Where: "size >= 0"}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	if p := st(); p.State != status.Backfilling || p.Lag.Jobs != 1 {
		t.Errorf("when it is asked for, it is %s with a lag of %+v", p.State, p.Lag)
	}
	gate.tokens <- struct{}{}
	poll.Until(t, func() error {
		p := st()
		if p.State != status.Backfilling {
			t.Fatalf("while it is not done, it is %s: %s", p.State, p.Reason)
		}
		if len(p.FanOuts) != 1 || p.FanOuts[0].Scanned == 0 {
			return fmt.Errorf("no page is done: %+v", p.FanOuts)
		}
		if f := p.FanOuts[0]; f.Source != "backfill of the items where size >= 0" || f.Percent != 40 || f.ETA <= 0 || f.Changed != 1000 || f.Rate <= 0 {
			t.Errorf("after a page it tells %+v", f)
		}
		return nil
	})
	if r, by := n.verify(t, verify.Config{Timeout: -1}); by["names"].Verdict != verify.VerdictBehind {
		t.Errorf("in the middle it is not behind:\n%s", text(r))
	}
	done := func(copies int64) {
		t.Helper()
		poll.Until(t, func() error {
			p := st()
			switch {
			case p.State == status.Backfilling:
				return errors.New("it is backfilling")
			case p.State == status.Behind: // by the feed of its own repairs
				return errors.New("it is behind")
			case p.State != status.Idle || p.Lag.Jobs != 0 || len(p.FanOuts) != 0 || p.Counts.Copies != copies:
				t.Errorf("when it is done it tells %+v, want %d copies", p, copies)
			}
			return nil
		})
	}
	if _, err := n.registry.StopBackfill(t.Context(), "default", "names", leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	done(1000) // those of the page stay
	if _, err := n.registry.StopBackfill(t.Context(), "default", "names", leases.DefaultBucket); err == nil || !strings.Contains(err.Error(), "no backfill that can be stopped") {
		t.Errorf("to stop what is done: %v", err)
	}
	if r, by := n.verify(t, verify.Config{Timeout: -1}); by["names"].Verdict != verify.VerdictDrift || by["names"].Drift != products-1000 {
		t.Errorf("what was stopped is not told as it is:\n%s", text(r))
	}
	if _, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	close(gate.tokens)
	done(products)
}

// TestABackfillThatIsNotUnderstood writes a record as a release with another dialect may
// have: the pipeline does all but the backfill and says why, and another takes its place.
func TestABackfillThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, tenantContainers))
	n.put(t, "category", `{"id":"c0","name":"new"}`)
	n.put(t, "product", `{"id":"p0","tenant":"t0","categoryId":"c0","categoryName":"old"}`)
	n.apply(t, decode(t, tenantPipelines), registry.ApplyOptions{FromNow: true})
	n.idle(t)
	if _, err := n.registry.Pause(t.Context(), "default", "names"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{Where: "size > 5"}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	kv, err := n.js.KeyValue(t.Context(), "millrace_pipelines")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "pipeline.default.names")
	if err != nil {
		t.Fatal(err)
	}
	foreign := bytes.Replace(entry.Value(), []byte(`size \u003e 5`), []byte(`size ~~ 5`), 1)
	if bytes.Equal(foreign, entry.Value()) {
		t.Fatalf("the record is %s", foreign)
	}
	if _, err := kv.Update(t.Context(), "pipeline.default.names", foreign, entry.Revision()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.registry.Resume(t.Context(), "default", "names"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Pipelines {
			if p.Name == "names" && strings.Contains(p.Reason, "where: ") {
				return nil
			}
		}
		return errors.New("status does not say why")
	})
	n.put(t, "product", `{"id":"p1","tenant":"t0","categoryId":"c0","categoryName":"old"}`)
	poll.Until(t, func() error {
		if name := n.read(t, "product", "t0", "p1", "categoryName"); name != `"new"` {
			return errors.New("what changes has the name " + name)
		}
		return nil
	})
	poll.Until(t, func() error {
		r, by := n.verify(t, verify.Config{Timeout: -1})
		if by["names"].Verdict != verify.VerdictBehind {
			t.Fatalf("it is not behind:\n%s", text(r))
		}
		if by["flat-products"].Verdict == verify.VerdictBehind { // it has yet to read what was written
			return errors.New("it is not alone behind:\n" + text(r))
		}
		return nil
	})
	if _, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	if name := n.read(t, "product", "t0", "p0", "categoryName"); name != `"new"` {
		t.Errorf("what was there has the name %s", name)
	}
}
