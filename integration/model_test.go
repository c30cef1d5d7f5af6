package integration_test

import (
	"cmp"
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
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

var (
	modelSeed  = flag.Uint64("model.seed", 1, "seed of the cascade model")
	modelSteps = flag.Int("model.steps", 0, "steps of the cascade model; 0 is 8,000, with -long 100,000")
)

const (
	modelWriters    = 32
	modelCategories = 24
	modelTags       = 150
	modelProducts   = 400
	modelReviews    = 100
)

// model is what the clients wrote. Each writer owns the items whose number has
// its remainder, so that each item has one author and its state is known; what
// races is everything else.
type model struct {
	w                     *cascadeWorld
	meta, product, review *store.Container

	mu       sync.Mutex
	metas    map[string]metaItem    // by type/id
	products map[string]productItem // by id, as the client wrote them
	reviews  map[string]reviewItem
	// bereaved are products that were deleted at some time: the reviews of these
	// may have been deleted with them.
	bereaved map[string]bool
	// last are the categories and tags as they were last, whether or not they are
	// there: what names one that was deleted has its last name, or none.
	last map[string]metaItem
	// written says in which round a product was last written, removed in which a tag
	// was last seen to be deleted: only a tag that was gone behind the write takes an
	// element away.
	round            int
	written, removed map[string]int
	configs          []cascade.Config
	steps            atomic.Int64
}

// reviewItem copies from a product what the product copied from its category.
type reviewItem struct {
	ID           string `json:"id"`
	ProductID    string `json:"productId"`
	CategoryID   string `json:"categoryId"`
	ProductN     int    `json:"productN,omitempty"`
	CategoryName string `json:"categoryName,omitempty"`
}

func newModel(t *testing.T) (*model, []cascade.Config) {
	t.Helper()
	// Nobody pulls the plug here, so the disk need not be waited for.
	w := newCascadeWorld(t)
	m := &model{
		w: w, metas: map[string]metaItem{}, products: map[string]productItem{}, reviews: map[string]reviewItem{}, last: map[string]metaItem{},
		bereaved: map[string]bool{}, written: map[string]int{}, removed: map[string]int{},
	}
	m.meta, m.product = w.webstore()
	m.review = w.container("review", store.ContainerSpec{PartitionKey: []string{"/id"}, Indexes: []string{"/productId"}})
	reviews := cascade.Config{
		Pipeline: "review-products", Generation: 1, Source: m.product, Target: m.review,
		Match:          []cascade.Pair{{Target: "categoryId", Source: "categoryId"}, {Target: "productId", Source: "id"}},
		Set:            []cascade.Pair{{Target: "productN", Source: "n"}, {Target: "categoryName", Source: "categoryName"}},
		OnSourceDelete: cascade.Delete,
	}
	configs := []cascade.Config{categoryNames(m.meta, m.product), tagNames(m.meta, m.product), reviews}
	for i := range configs {
		configs[i].FanOutPageItems = 7 // so that most fan-outs have several pages
	}
	m.configs = configs
	return m, configs
}

// modelLives is how many stores the steps are shared among: a new one begins
// with a new log, and stays quick.
const modelLives = 4

// TestI6_Model lets clients insert, rename, move, delete and make again, while
// workers crash and are stopped, and compares at rest every copy with its source
// and every item with what its author wrote.
func TestI6_Model(t *testing.T) {
	if testing.Short() {
		t.Skip("the model takes some minutes")
	}
	want, rounds := 8_000, 8 // of writes and crashes, each followed by a comparison
	if *long {
		want, rounds = 100_000, 20
	}
	want = cmp.Or(*modelSteps, want)
	t.Logf("seed %d", *modelSeed)
	steps := 0
	for life := range modelLives {
		t.Run(fmt.Sprintf("life=%d", life), func(t *testing.T) { steps += liveModel(t, life*rounds/modelLives, rounds/modelLives, want/rounds) })
	}
	if steps < want && !t.Failed() {
		t.Errorf("%d steps, want %d", steps, want)
	}
}

// liveModel runs one life's rounds of steps each, of which the first has the number
// from, and returns how many steps were made.
func liveModel(t *testing.T, from, rounds, steps int) int {
	t.Helper()
	m, configs := newModel(t)
	worker := m.w.start(configs)
	began := time.Now()
	for round := from; round < from+rounds && !t.Failed(); round++ {
		m.round = round + 1
		stop := make(chan struct{})
		crashes := m.crashing(&worker, configs, rand.New(rand.NewPCG(*modelSeed, uint64(1000+round))), stop)
		var writers sync.WaitGroup
		for n := range modelWriters {
			rng := rand.New(rand.NewPCG(*modelSeed, uint64(round*modelWriters+n)))
			writers.Go(func() { m.write(n, steps/modelWriters+1, rng) })
		}
		writers.Wait()
		close(stop)
		crashed := crashes()
		if t.Failed() {
			break
		}
		written := time.Since(began)
		m.w.Quiet(worker)
		m.compare()
		t.Logf("round %d: %d steps in all, %d crashes in it; %s, of which %s waiting for copies", round, m.steps.Load(), crashed,
			time.Since(began).Round(time.Millisecond), (time.Since(began) - written).Round(time.Millisecond))
		began = time.Now()
	}
	return int(m.steps.Load())
}

// crashing replaces the worker now and then, until stop is closed. Most workers
// die, some are stopped, some are paused with a write on its way until their
// successor has worked for a while. The returned function waits and tells how
// many there were.
func (m *model) crashing(worker **storetest.Worker, configs []cascade.Config, rng *rand.Rand, stop <-chan struct{}) func() int {
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
	go func() {
		defer close(done)
		for pass(200 + rng.Int64N(1000)) {
			count++
			old := *worker
			switch rng.IntN(5) {
			case 4: // a new generation, which its predecessor may not know
				copy(configs, m.w.walk(configs, func() { pass(10) }))
				*worker = m.w.start(configs)
				if rng.IntN(2) == 0 {
					pass(50)
				}
				dying.Go(old.Crash)
			case 0:
				old.Stop()
				*worker = m.w.start(configs)
			case 1:
				dying.Go(old.Crash)
				*worker = m.w.start(configs)
			case 2:
				*worker = m.w.start(configs) // which its predecessor does not know
				dying.Go(old.Crash)
			case 3:
				old.Tap.Hold(func(r *store.Request) bool { return r.PatchMany != nil || r.Repair != nil })
				pass(20)
				*worker = m.w.start(configs)
				pass(200)
				dying.Go(old.Crash) // which lets the write go
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
func (m *model) write(writer, steps int, rng *rand.Rand) {
	for range steps {
		var err error
		switch p := rng.IntN(100); {
		case p < 12:
			err = m.rename(writer, rng)
		case p < 15:
			err = m.removeMeta(writer, rng)
		case p < 40:
			err = m.putProduct(writer, rng)
		case p < 44:
			err = m.moveProduct(writer, rng)
		case p < 48:
			err = m.removeProduct(writer, rng)
		case p < 84:
			err = m.patchProduct(writer, rng)
		default:
			err = m.putReview(writer, rng)
		}
		m.steps.Add(1)
		if err != nil {
			m.w.t.Errorf("writer %d: %v", writer, err)
			return
		}
	}
}

// own returns a number below n that is the writer's.
func own(writer, n int, rng *rand.Rand) int {
	return rng.IntN((n-writer+modelWriters-1)/modelWriters)*modelWriters + writer
}

// someMeta returns a category or tag of the writer.
func someMeta(writer int, rng *rand.Rand) (kind, id string) {
	n := own(writer, modelCategories+modelTags, rng)
	if n < modelCategories {
		return "category", fmt.Sprint(n)
	}
	return "tag", fmt.Sprint(n - modelCategories)
}

// rename makes or renames a category or tag; sometimes it changes another field.
func (m *model) rename(writer int, rng *rand.Rand) error {
	kind, id := someMeta(writer, rng)
	item := metaItem{ID: id, Type: kind, Name: fmt.Sprintf("%s %s, %d", kind, id, rng.IntN(1000))}
	m.set(func() {
		if _, there := m.metas[kind+"/"+id]; !there {
			m.removed[id] = m.round // until now
		}
		m.metas[kind+"/"+id], m.last[kind+"/"+id] = item, item
	})
	return put(m.w.t.Context(), m.meta, item)
}

func (m *model) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// gone takes "not found" for done: what is to go may have gone before.
func gone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func (m *model) removeMeta(writer int, rng *rand.Rand) error {
	kind, id := someMeta(writer, rng)
	m.set(func() {
		delete(m.metas, kind+"/"+id)
		if kind == "tag" {
			m.removed[id] = m.round
		}
	})
	return gone(m.meta.Delete(m.w.t.Context(), keyOf(m.w.t, kind), id))
}

// someProduct makes up what a client writes: copies right, wrong, stale or left
// out.
func someProduct(id string, category int, rng *rand.Rand) productItem {
	p := productItem{ID: id, CategoryID: fmt.Sprint(category), N: 1 + rng.IntN(3)}
	if rng.IntN(2) == 0 {
		p.CategoryName = fmt.Sprintf("category %d, %d", category, rng.IntN(1000))
	}
	for range rng.IntN(4) {
		tag := tagItem{ID: fmt.Sprint(rng.IntN(modelTags))}
		if slices.ContainsFunc(p.Tags, func(x tagItem) bool { return x.ID == tag.ID }) {
			continue
		}
		if rng.IntN(2) == 0 {
			tag.Name = fmt.Sprintf("tag %s, %d", tag.ID, rng.IntN(1000))
		}
		p.Tags = append(p.Tags, tag)
	}
	return p
}

func (m *model) putProduct(writer int, rng *rand.Rand) error {
	id := fmt.Sprint(own(writer, modelProducts, rng))
	m.mu.Lock()
	old, exists := m.products[id]
	category := rng.IntN(modelCategories)
	if exists {
		if _, err := fmt.Sscan(old.CategoryID, &category); err != nil {
			m.mu.Unlock()
			return err
		}
	}
	p := someProduct(id, category, rng)
	m.products[id], m.written[id] = p, m.round
	m.mu.Unlock()
	return put(m.w.t.Context(), m.product, p)
}

// patchProduct changes a product in a place that no pipeline looks at, so that its
// etag changes and its copies are not checked.
func (m *model) patchProduct(writer int, rng *rand.Rand) error {
	id := fmt.Sprint(own(writer, modelProducts, rng))
	m.mu.Lock()
	old, exists := m.products[id]
	m.mu.Unlock()
	if !exists {
		return nil
	}
	ops := []document.Op{{Kind: "set", Path: "/note", Value: fmt.Append(nil, rng.IntN(1000))}}
	_, err := m.product.Patch(m.w.t.Context(), keyOf(m.w.t, old.CategoryID), id, ops)
	return err
}

// moveProduct gives a product another partition key: a delete and a create, in
// either order.
func (m *model) moveProduct(writer int, rng *rand.Rand) error {
	id := fmt.Sprint(own(writer, modelProducts, rng))
	p := someProduct(id, rng.IntN(modelCategories), rng)
	m.mu.Lock()
	old, exists := m.products[id]
	if exists && old.CategoryID != p.CategoryID {
		m.bereaved[old.CategoryID+"/"+id] = true
	}
	m.products[id], m.written[id] = p, m.round
	m.mu.Unlock()
	steps := []func() error{
		func() error { return put(m.w.t.Context(), m.product, p) },
		func() error {
			if !exists || old.CategoryID == p.CategoryID {
				return nil
			}
			return gone(m.product.Delete(m.w.t.Context(), keyOf(m.w.t, old.CategoryID), id))
		},
	}
	if rng.IntN(2) == 0 {
		slices.Reverse(steps)
	}
	return errors.Join(steps[0](), steps[1]())
}

func (m *model) removeProduct(writer int, rng *rand.Rand) error {
	id := fmt.Sprint(own(writer, modelProducts, rng))
	m.mu.Lock()
	old, exists := m.products[id]
	delete(m.products, id)
	m.bereaved[old.CategoryID+"/"+id] = true
	m.mu.Unlock()
	if !exists {
		return nil
	}
	return gone(m.product.Delete(m.w.t.Context(), keyOf(m.w.t, old.CategoryID), id))
}

func (m *model) putReview(writer int, rng *rand.Rand) error {
	r := reviewItem{
		ID: fmt.Sprint(own(writer, modelReviews, rng)), ProductID: fmt.Sprint(rng.IntN(modelProducts)), CategoryID: fmt.Sprint(rng.IntN(modelCategories)),
	}
	m.mu.Lock()
	if p, ok := m.products[r.ProductID]; ok && rng.IntN(8) > 0 {
		r.CategoryID = p.CategoryID // else it probably refers to nothing
	}
	m.reviews[r.ID] = r
	m.mu.Unlock()
	return put(m.w.t.Context(), m.review, r)
}
