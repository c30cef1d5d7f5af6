package parquetsink

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
)

// layout is how the rows of one table, or its rejects, stand in files. It does not
// change once made.
type layout struct {
	as      string
	columns []column
	key     []int // columns of a table's key
	// partition is the column by which files are kept apart, -1 for none, and
	// partitionAs what their folders are named for.
	partition   int
	partitionAs string
	// element and source are hidden columns of a table, -1 in one of rejects.
	element, source int
	// hash is the column of rejects that holds what others compute, else -1.
	hash   int
	schema *parquet.Schema
	// table is what it was made from, to read pending rows; nil for rejects.
	table *project.TableSchema
}

// column is one column of a layout.
type column struct {
	as       string
	typ      project.Type
	required bool
}

// newLayout returns the layout of a table's rows.
func newLayout(t *table) (*layout, error) {
	l := &layout{as: t.As, partition: -1, hash: -1, table: &project.TableSchema{Name: t.Name, PartitionBy: -1}}
	for i, c := range t.Columns {
		typ, err := project.ParseType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("table %s: column %s: %w", t.Name, c.Name, err)
		}
		key := slices.Contains(t.Key, c.Name)
		l.columns = append(l.columns, column{as: c.As, typ: typ, required: key})
		l.table.Columns = append(l.table.Columns, project.ColumnSchema{Name: c.Name, Type: typ})
		if c.Name == t.PartitionBy {
			l.partition, l.partitionAs, l.table.PartitionBy = i, t.PartitionAs, i
		}
	}
	for _, name := range t.Key {
		i := l.table.Column(name)
		if i < 0 {
			return nil, fmt.Errorf("table %s: key column %s is not there", t.Name, name)
		}
		l.key = append(l.key, i)
	}
	l.table.Key = l.key
	l.element = len(l.columns)
	l.source = l.element + 1
	l.columns = append(l.columns, column{as: elementColumn}, column{as: sourceColumn, required: true})
	l.makeSchema()
	return l, nil
}

// Columns of rejects.
const (
	rejectSource = iota
	rejectElement
	rejectColumn
	rejectReason
	rejectRow
	rejectKey
	rejectHash
)

// newRejectLayout returns the layout of a table's rejects.
func newRejectLayout(as string) *layout {
	text, json := project.Type{Kind: project.KindString}, project.Type{Kind: project.KindJSON}
	l := &layout{as: as, partition: -1, element: -1, source: -1, hash: rejectHash, columns: []column{
		rejectSource:  {as: "source", typ: text, required: true},
		rejectElement: {as: "element", typ: text},
		rejectColumn:  {as: "column", typ: text},
		rejectReason:  {as: "reason", typ: text},
		rejectRow:     {as: "row", typ: json},
		rejectKey:     {as: "key", typ: json},
		rejectHash:    {as: hashColumn, typ: project.Type{Kind: project.KindInt64}, required: true},
	}}
	l.makeSchema()
	return l
}

func (l *layout) makeSchema() {
	// A parquet.Group is a map and orders its fields by name. Users expect the order of
	// the declaration.
	nodes, order := parquet.Group{}, map[string]int{}
	for i, c := range l.columns {
		node := c.node(l.partition == i)
		if c.required {
			nodes[c.as] = parquet.Required(node)
		} else {
			nodes[c.as] = parquet.Optional(node)
		}
		order[c.as] = i
	}
	fields := nodes.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int { return order[a.Name()] - order[b.Name()] })
	l.schema = parquet.NewSchema(l.as, &orderedGroup{nodes, fields})
}

// orderedGroup is a group whose fields keep the order of the table.
type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

// Fields returns the columns in their order.
func (g *orderedGroup) Fields() []parquet.Field { return g.fields }

// Digits of a decimal that 32 and 64 bits hold.
const (
	decimal32Max = 9
	decimal64Max = 18
)

// node is the column's Parquet type: text by dictionary where that is shorter. Keys and
// sources have what each differs in from the one before: rows of one item are side by
// side.
func (c *column) node(partition bool) parquet.Node {
	switch c.typ.Kind {
	case project.KindInt64:
		return parquet.Int(64)
	case project.KindDouble:
		return parquet.Leaf(parquet.DoubleType)
	case project.KindDecimal:
		return parquet.Decimal(c.typ.Scale, c.typ.Precision, decimalType(c.typ))
	case project.KindBool:
		return parquet.Leaf(parquet.BooleanType)
	case project.KindTimestamp:
		return parquet.Timestamp(parquet.Microsecond)
	case project.KindDate:
		return parquet.Date()
	case project.KindJSON:
		return parquet.JSON()
	default:
		if c.required && !partition {
			return parquet.Encoded(parquet.String(), &parquet.DeltaByteArray)
		}
		return parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	}
}

func decimalType(t project.Type) parquet.Type {
	switch {
	case t.Precision <= decimal32Max:
		return parquet.Int32Type
	case t.Precision <= decimal64Max:
		return parquet.Int64Type
	}
	return parquet.FixedLenByteArrayType(decimalBytes(t))
}

// decimalBytes is how many bytes hold every decimal of a type, and its sign.
func decimalBytes(t project.Type) int {
	return (decimalBits[t.Precision] + 8) / 8
}

// decimalBits are the bits that decimals of so many digits need without sign.
var decimalBits = func() (all [project.DecimalPrecisionMax + 1]int) {
	hi, lo := uint64(0), uint64(1)
	for digits := range all { // hi, lo is 10^digits
		all[digits] = bits.Len64(hi) + 64
		if hi == 0 {
			all[digits] = bits.Len64(lo)
		}
		carry, low := bits.Mul64(lo, 10)
		hi, lo = hi*10+carry, low
	}
	return all
}()
