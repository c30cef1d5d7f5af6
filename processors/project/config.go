package project

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Limits of a projection's declaration.
const (
	TablesMax  = 64   // tables of one projection
	ColumnsMax = 1000 // columns of one table
	KeyMax     = 16   // columns of one key, or one index
	IndexesMax = 16   // indexes of one table
	NameMax    = 512  // bytes of the name of a table or column
	EachMax    = 8    // arrays within each other
)

// OnExpire says what becomes of the rows of an item that the store removes because
// its time to live has passed.
type OnExpire string

// What may become of rows.
const (
	// Keep leaves them as they were: analytics keep what the store forgets. If an
	// item of the same name comes again, the rows with its keys are its own; others
	// stay. The default.
	Keep OnExpire = "keep"
	// Delete removes them, as those of every other item that is gone.
	Delete OnExpire = "delete"
)

// Config declares one projection. Zero limits take their defaults.
type Config struct {
	// Pipeline and Generation identify the projection's writes.
	Pipeline   string
	Generation uint32
	// Source is where the items are, SourceWhere which of them count; "" is all.
	Source      *store.Container
	SourceWhere string
	// OnExpire is what becomes of the rows of expired items; "" is Keep.
	OnExpire OnExpire
	// Tables are what the rows are made for, at least one.
	Tables []Table
	// Shadow is as in Schema.
	Shadow bool
	// Backfill asks for the rows of items that are there, such as when the tables have gained
	// columns.
	Backfill processors.BackfillRequest
	// Sink keeps the rows. Check does without.
	Sink Sink
	// SinkKind is what spans call the sink, such as parquet.
	SinkKind string

	Limits
}

// Table declares the rows of one table: one for each item for which Where is true,
// or, with Each, for each element of an array in it.
//
// Expressions of columns read the item by bare names, item, c and root. With Each,
// bare names and element read the element, parent what holds its array, item (c,
// root) the whole item, index and parentIndex the places of the two in their
// arrays, from zero.
type Table struct {
	// Name is the table's, unique in the projection.
	Name string
	// Where restricts the rows; "" is all. Bare names read the item, with Each too;
	// element, parent, index and parentIndex are as in columns.
	Where string
	// Each is the path of the array, such as details; of arrays within arrays,
	// details[*].options. "" makes one row of each item.
	Each string
	// Key names the columns that identify a row.
	Key []string
	// Columns are the table's, in their order.
	Columns []Column
	// Index are lists of columns on which a sink that can keeps an index.
	Index [][]string
	// PartitionBy names the column by which a sink of files keeps them apart; "" is
	// none. Other sinks do not look at it.
	PartitionBy string
}

// Column declares one column: the value of Expr as Type. Undefined and null are
// Null; a value that the type does not hold makes the row a reject.
type Column struct {
	Name, Expr string
	// Type is what the column holds; the zero Type is text of anything.
	Type Type
}

// Limits bound a projection's work. Zero fields take their defaults.
type Limits struct {
	// FlushRowsMax bounds the rows of one source partition that a sink which
	// buffers holds before they are made durable; while that is under way as many
	// again may come. Default 200,000.
	FlushRowsMax int `yaml:"flushRowsMax"`

	// FlushBytesMax bounds their bytes, estimated, likewise. Default 64 MiB.
	FlushBytesMax int `yaml:"flushBytesMax"`

	// FlushInterval bounds the time for which a sink that buffers holds rows. The end
	// of a stream of rows that has filled the sink is not held for as long. Nor is the end of a
	// burst: a hundredth of FlushRowsMax, of 1,000 rows at least, and what comes behind as many, waits
	// for a twentieth of FlushInterval without another batch, once in FlushInterval. Default 5s.
	FlushInterval time.Duration `yaml:"flushInterval"`
}

func (l Limits) withDefaults() (Limits, error) {
	if l.FlushRowsMax == 0 {
		l.FlushRowsMax = 200_000
	}
	if l.FlushBytesMax == 0 {
		l.FlushBytesMax = 64 << 20
	}
	if l.FlushInterval == 0 {
		l.FlushInterval = 5 * time.Second
	}
	if min(l.FlushRowsMax, l.FlushBytesMax) < 0 || l.FlushInterval < 0 {
		return l, fmt.Errorf("project: a limit is negative: %+v", l)
	}
	return l, nil
}

// Problem is one thing that is wrong with a declaration.
type Problem = processors.Problem
