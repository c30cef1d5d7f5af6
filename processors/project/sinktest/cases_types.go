package sinktest

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/processors/project"
)

// extremes are values of each column of Kinds, in their order but for the key.
func extremes() [][]project.Value {
	large := func(digits string) *big.Int {
		n, ok := new(big.Int).SetString(digits, 10)
		if !ok {
			panic(digits)
		}
		return n
	}
	day := func(y int, m time.Month, d int) project.Value {
		return project.DateOf(int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400))
	}
	texts := []project.Value{
		project.TextOf(""), project.TextOf(" a "), project.TextOf(`\ " ' , ; % _ $1 {} \N NULL null`), project.TextOf("line\nline\r\n\ttab"),
		project.TextOf("Ünïcödé ☃ 𝄞 e\u0301 \u200b\ufeff"), project.TextOf(strings.Repeat("long ", 5000)), project.TextOf("a\x00b"),
		project.TextOf("\u007f\u0001\u001f"), project.TextOf(`{"a":[1,2,{"b":null}]}`), project.TextOf("NaN"),
	}
	return [][]project.Value{
		texts, texts,
		{project.IntOf(0), project.IntOf(-1), project.IntOf(math.MaxInt64), project.IntOf(math.MinInt64), project.IntOf(1 << 53), project.IntOf(1<<53 + 1)},
		{
			project.FloatOf(0), project.FloatOf(-0.1), project.FloatOf(math.MaxFloat64), project.FloatOf(-math.MaxFloat64),
			project.FloatOf(math.SmallestNonzeroFloat64), project.FloatOf(1e21), project.FloatOf(1.0000000000000002), project.FloatOf(12345678.9),
		},
		{
			project.SmallDecimalOf(0, 9), project.SmallDecimalOf(1, 9), project.SmallDecimalOf(-1, 9), project.SmallDecimalOf(math.MinInt64, 9),
			project.DecimalOf(large("99999999999999999999999999999999999999"), 9), project.DecimalOf(large("-99999999999999999999999999999999999999"), 9),
			project.DecimalOf(large("10000000000000000000000000000000000000"), 9), project.DecimalOf(large("-9223372036854775809"), 9),
		},
		{project.SmallDecimalOf(0, 4), project.SmallDecimalOf(999_999_999, 4), project.SmallDecimalOf(-999_999_999, 4), project.SmallDecimalOf(-5, 4)},
		{project.BoolOf(true), project.BoolOf(false)},
		{
			project.TimeOf(time.Unix(0, 0)), project.TimeOf(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)),
			project.TimeOf(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)), project.TimeOf(time.Date(1969, 12, 31, 23, 59, 59, 1000, time.UTC)),
			project.TimeOf(time.Date(2024, 2, 29, 12, 0, 0, 123_456_000, time.UTC)), project.TimeOf(time.Date(1582, 10, 10, 0, 0, 0, 0, time.UTC)),
		},
		{day(1970, 1, 1), day(1, 1, 1), day(9999, 12, 31), day(2024, 2, 29), day(1582, 10, 10), day(1900, 2, 28)},
		{
			project.JSONOf(`{}`), project.JSONOf(`[]`), project.JSONOf(`""`), project.JSONOf(`0`), project.JSONOf(`true`),
			project.JSONOf(`{"b":1,"a":[1.50,-2e3,null,{"x":"\u00e9☃\n"}],"deep":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`),
			project.JSONOf(`12345678901234567890.123456789`), project.JSONOf(`" text "`), project.JSONOf(`{"nul":"\u0000"}`),
		},
		{project.FloatOf(17.5), {}},
	}
}

// allTypes writes a row for each extreme value, the others being Null, and one
// in which all are Null.
func allTypes(b *bench) {
	w := b.start(0, 1)
	table := &b.schema.Tables[Kinds]
	n := 0
	row := func(name string) project.Row {
		values := make([]project.Value, len(table.Columns))
		values[0] = project.TextOf(name)
		return project.Row{Table: Kinds, Key: values[:1:1], Values: values, Source: source(b, "c1", fmt.Sprint("k", n))}
	}
	fill := put(row("all null"))
	var held []project.Row
	for column, values := range extremes() {
		for i, v := range values {
			n++
			r := row(fmt.Sprint(table.Columns[column+1].Name, " ", i))
			r.Values[column+1] = v
			if b.takes(&r) {
				held = append(held, r)
			}
		}
	}
	// Keys of one byte to many, and of every script.
	for _, key := range []string{" ", "'", `"`, "a/b#c?d\\e", "~|", "Ω≈ç√", "👩‍👩‍👧", strings.Repeat("k", 200)} {
		n++
		if r := row(key); b.takes(&r) {
			held = append(held, r)
		}
	}
	fill.Put = append(fill.Put, held...)
	w.write(10, fill)
	w.flush()
	b.check()
	b.reopen()
	b.check()
	w = b.start(0, 2)
	// Every value gives way to Null, and comes back.
	var nulls project.Batch
	for _, r := range held {
		r.Values = append([]project.Value{r.Values[0]}, make([]project.Value, len(r.Values)-1)...)
		nulls.Put = append(nulls.Put, r)
	}
	w.write(20, nulls)
	w.flush()
	b.check()
	w.write(30, put(held...))
	w.flush()
	b.check()
	// And each waits as a pending row, and takes its place.
	var pending, drops project.Batch
	for _, r := range held {
		drops.Drop = append(drops.Drop, gone(r))
		r.Source += "'"
		pending.Put = append(pending.Put, r)
	}
	w.write(40, pending)
	w.flush()
	b.check()
	w.write(50, drops)
	w.flush()
	b.check()
}

// takes says whether the sink takes a row.
func (b *bench) takes(r *project.Row) bool {
	l, ok := b.sink.(project.Limiter)
	if !ok {
		return true
	}
	column, reason := l.CannotHold(b.schema, r)
	if reason != "" {
		b.Logf("not taken: %s %s", column, reason)
	}
	return reason == ""
}

// keyTypes has a table for each type that a key can have.
func keyTypes(b *bench) {
	if b.o.InPlace {
		b.Skip("the sink has the tables of Schema only")
	}
	s := &project.Schema{Pipeline: "keys", Generation: 1}
	values := extremes()
	kinds := &b.schema.Tables[Kinds]
	for i, column := range kinds.Columns {
		if kind := column.Type.Kind; i == 0 || kind == project.KindDouble || kind == project.KindJSON {
			continue
		}
		s.Tables = append(s.Tables, project.TableSchema{
			Name: "by " + column.Name, PartitionBy: -1, Key: []int{1, 0},
			Columns: []project.ColumnSchema{{Name: "second", Type: project.Type{Kind: project.KindBool}}, {Name: "first", Type: column.Type}, {Name: "n"}},
		})
	}
	b.schema = s
	var fill project.Batch
	for table := range s.Tables {
		for i, column := range kinds.Columns {
			if i == 0 || "by "+column.Name != s.Tables[table].Name {
				continue
			}
			for n, v := range values[i-1] {
				row := []project.Value{project.BoolOf(n%2 == 0), v, project.TextOf(strconv.Itoa(n))}
				r := project.Row{Table: table, Key: []project.Value{v, row[0]}, Values: row, Source: source(b, "c1", fmt.Sprint(table, "-", n))}
				if len(v.String()) < 1000 && b.takes(&r) {
					fill.Put = append(fill.Put, r)
				}
			}
		}
	}
	w := b.start(0, 1)
	w.write(10, fill)
	w.flush()
	b.check()
	var some project.Batch
	for i, r := range fill.Put {
		if i%2 == 0 {
			some.Drop = append(some.Drop, gone(r))
		}
	}
	w.write(20, some)
	w.flush()
	b.check()
}
