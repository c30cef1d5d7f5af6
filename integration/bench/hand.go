//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/bench/dataset"
)

const (
	handIn = "by_hand" // the schema
	// handRows is the number of rows of one transaction.
	handRows = 4000

	handSchema = "drop schema if exists " + handIn + " cascade; create schema " + handIn + `;
create table orders (id text primary key, customer_id text, order_date timestamptz);
create table order_items (order_id text, line bigint, sku text, name text, price numeric(12, 2), quantity bigint, primary key (order_id, line))`

	handOrder = "insert into orders values ($1, $2, $3)" + handOrderAgain
	handLine  = "insert into order_items values ($1, $2, $3, $4, $5::bigint / 100.0, $6)" + handLineAgain

	handOrders = "insert into orders select * from unnest($1::text[], $2::text[], $3::timestamptz[])" + handOrderAgain
	handLines  = "insert into order_items select o, l, s, n, c / 100.0, q from " +
		"unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]) as u(o, l, s, n, c, q)" + handLineAgain

	handOrderAgain = " on conflict (id) do update set customer_id = excluded.customer_id, order_date = excluded.order_date"
	handLineAgain  = " on conflict (order_id, line) do update set sku = excluded.sku, name = excluded.name, price = excluded.price, quantity = excluded.quantity"
)

// hand is a way to upsert rows that somebody writes by hand with pgx for just
// these tables.
type hand struct {
	name   string
	upsert func(ctx context.Context, tx pgx.Tx, orders []dataset.Order) error
}

var hands = []hand{{rowsByBatch, upsertBatch}, {rowsByArrays, upsertArrays}}

// byHand writes all orders, and their lines, in transactions of handRows rows.
func byHand(ctx context.Context, conn *pgx.Conn, h hand, orders []dataset.Order) error {
	for part := range slices.Chunk(orders, handRows/rowsOfOrder) {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return h.upsert(ctx, tx, part) })
		if err != nil {
			return fmt.Errorf("postgres: upsert: %w", err)
		}
	}
	return nil
}

func upsertBatch(ctx context.Context, tx pgx.Tx, orders []dataset.Order) error {
	b := &pgx.Batch{}
	for i := range orders {
		o := &orders[i]
		b.Queue(handOrder, o.ID, o.CustomerID, o.Ordered)
		for n := range o.Lines {
			l := &o.Lines[n]
			b.Queue(handLine, o.ID, n, l.SKU, l.Name, l.Cents, l.Quantity)
		}
	}
	return tx.SendBatch(ctx, b).Close()
}

func upsertArrays(ctx context.Context, tx pgx.Tx, orders []dataset.Order) error {
	var ids, customers, of, skus, names []string
	var numbers, cents, quantities []int64
	var dates []time.Time
	for i := range orders {
		o := &orders[i]
		ids, customers, dates = append(ids, o.ID), append(customers, o.CustomerID), append(dates, o.Ordered)
		for n := range o.Lines {
			l := &o.Lines[n]
			of, numbers, skus, names = append(of, o.ID), append(numbers, int64(n)), append(skus, l.SKU), append(names, l.Name)
			cents, quantities = append(cents, l.Cents), append(quantities, l.Quantity)
		}
	}
	if _, err := tx.Exec(ctx, handOrders, ids, customers, dates); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, handLines, of, numbers, skus, names, cents, quantities)
	return err
}
