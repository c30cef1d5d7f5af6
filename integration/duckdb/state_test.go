//go:build cgo

package duckdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/tables"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

func line(source, id string, n, cents int64) project.Row {
	values := []project.Value{project.TextOf(id), project.IntOf(n), project.SmallDecimalOf(cents, 2)}
	return project.Row{Table: 1, Key: values[:2:2], Values: values, Source: source, Element: fmt.Sprint(n)}
}

// TestDuckDB_ReadsTheCurrentState writes, replaces and drops random rows in small files, and
// reads after every few commits, of which the log forgets the older ones.
func TestDuckDB_ReadsTheCurrentState(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{FileRowsMax: 200, Grace: time.Nanosecond})
	b.CommitRandom(60, func(orders map[string]project.Row) {
		var want []string
		for id, r := range orders {
			want = append(want, fmt.Sprintf("%q", []any{id, r.Values[1].Text(), r.Values[2].String(), r.Source}))
		}
		b.each("orders", "id, customer, total::VARCHAR, _source", func(b *bench, rows []string) { b.Same(rows, slices.Clone(want)) })
	})
	if _, err := os.Stat(filepath.Join(b.Dir, "orders", "_delta_log", "00000000000000000001.json")); err == nil {
		t.Error("the log is whole: no checkpoint was read")
	}
	// A table without rows can be read too.
	b.each("lines", "*", func(b *bench, rows []string) { b.Same(rows, nil) })
}

// TestDuckDB_ReadsFilesOfSeveralSchemas adds columns in place: files of before and
// after are read together.
func TestDuckDB_ReadsFilesOfSeveralSchemas(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{})
	b.Commit(project.Batch{Put: []project.Row{tables.Order("s/1", "a", "Ann", 1), tables.Order("s/2", "b", "Bob", 2)}})
	grown := tables.Shop(2)
	orders := &grown.Tables[0]
	orders.Columns = slices.Insert(orders.Columns, 1, tables.Column("note to self", "string"))
	orders.Columns = append(orders.Columns, tables.Column("paid", "bool"))
	b.Begin(grown)
	values := []project.Value{project.TextOf("c"), project.TextOf("noted"), project.TextOf("Cid"), project.SmallDecimalOf(3, 2), project.BoolOf(true)}
	b.Commit(project.Batch{Put: []project.Row{{Key: values[:1:1], Values: values, Source: "s/3"}}})
	b.each("orders", "id, note_to_self, customer, total::VARCHAR, paid::VARCHAR, _source", func(b *bench, rows []string) {
		b.Same(rows, []string{
			`["a" <nil> "Ann" "0.01" <nil> "s/1"]`, `["b" <nil> "Bob" "0.02" <nil> "s/2"]`, `["c" "noted" "Cid" "0.03" "true" "s/3"]`,
		})
	})
}

// TestDuckDB_ReadsPartitions reads a table that is kept apart by a column: its
// values are right, whatever they are, and folders can be left out by them.
func TestDuckDB_ReadsPartitions(t *testing.T) {
	schema := &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{
		{Name: "visits", Key: []int{0}, PartitionBy: 1, Columns: []project.ColumnSchema{tables.Column("id", "int64"), tables.Column("city", "string")}},
		{Name: "days", Key: []int{0}, PartitionBy: 1, Columns: []project.ColumnSchema{tables.Column("id", "int64"), tables.Column("day", "date")}},
	}}
	b := newBench(t, schema, parquetsink.Config{})
	var batch project.Batch
	var visits, days []string
	for i, city := range []string{"Berlin", "007", "a/b=c", "Zürich", "", "New York", "50%", "__HIVE_DEFAULT_PARTITION__", "Berlin"} {
		visit := []project.Value{project.IntOf(int64(i)), project.TextOf(city)}
		date := []project.Value{project.IntOf(int64(i)), project.DateOf(19000 + i)}
		if i == 5 {
			visit[1], date[1] = project.Value{}, project.Value{}
			visits, days = append(visits, `["5" <nil>]`), append(days, `["5" <nil>]`)
		} else {
			visits = append(visits, fmt.Sprintf("%q", []string{fmt.Sprint(i), city}))
			days = append(days, fmt.Sprintf("%q", []string{fmt.Sprint(i), date[1].String()}))
		}
		batch.Put = append(batch.Put, project.Row{Key: visit[:1:1], Values: visit, Source: "s"}, project.Row{Table: 1, Key: date[:1:1], Values: date, Source: "s"})
	}
	b.Commit(batch)
	b.each("visits", "id::VARCHAR, city", func(b *bench, rows []string) { b.Same(rows, slices.Clone(visits)) })
	b.each("days", "id::VARCHAR, CAST(day AS DATE)::VARCHAR", func(b *bench, rows []string) { b.Same(rows, slices.Clone(days)) })
	b.Must(b.find(ways[0].version, "visits"))
	plan, err := b.query("EXPLAIN ANALYZE SELECT id FROM read_parquet(getvariable('files'), hive_partitioning = true) WHERE city_partition = 'Berlin'")
	b.Must(err)
	if text := strings.Join(plan, ""); !strings.Contains(text, "1/8") && !strings.Contains(text, "Total Files Read: 1") {
		t.Errorf("more files than one are read for one city: %s", text)
	}
}

// TestDuckDB_ReadsRejects reads what could not be, and what waits for its key.
func TestDuckDB_ReadsRejects(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{})
	b.Commit(project.Batch{
		Put:    []project.Row{tables.Order("s/1", "a", "Ann", 1), tables.Order("s/2", "a", "Bob", 2)},
		Reject: []project.Reject{{Source: "s/3", Column: "total", Reason: "is a string, \"x\"", Row: []byte(`{"id":"c","total":"x"}`)}},
	})
	b.each("orders_rejects", `source, "column", reason, row->>'id', key::VARCHAR`, func(b *bench, rows []string) {
		b.Same(rows, []string{
			`["s/2" <nil> "key is held by s/1" "a" "[\"a\"]"]`, `["s/3" "total" "is a string, \"x\"" "c" <nil>]`,
		})
	})
}

// TestDuckDB_SeesWholeCommits reads while rows change and files are merged and
// removed all the time: each commit moves money between orders and their lines, so
// every state has the same sum, and so must whatever a reader sees.
func TestDuckDB_SeesWholeCommits(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{FileRowsMax: 300, Grace: 20 * time.Second})
	const orders, total = 200, 200 * 100
	move := func(n int64) (batch project.Batch) {
		for i := range int64(orders) {
			id := fmt.Sprint("o", i)
			cents := (i*31 + n*17) % 101
			batch.Put = append(batch.Put, tables.Order("s/"+id, id, "Ann", cents), line("s/"+id, id, 0, 100-cents))
		}
		return batch
	}
	b.Commit(move(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for n := range int64(60) {
			b.Commit(move(n + 1))
		}
	})
	reads := 0
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		for _, table := range []string{"orders", "lines"} {
			rows, err := b.read(ways[0].version, table, "1")
			b.Must(err)
			if len(rows) != orders {
				t.Errorf("%d rows of %s, want %d", len(rows), table, orders)
			}
		}
		if sum := b.sum(); sum != fmt.Sprint(total) {
			t.Errorf("the sum is %s, want %d", sum, total)
		}
		reads++
	}
	wg.Wait()
	t.Logf("%d times all was read, of 61 commits", reads)
}

// sum adds up all cents of both tables at one commit.
func (b *bench) sum() string {
	b.Helper()
	_, err := b.db.ExecContext(b.Context(), fmt.Sprintf("SET VARIABLE present = (SELECT versions FROM read_json('%s/_current.json'))", b.Dir))
	b.Must(err)
	for _, table := range []string{"orders", "lines"} {
		b.Must(b.find("getvariable('present')."+table, table))
		_, err := b.db.ExecContext(b.Context(), fmt.Sprintf("SET VARIABLE %s = getvariable('files')", table))
		b.Must(err)
	}
	rows, err := b.query(`SELECT ((SELECT sum(total) FROM read_parquet(getvariable('orders'), union_by_name = true)) +
		(SELECT sum(price) FROM read_parquet(getvariable('lines'), union_by_name = true)))::DECIMAL(12,2) * 100`)
	b.Must(err)
	return strings.TrimSuffix(strings.Trim(rows[0], `[]"`), ".00")
}
