package sinktest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// The tables of Schema.
const (
	Orders = iota // key id
	Lines         // key orderId, line; made by each
	Kinds         // key k; a column of every type
)

// Schema returns the schema that the cases write to, of a generation. A container
// sink has containers of the names of its tables; the columns by which those can
// be partitioned are id, orderId and k.
func Schema(generation uint32) *project.Schema {
	column := func(name, typ string) project.ColumnSchema {
		t, err := project.ParseType(typ)
		if err != nil {
			panic(err)
		}
		return project.ColumnSchema{Name: name, Type: t}
	}
	return &project.Schema{
		Pipeline: "analytics", Generation: generation,
		Tables: []project.TableSchema{
			{
				Name: "orders", Key: []int{0}, PartitionBy: -1, Index: [][]int{{1}, {1, 2}},
				Columns: []project.ColumnSchema{column("id", ""), column("customer id", "string"), column("total", "decimal(12,2)"), column("select", "int64")},
			},
			{
				Name: "lines", Key: []int{0, 1}, PartitionBy: -1,
				Columns: []project.ColumnSchema{column("orderId", "string"), column("line", "int64"), column("sku", "")},
			},
			{
				Name: "Kinds", Key: []int{0}, PartitionBy: -1,
				Columns: []project.ColumnSchema{
					column("k", "string"), column("any", ""), column("text", "string"), column("int", "int64"), column("double", "double"),
					column("decimal", "decimal(38,9)"), column("small", "decimal(9,4)"), column("bool", "bool"), column("time", "timestamp"),
					column("date", "date"), column("json", "json"), column("Größe „in“ \"cm\"", "double"),
				},
			},
		},
	}
}

// order returns a row of Orders.
func order(source, id, customer string, cents int64) project.Row {
	values := []project.Value{project.TextOf(id), {}, project.SmallDecimalOf(cents, 2), project.IntOf(cents % 7)}
	if customer != "" {
		values[1] = project.TextOf(customer)
	}
	return project.Row{Table: Orders, Key: values[:1:1], Values: values, Source: source}
}

// line returns a row of Lines.
func line(source, id string, n int64, sku string) project.Row {
	values := []project.Value{project.TextOf(id), project.IntOf(n), project.TextOf(sku)}
	return project.Row{Table: Lines, Key: values[:2:2], Values: values, Source: source, Element: strconv.FormatInt(n, 10)}
}

// gone returns what drops a row.
func gone(r project.Row) project.Row {
	return project.Row{Table: r.Table, Key: r.Key, Source: r.Source, Element: r.Element}
}

// source names an item of the container that the cases pretend to read.
func source(t testing.TB, key, id string) string {
	t.Helper()
	k, err := feed.NewPartitionKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return project.SourceOf("customer", k, id)
}

// reject returns a reject of a value.
func reject(table int, source, element, column string) project.Reject {
	return project.Reject{
		Table: table, Source: source, Element: element, Column: column, Reason: "is a string, \"x\", and the column takes numbers (int64)",
		Row: []byte(`{"id":"x","select":"ten","note":"` + strings.Repeat("é", 20) + `"}`),
	}
}

// accepted returns what withdraws a reject.
func accepted(r project.Reject) project.Reject {
	return project.Reject{Table: r.Table, Source: r.Source, Element: r.Element}
}

// at returns a position.
func at(lsn uint64) feed.Position { return feed.Position{LSN: feed.LSN(lsn)} }

// term returns one of a source partition.
func term(s *project.Schema, partition int, epoch uint64) project.Term {
	return project.Term{
		Producer: feed.Producer{Pipeline: s.Pipeline, Generation: s.Generation, Source: fmt.Sprintf("source:c7k2x4ab/%d", partition)},
		Epoch:    epoch,
	}
}
