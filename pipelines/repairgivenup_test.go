package pipelines_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// gate stands between a worker and the owners, and refuses to bring about what holds
// the word poison, while it is shut.
type gate struct {
	inner *store.Client
	shut  atomic.Bool
}

var poison = []byte("poison")

func (g *gate) Handle(ctx context.Context, r *store.Request) *store.Response {
	if g.shut.Load() && poisoned(r) {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "the gate is shut")}
	}
	resp, err := g.inner.Do(ctx, r)
	if err == nil {
		return resp
	}
	refusal, ok := errors.AsType[*store.Error](err)
	if !ok {
		refusal = store.Refuse(store.StatusUnavailable, "%v", err)
	}
	return &store.Response{Err: refusal}
}

func poisoned(r *store.Request) bool {
	switch {
	case r.Fold != nil:
		return bytes.Contains(r.Fold.Delta, poison)
	case r.PatchMany != nil:
		for _, field := range r.PatchMany.Copy.Set {
			if bytes.Contains(field.Value, poison) {
				return true
			}
		}
	case r.PutRows != nil:
		for i := range r.PutRows.Rows {
			if bytes.Contains(r.PutRows.Rows[i].Body, poison) {
				return true
			}
		}
	}
	return false
}

const clinic = `
apiVersion: millrace/v1
kind: Container
metadata: {name: brand}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: order}
spec: {partitionKey: [/customerId], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: day}
spec: {partitionKey: [/day], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: line}
spec: {partitionKey: [/orderId], partitions: 2}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: brands}
spec:
  source: {container: brand}
  cascade:
    into: order
    match: {brandId: id}
    set: {brand: name}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: days}
spec:
  source: {container: order}
  aggregate:
    into: day
    match: {day: day, id: day}
    create: true
    set: {orders: {count: true}, amount: {sum: total}, top: {max: total}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: lines}
spec:
  source: {container: order}
  project:
    sink: {container: {}}
    onExpire: delete
    tables:
      line:
        each: lines
        key: [orderId, number]
        columns: {orderId: item.id, number: {expr: index, type: int64}, sku: sku}
`

// ward is a node whose worker works behind a gate.
type ward struct {
	*node
	gate    *gate
	letters *processors.DeadLetters
	acted   int // dead letters that were tried again or dropped
}

func newWard(t testing.TB) *ward {
	t.Helper()
	w := &ward{gate: &gate{}}
	behind := &store.Local{}
	w.node = newNodeThrough(t, func(s *system) *store.Client {
		w.gate.inner = s.client
		return store.NewClient(s.nc, s.client.Catalog(), store.ClientConfig{Local: behind})
	})
	declared, err := spec.Decode("clinic.yaml", []byte(clinic))
	if err != nil {
		t.Fatal(err)
	}
	only := *declared
	only.Pipelines = nil
	w.apply(t, &only)
	for _, name := range []string{"order", "day", "line"} {
		for _, p := range w.container(t, name).Partitions() {
			behind.Add(p, w.gate)
		}
	}
	if w.letters, err = processors.OpenDeadLetters(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	w.apply(t, declared)
	w.idle(t)
	return w
}

func wardOrder(id, customer, day, brand, sku string, total int) string {
	return fmt.Sprintf(`{"id":%q,"customerId":%q,"day":%q,"brandId":%q,"total":%d.25,"lines":[{"sku":%q},{"sku":"plain"}]}`, id, customer, day, brand, total, sku)
}

func (w *ward) id(t testing.TB, pipeline string) string {
	t.Helper()
	rec, err := w.registry.Get(t.Context(), "default", pipeline)
	if err != nil {
		t.Fatal(err)
	}
	return rec.ID
}

func (w *ward) list(t testing.TB, pipeline string) []processors.DeadLetter {
	t.Helper()
	all, err := w.letters.List(t.Context(), w.id(t, pipeline), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gaveUp waits until a pipeline has so many dead letters.
func (w *ward) gaveUp(t testing.TB, pipeline string, want int) []processors.DeadLetter {
	t.Helper()
	var all []processors.DeadLetter
	poll.Until(t, func() error {
		if all = w.list(t, pipeline); len(all) == want {
			return nil
		}
		return fmt.Errorf("%s has %d dead letters, not %d", pipeline, len(all), want)
	})
	return all
}

// equal verifies that every copy equals its source.
func (w *ward) equal(t testing.TB, when string) {
	t.Helper()
	if r, _ := w.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("%s:\n%s", when, text(r))
	}
}

// What was given up is counted once, whether a repair repairs it, a retry, or the feed
// when the pipeline is rewound, and whichever comes first.
func TestI5_RepairAndRetryCountOnce(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.put(t, "brand", `{"id":"b","name":"Blue"}`)
	orders := func() string { return w.read(t, "day", "poison", "poison", "orders") }
	again := func(t testing.TB) { // another worker, to which everything comes again
		t.Helper()
		if _, err := w.registry.Rewind(t.Context(), "default", "days", registry.RewindTo{}, ""); err != nil {
			t.Fatal(err)
		}
		w.idle(t)
	}
	give := func(id string) {
		w.gate.shut.Store(true)
		w.put(t, "order", wardOrder(id, "c", "poison", "b", "plain", 1))
	}
	w.put(t, "order", wardOrder("first", "c", "poison", "b", "plain", 1))
	w.idle(t)

	give("refused again")
	w.gaveUp(t, "days", 1)
	if _, by := w.repair(t, verify.Config{}); by["days"].Verdict != verify.VerdictEqual || by["days"].Repaired != 1 {
		t.Fatalf("a repair of what is refused: %+v", by["days"])
	}
	w.gaveUp(t, "days", 0)
	w.gate.shut.Store(false)
	again(t)
	if w.equal(t, "repaired and rewound"); orders() != "2" {
		t.Fatalf("%s orders are counted, not 2", orders())
	}

	give("taken at last")
	l := w.gaveUp(t, "days", 1)[0]
	w.gate.shut.Store(false)
	if _, by := w.repair(t, verify.Config{}); by["days"].Verdict != verify.VerdictEqual || by["days"].Repaired != 0 {
		t.Fatalf("a repair of what is taken now: %+v", by["days"])
	}
	if err := w.letters.RetryFinally(t.Context(), &l); err != nil { // asked for by somebody who does not know
		t.Fatal(err)
	}
	w.gaveUp(t, "days", 0)
	if w.equal(t, "tried again twice"); orders() != "3" {
		t.Fatalf("%s orders are counted, not 3", orders())
	}

	give("dropped")
	l = w.gaveUp(t, "days", 1)[0]
	if err := w.letters.Drop(t.Context(), l.Pipeline, l.ID); err != nil {
		t.Fatal(err)
	}
	if r, _ := w.verify(t, verify.Config{}); r.Verdict == verify.VerdictEqual {
		t.Fatal("what was dropped is not listed")
	}
	if _, by := w.repair(t, verify.Config{}); by["days"].Verdict != verify.VerdictEqual {
		t.Fatalf("a repair of what was dropped: %+v", by["days"])
	}
	w.gate.shut.Store(false)
	again(t)
	w.gaveUp(t, "days", 0)
	if w.equal(t, "dropped, repaired and rewound"); orders() != "4" {
		t.Fatalf("%s orders are counted, not 4", orders())
	}
	w.idle(t) // nothing is parked any more
}

var (
	wardSeed   = flag.Uint64("ward.seed", 1, "seed of TestI5_RepairRetryRewindModel")
	wardRounds = flag.Int("ward.rounds", 6, "rounds of TestI5_RepairRetryRewindModel")
)

// Random writes, refusals, retries, drops, repairs and rewinds in any order, some at
// the same time, end with every copy equal to its source.
func TestI5_RepairRetryRewindModel(t *testing.T) {
	w := newWard(t)
	rng := rand.New(rand.NewPCG(*wardSeed, 3))
	for range *wardRounds {
		w.gate.shut.Store(rng.IntN(3) > 0)
		w.write(t, rng, 15)
		w.steer(t, rng)
	}
	w.gate.shut.Store(false)
	poll.Until(t, func() error {
		w.repair(t, verify.Config{PollInterval: 10 * time.Millisecond})
		if r, _ := w.verify(t, verify.Config{PollInterval: 10 * time.Millisecond}); r.Verdict != verify.VerdictEqual {
			return poll.Reason(text(r))
		}
		return nil
	})
	w.write(t, rng, 30)
	w.idle(t)
	w.equal(t, "after all")
	if w.acted == 0 {
		t.Error("no letter was tried again or dropped: the test has tested nothing")
	}
}

// write does n things to brands and orders, a part of which is poisoned.
func (w *ward) write(t testing.TB, rng *rand.Rand, n int) {
	t.Helper()
	some := func(name string, of int) string {
		if rng.IntN(8) == 0 {
			return fmt.Sprint("poison-", rng.IntN(2))
		}
		return fmt.Sprint(name, rng.IntN(of))
	}
	orders := w.container(t, "order")
	for range n {
		id, customer, brand := fmt.Sprint("o", rng.IntN(30)), fmt.Sprint("c", rng.IntN(3)), fmt.Sprint("b", rng.IntN(3))
		switch rng.IntN(6) {
		case 0:
			w.put(t, "brand", fmt.Sprintf(`{"id":%q,"name":%q}`, brand, some("n", 100)))
		case 1:
			key, err := feed.NewPartitionKey(customer)
			if err != nil {
				t.Fatal(err)
			}
			if err := orders.Delete(t.Context(), key, id); err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		default:
			w.put(t, "order", wardOrder(id+customer, customer, some("d", 3), brand, some("s", 9), rng.IntN(100)))
		}
	}
}

// steer does what an operator may do, some of it twice at a time.
func (w *ward) steer(t testing.TB, rng *rand.Rand) {
	t.Helper()
	names := []string{"days", "lines", "brands"}
	done := make(chan struct{})
	repairs := rng.IntN(2) == 0
	go func() {
		defer close(done)
		if repairs {
			cfg := verify.Config{PollInterval: 10 * time.Millisecond, Timeout: 500 * time.Millisecond}
			if _, err := verify.NewRepairer(w.js, w.registry, w.client, cfg).Repair(t.Context()); err != nil {
				t.Errorf("repair: %v", err)
			}
		}
	}()
	for range 4 {
		name := names[rng.IntN(len(names))]
		var err error
		switch all := w.list(t, name); {
		case rng.IntN(5) == 0:
			_, err = w.registry.Rewind(t.Context(), "default", name, registry.RewindTo{}, "")
		case len(all) == 0:
		case rng.IntN(3) == 0:
			l := all[rng.IntN(len(all))]
			err = w.letters.Drop(t.Context(), l.Pipeline, l.ID)
			w.acted++
		default:
			l := all[rng.IntN(len(all))]
			err = w.letters.Retry(t.Context(), l.Pipeline, l.ID)
			w.acted++
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		if rng.IntN(3) == 0 {
			w.gate.shut.Store(rng.IntN(2) == 0)
		}
		w.write(t, rng, 3)
	}
	<-done
}
