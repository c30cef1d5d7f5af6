//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

// The systems, as rows name them.
const (
	ofMillrace = "Millrace"
	ofBare     = "bare loop"
	ofJSONB    = "PostgreSQL jsonb"
	ofPlain    = "PostgreSQL plain columns"
	ofConsumer = "PostgreSQL jsonb, one by one"
)

// world is one data set, loaded into Millrace and its peers.
type world struct {
	b     *bench
	set   *dataset.Set
	dir   string
	node  *millrace
	cat   *catalogue
	jsonb *tables // nil without PostgreSQL
	plain *tables
	// revision grows with every rename, so that no name comes twice.
	revision int
}

// newWorld loads the data set, or that of one category, and reports how fast.
func (b *bench) newWorld(ctx context.Context, oneCategory bool) (*world, error) {
	set, err := b.dataset(oneCategory)
	if err != nil {
		return nil, err
	}
	w := &world{b: b, set: set}
	if w.dir, err = b.scratch("millrace"); err != nil {
		return nil, err
	}
	if err := w.load(ctx, oneCategory); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

// load loads Millrace first, then each peer alone.
func (w *world) load(ctx context.Context, oneCategory bool) (err error) {
	schema := "mixed"
	if oneCategory {
		schema = "one"
	}
	err = w.loaded(ctx, ofMillrace, func() (err error) {
		if w.node, err = openMillrace(ctx, w.dir); err != nil {
			return err
		}
		w.cat, err = loadCatalogue(ctx, w.node.session, w.set, fmt.Sprintf(containers, w.b.cfg.partitions))
		return err
	})
	if err != nil || w.b.pg == nil {
		return err
	}
	for _, peer := range []struct {
		name, kind string
		into       **tables
	}{{ofJSONB, jsonb, &w.jsonb}, {ofPlain, plain, &w.plain}} {
		err := w.loaded(ctx, peer.name, func() (err error) {
			*peer.into, err = loadTables(ctx, w.b.pg, peer.kind, schema+"_"+strings.Fields(peer.kind)[0], w.set)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loaded loads one system, tells how long that took, and lets it come to rest.
func (w *world) loaded(ctx context.Context, name string, load func() error) error {
	start := time.Now()
	if err := load(); err != nil {
		return err
	}
	took := time.Since(start)
	w.b.say("  loaded %s products into %s in %.1f s", measure.Number(float64(w.set.Products())), name, took.Seconds())
	return w.b.quiet(ctx)
}

// close stops Millrace and removes the data.
func (w *world) close(ctx context.Context) error {
	var errs []error
	if w.node != nil {
		errs = append(errs, w.node.close())
	}
	for _, t := range []*tables{w.jsonb, w.plain} {
		if t != nil {
			errs = append(errs, t.drop(ctx))
		}
	}
	w.b.remove(w.dir)
	return errors.Join(errs...)
}

// withMixed runs f on the data set whose categories have all sizes. It stays
// loaded for the cases that follow.
func (b *bench) withMixed(ctx context.Context, f func(w *world) error) error {
	if b.mixed == nil {
		w, err := b.newWorld(ctx, false)
		if err != nil {
			return err
		}
		b.mixed = w
	}
	return f(b.mixed)
}

// dropMixed makes room for another data set.
func (b *bench) dropMixed(ctx context.Context) error {
	if b.mixed == nil {
		return nil
	}
	w := b.mixed
	b.mixed = nil
	return w.close(ctx)
}

// subject is a category or tag that gets renamed.
type subject struct {
	what     string // as rows name it
	products []int  // those with a copy
	next     func(revision int) dataset.Source
	// lasts are the copies that Millrace makes last; see catalogue.lastCopies.
	lasts []store.ItemRef
}

// category returns category c as a subject.
func (w *world) category(c int) (subject, error) {
	return w.subject("category", slices.Collect(w.set.InCategory(c)),
		func(revision int) dataset.Source { return w.set.Category(c, revision) })
}

// hotTag returns the tag that a tenth of the products have.
func (w *world) hotTag() (subject, error) {
	var products []int
	for p := range w.set.Products() {
		if w.set.HasHotTag(p) {
			products = append(products, p)
		}
	}
	return w.subject("tag", products, func(revision int) dataset.Source { return w.set.Tag(0, revision) })
}

// subject makes what is needed to rename something and to see the end of it
// before any clock runs.
func (w *world) subject(what string, products []int, next func(revision int) dataset.Source) (s subject, err error) {
	what = fmt.Sprintf("%s in %s of %s", what, measure.Number(float64(len(products))), measure.Number(float64(w.set.Products())))
	s = subject{what: what, products: products, next: next}
	s.lasts, err = w.cat.lastCopies(products)
	return s, err
}

// rename returns the subject under a name that it never had.
func (w *world) rename(s subject) dataset.Source {
	w.revision++
	return s.next(w.revision)
}

// fewCopies is how many copies are made so soon that waiting for them is done
// without pause.
const fewCopies = 2000

// cost is what one rename took, of time and of processors.
type cost struct{ time, cpu time.Duration }

// timed runs f and returns what it took.
func (w *world) timed(f func() error) (c cost, err error) {
	watch, start := w.b.watch(), time.Now()
	err = f()
	c.time = time.Since(start)
	c.cpu = watch.Ours()
	return c, err
}

// inMillrace renames s and returns what it took until the last copy could be
// read. Then all of them are counted.
func (w *world) inMillrace(ctx context.Context, s subject) (c cost, err error) {
	source := w.rename(s)
	err = w.b.profiled("rename "+s.what, func() error {
		c, err = w.timed(func() error {
			if err := w.cat.rename(ctx, source); err != nil {
				return err
			}
			return w.cat.await(ctx, s.lasts, source.Name, len(s.products) <= fewCopies)
		})
		return err
	})
	if err != nil {
		return c, err
	}
	n, err := w.cat.copies(ctx, source, s.products)
	if err == nil && n != len(s.products) {
		err = fmt.Errorf("%s: %d of %d copies have the new name", s.what, n, len(s.products))
	}
	if err != nil {
		return c, err
	}
	return c, w.cat.awaitIdle(ctx)
}

// inPostgres does the same by triggers.
func (w *world) inPostgres(ctx context.Context, t *tables, s subject) (cost, error) {
	source := w.rename(s)
	c, err := w.timed(func() error { return t.rename(ctx, t.conn, source) })
	if err != nil {
		return c, err
	}
	n, err := t.copies(ctx, source)
	if err == nil && n != len(s.products) {
		err = fmt.Errorf("%s, %s: %d of %d copies have the new name", t.kind, s.what, n, len(s.products))
	}
	if err != nil {
		return c, err
	}
	return c, t.settle(ctx)
}

// inConsumer does the same by the consumer that replaces one by one. Its time
// counts to the last replacement.
func (w *world) inConsumer(ctx context.Context, s subject) (took cost, err error) {
	c, err := startConsumer(ctx, w.jsonb)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, c.stop(ctx), w.jsonb.settle(ctx)) }()
	return w.timed(func() error {
		if err := w.jsonb.rename(ctx, w.jsonb.conn, w.rename(s)); err != nil {
			return err
		}
		n, err := c.await(ctx)
		if err == nil && n != len(s.products) {
			err = fmt.Errorf("consumer, %s: %d of %d products", s.what, n, len(s.products))
		}
		return err
	})
}
