package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

var (
	everySeed  = flag.Uint64("everykind.seed", 1, "first seed of the model of every kind of copy")
	everySeeds = flag.Int("everykind.seeds", 0, "seeds of the model of every kind of copy; 0 is 2, with -long 4")
	everySteps = flag.Int("everykind.steps", 0, "operations of the model of every kind of copy, all seeds together; 0 is 2,400, with -long 100,000")
)

const (
	everyRoundSteps = 2500 // between two comparisons, at most
	everyCalm       = 300  // between two upsets, on an average
	everyWriters    = 32   // so many that commits are shared: one by one, they wait for answers most of the time
	everyCategories = 32
	everyTags       = 64
	everyProducts   = 160
	everyCustomers  = 32
	everyRegions    = 3
	everyOrders     = 384
	everyPartitions = 8 // of a container, at most
)

// everyLine is a line of an order. Its quantity is a number, or is none.
type everyLine struct {
	SKU        string          `json:"sku"`
	CategoryID string          `json:"categoryId,omitempty"`
	Price      json.Number     `json:"price"`
	Quantity   json.RawMessage `json:"quantity"`
}

type everyOrder struct {
	ID         string      `json:"id"`
	CustomerID string      `json:"customerId"`
	Type       string      `json:"type"`
	OrderDate  string      `json:"orderDate"`
	Details    []everyLine `json:"details"`
	TTL        int         `json:"ttl,omitempty"`
}

type everyCustomer struct {
	ID              string      `json:"id"`
	CustomerID      string      `json:"customerId"`
	Type            string      `json:"type"`
	Name            string      `json:"name"`
	Region          string      `json:"region"`
	SalesOrderCount json.Number `json:"salesOrderCount,omitempty"`
	LifetimeValue   json.Number `json:"lifetimeValue,omitempty"`
	LastOrderDate   string      `json:"lastOrderDate,omitempty"`
	RecentOrders    []struct {
		ID        string `json:"id"`
		OrderDate string `json:"orderDate"`
	} `json:"recentOrders,omitempty"`
}

type everyProduct struct {
	productItem
	SKU string `json:"sku,omitempty"`
}

// everyModel lets clients do everything to a small WebStore. Each writer owns the
// items whose number has its remainder, and repeats a write until it is
// acknowledged: so the state of each item is known.
type everyModel struct {
	*town
	files string // of the tables
	seed  uint64
	most  int // steps
	steps atomic.Int64

	meta, product, customer, region *store.Container

	// keyed says that a write may be delayed beyond one that is written later. Then all attempts of a write have one
	// idempotency key, and whoever asks again is the client.
	keyed bool
	keys  atomic.Int64

	mu        sync.Mutex
	metas     map[string]metaItem      // by type/id
	products  map[string]everyProduct  // by id
	customers map[string]everyCustomer // by id
	orders    map[string]everyOrder    // by customer/id; without those that expire
	removed   map[string]bool          // tags that were deleted at some time
}

func newEveryModel(t *testing.T, seed uint64, steps int) *everyModel {
	t.Helper()
	files := t.TempDir()
	// What crashes is gone soon, so that most of the time something is done.
	m := everyModelOf(newTown(t, 2, "leases.drainTimeout=100ms", "leases.renewInterval=500ms", "sinks.roots="+files), files)
	m.seed, m.most = seed, steps
	m.apply(everyContainer + "---" + everyPipelineIn(m.files))
	m.open(m.Client())
	return m
}

// everyModelOf is the model of a town in which nothing was written yet.
func everyModelOf(w *town, files string) *everyModel {
	return &everyModel{
		town: w, files: files, metas: map[string]metaItem{}, products: map[string]everyProduct{},
		customers: map[string]everyCustomer{}, orders: map[string]everyOrder{}, removed: map[string]bool{},
	}
}

// open opens the containers, which were declared, for the writers.
func (m *everyModel) open(c *store.Client) {
	m.t.Helper()
	m.meta, m.product = open(m.t, c, "productMeta"), open(m.t, c, "product")
	m.customer, m.region = open(m.t, c, "customer"), open(m.t, c, "region")
}

// TestEveryKind_Model lets clients create, replace, patch, delete, expire, move,
// make again and batch, under pipelines of all kinds that stand on each other,
// while workers and the store crash, leases are stolen and pipelines are rewound.
// At rest everything equals a recomputation from the sources, and verify agrees.
func TestEveryKind_Model(t *testing.T) {
	seeds, steps := 2, 2400
	if *long {
		seeds, steps = 4, 100_000
	}
	seeds, steps = cmp.Or(*everySeeds, seeds), cmp.Or(*everySteps, steps)
	for n := range seeds {
		seed := *everySeed + uint64(n)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newEveryModel(t, seed, (steps+seeds-1)/seeds).run(t) })
	}
}

// run does the steps of one seed.
func (m *everyModel) run(t *testing.T) {
	t.Helper()
	for round := 0; int(m.steps.Load()) < m.most && !t.Failed(); round++ {
		began := time.Now()
		stop := make(chan struct{})
		upsets := m.chaos(rand.New(rand.NewPCG(m.seed, uint64(1000+round))), stop)
		var writing sync.WaitGroup
		each := min(everyRoundSteps, m.most-int(m.steps.Load())+everyWriters-1) / everyWriters
		for n := range everyWriters {
			rng := rand.New(rand.NewPCG(m.seed, uint64(round*everyWriters+n)))
			writing.Go(func() { m.write(n, each, rng) })
		}
		writing.Wait()
		close(stop)
		what := upsets()
		if t.Failed() {
			return
		}
		written := time.Now()
		m.rest()
		m.compare()
		m.equal("at rest")
		t.Logf("round %d: %d steps in all, upsets: %s; %s and %s of rest", round, m.steps.Load(), what,
			written.Sub(began).Round(time.Millisecond), time.Since(written).Round(time.Millisecond))
	}
}

// chaos upsets nodes and pipelines now and then, until stop is closed. The returned
// function waits, and tells what was done.
func (m *everyModel) chaos(rng *rand.Rand, stop <-chan struct{}) func() string {
	var did []string
	done := make(chan struct{})
	pass := func(steps int64) bool {
		for until := m.steps.Load() + steps; m.steps.Load() < until; {
			select {
			case <-stop:
				return false
			case <-time.After(5 * time.Millisecond):
			}
		}
		return true
	}
	go func() {
		defer close(done)
		for pass(everyCalm/2 + rng.Int64N(everyCalm)) {
			began := time.Now()
			did = append(did, m.upset(rng)+" in "+time.Since(began).Round(10*time.Millisecond).String())
		}
	}()
	return func() string {
		<-done
		return strings.Join(did, ", ")
	}
}

// upset does one thing to a node or a pipeline.
func (m *everyModel) upset(rng *rand.Rand) string {
	worker := rng.IntN(len(m.workers))
	switch rng.IntN(10) {
	case 0:
		m.workers[worker].restart()
		return "worker restarted"
	case 1, 2:
		m.workers[worker].crash()
		return "worker crashed"
	case 3:
		m.workers[worker].stall()
		return "leases stolen"
	case 4:
		m.store.crash()
		return "store crashed"
	case 5, 6:
		return m.split(rng)
	}
	return m.rewind(rng)
}

// split splits a partition of a container, whatever is going on with another one.
func (m *everyModel) split(rng *rand.Rand) string {
	name := []string{"productMeta", "product", "customer", "region"}[rng.IntN(4)]
	ct := open(m.t, m.Client(), name)
	if len(ct.Partitions()) >= everyPartitions {
		return name + " not split"
	}
	p := ct.Partitions()[rng.IntN(len(ct.Partitions()))]
	ctx, cancel := context.WithTimeout(context.Background(), insistEach)
	defer cancel()
	if _, err := ct.Split(ctx, p, store.SplitPartition{}); err != nil {
		return fmt.Sprintf("%s not split (%v)", p, err)
	}
	return fmt.Sprintf("%s of %s split", p, name)
}

// rewind lets a pipeline read again what it has read before.
func (m *everyModel) rewind(rng *rand.Rand) string {
	names := []string{"category-names", "tag-names", "skus", "line-categories", "customer-totals", "category-sales", "region-totals", "analytics"}
	name, place := names[rng.IntN(len(names))], "beginning"
	if rng.IntN(2) == 0 {
		place = fmt.Sprintf("%dms", 100+rng.IntN(5000))
	}
	to, err := registry.ParseRewindTo(place, time.Now())
	if err != nil {
		m.t.Error(err)
	}
	_, err = m.Registry().Rewind(context.Background(), "default", name, to, "")
	switch {
	case err == nil:
		return name + " rewound to " + place
	case strings.Contains(err.Error(), "being built anew"), strings.Contains(err.Error(), "split"):
		return name + " not rewound"
	}
	m.t.Errorf("rewind %s to %s: %v", name, place, err)
	return ""
}

// insistEach is how long one attempt waits for its answer, which never comes if who
// was to give it has crashed.
const insistEach = 2 * time.Second

// insist writes until it is acknowledged. Every write here may be repeated.
func insist(t testing.TB, write func(context.Context) error) error {
	t.Helper()
	return insistEvery(t, insistEach, write)
}

// insistEvery is insist whose attempts take so long at most.
func insistEvery(t testing.TB, each time.Duration, write func(context.Context) error) error {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a client tries again
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), each)
		err := write(ctx)
		cancel()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// write does steps on the items of one writer.
func (m *everyModel) write(writer, steps int, rng *rand.Rand) {
	for range steps {
		var err error
		switch p := rng.IntN(100); {
		case p < 8:
			err = m.putMeta(writer, rng)
		case p < 10:
			err = m.removeMeta(writer, rng)
		case p < 22:
			err = m.putProduct(writer, rng)
		case p < 25:
			err = m.removeProduct(writer, rng)
		case p < 32:
			err = m.putCustomer(writer, rng)
		case p < 34:
			err = m.removeCustomer(writer, rng)
		case p < 36:
			err = m.upsetRegion(rng)
		case p < 60:
			err = m.putOrder(m.someOrder(writer, rng), rng)
		case p < 72:
			err = m.patchOrder(writer, rng)
		case p < 80:
			err = m.removeOrder(m.someOrder(writer, rng))
		case p < 88:
			err = m.moveOrder(writer, rng)
		case p < 95:
			err = m.batchOrders(writer, rng)
		default:
			o := m.someOrder(writer, rng)
			o.TTL = 1
			err = m.putOrder(o, rng)
		}
		m.steps.Add(1)
		if err != nil {
			m.t.Errorf("writer %d: %v", writer, err)
			return
		}
	}
}

// mine returns a number below n that is the writer's.
func mine(writer, n int, rng *rand.Rand) int { return rng.IntN(n/everyWriters)*everyWriters + writer }

func (m *everyModel) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// how is how a write is made, and how long one attempt of it may take.
func (m *everyModel) how() (o store.WriteOptions, each time.Duration) {
	if !m.keyed {
		return o, insistEach
	}
	return store.WriteOptions{IdempotencyKey: fmt.Sprint("every-", m.keys.Add(1))}, time.Minute
}

func (m *everyModel) insist(write func(context.Context, store.WriteOptions) error) error {
	o, each := m.how()
	return insistEvery(m.t, each, func(ctx context.Context) error { return write(ctx, o) })
}

func (m *everyModel) put(c *store.Container, item any) error {
	body, err := json.Marshal(item)
	if err != nil {
		return err
	}
	return m.insist(func(ctx context.Context, o store.WriteOptions) error {
		_, err := c.Upsert(ctx, body, o)
		return err
	})
}

func (m *everyModel) remove(c *store.Container, key, id string) error {
	return m.insist(func(ctx context.Context, o store.WriteOptions) error {
		return gone(c.Delete(ctx, keyOf(m.t, key), id, o))
	})
}

// someMeta makes up a category or a tag of the writer.
func (m *everyModel) someMeta(writer int, rng *rand.Rand) metaItem {
	if rng.IntN(2) == 0 {
		id := fmt.Sprint("c", mine(writer, everyCategories, rng))
		return metaItem{ID: id, Type: "category", Name: fmt.Sprint("category ", rng.IntN(1000))}
	}
	id := fmt.Sprint("t", mine(writer, everyTags, rng))
	return metaItem{ID: id, Type: "tag", Name: fmt.Sprint("tag ", rng.IntN(1000))}
}

func (m *everyModel) putMeta(writer int, rng *rand.Rand) error {
	item := m.someMeta(writer, rng)
	m.set(func() { m.metas[item.Type+"/"+item.ID] = item })
	return m.put(m.meta, item)
}

func (m *everyModel) removeMeta(writer int, rng *rand.Rand) error {
	item := m.someMeta(writer, rng)
	m.set(func() {
		delete(m.metas, item.Type+"/"+item.ID)
		m.removed[item.ID] = true
	})
	return m.remove(m.meta, item.Type, item.ID)
}

// putProduct writes a product, with copies as old as a client may have them. If it
// gets another category it moves: it is made there and deleted here, in either
// order. Some products claim a sku that another one has.
func (m *everyModel) putProduct(writer int, rng *rand.Rand) error {
	n := mine(writer, everyProducts, rng)
	p := everyProduct{productItem: someProduct(fmt.Sprint("p", n), 0, rng), SKU: fmt.Sprint("s", n%(everyProducts-4))}
	p.CategoryID = fmt.Sprint("c", rng.IntN(everyCategories))
	for i := range p.Tags {
		p.Tags[i].ID = fmt.Sprint("t", rng.IntN(everyTags/3)*3+i)
	}
	var old everyProduct
	m.set(func() { old, m.products[p.ID] = m.products[p.ID], p })
	steps := []func() error{func() error { return m.put(m.product, p) }}
	if old.ID != "" && old.CategoryID != p.CategoryID {
		steps = append(steps, func() error { return m.remove(m.product, old.CategoryID, old.ID) })
	}
	return inAnyOrder(rng, steps)
}

func inAnyOrder(rng *rand.Rand, steps []func() error) error {
	if rng.IntN(2) == 0 {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (m *everyModel) removeProduct(writer int, rng *rand.Rand) error {
	id := fmt.Sprint("p", mine(writer, everyProducts, rng))
	var old everyProduct
	m.set(func() {
		old = m.products[id]
		delete(m.products, id)
	})
	if old.ID == "" {
		return nil
	}
	return m.remove(m.product, old.CategoryID, id)
}

func (m *everyModel) putCustomer(writer int, rng *rand.Rand) error {
	id := fmt.Sprint("u", mine(writer, everyCustomers, rng))
	c := everyCustomer{
		ID: id, CustomerID: id, Type: "customer", Name: fmt.Sprint("customer ", rng.IntN(1000)), Region: fmt.Sprint("r", rng.IntN(everyRegions)),
	}
	if rng.IntN(3) == 0 {
		c.SalesOrderCount, c.LastOrderDate = number(rng.IntN(9)), "once"
	}
	m.set(func() { m.customers[id] = c })
	return m.put(m.customer, c)
}

func (m *everyModel) removeCustomer(writer int, rng *rand.Rand) error {
	id := fmt.Sprint("u", mine(writer, everyCustomers, rng))
	m.set(func() { delete(m.customers, id) })
	return m.remove(m.customer, id, id)
}

// upsetRegion deletes what a pipeline has made and makes again, or writes nonsense
// into it.
func (m *everyModel) upsetRegion(rng *rand.Rand) error {
	id := fmt.Sprint("r", rng.IntN(everyRegions))
	if rng.IntN(2) == 0 {
		return m.remove(m.region, id, id)
	}
	return m.put(m.region, object{"id": id, "customers": -1})
}

// someOrder makes up an order of the writer, of any customer.
func (m *everyModel) someOrder(writer int, rng *rand.Rand) everyOrder {
	o := everyOrder{
		ID: fmt.Sprint("o", mine(writer, everyOrders, rng)), CustomerID: fmt.Sprint("u", rng.IntN(everyCustomers)), Type: "salesOrder",
		OrderDate: fmt.Sprintf("2026-%02d-%02d", 1+rng.IntN(12), 1+rng.IntN(28)), Details: []everyLine{},
	}
	for range rng.IntN(4) {
		l := everyLine{
			SKU: fmt.Sprint("s", rng.IntN(everyProducts)), CategoryID: fmt.Sprint("c", rng.IntN(everyCategories)),
			Price: json.Number(fmt.Sprintf("%d.%02d", rng.IntN(900), rng.IntN(100))), Quantity: json.RawMessage(fmt.Sprint(1 + rng.IntN(5))),
		}
		if rng.IntN(12) == 0 {
			l.Quantity = json.RawMessage(`"some"`) // a column takes no such thing
		}
		o.Details = append(o.Details, l)
	}
	return o
}

func (o *everyOrder) name() string { return o.CustomerID + "/" + o.ID }

// wrote notes the state of an order.
func (m *everyModel) wrote(o everyOrder, there bool) {
	m.set(func() {
		delete(m.orders, o.name())
		if there && o.TTL == 0 {
			m.orders[o.name()] = o
		}
	})
}

// putOrder creates, replaces or upserts an order.
func (m *everyModel) putOrder(o everyOrder, rng *rand.Rand) error {
	m.wrote(o, true)
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	how, each := m.how()
	ctx, cancel := context.WithTimeout(m.t.Context(), each)
	defer cancel()
	switch rng.IntN(3) {
	case 0:
		_, err = m.customer.Create(ctx, body, how)
	case 1:
		_, err = m.customer.Replace(ctx, o.ID, body, how)
	default:
		return m.put(m.customer, o)
	}
	if err == nil {
		return nil
	}
	return m.put(m.customer, o) // it was there, or not, or nobody knows
}

func (m *everyModel) removeOrder(o everyOrder) error {
	m.wrote(o, false)
	return m.remove(m.customer, o.CustomerID, o.ID)
}

// moveOrder gives an order to another customer.
func (m *everyModel) moveOrder(writer int, rng *rand.Rand) error {
	from, to := m.someOrder(writer, rng), m.someOrder(writer, rng)
	m.set(func() {
		for _, o := range m.orders { // one that is there, if there is one
			if o.ID == to.ID {
				from = o
			}
		}
	})
	if to.ID = from.ID; to.CustomerID == from.CustomerID {
		return m.putOrder(to, rng)
	}
	return inAnyOrder(rng, []func() error{
		func() error { return m.removeOrder(from) }, func() error { return m.putOrder(to, rng) },
	})
}

// patchOrder changes a date or a line of an order that is there.
func (m *everyModel) patchOrder(writer int, rng *rand.Rand) error {
	o, there := m.someOrder(writer, rng), false
	date := o.OrderDate
	m.set(func() { o, there = m.orders[o.name()] })
	if !there {
		return nil
	}
	op := document.Op{Kind: document.OpSet, Path: "/orderDate", Value: fmt.Appendf(nil, "%q", date)}
	if len(o.Details) > 0 && rng.IntN(2) == 0 {
		o.Details = slices.Clone(o.Details)
		o.Details[0].Price = number(rng.IntN(100))
		op = document.Op{Kind: document.OpSet, Path: "/details/0/price", Value: []byte(o.Details[0].Price)}
	} else {
		o.OrderDate = date
	}
	m.wrote(o, true)
	return m.insist(func(ctx context.Context, how store.WriteOptions) error {
		_, err := m.customer.Patch(ctx, keyOf(m.t, o.CustomerID), o.ID, []document.Op{op}, how)
		return err
	})
}

// batchOrders writes several orders of one customer at once.
func (m *everyModel) batchOrders(writer int, rng *rand.Rand) error {
	customer := fmt.Sprint("u", rng.IntN(everyCustomers))
	var ops []store.Operation
	for range 2 + rng.IntN(4) {
		o := m.someOrder(writer, rng)
		o.CustomerID = customer
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: body})
		remove := rng.IntN(4) == 0
		if remove {
			ops = append(ops, store.Operation{Kind: store.OpDelete, ID: o.ID})
		}
		m.wrote(o, !remove)
	}
	return m.insist(func(ctx context.Context, o store.WriteOptions) error {
		result, err := m.customer.Batch(ctx, keyOf(m.t, customer), ops, o.IdempotencyKey)
		if err == nil && result.Failed {
			err = fmt.Errorf("batch: %+v", result.Results)
		}
		return err
	})
}
