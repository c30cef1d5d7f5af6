//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	// idleFor is how long a process rests before its memory is read.
	idleFor = 10 * time.Second
	// memoryPoll is the time between two readings of a process at work.
	memoryPoll = 50 * time.Millisecond
)

// memory is the case of the memory that processes occupy.
func (b *bench) memory(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	t := b.table("memory", "Memory",
		"From /proc/PID/smaps_rollup, in MiB. Anonymous memory is the process's own; mapped memory is pages of files, mostly the engine's "+
			"tables, which the kernel drops when it needs the room. The worker and the store are processes of their own; the worker's "+
			"figure is the highest seen during a fan-out over a tenth of the products.")
	if err := b.memoryOfUp(ctx, t); err != nil {
		return err
	}
	if err := b.memoryOfRoles(ctx, t, set); err != nil {
		return err
	}
	t.AtMost("up, idle", t.Series(upIdle, "RSS MiB"), 100, "MiB", true)
	t.AtMost("a worker in the middle of a fan-out", t.Series(workerBusy, "RSS MiB"), 150, "MiB", b.cfg.judged())
	return nil
}

const (
	upIdle     = "up, idle"
	workerBusy = "worker, in a fan-out"
)

func addMemory(r *measure.Row, m measure.Memory) {
	r.Add("RSS MiB", m.RSS)
	r.Add("anonymous MiB", m.Anonymous)
	r.Add("mapped MiB", m.Mapped)
}

// memoryOfUp measures up with containers and pipelines and nothing in them.
func (b *bench) memoryOfUp(ctx context.Context, t *measure.Table) error {
	for range b.cfg.rounds {
		if err := b.memoryOfUpOnce(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) memoryOfUpOnce(ctx context.Context, t *measure.Table) error {
	return b.withUp(ctx, "up", func(c *child, s session) error {
		if err := s.apply(ctx, fmt.Sprintf(containers, b.cfg.partitions)); err != nil {
			return err
		}
		if err := s.apply(ctx, cascades); err != nil {
			return err
		}
		if err := wait(ctx, idleFor); err != nil {
			return err
		}
		m, err := c.memory()
		if err != nil {
			return err
		}
		addMemory(t.Row(upIdle), m)
		b.say("  %s: %.0f MiB (%.0f anonymous)", upIdle, m.RSS, m.Anonymous)
		return nil
	})
}

// withUp calls f with a process that has started in an empty directory, which is named after what it is for, and
// stops the process.
func (b *bench) withUp(ctx context.Context, name string, f func(*child, session) error) (err error) {
	dir, err := b.scratch(name)
	if err != nil {
		return err
	}
	defer b.remove(dir)
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	c, err := b.up(ctx, dir, port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	s, err := dial(ctx, natsURL(port))
	if err != nil {
		return err
	}
	defer s.close()
	return f(c, s)
}

func natsURL(port int) string { return fmt.Sprintf("nats://127.0.0.1:%d", port) }

// memoryOfRoles measures a store that holds all products, and a worker beside it
// in the middle of a fan-out, over a NATS server in this process.
func (b *bench) memoryOfRoles(ctx context.Context, t *measure.Table, set *dataset.Set) (err error) {
	dir, err := b.scratch("roles")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	server, err := natsd.Open(ctx, natsd.Config{Dir: filepath.Join(dir, "nats"), Port: natsd.PortRandom, User: user, Password: password, Log: quietLog()})
	if err != nil {
		return err
	}
	defer server.Close()
	storing, err := b.startChild(ctx, "store", "--server", server.ClientURL(), "--dir", filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storing.stop()) }()
	if err := storing.waitReady(ctx); err != nil {
		return err
	}
	working, err := b.startChild(ctx, "worker", "--server", server.ClientURL(), "--dir", filepath.Join(dir, "worker"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, working.stop()) }()
	if err := working.waitReady(ctx); err != nil {
		return err
	}
	s, err := dial(ctx, server.ClientURL())
	if err != nil {
		return err
	}
	defer s.close()
	b.say("  loading %s products", measure.Number(float64(set.Products())))
	cat, err := loadCatalogue(ctx, s, set, fmt.Sprintf(containers, b.cfg.partitions))
	if err != nil {
		return err
	}
	if err := wait(ctx, idleFor); err != nil {
		return err
	}
	held := "store with " + measure.Number(float64(set.Products())) + " products"
	for _, at := range []struct {
		row string
		c   *child
	}{{held + ", idle after loading", storing}, {"worker, idle after loading", working}} {
		m, err := at.c.memory()
		if err != nil {
			return err
		}
		addMemory(t.Row(at.row), m)
		b.say("  %s: %.0f MiB (%.0f anonymous)", at.row, m.RSS, m.Anonymous)
	}
	w := &world{b: b, set: set, cat: cat}
	for range b.cfg.rounds {
		if err := w.memoryOfFanOut(ctx, t, held, storing, working); err != nil {
			return err
		}
	}
	return nil
}

// memoryOfFanOut renames the category that has a tenth of the products and reports the
// highest memory of each process meanwhile.
func (w *world) memoryOfFanOut(ctx context.Context, t *measure.Table, held string, storing, working *child) error {
	s, err := w.category(w.set.Sized(len(w.set.Sizes()) - 1))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.inMillrace(ctx, s)
		done <- err
	}()
	var highestStore, highestWorker measure.Memory
	for {
		for _, at := range []struct {
			c       *child
			highest *measure.Memory
		}{{storing, &highestStore}, {working, &highestWorker}} {
			m, err := at.c.memory()
			if err != nil {
				return errors.Join(err, <-done)
			}
			if m.RSS > at.highest.RSS {
				*at.highest = m
			}
		}
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			addMemory(t.Row(workerBusy), highestWorker)
			addMemory(t.Row(held+", in a fan-out"), highestStore)
			w.b.say("  %s: %.0f MiB (%.0f anonymous)", workerBusy, highestWorker.RSS, highestWorker.Anonymous)
			return nil
		case <-time.After(memoryPoll):
		}
	}
}
