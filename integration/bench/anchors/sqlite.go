//go:build linux

package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/millrace/millrace/integration/bench/dataset"
)

// sqlite is SQLite in this process, with one connection that one goroutine writes to; clients queue for it.
type sqlite struct {
	queue
	group int // the most orders of a transaction
	conn  driver.Conn
	begin, commit,
	insert driver.Stmt
}

const (
	// sqliteSettings are generous: a cache that holds all pages, and a checkpoint each 32 MiB of the log.
	sqliteSettings = `pragma page_size=4096; pragma journal_mode=wal; pragma synchronous=full; pragma cache_size=-1048576;
		pragma wal_autocheckpoint=8192; pragma temp_store=memory`

	// sqliteSchema counts by a trigger. The orders are not WITHOUT ROWID: rows of 600 bytes would stand in the inner nodes of the
	// tree too, which cost a third of the orders.
	sqliteSchema = `
create table customer (id text primary key, item text not null);
create table sales_order (customer_id text not null, id text not null, item text not null, primary key (customer_id, id));
create trigger count_insert after insert on sales_order begin
	update customer set item = json_set(item, '$.salesOrderCount', coalesce(json_extract(item, '$.salesOrderCount'), 0) + 1)
	where id = new.customer_id;
end`

	sqliteTotals = `select (select count(*) from sales_order), (select sum(json_extract(item, '$.salesOrderCount')) from customer)`
)

func (s *sqlite) open(ctx context.Context, dir string, shop *dataset.Shop) (err error) {
	if s.conn, err = (&sqlite3.SQLiteDriver{}).Open("file:" + filepath.Join(dir, "shop.db")); err != nil {
		return err
	}
	for _, statement := range []string{sqliteSettings, sqliteSchema, "begin"} {
		if err := s.exec(ctx, statement); err != nil {
			return err
		}
	}
	for c := range shop.Customers() {
		if err := s.exec(ctx, "insert into customer values (?, ?)", shop.CustomerID(c), string(shop.AppendCustomer(nil, c))); err != nil {
			return err
		}
	}
	if err := s.exec(ctx, "commit; pragma wal_checkpoint(truncate)"); err != nil {
		return err
	}
	for _, p := range []struct {
		text string
		into *driver.Stmt
	}{{"begin immediate", &s.begin}, {"commit", &s.commit}, {"insert into sales_order values (?, ?, ?)", &s.insert}} {
		if *p.into, err = s.conn.Prepare(p.text); err != nil {
			return err
		}
	}
	s.start(s.group, s.write)
	return nil
}

func (s *sqlite) exec(ctx context.Context, statement string, args ...driver.Value) error {
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	_, err := s.conn.(driver.ExecerContext).ExecContext(ctx, statement, named)
	return err
}

// write stores a group in one transaction. One order is a transaction by itself.
func (s *sqlite) write(group []*job) error {
	if len(group) == 1 {
		return s.put(group[0])
	}
	if _, err := s.begin.Exec(nil); err != nil { //nolint:staticcheck // the driver's own statements have this method
		return err
	}
	for _, j := range group {
		if err := s.put(j); err != nil {
			return err
		}
	}
	_, err := s.commit.Exec(nil) //nolint:staticcheck // as above
	return err
}

func (s *sqlite) put(j *job) error {
	_, err := s.insert.Exec([]driver.Value{j.customer, j.order, string(j.item)}) //nolint:staticcheck // as above
	return err
}

func (s *sqlite) totals(ctx context.Context) (orders, counted int64, err error) {
	rows, err := s.conn.(driver.QueryerContext).QueryContext(ctx, sqliteTotals, nil)
	if err != nil {
		return 0, 0, err
	}
	v := make([]driver.Value, 2)
	if err := errors.Join(rows.Next(v), rows.Close()); err != nil {
		return 0, 0, err
	}
	orders, ok := v[0].(int64)
	counted, counts := v[1].(int64)
	if !ok || !counts {
		return 0, 0, fmt.Errorf("SQLite counts %v and %v", v[0], v[1])
	}
	return orders, counted, nil
}

func (s *sqlite) close() error {
	s.stop()
	if s.conn == nil {
		return nil
	}
	var errs []error
	for _, st := range []driver.Stmt{s.begin, s.commit, s.insert} {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(append(errs, s.conn.Close())...)
}
