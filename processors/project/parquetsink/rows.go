package parquetsink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
)

// encodeRow returns a row of a table. columns maps those of the row to those of the
// layout.
func (l *layout) encodeRow(a *arena, r *project.Row, columns []int) (parquet.Row, error) {
	row := a.row(len(l.columns))
	// A schema that was declared before columns were added does not know them.
	if len(columns) != len(l.table.Columns) {
		for i := range l.element {
			row[i] = l.nullValue(i)
		}
	}
	for i, v := range r.Values {
		value, err := l.encode(a, columns[i], v)
		if err != nil {
			return nil, err
		}
		row[columns[i]] = value
	}
	l.setSource(a, row, r)
	return row, nil
}

// encodeKeyRow returns a row of which only key and source are there.
func (l *layout) encodeKeyRow(a *arena, r *project.Row) (parquet.Row, error) {
	row := a.row(len(l.columns))
	for i := range row {
		row[i] = l.nullValue(i)
	}
	if len(r.Key) != len(l.key) {
		return nil, l.refuse(l.key[0], fmt.Sprintf("is one of %d of the key, the row has %d", len(l.key), len(r.Key)))
	}
	for i, v := range r.Key {
		value, err := l.encode(a, l.key[i], v)
		if err != nil {
			return nil, err
		}
		row[l.key[i]] = value
	}
	l.setSource(a, row, r)
	return row, nil
}

// setSource sets the hidden columns of a row: its item, and its element in it.
func (l *layout) setSource(a *arena, row parquet.Row, r *project.Row) {
	row[l.element] = l.nullValue(l.element)
	if r.Element != "" {
		row[l.element] = l.textValue(a, l.element, r.Element)
	}
	row[l.source] = l.textValue(a, l.source, r.Source)
	if a.source == r.Source { // the rows of an item share its name
		a.size -= len(r.Source)
	}
	a.source = r.Source
}

// decodeRow returns the values of a row's columns.
func (l *layout) decodeRow(row parquet.Row) []project.Value {
	values := make([]project.Value, len(l.table.Columns))
	for i := range values {
		values[i] = l.decode(i, row[i])
	}
	return values
}

// keyText returns a row's key as a JSON array.
func (l *layout) keyText(row parquet.Row) string {
	text := []byte{'['}
	for i, column := range l.key {
		if i > 0 {
			text = append(text, ',')
		}
		text = l.decode(column, row[column]).AppendJSON(text)
	}
	return string(append(text, ']'))
}

// sameKey says whether two rows of a table have one key.
func (l *layout) sameKey(a, b parquet.Row) bool {
	for _, column := range l.key {
		if !parquet.Equal(a[column], b[column]) {
			return false
		}
	}
	return true
}

// sameRow says whether two rows are the same in all they tell.
func sameRow(a, b parquet.Row) bool {
	for i := range a {
		if !parquet.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// hashOf returns the hash by which a row is found: of its key, or what a reject
// says.
func (l *layout) hashOf(row parquet.Row) uint64 {
	if l.hash >= 0 {
		return uint64(row[l.hash].Int64())
	}
	hash := uint64(hashSeed)
	// Values are hashed, not their text: this runs for every row of a file that is
	// rewritten. Key columns have one type each, so equal hashes of one column come from
	// equal values but for chance.
	for _, column := range l.key {
		hash = fold(hash, row[column])
	}
	return hash
}

// hashSeed is where the hash of a row's key begins.
const hashSeed = 0x9e3779b97f4a7c15

// fold takes the next value of a key into a hash.
func fold(hash uint64, v parquet.Value) uint64 {
	var next uint64
	switch v.Kind() {
	case parquet.ByteArray, parquet.FixedLenByteArray:
		next = xxhash.Sum64(v.ByteArray())
	case parquet.Boolean:
		if v.Boolean() {
			next = 1
		}
	case parquet.Int32:
		next = uint64(int64(v.Int32()))
	default:
		next = v.Uint64()
	}
	return mix(hash*31 + next)
}

// mix is the finalizer of SplitMix64: every bit of x changes half of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// rejectHashOf is the hash of a reject that is no pending row.
func rejectHashOf(source, element string) uint64 {
	return mix(mix(xxhash.Sum64String(source)) + xxhash.Sum64String(element))
}

// Limits of the folders of a partitioned table.
const (
	partitionBytesMax = 200
	nullPartition     = "__HIVE_DEFAULT_PARTITION__"
)

// partitionFolder is where rows like this one stand below the table's folder, as Hive writes it:
// "city_partition=Berlin", "" for a table that is not partitioned. It does not bear
// the column's own name: engines would take the column from it then, which cannot
// tell null from text, and guess its type.
func (l *layout) partitionFolder(row parquet.Row) string {
	if l.partition < 0 {
		return ""
	}
	return l.partitionAs + "=" + partitionText(l.decode(l.partition, row[l.partition]))
}

// partitionText escapes what the names of such folders cannot bear, as Hive and
// Spark do, so that they and DuckDB read it back.
func partitionText(v project.Value) string {
	text := v.String()
	if v.IsNull() || text == "" {
		return nullPartition
	}
	escaped := make([]byte, 0, len(text))
	for i := range len(text) {
		// Bytes, not characters: those of a character beyond ASCII are all above 0x7F.
		c := text[i]
		if c < ' ' || c == 0x7f || strings.IndexByte(`"#%'*/:=?\{}[]^`, c) >= 0 {
			escaped = fmt.Appendf(escaped, "%%%02X", c)
		} else {
			escaped = append(escaped, c)
		}
	}
	return string(escaped)
}

// allColumns are the columns of the layout's own table.
func (l *layout) allColumns() []int {
	columns := make([]int, len(l.table.Columns))
	for i := range columns {
		columns[i] = i
	}
	return columns
}

// columnsOf maps the columns of a schema to those of the layout.
func (l *layout) columnsOf(s *project.TableSchema) ([]int, error) {
	columns := make([]int, len(s.Columns))
	for i := range s.Columns {
		c := &s.Columns[i]
		at := l.table.Column(c.Name)
		if at < 0 || l.table.Columns[at].Type != c.Type {
			return nil, fmt.Errorf("table %s: column %s is not there as %s", s.Name, c.Name, c.Type)
		}
		columns[i] = at
	}
	return columns, nil
}

// columnsOfFile returns the columns of l at which those of a file of an older layout
// stand, by name; ok is false if the file is of this layout.
func (l *layout) columnsOfFile(file []string) (columns []int, ok bool, err error) {
	if slices.EqualFunc(file, l.columns, func(name string, c column) bool { return name == c.as }) {
		return nil, false, nil
	}
	for _, name := range file {
		at := slices.IndexFunc(l.columns, func(c column) bool { return c.as == name })
		if at < 0 {
			return nil, false, fmt.Errorf("column %q is not one of table %s", name, l.as)
		}
		columns = append(columns, at)
	}
	return columns, true, nil
}

// encodeReject returns the row of a reject that is no pending row, and its hash.
func (l *layout) encodeReject(a *arena, r *project.Reject) (parquet.Row, uint64) {
	row := a.row(len(l.columns))
	for i := range row {
		row[i] = l.nullValue(i)
	}
	hash := rejectHashOf(r.Source, r.Element)
	row[rejectSource] = l.textValue(a, rejectSource, r.Source)
	for column, s := range map[int]string{rejectElement: r.Element, rejectColumn: r.Column, rejectReason: r.Reason, rejectRow: string(r.Row)} {
		if s != "" {
			row[column] = l.textValue(a, column, s)
		}
	}
	row[rejectHash] = l.inColumn(parquet.Int64Value(int64(hash)), rejectHash)
	return row, hash
}

// tooLong is why a value cannot be that of a partition.
const tooLong = "is the name of a folder, which has at most 200 bytes"

// cannotHold says why a row cannot stand in a file, and of which column.
func (l *layout) cannotHold(row parquet.Row) (column int, reason string) {
	if l.partition < 0 || len(partitionText(l.decode(l.partition, row[l.partition]))) <= partitionBytesMax {
		return 0, ""
	}
	return l.partition, tooLong
}
