package project

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// Row is one row of one table. Rows may share memory with each other, and must
// not be changed.
type Row struct {
	// Table is the index of the table in the Schema.
	Table int
	// Key are the values of the key columns, in the order of TableSchema.Key.
	// None is Null.
	Key []Value
	// Values are those of all columns, the key's among them, in the order of
	// TableSchema.Columns; nil where only key and source count.
	Values []Value
	// Source names the item that the row was made from, as SourceOf writes it. An
	// item has at most one row with a key, so Table, Key and Source identify a row.
	Source string
	// Element is the place in the item of the element that the row was made from:
	// the indexes in the arrays of each, the outer first, such as 3 or 3.0; "" for a
	// row of a whole item.
	Element string
}

// Reject is a row that could not take its place, and why.
type Reject struct {
	// Table is the index of the table in the Schema.
	Table int
	// Key is nil for a row that cannot be: Table, Source and Element identify it. It
	// is not nil for a pending row, which a Sink makes of a row whose key another
	// item's row holds: Table, Key and Source identify it.
	Key []Value
	// Source and Element are as in Row.
	Source, Element string
	// Column is the column whose value cannot be held; "" if it is not one alone.
	Column string
	// Reason says what is wrong, for people.
	Reason string
	// Row is the row as JSON: of a pending row as TableSchema.AppendRow writes it, else an
	// object of the columns' values before they were converted, nil if they are
	// larger than RejectRowBytesMax, or if too many rows of the item are rejects.
	Row []byte
}

// RejectRowBytesMax bounds the values that a Reject shows.
const RejectRowBytesMax = 64 << 10

// Pending says whether the reject is a row that waits for its key.
func (r *Reject) Pending() bool { return r.Key != nil }

// HeldBy is the Reason of a pending row whose key the row of an item holds.
func HeldBy(source string) string { return heldByPrefix + source }

const heldByPrefix = "key is held by "

// SourceOf names an item of a container: its container, partition key and id,
// such as customer/["c1"]/o7. It is the order of names that decides which of
// several pending rows is next.
func SourceOf(container string, key feed.PartitionKey, id string) string {
	return container + "/" + key.String() + "/" + id
}

// ParseSource reads what SourceOf wrote.
func ParseSource(source string) (container string, key feed.PartitionKey, id string, err error) {
	container, rest, ok := strings.Cut(source, "/")
	if !ok {
		return "", key, "", fmt.Errorf("source %q: want container/[partition key]/id", source)
	}
	at := feed.PartitionKeyEnd(rest) // an id may hold a slash, and a key too
	if at < 0 || at == len(rest) || rest[at] != '/' {
		return "", key, "", fmt.Errorf("source %q: want container/[partition key]/id", source)
	}
	if key, err = feed.ParsePartitionKey(rest[:at]); err != nil {
		return "", key, "", fmt.Errorf("source %q: %w", source, err)
	}
	return container, key, rest[at+1:], nil
}

// AppendKey appends a key to dst in a form that is equal for equal keys and
// different for different ones. The form is not stored anywhere.
func AppendKey(dst []byte, key []Value) []byte {
	for _, v := range key {
		dst = append(dst, byte(v.kind), v.scale)
		dst = binary.AppendUvarint(dst, uint64(v.n))
		dst = binary.AppendUvarint(dst, uint64(len(v.s)))
		dst = append(dst, v.s...)
	}
	return dst
}

// EqualRows says whether two rows of one table are the same in all they tell.
func EqualRows(a, b *Row) bool {
	if a.Table != b.Table || a.Source != b.Source || a.Element != b.Element || len(a.Values) != len(b.Values) {
		return false
	}
	for i := range a.Values {
		if !a.Values[i].Equal(b.Values[i]) {
			return false
		}
	}
	return true
}

// AppendRow appends the values of a row as a JSON object to dst, one member for
// each column that is not Null, in their order. ParseRow reads it back.
func (t *TableSchema) AppendRow(dst []byte, values []Value) []byte {
	dst = append(dst, '{')
	first := len(dst)
	for i, v := range values {
		if v.IsNull() {
			continue
		}
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = document.AppendQuote(dst, t.Columns[i].Name)
		dst = append(dst, ':')
		dst = v.AppendJSON(dst)
	}
	return append(dst, '}')
}

// ParseRow returns the values of a row that AppendRow wrote, also with other
// members among them, and before columns were added. The error names a value
// that its column cannot hold.
func (t *TableSchema) ParseRow(data []byte) ([]Value, error) {
	if document.KindOf(data) != document.Object {
		return nil, fmt.Errorf("table %s: a row is a JSON object", t.Name)
	}
	values := make([]Value, len(t.Columns))
	var bad error
	document.Members(data, func(name, raw []byte) bool {
		i := t.Column(string(name))
		if i < 0 {
			return true
		}
		typ := t.Columns[i].Type
		if typ.Kind == KindAny && document.KindOf(raw) != document.String {
			// It holds text. A number there was written by somebody else, and is not the
			// text of the number.
			typ.Kind = KindJSON
		}
		v, err := typ.parse(raw)
		if err != nil {
			bad = fmt.Errorf("table %s: column %s: %w", t.Name, name, err)
			return false
		}
		values[i] = v
		return true
	})
	return values, bad
}

// KeyOf returns the key among the values of a row.
func (t *TableSchema) KeyOf(values []Value) []Value {
	key := make([]Value, len(t.Key))
	for i, column := range t.Key {
		key[i] = values[column]
	}
	return key
}
