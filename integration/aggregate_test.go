package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
)

var aggregateSteps = flag.Int("aggregate.steps", 2000, "steps of the aggregate model; its seed is -model.seed")

const (
	mallWriters    = 12
	mallCustomers  = 9
	mallCategories = 7
	mallRegions    = 4
	mallRounds     = 4 // of writes and crashes, each followed by a comparison
)

// mallModel lets clients do everything to orders, customers and targets. Each
// writer has orders of its own, whose last state it knows.
type mallModel struct {
	*mall
	mu     sync.Mutex
	orders map[string]mallOrder // by customer/id; without those that expire
	mortal map[string]bool      // may have expired
	steps  atomic.Int64
}

// TestI5_Model lets clients create, replace, patch, delete, move, batch and expire
// orders, delete and make targets again, while workers die, are robbed of their
// leases and are given the feed again, and while an aggregate changes between
// eventual, transactional and unpublished. At rest everything equals a naive
// recount.
func TestI5_Model(t *testing.T) {
	t.Logf("seed %d", *modelSeed)
	m := &mallModel{mall: newMall(t), orders: map[string]mallOrder{}, mortal: map[string]bool{}}
	k := m.work()
	for round := range mallRounds {
		began := time.Now()
		stop := make(chan struct{})
		chaos := m.chaos(&k, rand.New(rand.NewPCG(*modelSeed, uint64(1000+round))), stop)
		var writers sync.WaitGroup
		for n := range mallWriters {
			rng := rand.New(rand.NewPCG(*modelSeed, uint64(round*mallWriters+n)))
			writers.Go(func() { m.write(n, *aggregateSteps/mallRounds/mallWriters+1, rng) })
		}
		writers.Wait()
		close(stop)
		upsets := chaos()
		if t.Failed() {
			return
		}
		source := round%2 == 0
		m.wish(m.configs[0], source, true)
		m.inForce(m.configs[0], source, true)
		m.rest(k)
		m.compare()
		m.compareOrders()
		t.Logf("round %d: %d steps in all, %d upsets in it; %s", round, m.steps.Load(), upsets, time.Since(began).Round(time.Millisecond))
		if t.Failed() {
			return
		}
	}
	if int(m.steps.Load()) < *aggregateSteps {
		t.Errorf("%d steps, want %d", m.steps.Load(), *aggregateSteps)
	}
}

// rest waits until nothing is left to be done. What clients have deleted is put
// back: a target that was deleted stays away until its group changes.
func (m *mallModel) rest(k *storetest.Worker) {
	m.t.Helper()
	m.settled()
	m.Quiet(k)
	for n := range mallCategories {
		m.put(m.category, object{"id": fmt.Sprint("g", n)})
	}
	for n := range mallRegions {
		m.put(m.region, object{"id": fmt.Sprint("r", n), "area": "world"})
	}
	m.Quiet(k)
}

// chaos upsets workers and rules now and then, until stop is closed. The returned
// function waits and tells how often.
func (m *mallModel) chaos(k **storetest.Worker, rng *rand.Rand, stop <-chan struct{}) func() int {
	count := 0
	done := make(chan struct{})
	var dying sync.WaitGroup // nobody waits for a worker that dies
	pass := func(steps int64) bool {
		for until := m.steps.Load() + steps; m.steps.Load() < until; {
			select {
			case <-stop:
				return false
			case <-time.After(time.Millisecond):
			}
		}
		return true
	}
	earlier := m.Checkpoints()
	go func() {
		defer close(done)
		for pass(20 + rng.Int64N(60)) {
			count++
			old := *k
			switch rng.IntN(8) {
			case 0:
				old.Stop()
				*k = m.work()
			case 1: // it dies
				dying.Go(old.Crash)
				*k = m.work()
			case 2: // it is robbed
				*k = m.work()
				dying.Go(old.Crash)
			case 3: // it wakes up late
				old.Tap.Hold(func(r *store.Request) bool { return r.Fold != nil && !r.Fold.Ask })
				pass(10)
				*k = m.work()
				pass(40)
				dying.Go(old.Crash)
			case 4: // the feed comes again
				old.Crash()
				m.setBack(rng, earlier)
				earlier = m.Checkpoints()
				*k = m.work()
			case 5: // answers get lost
				var n atomic.Int64
				old.Tap.Refuse(func(r *store.Request) *store.Error {
					if r.Fold == nil {
						return nil
					}
					switch n.Add(1) % 6 {
					case 0: // it is carried out, and nobody learns of it
						sent := *r
						_, _ = m.Client.Do(context.Background(), &sent)
						fallthrough
					case 1:
						return &store.Error{Status: store.StatusUnavailable, Message: "lost", RetryAfter: time.Millisecond}
					}
					return nil
				})
			default:
				m.wish(m.configs[0], rng.IntN(2) == 0, rng.IntN(4) > 0)
			}
		}
	}()
	return func() int {
		<-done
		dying.Wait()
		return count
	}
}

// write does steps on the items of one writer.
func (m *mallModel) write(writer, steps int, rng *rand.Rand) {
	for range steps {
		var err error
		switch p := rng.IntN(100); {
		case p < 35:
			err = m.putOrder(m.someOrder(writer, rng))
		case p < 45:
			err = m.removeOrder(m.someOrder(writer, rng))
		case p < 55:
			err = m.moveOrder(writer, rng)
		case p < 67:
			err = m.patchOrder(writer, rng)
		case p < 75:
			err = m.batch(writer, rng)
		case p < 80:
			err = m.passing(writer, rng)
		case p < 92:
			err = m.upsetCustomer(rng)
		default:
			err = m.upsetTarget(rng)
		}
		m.steps.Add(1)
		if err != nil {
			m.t.Errorf("writer %d: %v", writer, err)
			return
		}
	}
}

// someOrder makes up an order of the writer.
func (m *mallModel) someOrder(writer int, rng *rand.Rand) mallOrder {
	o := mallOrder{
		ID: fmt.Sprintf("o%d-%d", writer, rng.IntN(6)), CustomerID: fmt.Sprint("c", rng.IntN(mallCustomers)), Type: "order", Details: []mallLine{},
	}
	if rng.IntN(10) == 0 {
		o.Type = "draft"
	}
	if rng.IntN(10) > 0 {
		day := 1 + rng.IntN(40)
		o.Day = &day
	}
	for range rng.IntN(4) {
		o.Details = append(o.Details, mallLine{
			Category: fmt.Sprint("g", rng.IntN(mallCategories)), Price: json.Number(fmt.Sprintf("%d.%02d", rng.IntN(900), rng.IntN(100))), Quantity: 1 + rng.Int64N(3),
		})
	}
	return o
}

func (o *mallOrder) name() string { return o.CustomerID + "/" + o.ID }

// wrote notes the state of an order; nil that it is gone.
func (m *mallModel) wrote(name string, o *mallOrder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mortal, name)
	switch {
	case o == nil:
		delete(m.orders, name)
	case o.TTL > 0:
		delete(m.orders, name)
		m.mortal[name] = true
	default:
		m.orders[name] = *o
	}
}

func (m *mallModel) putOrder(o mallOrder) error {
	m.wrote(o.name(), &o)
	return put(m.t.Context(), m.customer, o)
}

func (m *mallModel) removeOrder(o mallOrder) error {
	m.wrote(o.name(), nil)
	return gone(m.customer.Delete(m.t.Context(), keyOf(m.t, o.CustomerID), o.ID))
}

// moveOrder gives an order to another customer: a delete and a create, in either
// order, in partitions whose feeds are read apart.
func (m *mallModel) moveOrder(writer int, rng *rand.Rand) error {
	from := m.someOrder(writer, rng)
	to := m.someOrder(writer, rng)
	to.ID = from.ID
	if to.CustomerID == from.CustomerID {
		return m.putOrder(to)
	}
	steps := []func() error{func() error { return m.removeOrder(from) }, func() error { return m.putOrder(to) }}
	if rng.IntN(2) == 0 {
		slices.Reverse(steps)
	}
	return errors.Join(steps[0](), steps[1]())
}

// patchOrder changes a day, a line or the type of an order that is there.
func (m *mallModel) patchOrder(writer int, rng *rand.Rand) error {
	o := m.someOrder(writer, rng)
	m.mu.Lock()
	old, exists := m.orders[o.name()]
	m.mu.Unlock()
	if !exists {
		return nil
	}
	var op document.Op
	next := old
	switch value, _ := json.Marshal(1 + rng.IntN(40)); {
	case rng.IntN(3) == 0:
		next.Type = []string{"order", "draft"}[rng.IntN(2)]
		op = document.Op{Kind: "set", Path: "/type", Value: fmt.Appendf(nil, "%q", next.Type)}
	case len(old.Details) > 0 && rng.IntN(2) == 0:
		next.Details = slices.Clone(old.Details)
		next.Details[0].Price = json.Number(value)
		op = document.Op{Kind: "set", Path: "/details/0/price", Value: value}
	default:
		day := 0
		if err := json.Unmarshal(value, &day); err != nil {
			return err
		}
		next.Day = &day
		op = document.Op{Kind: "set", Path: "/day", Value: value}
	}
	m.wrote(next.name(), &next)
	_, err := m.customer.Patch(m.t.Context(), keyOf(m.t, old.CustomerID), old.ID, []document.Op{op})
	return err
}

// batch writes several orders of one customer, and the customer, at once.
func (m *mallModel) batch(writer int, rng *rand.Rand) error {
	customer := fmt.Sprint("c", rng.IntN(mallCustomers))
	var ops []store.Operation
	for range 2 + rng.IntN(4) {
		o := m.someOrder(writer, rng)
		o.CustomerID = customer
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: body})
		if rng.IntN(4) == 0 {
			ops = append(ops, store.Operation{Kind: store.OpDelete, ID: o.ID})
			m.wrote(o.name(), nil)
			continue
		}
		m.wrote(o.name(), &o)
	}
	if rng.IntN(2) == 0 {
		body, err := json.Marshal(someCustomer(customer, rng))
		if err != nil {
			return err
		}
		ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: body})
	}
	result, err := m.customer.Batch(m.t.Context(), keyOf(m.t, customer), ops, "")
	if err == nil && result.Failed {
		err = fmt.Errorf("batch: %+v", result.Results)
	}
	return err
}

// passing writes an order that expires soon.
func (m *mallModel) passing(writer int, rng *rand.Rand) error {
	o := m.someOrder(writer, rng)
	o.TTL = 1
	return m.putOrder(o)
}

// someCustomer is a customer as a client writes it: with old totals, or none.
func someCustomer(id string, rng *rand.Rand) object {
	c := object{"id": id, "customerId": id, "type": "customer", "region": fmt.Sprint("r", rng.IntN(mallRegions))}
	switch rng.IntN(4) {
	case 0:
		c["totals"] = object{"orders": rng.IntN(9), "recent": []any{}}
	case 1:
		c["type"] = "former"
	case 2:
		delete(c, "region")
	}
	return c
}

// upsetCustomer makes, replaces, patches or deletes a customer.
func (m *mallModel) upsetCustomer(rng *rand.Rand) error {
	ctx := context.Background()
	id := fmt.Sprint("c", rng.IntN(mallCustomers))
	switch rng.IntN(4) {
	case 0:
		return gone(m.customer.Delete(ctx, keyOf(m.t, id), id))
	case 1:
		op := document.Op{Kind: "set", Path: "/region", Value: fmt.Appendf(nil, `"r%d"`, rng.IntN(mallRegions))}
		_, err := m.customer.Patch(ctx, keyOf(m.t, id), id, []document.Op{op})
		return gone(err)
	}
	return put(ctx, m.customer, someCustomer(id, rng))
}

// upsetTarget deletes a category or a region, or writes nonsense into its fields.
func (m *mallModel) upsetTarget(rng *rand.Rand) error {
	ctx := context.Background()
	g, r := fmt.Sprint("g", rng.IntN(mallCategories)), fmt.Sprint("r", rng.IntN(mallRegions))
	switch rng.IntN(4) {
	case 0:
		return gone(m.category.Delete(ctx, keyOf(m.t, g), g))
	case 1:
		return gone(m.region.Delete(ctx, keyOf(m.t, "world", r), r))
	case 2:
		return put(ctx, m.category, object{"id": g, "lines": 99, "recent": "none", "note": rng.IntN(9)})
	}
	return put(ctx, m.region, object{"id": r, "area": "world", "customers": -1})
}

// compareOrders compares the orders with what their writers wrote: the rules have
// changed nothing but the fields that they set.
func (m *mallModel) compareOrders() {
	m.t.Helper()
	there := map[string]mallOrder{}
	for _, o := range scanAll[mallOrder](m.t, m.customer) {
		if o.Type == "order" || o.Type == "draft" {
			there[o.name()] = o
		}
	}
	for name, want := range m.orders {
		got, ok := there[name]
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if !ok || string(a) != string(b) {
			m.t.Errorf("order %s is %s, want %s", name, b, a)
		}
	}
	for name := range there {
		if _, ok := m.orders[name]; !ok && !m.mortal[name] {
			m.t.Errorf("order %s should not be there", name)
		}
	}
}
