package pipelines_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

const countedDays = `
apiVersion: millrace/v1
kind: Container
metadata: {name: order}
spec: {partitionKey: [/customerId], partitions: 1}
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

// ambush hands requests for partitions on, until the first one of a kind: before that it does something, and is gone.
type ambush struct {
	gate
	local *store.Local
	over  []feed.Partition
	at    func(*store.Request) bool
	once  sync.Once
	do    func()
}

func (a *ambush) Handle(ctx context.Context, r *store.Request) *store.Response {
	if !a.at(r) {
		return a.gate.Handle(ctx, r)
	}
	a.once.Do(func() {
		a.do()
		for _, p := range a.over {
			a.local.Remove(p, a)
		}
	})
	return &store.Response{Err: store.Refuse(store.StatusGone, "the ambush is over")} // so it is asked of the owner
}

// ambushed returns a client whose requests to partitions of a container are met by an ambush.
func (n *node) ambushed(t testing.TB, container string, at func(*store.Request) bool, do func()) *store.Client {
	t.Helper()
	a := &ambush{gate: gate{inner: n.client}, local: &store.Local{}, over: n.container(t, container).Partitions(), at: at, do: do}
	for _, p := range a.over {
		a.local.Add(p, a)
	}
	// What is done in an ambush takes its time on a busy machine.
	return store.NewClient(n.nc, n.client.Catalog(), store.ClientConfig{Local: a.local, Timeout: poll.Most})
}

// splitAll splits each partition of a container in the middle, and waits until that is done.
func (n *node) splitAll(t testing.TB, container string) {
	t.Helper()
	c := n.container(t, container)
	for _, p := range c.Partitions() {
		if _, err := c.Split(t.Context(), p, store.SplitPartition{}); err != nil {
			t.Error(err)
			return
		}
	}
	poll.Until(t, func() error {
		if c := n.container(t, container); len(c.Info().Splits) > 0 {
			return errors.New("it is not split yet")
		}
		return nil
	})
}

// Requests of a verification: for pages of groups, and for those again that differ.
func readsPage(r *store.Request) bool    { return r.Groups != nil && r.Groups.Groups == nil }
func readsSuspect(r *store.Request) bool { return r.Groups != nil && len(r.Groups.Groups) > 0 }

// TestVerify_AggregateBesideASplit splits a partition, of the source or the target, while an aggregate is verified and
// repaired; and an order is written to a child, and counted, before the group is looked at. What the child has folded is no
// drift, and a repair takes none of it away.
func TestVerify_AggregateBesideASplit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		split string // the container
		at    func(*store.Request) bool
		wrong bool // a group is
	}{
		"of the source before a page":    {"order", readsPage, false},
		"of the source before a suspect": {"order", readsSuspect, true},
		"of the target before a page":    {"day", readsPage, true},
		"of the target before a suspect": {"day", readsSuspect, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTrimmedNode(t)
			n.work(t, n.client, compile.SinkLimits{})
			n.allowed.Store(true) // a split asks who walks the partition
			n.apply(t, decode(t, countedDays))
			const orders = 40
			for i := range orders {
				n.put(t, "order", fmt.Sprintf(`{"id":"o%d","customerId":"c%d","day":"d%d"}`, i, i, i%4))
			}
			n.idle(t)
			count := func() string { return n.read(t, "day", "d0", "d0", "orders") }
			want := orders / 4
			if c.wrong {
				n.plantGroup(t, "days", `{"id":"none","customerId":"c0","day":"d0"}`)
				want++
			}
			met := false
			client := n.ambushed(t, "day", c.at, func() {
				met = true
				n.splitAll(t, c.split)
				n.put(t, "order", `{"id":"late","customerId":"c0","day":"d0"}`)
				poll.Until(t, func() error {
					return poll.Unless(count() == fmt.Sprint(want+1), "the order is not counted")
				})
			})
			r, err := verify.NewRepairer(n.js, n.registry, client, verify.Config{PollInterval: 10 * time.Millisecond}).Repair(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !met {
				t.Fatal("nothing was split")
			}
			n.idle(t)
			if got := count(); got != fmt.Sprint(orders/4+1) {
				t.Errorf("%s orders of %d are counted:\n%s", got, orders/4+1, text(r))
			}
			p := &r.Pipelines[0]
			if r.Verdict != verify.VerdictEqual || p.Splits == 0 || p.Repaired != map[bool]int64{true: 1}[c.wrong] {
				t.Errorf("the repair says:\n%s", text(r))
			}
			if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
				t.Errorf("behind the split:\n%s", text(r))
			}
		})
	}
}

// TestVerify_CopiesBesideASplit splits a partition while copies and rows that are wrong are looked at again, and one is
// written to a child. Those that are wrong are repaired, and nothing else is, nor found to be behind.
func TestVerify_CopiesBesideASplit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		split, met string // the containers
		at         func(*store.Request) bool
	}{
		"of the target of copies":           {"order", "order", func(r *store.Request) bool { return r.Read != nil }},
		"of the source of copies":           {"brand", "order", func(r *store.Request) bool { return r.Read != nil }},
		"of the target while it is scanned": {"order", "order", func(r *store.Request) bool { return r.Scan != nil && r.Scan.After != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTrimmedNode(t)
			n.work(t, n.client, compile.SinkLimits{})
			n.allowed.Store(true)
			n.apply(t, decode(t, splitBrands))
			const wrong = 7
			for i := range 40 {
				n.put(t, "brand", fmt.Sprintf(`{"id":"b%d","name":"A"}`, i))
			}
			for i := range 40 {
				n.put(t, "order", fmt.Sprintf(`{"id":"o%d","customerId":"c%d","brandId":"b%d"}`, i, i, i))
			}
			n.idle(t)
			met := false
			client := n.ambushed(t, c.met, c.at, func() {
				met = true
				n.splitAll(t, c.split)
				for i := range 40 {
					if i != wrong {
						n.put(t, "brand", fmt.Sprintf(`{"id":"b%d","name":"B"}`, i))
					}
				}
			})
			n.plantItem(t, "order", fmt.Sprint("c", wrong), fmt.Sprint("o", wrong), `"brand":"A"`, `"brand":"Z"`)
			cfg := verify.Config{PollInterval: 10 * time.Millisecond, PageItems: 10, Timeout: poll.Most}
			r, err := verify.NewRepairer(n.js, n.registry, client, cfg).Repair(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !met {
				t.Fatal("nothing was split")
			}
			if r.Verdict != verify.VerdictEqual || r.Pipelines[0].Repaired != 1 {
				t.Errorf("the repair says:\n%s", text(r))
			}
			n.idle(t)
			if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
				t.Errorf("behind the split:\n%s", text(r))
			}
		})
	}
}

const keptLines = `
apiVersion: millrace/v1
kind: Container
metadata: {name: order}
spec: {partitionKey: [/customerId], partitions: 1, ttl: 1h}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: line}
spec: {partitionKey: [/id], partitions: 1}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: lines}
spec:
  source: {container: order}
  project:
    sink: {container: {}}
    onExpire: keep
    tables:
      line:
        key: [id]
        columns: {id: id, day: day}
`

// TestVerify_RowsBesideASplit splits the source of a projection while its sink is read, and an item is deleted in a child. Its
// row has gone rightly: a repair does not make it again.
func TestVerify_RowsBesideASplit(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.work(t, n.client, compile.SinkLimits{})
	n.allowed.Store(true)
	n.apply(t, decode(t, keptLines))
	for i := range 20 {
		n.put(t, "order", fmt.Sprintf(`{"id":"o%d","customerId":"c%d","day":"d%d"}`, i, i, i%4))
	}
	n.idle(t)
	there := func() error {
		key, err := feed.NewPartitionKey("o3")
		if err != nil {
			return err
		}
		_, err = n.container(t, "line").Read(t.Context(), key, "o3")
		return err
	}
	if err := there(); err != nil {
		t.Fatal(err)
	}
	met := false
	client := n.ambushed(t, "line", func(r *store.Request) bool { return r.Scan != nil }, func() {
		met = true
		n.splitAll(t, "order")
		key, err := feed.NewPartitionKey("c3")
		if err == nil {
			err = n.container(t, "order").Delete(t.Context(), key, "o3")
		}
		if err != nil {
			t.Error(err)
		}
		poll.Until(t, func() error { return poll.Unless(errors.Is(there(), store.ErrNotFound), "its row is there") })
	})
	r, err := verify.NewRepairer(n.js, n.registry, client, verify.Config{PollInterval: 10 * time.Millisecond}).Repair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := &r.Pipelines[0]; !met || r.Verdict != verify.VerdictEqual || p.Splits != 1 || p.Repaired != 0 {
		t.Errorf("met is %t; the repair says:\n%s", met, text(r))
	}
	if err := there(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the row of a deleted item: %v", err)
	}
}
