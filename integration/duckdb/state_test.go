//go:build cgo

package duckdb_test

import (
	"fmt"
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

// TestDuckDB_ReadsTheCurrentState writes, replaces and drops random rows in small
// files, and reads after every few commits.
func TestDuckDB_ReadsTheCurrentState(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{FileRowsMax: 200})
	b.CommitRandom(30, func(orders map[string]project.Row) {
		var want []string
		for id, r := range orders {
			want = append(want, fmt.Sprintf("%q", []any{id, r.Values[1].Text(), r.Values[2].String(), r.Source}))
		}
		b.each("orders", "id, customer, total::VARCHAR, _source", func(b *bench, rows []string) { b.Same(rows, slices.Clone(want)) })
	})
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
	plan, err := b.query(fmt.Sprintf("EXPLAIN ANALYZE SELECT id FROM read_parquet('%s/current/visits/**/*.parquet') WHERE city_partition = 'Berlin'", b.Dir))
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
	reads, again := 0, 0
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		for _, way := range ways {
			rows, err := b.sum(way.prepare, way.from)
			if err != nil && way.prepare == "" && (strings.Contains(err.Error(), "No such file") || strings.Contains(err.Error(), "No files found")) {
				again++ // the folder has been exchanged between listing and opening
				continue
			}
			b.Must(err)
			reads++
			if way.name == "the list of all tables" && rows != fmt.Sprint(total) {
				t.Errorf("%s: the sum is %s, want %d", way.name, rows, total)
			}
		}
	}
	wg.Wait()
	t.Logf("%d reads of 61 commits; the folder current was exchanged while it was read %d times", reads, again)
}

// sum adds up all cents of both tables, or counts, where the tables are read one
// after the other, that each is whole.
func (b *bench) sum(prepare, from string) (string, error) {
	if strings.Contains(prepare, "_current.json") { // both tables at one commit
		_, err := b.db.ExecContext(b.Context(), fmt.Sprintf("SET VARIABLE present = (SELECT tables FROM read_json('%s/_current.json'))", b.Dir))
		if err != nil {
			return "", err
		}
		rows := []string{}
		for _, table := range []string{"orders", "lines"} {
			text := fmt.Sprintf("SET VARIABLE %[2]s = list_transform(getvariable('present').%[2]s, lambda f: '%[1]s/' || f)", b.Dir, table)
			if _, err := b.db.ExecContext(b.Context(), text); err != nil {
				return "", err
			}
		}
		rows, err = b.query(`SELECT ((SELECT sum(total) FROM read_parquet(getvariable('orders'), union_by_name = true)) +
			(SELECT sum(price) FROM read_parquet(getvariable('lines'), union_by_name = true)))::DECIMAL(12,2) * 100`)
		if err != nil {
			return "", err
		}
		return strings.TrimSuffix(strings.Trim(rows[0], `[]"`), ".00"), nil
	}
	rows, err := b.read(prepare, from, "orders", "1")
	if err == nil && len(rows) != 200 {
		return "", fmt.Errorf("%d orders, want 200", len(rows))
	}
	return "", err
}
