package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/document"
)

var (
	modelSeed  = flag.Uint64("model.seed", 1, "seed of the cascade model")
	modelSteps = flag.Int("model.steps", 100_000, "steps of the cascade model")
)

const (
	modelWriters    = 32
	modelRounds     = 20 // of writes and crashes, each followed by a comparison
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
	// written and removed say in which round a product was last written and a tag
	// last deleted: only a delete that was not over before takes an element away.
	round            int
	written, removed map[string]int
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
	w := newCascadeWorldOn(t, natsd.Config{SyncInterval: time.Minute})
	m := &model{
		w: w, metas: map[string]metaItem{}, products: map[string]productItem{}, reviews: map[string]reviewItem{},
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
	t.Logf("seed %d", *modelSeed)
	steps := 0
	for life := range modelLives {
		t.Run(fmt.Sprintf("life=%d", life), func(t *testing.T) { steps += liveModel(t, life*modelRounds/modelLives) })
	}
	if steps < *modelSteps && !t.Failed() {
		t.Errorf("%d steps, want %d", steps, *modelSteps)
	}
}

// liveModel runs one life's rounds, of which the first has the number from, and
// returns how many steps were made.
func liveModel(t *testing.T, from int) int {
	t.Helper()
	m, configs := newModel(t)
	worker := m.w.start(configs)
	began := time.Now()
	for round := from; round < from+modelRounds/modelLives && !t.Failed(); round++ {
		m.round = round + 1
		stop := make(chan struct{})
		crashes := m.crashing(&worker, configs, rand.New(rand.NewPCG(*modelSeed, uint64(1000+round))), stop)
		var writers sync.WaitGroup
		for n := range modelWriters {
			rng := rand.New(rand.NewPCG(*modelSeed, uint64(round*modelWriters+n)))
			writers.Go(func() { m.write(n, *modelSteps/modelRounds/modelWriters+1, rng) })
		}
		writers.Wait()
		close(stop)
		crashed := crashes()
		if t.Failed() {
			break
		}
		written := time.Since(began)
		m.w.quiet(worker)
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
func (m *model) crashing(worker **worker, configs []cascade.Config, rng *rand.Rand, stop <-chan struct{}) func() int {
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
			switch rng.IntN(4) {
			case 0:
				old.stop()
				*worker = m.w.start(configs)
			case 1:
				dying.Go(old.crash)
				*worker = m.w.start(configs)
			case 2:
				*worker = m.w.start(configs) // which its predecessor does not know
				dying.Go(old.crash)
			case 3:
				old.tap.hold(func(r *store.Request) bool { return r.PatchMany != nil || r.Repair != nil })
				pass(20)
				*worker = m.w.start(configs)
				pass(200)
				dying.Go(old.crash) // which lets the write go
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
	m.set(func() { m.metas[kind+"/"+id] = item })
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

// scanAll returns all items of a container.
func scanAll[T any](t testing.TB, c *store.Container) []T {
	t.Helper()
	var all []T
	for _, p := range c.Partitions() {
		for scan := (store.Scan{ItemsMax: 1000}); ; {
			result, err := c.Scan(t.Context(), p, scan)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range result.Items {
				var v T
				if err := json.Unmarshal(item.Body, &v); err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
			}
			if scan.After = result.Cursor; scan.After == nil {
				break
			}
		}
	}
	return all
}

// compare compares the store at rest with what was written.
func (m *model) compare() {
	t := m.w.t
	t.Helper()
	metas := map[string]metaItem{}
	for _, item := range scanAll[metaItem](t, m.meta) {
		metas[item.Type+"/"+item.ID] = item
	}
	if !maps.Equal(metas, m.metas) {
		t.Errorf("the sources are not what was written: %d, want %d", len(metas), len(m.metas))
	}
	products := map[string]productItem{}
	for _, p := range scanAll[productItem](t, m.product) {
		if other, twice := products[p.ID]; twice {
			t.Errorf("product %s is there twice: %+v, %+v", p.ID, p, other)
		}
		products[p.ID] = p
		m.compareProduct(&p)
	}
	for id := range m.products {
		if _, ok := products[id]; !ok {
			t.Errorf("product %s is not there", id)
		}
	}
	reviews := map[string]bool{}
	for _, r := range scanAll[reviewItem](t, m.review) {
		reviews[r.ID] = true
		want := m.reviews[r.ID]
		if r.ProductID != want.ProductID || r.CategoryID != want.CategoryID {
			t.Errorf("review %+v, want %+v", r, want)
		}
		p, ok := products[r.ProductID]
		if ok && p.CategoryID == r.CategoryID && (r.ProductN != p.N || r.CategoryName != p.CategoryName) {
			t.Errorf("review %+v of product %+v", r, p)
		}
	}
	for id, r := range m.reviews {
		if !reviews[id] && !m.bereaved[r.CategoryID+"/"+r.ProductID] {
			t.Errorf("review %+v is not there", r)
		}
	}
	if letters, err := m.w.letters.List(context.Background(), "tag-names", 1); err != nil || len(letters) > 0 {
		t.Errorf("dead letters: %+v, %v", letters, err)
	}
}

// compareProduct compares a product with its author's and its copies with their
// sources. What refers to nothing is what the author wrote or what its last
// source said.
func (m *model) compareProduct(p *productItem) {
	t := m.w.t
	t.Helper()
	want, ok := m.products[p.ID]
	if !ok || p.CategoryID != want.CategoryID || p.N != want.N {
		t.Errorf("product %+v, want %+v", p, want)
		return
	}
	if c, ok := m.metas["category/"+p.CategoryID]; ok && p.CategoryName != c.Name {
		t.Errorf("product %s has category %q, want %q", p.ID, p.CategoryName, c.Name)
	}
	rest, kept := want.Tags, map[string]bool{}
	for _, tag := range p.Tags {
		// The elements that are left are in the author's order.
		i := slices.IndexFunc(rest, func(x tagItem) bool { return x.ID == tag.ID })
		if i < 0 {
			t.Errorf("product %s has tags %+v, want %+v", p.ID, p.Tags, want.Tags)
			return
		}
		kept[tag.ID] = true
		rest = rest[i+1:]
		if source, ok := m.metas["tag/"+tag.ID]; ok && tag.Name != source.Name {
			t.Errorf("product %s has tag %+v, want %q; tag: %s\nproduct: %s", p.ID, tag, source.Name,
				m.history(m.meta, tag.ID), m.history(m.product, p.ID))
		}
	}
	for _, tag := range want.Tags {
		if !kept[tag.ID] && m.removed[tag.ID] < m.written[p.ID] {
			t.Errorf("product %s lost tag %s, which was not deleted since; tag: %s\nproduct: %s", p.ID, tag.ID,
				m.history(m.meta, tag.ID), m.history(m.product, p.ID))
		}
	}
}

// history tells what the logs hold of an item: what went wrong, and when.
func (m *model) history(c *store.Container, id string) string {
	var b strings.Builder
	for _, p := range c.Partitions() {
		end := m.w.end(p)
		for lsn := end - min(end, 3000) + 1; lsn <= end; lsn++ {
			commit, err := m.w.log(p).Read(m.w.t.Context(), lsn)
			if err != nil {
				return err.Error()
			}
			index := 0
			for _, t := range commit.Transactions {
				for _, ch := range t.Changes {
					if ch.ID == id {
						fmt.Fprintf(&b, "\n  %s at %d.%d by %q, %d ms: %s %s", p, lsn, index, commit.Owner, commit.Time%1e6, ch.Op, ch.After)
						if t.Effect != nil {
							fmt.Fprintf(&b, " by %s epoch %d", t.Effect.Producer, t.Effect.Epoch)
						}
						if t.Page != nil {
							fmt.Fprintf(&b, " page of %s at %s", t.Page.Source, t.Page.Position)
						}
					}
					index++
				}
			}
		}
	}
	return b.String()
}
