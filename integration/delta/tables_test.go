package delta_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/big"
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

// TestDelta_ReadsTheCurrentState writes, replaces and drops random rows in small
// files, and reads after every few commits; then it reads the versions of before.
func TestDelta_ReadsTheCurrentState(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{FileRowsMax: 200})
	before := map[int64][]string{}
	b.CommitRandom(60, func(orders map[string]project.Row) {
		var want []string
		for _, r := range orders {
			want = append(want, printed(&r))
		}
		a := b.read("orders", "")
		b.Same(a.printed(), want)
		before[a.Version] = want
	})
	for version, want := range before {
		a := b.read("orders", fmt.Sprint(version))
		b.Same(a.printed(), want)
	}
	b.Same(b.rows("lines"), nil) // a table without rows
}

// TestDelta_ReadsSeveralSchemas adds columns in place, and then rebuilds the tables with
// another type of a column.
func TestDelta_ReadsSeveralSchemas(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{})
	b.Commit(project.Batch{Put: []project.Row{tables.Order("s/1", "a", "Ann", 1), tables.Order("s/2", "b", "Bob", 2)}})
	grown := tables.Shop(2)
	orders := &grown.Tables[0]
	orders.Columns = append(orders.Columns, tables.Column("note to self", "string"), tables.Column("paid", "bool"))
	b.Begin(grown)
	b.Same(b.rows("orders"), []string{`["a" "Ann" "0.01" <nil> <nil> <nil> "s/1"]`, `["b" "Bob" "0.02" <nil> <nil> <nil> "s/2"]`})
	values := []project.Value{project.TextOf("c"), project.TextOf("Cid"), project.SmallDecimalOf(3, 2), project.TextOf("noted"), project.BoolOf(true)}
	b.Commit(project.Batch{Put: []project.Row{{Key: values[:1:1], Values: values, Source: "s/3"}}})
	b.Same(b.rows("orders"), []string{
		`["a" "Ann" "0.01" <nil> <nil> <nil> "s/1"]`, `["b" "Bob" "0.02" <nil> <nil> <nil> "s/2"]`, `["c" "Cid" "0.03" "noted" "true" <nil> "s/3"]`,
	})

	rebuilt := tables.Shop(3)
	rebuilt.Shadow, rebuilt.Tables = true, rebuilt.Tables[:1]
	rebuilt.Tables[0].Columns[2] = tables.Column("total", "int64")
	b.Begin(rebuilt)
	values = []project.Value{project.TextOf("a"), project.TextOf("Ann"), project.IntOf(100)}
	b.Commit(project.Batch{Put: []project.Row{{Key: values[:1:1], Values: values, Source: "s/1"}}})
	if got := b.rows("orders"); len(got) != 3 {
		t.Errorf("before the swap: %q", got)
	}
	b.Must(b.Sink.Swap(t.Context(), rebuilt))
	a := b.read("orders", "")
	b.Same(a.printed(), []string{`["a" "Ann" "100" <nil> "s/1"]`})
	if want := []string{"id string", "customer string", "total long", "_element string", "_source string"}; !slices.Equal(a.Columns, want) {
		t.Errorf("columns %q, want %q", a.Columns, want)
	}
	b.Same(b.rows("lines"), nil) // it has gone
}

// TestDelta_ReadsPartitions reads a table that is kept apart by a column, whatever its
// values are.
func TestDelta_ReadsPartitions(t *testing.T) {
	b := newBench(t, &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{
		{Name: "visits", Key: []int{0}, PartitionBy: 1, Columns: []project.ColumnSchema{tables.Column("id", "int64"), tables.Column("city", "string")}},
		{Name: "days", Key: []int{0}, PartitionBy: 1, Columns: []project.ColumnSchema{tables.Column("id", "int64"), tables.Column("day", "date")}},
	}}, parquetsink.Config{})
	var batch project.Batch
	want := map[int][]string{}
	for i, city := range []string{"Berlin", "007", "a/b=c", "Zürich", "", "New York", "50%", "x+y&z", "__HIVE_DEFAULT_PARTITION__", "Berlin"} {
		visit := []project.Value{project.IntOf(int64(i)), project.TextOf(city)}
		date := []project.Value{project.IntOf(int64(i)), project.DateOf(19000 + i)}
		if i == 5 {
			date[1] = project.Value{}
		}
		for table, values := range [][]project.Value{visit, date} {
			r := project.Row{Table: table, Key: values[:1:1], Values: values, Source: "s"}
			batch.Put = append(batch.Put, r)
			want[table] = append(want[table], printed(&r))
		}
	}
	b.Commit(batch)
	b.Same(b.rows("visits"), want[0])
	b.Same(b.rows("days"), want[1])
}

// TestDelta_ReadsRejects reads what could not be, and what waits for its key.
func TestDelta_ReadsRejects(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{})
	b.Commit(project.Batch{
		Put:    []project.Row{tables.Order("s/1", "a", "Ann", 1), tables.Order("s/2", "a", "Bob", 2)},
		Reject: []project.Reject{{Source: "s/3", Column: "total", Reason: "is a string", Row: []byte(`{"id":"c","total":"x"}`)}},
	})
	got := b.rows("orders_rejects")
	if len(got) != 2 || !strings.Contains(got[0], `"s/2" <nil> <nil> "key is held by s/1"`) || !strings.Contains(got[1], `"s/3" <nil> "total" "is a string"`) {
		t.Errorf("rejects %q", got)
	}
}

// TestDelta_ReadsAllTypes reads the ends of what each type can hold.
func TestDelta_ReadsAllTypes(t *testing.T) {
	number := func(digits string) *big.Int {
		n, _ := new(big.Int).SetString(digits, 10)
		return n
	}
	day := func(y int) project.Value {
		return project.DateOf(int(time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400))
	}
	kinds := []struct {
		typ    string
		values []project.Value
	}{
		{"", []project.Value{project.TextOf("x"), project.TextOf("")}},
		{"string", []project.Value{project.TextOf(`\ " ' NULL`), project.TextOf("line\n\ttab"), project.TextOf("Ünïcödé ☃ 𝄞"), project.TextOf("a\x00b")}},
		{"int64", []project.Value{project.IntOf(math.MaxInt64), project.IntOf(math.MinInt64), project.IntOf(1<<53 + 1)}},
		{"double", []project.Value{project.FloatOf(-0.1), project.FloatOf(math.MaxFloat64), project.FloatOf(math.SmallestNonzeroFloat64)}},
		{"decimal(9,4)", []project.Value{project.SmallDecimalOf(999_999_999, 4), project.SmallDecimalOf(-5, 4)}},
		{"decimal(12,2)", []project.Value{project.SmallDecimalOf(-999_999_999_999, 2), project.SmallDecimalOf(0, 2)}},
		{"decimal(38,9)", []project.Value{project.DecimalOf(number(strings.Repeat("9", 38)), 9), project.DecimalOf(number("-"+strings.Repeat("9", 38)), 9)}},
		{"bool", []project.Value{project.BoolOf(true), project.BoolOf(false)}},
		{"timestamp", []project.Value{
			project.TimeOf(time.Unix(0, 0)), project.TimeOf(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)),
			project.TimeOf(time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)),
		}},
		{"date", []project.Value{day(1), day(1582), day(9999)}},
		{"json", []project.Value{project.JSONOf(`{"b":1,"a":[1.50,null,{"x":"é☃\n"}]}`), project.JSONOf(`null`)}},
	}
	schema := &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{{Name: "kinds", PartitionBy: -1, Key: []int{0}, Columns: []project.ColumnSchema{tables.Column("k", "int64")}}}}
	for i, k := range kinds {
		schema.Tables[0].Columns = append(schema.Tables[0].Columns, tables.Column(fmt.Sprint("of type ", i), k.typ))
	}
	b := newBench(t, schema, parquetsink.Config{})
	var batch project.Batch
	var want []string
	for i, k := range kinds {
		for j, v := range k.values {
			values := make([]project.Value, 1+len(kinds))
			values[0], values[i+1] = project.IntOf(int64(i*100+j)), v
			r := project.Row{Key: values[:1:1], Values: values, Source: "s", Element: fmt.Sprint(j)}
			batch.Put, want = append(batch.Put, r), append(want, printed(&r))
		}
	}
	b.Commit(batch)
	a := b.read("kinds", "")
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	b.Same(a.printed(), want)
}

// TestDelta_SeesWholeCommits reads while rows change and files are merged and removed
// all the time: each commit gives all orders one total, and a reader sees no two.
func TestDelta_SeesWholeCommits(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{FileRowsMax: 60, Grace: 20 * time.Second})
	const orders = 200
	total := func(n int64) (batch project.Batch) {
		for i := range orders {
			id := fmt.Sprint("o", i)
			batch.Put = append(batch.Put, tables.Order("s/"+id, id, "Ann", n))
		}
		return batch
	}
	b.Commit(total(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for n := range int64(60) {
			b.Commit(total(n + 1))
		}
	})
	reads := 0
	for reading := true; reading; reads++ {
		select {
		case <-done:
			reading = false
		default:
		}
		a := b.read("orders", "")
		totals := map[string]bool{}
		for _, row := range a.Rows {
			totals[*row[2]] = true
		}
		if a.Error != "" || len(a.Rows) != orders || len(totals) != 1 {
			t.Errorf("version %d has %d rows with totals %v: %s", a.Version, len(a.Rows), totals, a.Error)
		}
	}
	wg.Wait()
	t.Logf("%d reads of 61 commits", reads)
}

// TestDelta_CannotWrite lets another program delete rows: the sink refuses to go on, and says
// who it was.
func TestDelta_CannotWrite(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{})
	b.Commit(project.Batch{Put: []project.Row{tables.Order("s/1", "a", "Ann", 1), tables.Order("s/2", "b", "Bob", 2)}})
	if a := b.read("orders", "", "id = 'a'"); a.Error != "" {
		t.Fatal(a.Error)
	}
	batch := project.Batch{Put: []project.Row{tables.Order("s/3", "c", "Cid", 3)}}
	batch.After.LSN, batch.UpTo.LSN = b.LSN, b.LSN+1
	_, err := b.Writer.Write(t.Context(), &batch)
	b.Must(err)
	_, err = b.Writer.Flush(t.Context())
	if err == nil || !strings.Contains(err.Error(), "00000000000000000002.json") || !strings.Contains(err.Error(), "DELETE") {
		t.Errorf("a flush after a foreign commit: %v, want it to be refused", err)
	}
}

// TestDelta_ReadsAShortenedLog reads a log whose first commits are in a checkpoint only,
// with the hint to the last checkpoint and without it.
func TestDelta_ReadsAShortenedLog(t *testing.T) {
	b := newBench(t, tables.Shop(1), parquetsink.Config{FileRowsMax: 50, Grace: time.Nanosecond})
	state := map[string]string{}
	for n := range int64(70) {
		var batch project.Batch
		for i := range int64(10) {
			id := fmt.Sprint("o", (n*7+i)%90)
			r := tables.Order("s/"+id, id, "Ann", n)
			batch.Put = append(batch.Put, r)
			state[id] = printed(&r)
		}
		b.Commit(batch)
	}
	first := filepath.Join(b.Dir, "orders", "_delta_log", fmt.Sprintf("%020d.json", 0))
	if _, err := os.Stat(first); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log has not been shortened: %v", err)
	}
	b.Same(b.rows("orders"), slices.Collect(maps.Values(state)))
	b.Must(os.Remove(filepath.Join(filepath.Dir(first), "_last_checkpoint")))
	b.Same(b.rows("orders"), slices.Collect(maps.Values(state)))
}
