//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

const (
	database = "default"
	loaders  = 256 // concurrent creates while data is loaded
)

// containers and cascades are those of the sample in configs/webstore. The index
// that the tags' cascade needs is there from the beginning, as PostgreSQL's is.
const (
	containers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: productMeta}
spec: {partitionKey: [/type]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], partitions: %d, indexes: [/tags/*/id]}
`
	// copiedContainers have standbys.
	copiedContainers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: productMeta}
spec: {partitionKey: [/type], standbys: 1}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], partitions: %d, standbys: 1, indexes: [/tags/*/id]}
`
	cascades = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade:
    into: product
    match: {categoryId: id}
    set: {categoryName: name}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: tag-names}
spec:
  source: {container: productMeta, where: type = "tag"}
  cascade:
    into: product
    each: tags
    match: {id: id}
    set: {name: name}
`
)

// catalogue is the data set in Millrace, with pipelines that keep the copies.
type catalogue struct {
	session
	set     *dataset.Set
	sources *store.Container
	items   *store.Container
}

// apply declares containers or pipelines.
func (s *session) apply(ctx context.Context, yaml string) error {
	declared, err := spec.Decode("bench", []byte(yaml))
	if err != nil {
		return err
	}
	_, err = s.registry.Apply(ctx, declared)
	return err
}

// loadCatalogue stores the data set, in containers that are declared by yaml, and lets the pipelines come to rest on it.
func loadCatalogue(ctx context.Context, s session, set *dataset.Set, yaml string) (*catalogue, error) {
	c := &catalogue{session: s, set: set}
	err := s.apply(ctx, yaml)
	if err != nil {
		return nil, err
	}
	if c.sources, err = s.client.Container(ctx, database, "productMeta"); err != nil {
		return nil, err
	}
	if c.items, err = s.client.Container(ctx, database, "product"); err != nil {
		return nil, err
	}
	for source := range set.Sources() {
		if _, err := c.sources.Create(ctx, source.JSON(0)); err != nil {
			return nil, fmt.Errorf("load %s %s: %w", source.Type, source.ID, err)
		}
	}
	if err := c.load(ctx, 0, set.Products()); err != nil {
		return nil, err
	}
	if err := s.apply(ctx, cascades); err != nil {
		return nil, err
	}
	return c, c.awaitIdle(ctx)
}

// load stores the products from one ordinal up to another, one by one, as clients
// would.
func (c *catalogue) load(ctx context.Context, from, to int) error {
	return load(ctx, c.items, c.set, from, to)
}

func load(ctx context.Context, into *store.Container, set *dataset.Set, from, to int) error {
	var next atomic.Int64
	next.Store(int64(from))
	g, ctx := errgroup.WithContext(ctx)
	for range loaders {
		g.Go(func() error {
			for ctx.Err() == nil {
				p := int(next.Add(1)) - 1
				if p >= to {
					return nil
				}
				if _, err := into.Create(ctx, set.AppendProduct(nil, p)); err != nil {
					return fmt.Errorf("load product %d: %w", p, err)
				}
			}
			return context.Cause(ctx)
		})
	}
	return g.Wait()
}

// awaitIdle waits until the pipelines have nothing left to do.
func (s *session) awaitIdle(ctx context.Context) error {
	for {
		status, err := s.monitor.Read(ctx)
		if err != nil {
			return err
		}
		if idle(status) {
			return nil
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func idle(st *status.Status) bool {
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		if p.State != status.Idle || !p.Lag.None() {
			return false
		}
	}
	return true
}

// rename gives a category or tag the name it has in s, and returns when that was
// acknowledged.
func (c *catalogue) rename(ctx context.Context, s dataset.Source) error {
	return c.renameUnder(ctx, s, "")
}

// renameUnder is rename with an idempotency key, if it is not empty.
func (c *catalogue) renameUnder(ctx context.Context, s dataset.Source, key string) error {
	op := document.Op{Kind: "set", Path: "/name", Value: fmt.Appendf(nil, "%q", s.Name)}
	return c.patch(ctx, s, op, store.WriteOptions{IdempotencyKey: key})
}

// touch changes a field that nobody copies.
func (c *catalogue) touch(ctx context.Context, s dataset.Source, rank int) error {
	return c.patch(ctx, s, document.Op{Kind: "set", Path: "/rank", Value: fmt.Append(nil, rank)})
}

func (c *catalogue) patch(ctx context.Context, s dataset.Source, op document.Op, opts ...store.WriteOptions) error {
	key, err := feed.NewPartitionKey(s.Type)
	if err != nil {
		return err
	}
	if _, err = c.sources.Patch(ctx, key, s.ID, []document.Op{op}, opts...); err != nil {
		return fmt.Errorf("change %s %s: %w", s.Type, s.ID, err)
	}
	return nil
}

// replace writes a product again as it was.
func (c *catalogue) replace(ctx context.Context, p int) error {
	_, err := c.items.Upsert(ctx, c.set.AppendProduct(nil, p))
	return err
}

// lastCopies returns the copies that a fan-out reaches last, one for each
// physical partition that has any: it goes through the items in their order.
func (c *catalogue) lastCopies(products []int) ([]store.ItemRef, error) {
	type last struct {
		key []byte
		ref store.ItemRef
	}
	found := map[feed.Partition]last{}
	for _, p := range products {
		category := c.set.Category(c.set.CategoryOf(p), 0)
		key, err := feed.NewPartitionKey(category.ID)
		if err != nil {
			return nil, fmt.Errorf("product %d: %w", p, err)
		}
		ref := store.ItemRef{Key: key, ID: c.set.ProductID(p)}
		partition, order := c.items.PartitionFor(key), engine.ItemKey(key, ref.ID)
		if at, ok := found[partition]; !ok || bytes.Compare(order, at.key) > 0 {
			found[partition] = last{order, ref}
		}
	}
	refs := make([]store.ItemRef, 0, len(found))
	for _, l := range found {
		refs = append(refs, l.ref)
	}
	return refs, nil
}

// fewPause is the time between two reads of one of few copies: they are measured too long by as much.
const fewPause = 50 * time.Microsecond

// await waits until all of refs carry a name. A few copies are there almost at once, so they
// are read again every fewPause; many copies are read again every millisecond.
func (c *catalogue) await(ctx context.Context, refs []store.ItemRef, name string, few bool) (err error) {
	pause := func() error { return wait(ctx, time.Millisecond) }
	if few {
		alarm, openErr := crowd.NewAlarm()
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, alarm.Close()) }()
		pause = func() error { return errors.Join(alarm.Wait(fewPause), ctx.Err()) }
	}
	want := fmt.Appendf(nil, "%q", name)
	for _, ref := range refs {
		for {
			item, err := c.items.Read(ctx, ref.Key, ref.ID)
			if err != nil {
				return fmt.Errorf("read %s: %w", ref, err)
			}
			if bytes.Contains(item.Body, want) {
				break
			}
			if err := pause(); err != nil {
				return err
			}
		}
	}
	return nil
}

// copies reads every product that should have a name and counts those that have it.
func (c *catalogue) copies(ctx context.Context, s dataset.Source, products []int) (int, error) {
	want := fmt.Appendf(nil, "%q", s.Name)
	refs := make([]store.ItemRef, len(products))
	for i, p := range products {
		key, err := feed.NewPartitionKey(c.set.Category(c.set.CategoryOf(p), 0).ID)
		if err != nil {
			return 0, err
		}
		refs[i] = store.ItemRef{Key: key, ID: c.set.ProductID(p)}
	}
	n := 0
	for part := range slices.Chunk(refs, 2000) {
		items, err := c.items.ReadMany(ctx, part, true)
		if err != nil {
			return 0, err
		}
		for i := range items {
			if bytes.Contains(items[i].Body, want) {
				n++
			}
		}
	}
	return n, nil
}
