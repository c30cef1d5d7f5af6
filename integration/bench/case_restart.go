//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

// restart is the case of millrace up that starts again on a full store.
func (b *bench) restart(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	dir, err := b.scratch("restart")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	t := b.table("restart", "Restart",
		"From the start of the process to /readyz, and to the first read that is answered, with "+measure.Number(float64(set.Products()))+
			" products stored. Before each kill -9, writers replace products for the time that other cases measure.")
	r := &restarts{b: b, set: set, dir: dir, port: port, table: t}
	if err := r.load(ctx); err != nil {
		return errors.Join(err, r.end())
	}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		if err := r.round(ctx); err != nil {
			return errors.Join(err, r.end())
		}
	}
	t.AtMost("ready after a clean stop", t.Series(afterStop, "ready s"), 2, "s", b.cfg.judged())
	t.AtMost("ready after kill -9", t.Series(afterKill, "ready s"), 10, "s", b.cfg.judged())
	return r.end()
}

const (
	afterStop = "after a clean stop"
	afterKill = "after kill -9 under load"
)

// restarts is a store whose process is started again and again.
type restarts struct {
	b     *bench
	set   *dataset.Set
	dir   string
	port  int
	table *measure.Table
	now   *child     // the process that runs; nil before the first
	cat   *catalogue // what load has stored, by a session that outlives the processes
}

// load starts up for the first time and stores the products.
func (r *restarts) load(ctx context.Context) (err error) {
	if r.now, err = r.b.up(ctx, r.dir, r.port); err != nil {
		return err
	}
	s, err := dial(ctx, natsURL(r.port))
	if err != nil {
		return err
	}
	r.b.say("  loading %s products", measure.Number(float64(r.set.Products())))
	r.cat, err = loadCatalogue(ctx, s, r.set, fmt.Sprintf(containers, r.b.cfg.partitions))
	return err
}

// round restarts after a clean stop, then after kill -9.
func (r *restarts) round(ctx context.Context) error {
	if err := r.now.stop(); err != nil {
		return err
	}
	if err := r.measureStart(ctx, afterStop); err != nil {
		return err
	}
	writers := crowd.Crowd{Writers: r.b.cfg.foreground, Write: func(ctx context.Context, writer, n int) error {
		return r.cat.replace(ctx, (writer*7919+n)%r.set.Products())
	}}
	if _, err := r.b.drive(ctx, writers, 0, r.b.cfg.writeTime); err != nil {
		return err
	}
	if err := r.now.kill(); err != nil {
		return err
	}
	return r.measureStart(ctx, afterKill)
}

// measureStart starts the process and measures until it serves.
func (r *restarts) measureStart(ctx context.Context, row string) (err error) {
	start := time.Now()
	if r.now, err = r.b.up(ctx, r.dir, r.port); err != nil {
		return err
	}
	ready := time.Since(start)
	key, err := feed.NewPartitionKey(r.set.Category(r.set.CategoryOf(0), 0).ID)
	if err != nil {
		return fmt.Errorf("first read: %w", err)
	}
	// The session's connection finds the server again by itself, which takes time
	// of its own; a new one does not wait.
	s, err := dial(ctx, natsURL(r.port))
	if err != nil {
		return err
	}
	defer s.close()
	items, err := s.client.Container(ctx, database, "product") // a part of the time: a client begins so
	if err != nil {
		return err
	}
	if _, err := items.Read(ctx, key, r.set.ProductID(0)); err != nil {
		return fmt.Errorf("first read: %w", err)
	}
	read := time.Since(start)
	r.table.Row(row).Add("ready s", ready.Seconds())
	r.table.Row(row).Add("first read s", read.Seconds())
	r.b.say("  %s: ready in %.2f s", row, ready.Seconds())
	return r.cat.awaitIdle(ctx)
}

// end closes the session and stops the process.
func (r *restarts) end() error {
	if r.cat != nil {
		r.cat.close()
	}
	if r.now == nil {
		return nil
	}
	return r.now.stop()
}
