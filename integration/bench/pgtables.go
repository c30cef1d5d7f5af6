//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millrace/millrace/integration/bench/dataset"
)

// The two ways to keep products in PostgreSQL.
const (
	// jsonb keeps whole items, as Millrace does, in jsonb columns.
	jsonb = "jsonb"
	// plain has normalised columns and copies the names into them: what a
	// relational user would do who needs no items.
	plain = "plain columns"
)

// Triggers do the cascade in the transaction of the rename. Nothing checks a
// product that is written with an old name meanwhile; Millrace does.
var schemas = map[string]string{
	jsonb: `
create table source (id text primary key, item jsonb not null);
create table product (category_id text not null, id text not null, item jsonb not null, primary key (category_id, id));
create index product_tags on product using gin ((item -> 'tags') jsonb_path_ops);
create function cascade_name() returns trigger language plpgsql as $$
begin
	if new.item ->> 'type' = 'category' then
		update product set item = jsonb_set(item, '{categoryName}', new.item -> 'name')
		where category_id = new.id and item -> 'categoryName' is distinct from new.item -> 'name';
	else
		update product set item = jsonb_set(item, '{tags}', (
			select jsonb_agg(case when t ->> 'id' = new.id then jsonb_set(t, '{name}', new.item -> 'name') else t end order by n)
			from jsonb_array_elements(item -> 'tags') with ordinality as e(t, n)))
		where item -> 'tags' @> jsonb_build_array(jsonb_build_object('id', new.id));
	end if;
	return null;
end $$;
create trigger cascade after update on source for each row
	when (old.item -> 'name' is distinct from new.item -> 'name') execute function cascade_name();
create function notify_renamed() returns trigger language plpgsql as $$
begin
	perform pg_notify('renamed', new.id);
	return null;
end $$;
create trigger notify after update on source for each row
	when (old.item -> 'name' is distinct from new.item -> 'name') execute function notify_renamed();
alter table source disable trigger notify;`,
	plain: `
create table source (id text primary key, type text not null, name text not null, rank int not null default 0);
create table product (id text primary key, category_id text not null, category_name text not null, sku text not null,
	name text not null, description text not null, price numeric(10, 2) not null);
create index product_category on product (category_id);
create table product_tag (product_id text not null, line int not null, tag_id text not null, tag_name text not null,
	primary key (product_id, line));
create index product_tag_tag on product_tag (tag_id);
create function cascade_name() returns trigger language plpgsql as $$
begin
	if new.type = 'category' then
		update product set category_name = new.name where category_id = new.id and category_name is distinct from new.name;
	else
		update product_tag set tag_name = new.name where tag_id = new.id and tag_name is distinct from new.name;
	end if;
	return null;
end $$;
create trigger cascade after update on source for each row
	when (old.name is distinct from new.name) execute function cascade_name();`,
}

// tables is one data set in PostgreSQL, in a schema of its own.
type tables struct {
	pg     *postgres
	kind   string
	schema string
	set    *dataset.Set
	conn   *pgx.Conn // for what is done alone
}

// loadTables makes the schema and fills it.
func loadTables(ctx context.Context, pg *postgres, kind, schema string, set *dataset.Set) (*tables, error) {
	conn, err := pg.connect(ctx, schema)
	if err != nil {
		return nil, err
	}
	t := &tables{pg: pg, kind: kind, schema: schema, set: set, conn: conn}
	if err := t.load(ctx); err != nil {
		closeConn(ctx, conn)
		return nil, fmt.Errorf("postgres: load %s: %w", kind, err)
	}
	return t, nil
}

func (t *tables) load(ctx context.Context) error {
	if _, err := t.conn.Exec(ctx, fmt.Sprintf("drop schema if exists %s cascade; create schema %[1]s; %s", t.schema, schemas[t.kind])); err != nil {
		return err
	}
	var sources [][]any
	for s := range t.set.Sources() {
		if t.kind == jsonb {
			sources = append(sources, []any{s.ID, s.JSON(0)})
		} else {
			sources = append(sources, []any{s.ID, s.Type, s.Name})
		}
	}
	sourceColumns, productColumns := []string{"id", "item"}, []string{"category_id", "id", "item"}
	if t.kind == plain {
		sourceColumns = []string{"id", "type", "name"}
		productColumns = []string{"id", "category_id", "category_name", "sku", "name", "description", "price"}
	}
	if err := t.copy(ctx, "source", sourceColumns, pgx.CopyFromRows(sources)); err != nil {
		return err
	}
	if err := t.copy(ctx, "product", productColumns, pgx.CopyFromFunc(t.productRows())); err != nil {
		return err
	}
	if t.kind == plain {
		if err := t.copy(ctx, "product_tag", []string{"product_id", "line", "tag_id", "tag_name"}, pgx.CopyFromFunc(t.tagRows())); err != nil {
			return err
		}
	}
	return t.settle(ctx)
}

func (t *tables) copy(ctx context.Context, table string, columns []string, rows pgx.CopyFromSource) error {
	_, err := t.conn.CopyFrom(ctx, pgx.Identifier{t.schema, table}, columns, rows)
	return err
}

// productRows returns the products in their order.
func (t *tables) productRows() func() ([]any, error) {
	p := -1
	return func() ([]any, error) {
		if p++; p == t.set.Products() {
			return nil, nil
		}
		if t.kind == jsonb {
			return []any{t.set.Category(t.set.CategoryOf(p), 0).ID, t.set.ProductID(p), t.set.AppendProduct(nil, p)}, nil
		}
		item := t.set.Product(p)
		var price pgtype.Numeric
		err := price.Scan(item.Price)
		return []any{item.ID, item.CategoryID, item.CategoryName, item.SKU, item.Name, item.Description, price}, err
	}
}

// tagRows returns the products' tags, a row each.
func (t *tables) tagRows() func() ([]any, error) {
	p, line := -1, 0
	var item dataset.Product
	return func() ([]any, error) {
		if line == len(item.Tags) {
			if p++; p == t.set.Products() {
				return nil, nil
			}
			item, line = t.set.Product(p), 0
		}
		tag := item.Tags[line]
		line++
		return []any{item.ID, line, tag.ID, tag.Name}, nil
	}
}

// rename gives a category or tag the name it has in s. When it returns all copies
// are visible, if the trigger cascades.
func (t *tables) rename(ctx context.Context, conn *pgx.Conn, s dataset.Source) error {
	statement := "update source set name = $2 where id = $1"
	if t.kind == jsonb {
		statement = "update source set item = jsonb_set(item, '{name}', to_jsonb($2::text)) where id = $1"
	}
	tag, err := conn.Exec(ctx, statement, s.ID, s.Name)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows", tag.RowsAffected())
	}
	if err != nil {
		return fmt.Errorf("postgres: rename %s: %w", s.ID, err)
	}
	return nil
}

// touch changes a field of a category that nobody copies.
func (t *tables) touch(ctx context.Context, conn *pgx.Conn, s dataset.Source, rank int) error {
	statement := "update source set rank = $2 where id = $1"
	if t.kind == jsonb {
		statement = "update source set item = jsonb_set(item, '{rank}', to_jsonb($2::int)) where id = $1"
	}
	_, err := conn.Exec(ctx, statement, s.ID, rank)
	return err
}

// replace writes a product again as it was.
func (t *tables) replace(ctx context.Context, conn *pgx.Conn, p int) error {
	if t.kind == jsonb {
		_, err := conn.Exec(ctx, "update product set item = $3 where category_id = $1 and id = $2",
			t.set.Category(t.set.CategoryOf(p), 0).ID, t.set.ProductID(p), t.set.AppendProduct(nil, p))
		return err
	}
	item := t.set.Product(p)
	_, err := conn.Exec(ctx, "update product set category_name = $2, name = $3, description = $4 where id = $1",
		item.ID, item.CategoryName, item.Name, item.Description)
	return err
}

// copies counts the copies of a category's or tag's name as it is in s.
func (t *tables) copies(ctx context.Context, s dataset.Source) (n int, err error) {
	statement := map[string]string{
		jsonb + "category": "select count(*) from product where category_id = $1 and item ->> 'categoryName' = $2",
		jsonb + "tag":      "select count(*) from product where item -> 'tags' @> jsonb_build_array(jsonb_build_object('id', $1::text, 'name', $2::text))",
		plain + "category": "select count(*) from product where category_id = $1 and category_name = $2",
		plain + "tag":      "select count(*) from product_tag where tag_id = $1 and tag_name = $2",
	}[t.kind+s.Type]
	err = t.conn.QueryRow(ctx, statement, s.ID, s.Name).Scan(&n)
	return n, err
}

// settle does, while nobody measures, what PostgreSQL would do in the background.
func (t *tables) settle(ctx context.Context) error {
	for _, statement := range []string{"vacuum analyze product", "vacuum source", "checkpoint"} {
		if _, err := t.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("postgres: %s: %w", statement, err)
		}
	}
	if t.kind == plain {
		if _, err := t.conn.Exec(ctx, "vacuum analyze product_tag"); err != nil {
			return fmt.Errorf("postgres: vacuum: %w", err)
		}
	}
	return nil
}

// drop removes the data set, even if ctx has ended.
func (t *tables) drop(ctx context.Context) error {
	_, err := t.conn.Exec(context.WithoutCancel(ctx), "drop schema "+t.schema+" cascade; checkpoint")
	closeConn(ctx, t.conn)
	return err
}
