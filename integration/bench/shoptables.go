//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/bench/dataset"
)

// shopSchema keeps whole items in jsonb, as Millrace does, and the count by a
// trigger in the transaction of the order.
const shopSchema = `
create table customer (id text primary key, item jsonb not null);
create table sales_order (customer_id text not null, id text not null, item jsonb not null, primary key (customer_id, id));
create function count_order() returns trigger language plpgsql as $$
begin
	if tg_op <> 'INSERT' then
		update customer set item = jsonb_set(item, '{salesOrderCount}', to_jsonb(coalesce((item ->> 'salesOrderCount')::bigint, 0) - 1))
		where id = old.customer_id;
	end if;
	if tg_op <> 'DELETE' then
		update customer set item = jsonb_set(item, '{salesOrderCount}', to_jsonb(coalesce((item ->> 'salesOrderCount')::bigint, 0) + 1))
		where id = new.customer_id;
	end if;
	return null;
end $$;
create trigger count_insert after insert or delete on sales_order for each row execute function count_order();
create trigger count_update after update on sales_order for each row
	when (old.customer_id is distinct from new.customer_id) execute function count_order();`

// shopFlatten keeps the lines of orders flat besides.
const shopFlatten = `
create table order_item (order_id text not null, line bigint not null, sku text, name text, price numeric(12, 2), quantity bigint,
	primary key (order_id, line));
create function flatten_order() returns trigger language plpgsql as $$
begin
	if tg_op <> 'INSERT' then
		delete from order_item where order_id = old.id;
	end if;
	if tg_op <> 'DELETE' then
		insert into order_item select new.id, n - 1, d ->> 'sku', d ->> 'name', (d ->> 'price')::numeric, (d ->> 'quantity')::bigint
		from jsonb_array_elements(new.item -> 'details') with ordinality as e(d, n);
	end if;
	return null;
end $$;
create trigger flatten after insert or update or delete on sales_order for each row execute function flatten_order();`

// shopTables is the same shop in PostgreSQL, with a connection for each client.
type shopTables struct {
	pg       *postgres
	data     *dataset.Shop
	conns    []*pgx.Conn
	flat     bool
	ordinals atomic.Int64
}

const shopIn = "shop" // the schema

// openShopTables makes the tables, with the triggers, and stores the customers.
func (b *bench) openShopTables(ctx context.Context, clients int, flat bool) (*shopTables, error) {
	t := &shopTables{pg: b.pg, data: dataset.NewShop(b.cfg.seed, b.cfg.customers), flat: flat}
	for range clients {
		conn, err := b.pg.connect(ctx, shopIn)
		if err != nil {
			return nil, errors.Join(err, t.close(ctx))
		}
		t.conns = append(t.conns, conn)
	}
	if err := t.fill(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: load the shop: %w", err), t.close(ctx))
	}
	return t, nil
}

func (t *shopTables) fill(ctx context.Context) error {
	statements := "drop schema if exists " + shopIn + " cascade; create schema " + shopIn + ";" + shopSchema
	if t.flat {
		statements += shopFlatten
	}
	if _, err := t.conns[0].Exec(ctx, statements); err != nil {
		return err
	}
	_, err := t.conns[0].CopyFrom(ctx, pgx.Identifier{shopIn, "customer"}, []string{"id", "item"},
		pgx.CopyFromSlice(t.data.Customers(), func(c int) ([]any, error) {
			return []any{t.data.CustomerID(c), t.data.AppendCustomer(nil, c)}, nil
		}))
	if err != nil {
		return err
	}
	return t.settle(ctx)
}

// place stores a new order, one a transaction. A customer below 0 is drawn.
func (t *shopTables) place(ctx context.Context, client, customer int) error {
	ordinal := int(t.ordinals.Add(1)) - 1
	if customer < 0 {
		customer = t.data.Drawn(ordinal)
	}
	order := t.data.Order(customer, ordinal)
	_, err := t.conns[client].Exec(ctx, "insert into sales_order values ($1, $2, $3)", order.CustomerID, order.ID, order.AppendJSON(nil))
	return err
}

// verify counts orders, what the customers say, and the lines.
func (t *shopTables) verify(ctx context.Context) error {
	var orders, counted, lines int64
	statement := "select (select count(*) from sales_order), (select sum((item ->> 'salesOrderCount')::bigint) from customer)"
	if t.flat {
		statement += ", (select count(*) from order_item)"
	} else {
		statement += ", (select 0)"
	}
	if err := t.conns[0].QueryRow(ctx, statement).Scan(&orders, &counted, &lines); err != nil {
		return fmt.Errorf("postgres: count the orders: %w", err)
	}
	if orders != t.ordinals.Load() || counted != orders || t.flat && lines != orders*dataset.OrderLines {
		return fmt.Errorf("postgres: %d orders were placed, %d are there, %d are counted, with %d lines", t.ordinals.Load(), orders, counted, lines)
	}
	return nil
}

// settle does, while nobody measures, what PostgreSQL would do in the background.
func (t *shopTables) settle(ctx context.Context) error {
	for _, statement := range []string{"vacuum analyze customer", "vacuum analyze sales_order", "checkpoint"} {
		if _, err := t.conns[0].Exec(ctx, statement); err != nil {
			return fmt.Errorf("postgres: %s: %w", statement, err)
		}
	}
	return nil
}

// close drops the tables.
func (t *shopTables) close(ctx context.Context) (err error) {
	for i, conn := range t.conns {
		if i == 0 {
			_, err = conn.Exec(context.WithoutCancel(ctx), "drop schema if exists "+shopIn+" cascade; checkpoint")
		}
		closeConn(ctx, conn)
	}
	return err
}
