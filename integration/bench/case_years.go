//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

const (
	fullStill = time.Minute // rest that the bars are about

	rewrittenItems  = 1000 // of the small store
	rewrittenTimes  = 101
	oldPartitions   = 4 // of the large one
	demoProducts    = 2000
	demoCustomers   = 3000
	diskBar         = 20.0    // MB
	openSmallBar    = 1.0     // s
	openLargeBar    = 100_000 // items/s
	idleBar         = 3.0     // % of a processor
	weekKept        = "168h"  // the default of changeFeed.retention
	nothingKept     = "0s"
	everythingKept  = "forever"
	snapshotsLoaded = "millrace_snapshots_loaded_total"
)

const oldContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], partitions: %d, changeFeed: {retention: %s}}
`

// years is the case of what a store costs that is old: nothing of it may follow from what once happened.
func (b *bench) years(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	y := &years{b: b, set: set, items: rewrittenItems, times: rewrittenTimes}
	if !b.cfg.judged() {
		y.items, y.times = rewrittenItems/4, rewrittenTimes/10
	}
	t := b.table("years", "A store that is old", fmt.Sprintf(
		"millrace up, with items of 1 KiB. The directory is log, engine and snapshots together, by the blocks that are allocated to them, %s after the last write; "+
			"changeFeed.retention is %s there, and the default elsewhere. An engine is removed while the process is stopped: the time counts from its start until "+
			"every partition has answered and an item of each was read, from a snapshot and the log behind it, which is all in the snapshot of the small store, and a fifth of the items of "+
			"the large one, in %d partitions. The shop is what millrace demo leaves, under its seven pipelines; it rests when the continuous verification has gone through "+
			"all of them. CPU is the process's: of the opening, or while it is left alone. Peak memory is VmHWM, mapped files included.",
		b.cfg.still, nothingKept, oldPartitions))
	t.Columns = []string{"directory MB", "s", "items/s", "CPU s", "CPU %", "peak MiB"}
	y.table = t
	var errs []error
	for _, part := range []func(context.Context) error{y.disk, y.openSmall, y.openLarge, y.idle} {
		errs = append(errs, part(ctx))
	}
	atRest := b.cfg.judged() && b.cfg.still >= fullStill
	t.AtMost("directory", t.Series(y.rewritten(), "directory MB"), diskBar, "MB", atRest)
	t.AtMost("open without an engine, small", t.Series(y.withoutEngine(y.items), "s"), openSmallBar, "s", b.cfg.judged())
	t.AtLeast("open without an engine, large", t.Series(y.withoutEngine(set.Products()), "items/s"), openLargeBar, "items/s", b.cfg.judged())
	t.AtMost("up at rest", t.Series(shopAtRest, "CPU %"), idleBar, "% of a processor", atRest)
	return errors.Join(errs...)
}

const (
	shopStarts = "the demo's shop, from the start on"
	shopAtRest = "the demo's shop, at rest"
)

// years is one run of the case.
type years struct {
	b            *bench
	set          *dataset.Set
	table        *measure.Table
	items, times int // of the small store
}

func (y *years) rewritten() string {
	return fmt.Sprintf("%s items written %d times, left alone", measure.Number(float64(y.items)), y.times)
}

func (y *years) withoutEngine(items int) string {
	return measure.Number(float64(items)) + " items, opened without an engine"
}

// rest lets a store take its snapshots in the time that it is left alone: 15 s of a minute, which is
// the default.
func (b *bench) rest() string { return "store.snapshots.rest=" + (b.cfg.still / 4).String() }

// disk measures the directory of a small store whose items were written often.
func (y *years) disk(ctx context.Context) error {
	for range y.b.cfg.rounds {
		dir, err := y.b.scratch("years")
		if err != nil {
			return err
		}
		err = y.diskOf(ctx, dir)
		y.b.remove(dir)
		if err != nil {
			return err
		}
	}
	return nil
}

func (y *years) diskOf(ctx context.Context, dir string) (err error) {
	m, err := y.b.serve(ctx, dir, "--set", y.b.rest())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	if err := y.rewrite(ctx, m, nothingKept); err != nil {
		return err
	}
	before := measure.CPUOf(m.pid())
	if err := wait(ctx, y.b.cfg.still); err != nil {
		return err
	}
	used := measure.CPUOf(m.pid()) - before
	sum, err := measure.DiskOf(dir)
	if err != nil {
		return err
	}
	r := y.table.Row(y.rewritten())
	r.Add("directory MB", float64(sum)/1e6)
	r.Add("CPU s", used.Seconds())
	y.b.say("  %s: %.1f MB of directory", r.Name, float64(sum)/1e6)
	return addPeak(r, m.child)
}

func addPeak(r *measure.Row, c *child) error {
	peak, err := measure.PeakOf(c.pid())
	if err == nil {
		r.Add("peak MiB", peak)
	}
	return err
}

// rewrite stores the small store's items and writes each of them again and again.
func (y *years) rewrite(ctx context.Context, m *served, retention string) error {
	into, err := m.products(ctx, 1, retention)
	for n := 0; err == nil && n < y.times; n++ {
		err = y.b.upsert(ctx, into, y.set, upTo(y.items))
	}
	return err
}

// products declares the container of the products, or what is to be kept of its log.
func (s *session) products(ctx context.Context, partitions int, retention string) (*store.Container, error) {
	if err := s.apply(ctx, fmt.Sprintf(oldContainer, partitions, retention)); err != nil {
		return nil, err
	}
	return s.client.Container(ctx, database, "product")
}

func upTo(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for p := 0; p < n && yield(p); p++ {
		}
	}
}

// upsert writes products, by as many writers as there are in writes.
func (b *bench) upsert(ctx context.Context, into *store.Container, set *dataset.Set, products iter.Seq[int]) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(b.cfg.writers)
	for p := range products {
		g.Go(func() error {
			if _, err := into.Upsert(ctx, set.AppendProduct(nil, p)); err != nil {
				return fmt.Errorf("write product %d: %w", p, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// openSmall measures how a small store whose items were written often opens without its engine.
func (y *years) openSmall(ctx context.Context) error {
	dir, err := y.b.scratch("years")
	if err != nil {
		return err
	}
	defer y.b.remove(dir)
	m, err := y.b.serve(ctx, dir, "--set", y.b.rest())
	if err != nil {
		return err
	}
	if err = y.rewrite(ctx, m, weekKept); err == nil {
		// A log as short as that of a small run causes none by itself.
		_, err = m.haveSnapshot(ctx, "product")
	}
	if err := errors.Join(err, m.end()); err != nil {
		return err
	}
	return y.openings(ctx, dir, y.items, 1)
}

// openLarge measures how a store with all products opens without its engine.
func (y *years) openLarge(ctx context.Context) error {
	dir, err := y.b.oldStore(ctx, y.set)
	if err != nil {
		return err
	}
	return y.openings(ctx, dir, y.set.Products(), oldPartitions)
}

// openings starts millrace up in dir, round after round, each time without its engine.
func (y *years) openings(ctx context.Context, dir string, items, partitions int) error {
	r := y.table.Row(y.withoutEngine(items))
	for range y.b.cfg.rounds {
		if err := os.RemoveAll(filepath.Join(dir, "engine")); err != nil {
			return fmt.Errorf("remove the engine: %w", err)
		}
		if err := y.b.quiet(ctx); err != nil {
			return err
		}
		watch, start := y.b.watch(), time.Now()
		m, err := y.b.serve(ctx, dir)
		if err != nil {
			return err
		}
		err = m.readOfEach(ctx, y.set)
		took, used := time.Since(start), measure.CPUOf(m.pid())
		y.table.Others = append(y.table.Others, watch.Others())
		loaded, failed := m.counter(ctx, snapshotsLoaded)
		if err = errors.Join(err, failed, addPeak(r, m.child), m.end()); err != nil {
			return err
		}
		if int(loaded) < partitions {
			return fmt.Errorf("%s: %.0f snapshots were loaded for %d partitions", r.Name, loaded, partitions)
		}
		r.Add("s", took.Seconds())
		r.Add("items/s", float64(items)/took.Seconds())
		r.Add("CPU s", used.Seconds())
		y.b.say("  %s in %.2f s", r.Name, took.Seconds())
	}
	return nil
}

// readOfEach reads a product of each partition.
func (s *session) readOfEach(ctx context.Context, set *dataset.Set) error {
	c, err := s.client.Container(ctx, database, "product")
	if err != nil {
		return err
	}
	seen := map[feed.Partition]bool{}
	for p := 0; p < set.Products() && len(seen) < len(c.Partitions()); p++ {
		key, err := feed.NewPartitionKey(set.Category(set.CategoryOf(p), 0).ID)
		if err != nil {
			return err
		}
		at := c.PartitionFor(key)
		if seen[at] {
			continue
		}
		seen[at] = true
		if _, err := c.Read(ctx, key, set.ProductID(p)); err != nil {
			return fmt.Errorf("read product %d: %w", p, err)
		}
	}
	return nil
}

// oldStore returns the directory of a store with all products, four fifths of them in snapshots and the rest in the
// logs behind them, which no process uses. The cases that follow use it too.
func (b *bench) oldStore(ctx context.Context, set *dataset.Set) (dir string, err error) {
	if b.old != "" {
		return b.old, nil
	}
	if dir, err = b.scratch("years"); err != nil {
		return "", err
	}
	if err := b.loadOld(ctx, dir, set); err != nil {
		b.remove(dir)
		return "", err
	}
	b.old = dir
	return dir, nil
}

func (b *bench) loadOld(ctx context.Context, dir string, set *dataset.Set) (err error) {
	m, err := b.serve(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	b.say("  loading %s products", measure.Number(float64(set.Products())))
	into, err := m.products(ctx, oldPartitions, weekKept)
	if err != nil {
		return err
	}
	most := set.Products() * 4 / 5
	if err := load(ctx, into, set, 0, most); err != nil {
		return err
	}
	if _, err := m.haveSnapshot(ctx, "product"); err != nil {
		return err
	}
	return load(ctx, into, set, most, set.Products())
}

// idle measures millrace up while nothing happens.
func (y *years) idle(ctx context.Context) (err error) {
	dir, err := y.b.scratch("demo")
	if err != nil {
		return err
	}
	defer y.b.remove(dir)
	small := y.set.Products() / 10
	y.b.say("  millrace demo")
	if _, err := y.b.verb(ctx, "demo", "--dir", dir, "--seed", strconv.FormatUint(y.b.cfg.seed, 10),
		"--products", strconv.Itoa(min(demoProducts, small)), "--customers", strconv.Itoa(min(demoCustomers, small))); err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	gateway, err := freePort(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := y.b.up(ctx, dir, port, "--gateway", fmt.Sprintf("127.0.0.1:%d", gateway))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := y.leaveAlone(ctx, shopStarts, c, began, 0); err != nil {
		return err
	}
	if err := y.b.awaitVerified(ctx, port, began); err != nil {
		return err
	}
	for range y.b.cfg.rounds {
		if err := y.leaveAlone(ctx, shopAtRest, c, time.Now(), measure.CPUOf(c.pid())); err != nil {
			return err
		}
	}
	return nil
}

// leaveAlone adds what a process uses while nobody asks it for anything, from a moment on at which it had used so much.
func (y *years) leaveAlone(ctx context.Context, row string, c *child, from time.Time, before time.Duration) error {
	watch := y.b.watch()
	if err := wait(ctx, y.b.cfg.still-time.Since(from)); err != nil {
		return err
	}
	used, took := measure.CPUOf(c.pid())-before, time.Since(from)
	y.table.Others = append(y.table.Others, watch.Others())
	r := y.table.Row(row)
	r.Add("CPU s", used.Seconds())
	r.Add("CPU %", 100*float64(used)/float64(took))
	y.b.say("  %s: %.2f %% of a processor", row, 100*float64(used)/float64(took))
	return addPeak(r, c)
}

// awaitVerified waits until the continuous verification has gone through all pipelines, in its small share of the
// time, and gives up after some multiple of what is waited for other things to come to rest. Its session is gone when
// it returns.
func (b *bench) awaitVerified(ctx context.Context, port int, since time.Time) error {
	s, err := dial(ctx, natsURL(port))
	if err != nil {
		return err
	}
	defer s.close()
	const patience = 4
	for deadline := time.Now().Add(patience * b.cfg.rest); time.Now().Before(deadline); {
		st, err := s.monitor.Read(ctx)
		if err != nil {
			return err
		}
		verified := 0
		for i := range st.Pipelines {
			if v := st.Pipelines[i].Verified; v != nil && v.At.After(since) {
				verified++
			}
		}
		if verified == len(st.Pipelines) {
			b.say("  all was verified %.0f s after the start", time.Since(since).Seconds())
			return nil
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
	if b.cfg.rest > 0 {
		b.say("  the verification is still at work after %s; going on", patience*b.cfg.rest)
	}
	return nil
}
