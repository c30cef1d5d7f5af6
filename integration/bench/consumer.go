//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// consumer is the program that teams write by hand when they have no Millrace: it
// is told of a rename, reads the products of the category, and replaces each one
// by itself. It keeps no position and checks nothing.
type consumer struct {
	tables *tables
	listen *pgx.Conn
	write  *pgx.Conn
	done   chan int // the number of products, after each rename
	cancel context.CancelFunc
	group  *errgroup.Group
	ended  <-chan struct{}
}

// startConsumer turns the trigger that cascades off, and the one that tells on,
// and consumes until stop.
func startConsumer(ctx context.Context, t *tables) (*consumer, error) {
	c := &consumer{tables: t, done: make(chan int)}
	var err error
	if c.listen, err = t.pg.connect(ctx, t.schema); err != nil {
		return nil, err
	}
	if c.write, err = t.pg.connect(ctx, t.schema); err != nil {
		closeConn(ctx, c.listen)
		return nil, err
	}
	_, err = t.conn.Exec(ctx, "alter table source disable trigger cascade, enable trigger notify")
	if err == nil {
		_, err = c.listen.Exec(ctx, "listen renamed")
	}
	running, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	c.group, running = errgroup.WithContext(running)
	c.ended = running.Done()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: start the consumer: %w", err), c.stop(ctx))
	}
	c.group.Go(func() error { return c.run(running) })
	return c, nil
}

// run consumes until ctx ends.
func (c *consumer) run(ctx context.Context) error {
	for {
		n, err := c.listen.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		count, err := c.consume(ctx, n.Payload)
		if err != nil {
			return err
		}
		select {
		case c.done <- count:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// consume replaces the products of one category.
func (c *consumer) consume(ctx context.Context, category string) (int, error) {
	var name string
	if err := c.write.QueryRow(ctx, "select item ->> 'name' from source where id = $1", category).Scan(&name); err != nil {
		return 0, err
	}
	rows, err := c.write.Query(ctx, "select id, item from product where category_id = $1", category)
	if err != nil {
		return 0, err
	}
	type product struct {
		ID   string
		Item map[string]any
	}
	products, err := pgx.CollectRows(rows, pgx.RowToStructByPos[product])
	if err != nil {
		return 0, err
	}
	for _, p := range products {
		p.Item["categoryName"] = name
		data, err := json.Marshal(p.Item)
		if err != nil {
			return 0, err
		}
		if _, err := c.write.Exec(ctx, "update product set item = $3 where category_id = $1 and id = $2", category, p.ID, data); err != nil {
			return 0, err
		}
	}
	return len(products), nil
}

// await waits until one rename is consumed and returns the number of products.
func (c *consumer) await(ctx context.Context) (int, error) {
	select {
	case n := <-c.done:
		return n, nil
	case <-c.ended:
		return 0, fmt.Errorf("the consumer ended: %w", c.group.Wait())
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// stop ends the consumer and gives the work back to the trigger, even if ctx has
// ended.
func (c *consumer) stop(ctx context.Context) error {
	c.cancel()
	err := c.group.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	closeConn(ctx, c.listen)
	closeConn(ctx, c.write)
	_, alterErr := c.tables.conn.Exec(context.WithoutCancel(ctx), "alter table source enable trigger cascade, disable trigger notify")
	return errors.Join(err, alterErr)
}
