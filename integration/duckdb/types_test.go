//go:build cgo

package duckdb_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/tables"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

func kinds() *project.Schema {
	return &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{{
		Name: "kinds", Key: []int{0}, PartitionBy: -1,
		Columns: []project.ColumnSchema{
			tables.Column("k", "int64"), tables.Column("any", ""), tables.Column("text", "string"), tables.Column("int", "int64"), tables.Column("double", "double"),
			tables.Column("small", "decimal(9,4)"), tables.Column("price", "decimal(12,2)"), tables.Column("large", "decimal(38,9)"), tables.Column("bool", "bool"),
			tables.Column("time", "timestamp"), tables.Column("date", "date"), tables.Column("json", "json"), tables.Column("has a space", "string"),
		},
	}}}
}

func large(digits string) *big.Int {
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		panic(digits)
	}
	return n
}

func day(y int, m time.Month, d int) project.Value {
	return project.DateOf(int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400))
}

// extremes are values of the columns of kinds behind the key.
var extremes = [][]project.Value{
	{project.TextOf("x"), project.TextOf("")},
	{
		project.TextOf(""), project.TextOf(`\ " ' , ; % NULL null`), project.TextOf("line\nline\r\n\ttab"), project.TextOf("Ünïcödé ☃ 𝄞"),
		project.TextOf(strings.Repeat("long ", 20000)), project.TextOf("a\x00b"), project.TextOf("NaN"),
	},
	{project.IntOf(0), project.IntOf(-1), project.IntOf(math.MaxInt64), project.IntOf(math.MinInt64), project.IntOf(1<<53 + 1)},
	{
		project.FloatOf(0), project.FloatOf(-0.1), project.FloatOf(math.MaxFloat64), project.FloatOf(math.SmallestNonzeroFloat64),
		project.FloatOf(1.0000000000000002),
	},
	{project.SmallDecimalOf(999_999_999, 4), project.SmallDecimalOf(-999_999_999, 4), project.SmallDecimalOf(-5, 4), project.SmallDecimalOf(0, 4)},
	{project.SmallDecimalOf(999_999_999_999, 2), project.SmallDecimalOf(-999_999_999_999, 2), project.SmallDecimalOf(-5, 2)},
	{
		project.DecimalOf(large("99999999999999999999999999999999999999"), 9), project.DecimalOf(large("-99999999999999999999999999999999999999"), 9),
		project.SmallDecimalOf(-1, 9), project.SmallDecimalOf(math.MinInt64, 9), project.SmallDecimalOf(0, 9),
	},
	{project.BoolOf(true), project.BoolOf(false)},
	{
		project.TimeOf(time.Unix(0, 0)), project.TimeOf(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)),
		project.TimeOf(time.Date(1582, 10, 10, 0, 0, 0, 0, time.UTC)), project.TimeOf(time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)),
	},
	{day(1970, 1, 1), day(1, 1, 1), day(9999, 12, 31), day(1582, 10, 10)},
	{project.JSONOf(`{"b":1,"a":[1.50,null,{"x":"\u00e9☃\n"}]}`), project.JSONOf(`"text"`), project.JSONOf(`12345678901234567890.123456789`), project.JSONOf(`null`)},
	{project.TextOf("y")},
}

// asText are expressions that print the columns exactly.
const asText = `k::VARCHAR, "any", text, int::VARCHAR, double, small::VARCHAR, price::VARCHAR, large::VARCHAR, bool::VARCHAR,
	epoch_us(time)::VARCHAR, (date - DATE '1970-01-01')::VARCHAR, json::VARCHAR, has_a_space, _element, _source`

// printed is a row as a query for asText gives it.
func printed(r project.Row) string {
	var values []any
	for _, v := range r.Values {
		switch v.Kind() {
		case project.Null:
			values = append(values, nil)
		case project.Float:
			values = append(values, v.Float())
		case project.Time:
			values = append(values, fmt.Sprint(v.Micros()))
		case project.Date:
			values = append(values, fmt.Sprint(v.Days()))
		default:
			values = append(values, v.String())
		}
	}
	if r.Element == "" {
		values = append(values, nil)
	} else {
		values = append(values, r.Element)
	}
	return fmt.Sprintf("%q", append(values, r.Source))
}

func TestDuckDB_ReadsAllTypes(t *testing.T) {
	b := newBench(t, kinds(), parquetsink.Config{})
	var batch project.Batch
	var want []string
	put := func(r project.Row) {
		batch.Put = append(batch.Put, r)
		want = append(want, printed(r))
	}
	n := int64(0)
	row := func() project.Row {
		n++
		values := make([]project.Value, 1+len(extremes))
		values[0] = project.IntOf(n)
		return project.Row{Key: values[:1:1], Values: values, Source: fmt.Sprintf("customer/[%d]/k", n)}
	}
	put(row()) // nothing but nulls
	for i, values := range extremes {
		for _, v := range values {
			r := row()
			r.Values[i+1], r.Element = v, fmt.Sprint(i, ".0")
			put(r)
		}
	}
	b.Commit(batch)
	b.each("kinds", asText, func(b *bench, rows []string) { b.Same(rows, slices.Clone(want)) })

	b.Must(b.find(ways[0].version, "kinds"))
	types, err := b.query("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM " + files + ")")
	b.Must(err)
	b.Same(types, []string{
		`["k" "BIGINT"]`, `["any" "VARCHAR"]`, `["text" "VARCHAR"]`, `["int" "BIGINT"]`, `["double" "DOUBLE"]`, `["small" "DECIMAL(9,4)"]`,
		`["price" "DECIMAL(12,2)"]`, `["large" "DECIMAL(38,9)"]`, `["bool" "BOOLEAN"]`, `["time" "TIMESTAMP WITH TIME ZONE"]`, `["date" "DATE"]`,
		`["json" "JSON"]`, `["has_a_space" "VARCHAR"]`, `["_element" "VARCHAR"]`, `["_source" "VARCHAR"]`,
	})
}
