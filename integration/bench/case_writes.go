//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

// writes is the case of many writers that create items of 1 KiB.
func (b *bench) writes(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	t := b.table("writes", "Store writes", fmt.Sprintf(
		"%d writers create items of 1 KiB, each after its last one was acknowledged; every system begins each round empty. "+
			"The bare loop appends one JetStream message for all writes that wait and applies it to Badger; it parses nothing and checks nothing. "+
			"PostgreSQL inserts a row of jsonb with a primary key, one a transaction.", b.cfg.writers))
	all := newItems(set)
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		// The two take turns in going first. quiet waits for idle processors, but cannot see a
		// disk that is still at work for the system before: without turns the second one would
		// always pay for that.
		pair := []func(context.Context, *measure.Table, *items, int) error{b.writesMillrace, b.writesBare}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, n := range []int{1, 4} {
			for _, system := range pair {
				if err := system(ctx, t, all, n); err != nil {
					return err
				}
			}
		}
		if b.pg != nil {
			if err := b.writesPostgres(ctx, t, all); err != nil {
				return err
			}
		}
	}
	judged := b.cfg.writers == 64
	for _, n := range []int{1, 4} {
		t.Beside(partitioned(ofMillrace, n), partitioned(ofBare, n), "writes/s", "times bare loop")
		t.Beside(partitioned(ofMillrace, n), ofJSONB, "writes/s", "times jsonb")
		t.AtLeast(partitioned("store, beside the bare loop", n), t.Ratio(partitioned(ofMillrace, n), partitioned(ofBare, n), "writes/s"), bareBar, "times", judged)
		t.AtMost(partitioned("p99, beside the bare loop's", n), t.Ratio(partitioned(ofMillrace, n), partitioned(ofBare, n), "p99 ms"), bareP99Bar, "times", judged)
	}
	return nil
}

// The bars beside the bare loop: of the rate, and of the time within which 99 of 100 writes were answered.
const (
	bareBar    = 0.9
	bareP99Bar = 1.2
)

// partitioned names a row.
func partitioned(what string, n int) string {
	if n == 1 {
		return what + ", 1 partition"
	}
	return fmt.Sprintf("%s, %d partitions", what, n)
}

// items makes new items at no cost worth measuring: products of many categories
// that get a new id each.
type items struct {
	bodies     [][]byte
	categories []string
}

// idAt is where a product's JSON has its id, which is 36 bytes long.
const (
	idAt  = len(`{"id":"`)
	idLen = 36
)

func newItems(set *dataset.Set) *items {
	all := &items{}
	for p := range min(set.Products(), 10_000) {
		all.bodies = append(all.bodies, set.AppendProduct(nil, p))
		all.categories = append(all.categories, set.Category(set.CategoryOf(p), 0).ID)
	}
	return all
}

// next returns the nth item of a writer: its category and its JSON, which is the
// caller's.
func (all *items) next(writer, n int) (category string, body []byte) {
	// Writers begin far apart.
	i := (writer*7919 + n) % len(all.bodies)
	body = bytes.Clone(all.bodies[i])
	copy(body[idAt:], fmt.Sprintf("%08d-%027d", writer, n))
	return all.categories[i], body
}

// writesMillrace measures a store with n partitions and no pipelines.
func (b *bench) writesMillrace(ctx context.Context, t *measure.Table, all *items, n int) error {
	dir, err := b.scratch("writes")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	m, err := openMillrace(ctx, dir)
	if err != nil {
		return err
	}
	into, err := m.container(ctx, store.ContainerSpec{PartitionKey: []string{"/categoryId"}, Partitions: n})
	if err == nil {
		err = b.profiled("writes "+partitioned("", n), func() error {
			return b.writesBy(ctx, t, partitioned(ofMillrace, n), func(ctx context.Context, writer, i int) error {
				_, body := all.next(writer, i)
				_, err := into.Create(ctx, body)
				return err
			})
		})
	}
	return errors.Join(err, m.close())
}

// container makes a container named item and waits until it can be written.
func (m *millrace) container(ctx context.Context, spec store.ContainerSpec) (*store.Container, error) {
	if _, err := m.catalog.Create(ctx, database, "item", spec); err != nil {
		return nil, err
	}
	c, err := m.client.Container(ctx, database, "item")
	if err != nil {
		return nil, err
	}
	for _, p := range c.Partitions() {
		if _, err := c.Status(ctx, p); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// writesBare measures the bare loop with n partitions.
func (b *bench) writesBare(ctx context.Context, t *measure.Table, all *items, n int) error {
	dir, err := b.scratch("bare")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	loop, err := openBare(ctx, dir, n)
	if err != nil {
		return err
	}
	answers := make([]chan error, b.cfg.writers)
	for i := range answers {
		answers[i] = make(chan error, 1)
	}
	err = b.writesBy(ctx, t, partitioned(ofBare, n), func(_ context.Context, writer, i int) error {
		category, body := all.next(writer, i)
		h := fnv.New32a()
		h.Write([]byte(category))
		key := append([]byte(category+"/"), body[idAt:idAt+idLen]...)
		return loop.write(int(h.Sum32())%n, key, body, answers[writer])
	})
	return errors.Join(err, loop.close())
}

// writesPostgres measures inserts, each in a transaction of its own.
func (b *bench) writesPostgres(ctx context.Context, t *measure.Table, all *items) error {
	conns, err := b.openItems(ctx, b.cfg.writers)
	if err != nil {
		return err
	}
	err = b.writesBy(ctx, t, ofJSONB, func(ctx context.Context, writer, i int) error {
		category, body := all.next(writer, i)
		_, err := conns[writer].Exec(ctx, "insert into item values ($1, $2, $3)", category, string(body[idAt:idAt+idLen]), body)
		return err
	})
	return errors.Join(err, b.closeItems(ctx, conns))
}

// openItems makes an empty table of items and connections to it.
func (b *bench) openItems(ctx context.Context, n int) ([]*pgx.Conn, error) {
	conns := make([]*pgx.Conn, 0, n)
	for range n {
		conn, err := b.pg.connect(ctx, "items")
		if err != nil {
			return nil, errors.Join(err, b.closeItems(ctx, conns))
		}
		conns = append(conns, conn)
	}
	_, err := conns[0].Exec(ctx, "drop schema if exists items cascade; create schema items; "+
		"create table item (category_id text not null, id text not null, item jsonb not null, primary key (category_id, id)); checkpoint")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: make a table: %w", err), b.closeItems(ctx, conns))
	}
	return conns, nil
}

// closeItems drops the table.
func (b *bench) closeItems(ctx context.Context, conns []*pgx.Conn) (err error) {
	for i, conn := range conns {
		if i == 0 {
			_, err = conn.Exec(context.WithoutCancel(ctx), "drop schema if exists items cascade; checkpoint")
		}
		closeConn(ctx, conn)
	}
	return err
}

// writesBy measures the writers of one system and adds its row.
func (b *bench) writesBy(ctx context.Context, t *measure.Table, name string, write func(context.Context, int, int) error) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	d, err := b.drive(ctx, crowd.Crowd{Writers: b.cfg.writers, Write: write}, b.cfg.warmup, b.cfg.writeTime)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	d.AddTo(t.Row(name))
	t.Others = append(t.Others, d.Others)
	b.say("  %s: %s writes/s, p50 %.3f ms, p99 %.3f ms", name, measure.Number(d.PerSecond),
		measure.Milliseconds(d.Latencies.Quantile(0.5)), measure.Milliseconds(d.Latencies.Quantile(0.99)))
	return nil
}
