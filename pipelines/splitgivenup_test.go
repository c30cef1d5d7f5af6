package pipelines_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

const splitClinic = `
apiVersion: millrace/v1
kind: Container
metadata: {name: order}
spec: {partitionKey: [/customerId], partitions: 2, changeFeed: {retention: 0s}}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: day}
spec: {partitionKey: [/day], partitions: 1}
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
    set: {orders: {count: true}}
`

// TestI5_ASplitForgetsNothingThatWasGivenUp: a change of a partition that is split since lies in the dead letters. However
// short its changes are kept, the partition is remembered until somebody has tried that one again, or dropped it; another
// one that was split behind it, of which all is done, is not.
func TestI5_ASplitForgetsNothingThatWasGivenUp(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	declared := decode(t, splitClinic)
	only := *declared
	only.Pipelines = nil
	n.apply(t, &only)
	w := &ward{node: n.node, gate: &gate{inner: n.client}}
	behind := &store.Local{}
	behind.Add(w.container(t, "day").Partitions()[0], w.gate)
	var err error
	if w.letters, err = processors.OpenDeadLetters(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	n.work(t, store.NewClient(n.nc, n.client.Catalog(), store.ClientConfig{Local: behind}), compile.SinkLimits{})
	w.apply(t, declared)
	for i := range 40 {
		w.put(t, "order", fmt.Sprintf(`{"id":"o%d","customerId":"c%d","day":"d%d"}`, i, i, i%3))
	}
	w.idle(t)
	w.gate.shut.Store(true)
	w.put(t, "order", `{"id":"bad","customerId":"c1","day":"poison"}`)
	letter := w.gaveUp(t, "days", 1)[0]
	n.allowed.Store(true)

	of, err := feed.ParsePartition(letter.Partition)
	if err != nil {
		t.Fatal(err)
	}
	parked, other := of.Number, 1-of.Number
	n.split(t, "order", parked)
	n.split(t, "order", other)
	formers := func(want ...uint32) error {
		var is []uint32
		for _, f := range n.container(t, "order").Info().Former {
			is = append(is, f.Number)
		}
		return poll.Unless(slices.Equal(is, want), fmt.Sprintf("remembered are %d, want %d", is, want))
	}
	poll.Until(t, func() error { return formers(parked) })
	w.gaveUp(t, "days", 1)

	w.gate.shut.Store(false)
	if err := w.letters.Retry(t.Context(), letter.Pipeline, letter.ID); err != nil {
		t.Fatal(err)
	}
	w.gaveUp(t, "days", 0)
	poll.Until(t, func() error { return formers() })
	w.idle(t)
	if r, _ := w.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("tried again:\n%s", text(r))
	}
}

const splitBrands = `
apiVersion: millrace/v1
kind: Container
metadata: {name: brand}
spec: {partitionKey: [/id], partitions: 1, changeFeed: {retention: 0s}}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: order}
spec: {partitionKey: [/customerId], partitions: 1}
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
`

// TestI6_ASplitForgetsNoRefusedCopy: an item had no room for the copy of a source whose partition is split since. That lies
// in the dead letters alone, and the checkpoint has passed it. The partition is remembered until somebody has tried it again
// with success, and it can be tried.
func TestI6_ASplitForgetsNoRefusedCopy(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	w := &ward{node: n.node}
	var err error
	if w.letters, err = processors.OpenDeadLetters(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	n.apply(t, decode(t, splitBrands))
	n.work(t, n.client, compile.SinkLimits{})
	const full = `{"id":"o1","customerId":"c1","brandId":"b1","brand":"A","pad":"%s"}`
	for i := range 40 {
		w.put(t, "brand", fmt.Sprintf(`{"id":"b%d","name":"A"}`, i))
	}
	w.put(t, "order", fmt.Sprintf(full, strings.Repeat("x", store.ItemBytesMax-len(full)+len("%s"))))
	w.idle(t)
	w.put(t, "brand", `{"id":"b1","name":"longer"}`)
	letter := w.gaveUp(t, "brands", 1)[0]
	if letter.Target == "" || letter.Role != processors.RoleSource {
		t.Fatalf("given up is %+v", letter)
	}
	n.allowed.Store(true)
	n.split(t, "brand", 0)

	if err := w.letters.Retry(t.Context(), letter.Pipeline, letter.ID); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		now, err := w.letters.Get(t.Context(), letter.Pipeline, letter.ID)
		if err != nil {
			return err
		}
		return poll.Unless(now.Retry.IsZero() && now.Attempts > letter.Attempts, "nobody tries again what a partition gave up that was split")
	})
	if former := n.container(t, "brand").Info().Former; len(former) != 1 {
		t.Errorf("remembered are %+v", former)
	}
	w.put(t, "order", fmt.Sprintf(full, ""))
	if err := w.letters.Retry(t.Context(), letter.Pipeline, letter.ID); err != nil {
		t.Fatal(err)
	}
	w.gaveUp(t, "brands", 0)
	poll.Until(t, func() error {
		former := n.container(t, "brand").Info().Former
		return poll.Unless(len(former) == 0, fmt.Sprintf("still remembered are %+v", former))
	})
	w.idle(t)
	w.equal(t, "tried again")
}

// TestI6_ApplyMeetsASplit declares pipelines while a partition of their source and target is split, one after the other until
// it is done: whether a generation names the partition or its children, each change is counted once, and copied.
func TestI6_ApplyMeetsASplit(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.allowed.Store(true) // what was split is forgotten as soon as nobody needs it
	w := &ward{node: n.node}
	declared := decode(t, splitBrands)
	only := *declared
	only.Pipelines = nil
	n.apply(t, &only)
	n.work(t, n.client, compile.SinkLimits{})
	order := func(i int) {
		w.put(t, "order", fmt.Sprintf(`{"id":"o%d","customerId":"c%d","brandId":"b%d"}`, i, i, i%5))
	}
	for i := range 40 {
		w.put(t, "brand", fmt.Sprintf(`{"id":"b%d","name":"A"}`, i))
		order(i)
	}
	for _, name := range []string{"brand", "order"} {
		c := n.container(t, name)
		if _, err := c.Split(t.Context(), c.Partitions()[0], store.SplitPartition{}); err != nil {
			t.Fatal(err)
		}
	}
	n.apply(t, declared) // a cascade, which reads both
	split := func() bool {
		return len(n.container(t, "order").Info().Splits)+len(n.container(t, "brand").Info().Splits) == 0
	}
	for i, last := 0, false; i < 3 && !last; i++ {
		last = split() // and one when all is split
		n.apply(t, decode(t, fmt.Sprintf(`
apiVersion: millrace/v1
kind: Container
metadata: {name: sum%[1]d}
spec: {partitionKey: [/brandId], partitions: 1}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: sums%[1]d}
spec:
  source: {container: order}
  aggregate:
    into: sum%[1]d
    match: {brandId: brandId, id: brandId}
    create: true
    set: {orders: {count: true}}
`, i)))
		order(100 + i)
		w.put(t, "brand", fmt.Sprintf(`{"id":"b%d","name":"B%d"}`, i%5, i))
	}
	poll.Until(t, func() error { return poll.Unless(split(), "it is not split") })
	order(200)
	w.put(t, "brand", `{"id":"b0","name":"C"}`)
	w.idle(t)
	w.equal(t, "behind the splits")
}

// split splits a partition in the middle, and waits until its children are read and have snapshots of their own, so that
// nothing keeps its log but what is not done yet.
func (n *trimmedNode) split(t testing.TB, container string, number uint32) {
	t.Helper()
	c := n.container(t, container)
	for _, p := range c.Partitions() {
		if p.Number != number {
			continue
		}
		if _, err := c.Split(t.Context(), p, store.SplitPartition{}); err != nil {
			t.Fatal(err)
		}
	}
	poll.Until(t, func() error {
		c := n.container(t, container)
		if len(c.Info().Splits) > 0 {
			return errors.New("it is not split yet")
		}
		for _, p := range c.Partitions() {
			s, err := c.Status(t.Context(), p)
			if err != nil {
				return err
			}
			if s.Snapshot == nil {
				return fmt.Errorf("partition %s has no snapshot", p)
			}
		}
		at, unreadable, err := registry.ReadCheckpoints(t.Context(), n.js, leases.DefaultBucket)
		if err != nil {
			return err
		}
		for _, p := range c.Partitions() {
			read := func(name string) bool { return strings.HasSuffix(name, "/source/"+p.String()) }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(at)), read) {
				return errors.Join(fmt.Errorf("partition %s is not read yet", p), unreadable)
			}
		}
		return nil
	})
}
