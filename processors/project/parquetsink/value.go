package parquetsink

import (
	"fmt"
	"math/big"
	"unsafe"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// arena holds the values and texts of many rows in few pieces of memory.
type arena struct {
	values []parquet.Value
	text   []byte
	source string // that was shared last
	size   int    // bytes given out, and shared
}

// Sizes of an arena's pieces.
const (
	arenaValues = 4096
	arenaText   = 64 << 10
)

// row returns room for n values.
func (a *arena) row(n int) parquet.Row {
	if len(a.values) < n {
		a.values = make([]parquet.Value, max(arenaValues, n))
	}
	row := a.values[:n:n]
	a.values = a.values[n:]
	a.size += n * int(unsafe.Sizeof(parquet.Value{}))
	return row
}

// shareText returns the bytes of s, which must not be changed. Texts of a batch are not
// copied, because nothing changes a batch.
func (a *arena) shareText(s string) []byte {
	a.size += len(s)
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// copyText returns a copy of s.
func (a *arena) copyText(s string) []byte {
	if len(a.text) < len(s) {
		a.text = make([]byte, max(arenaText, len(s)))
	}
	n := copy(a.text, s)
	text := a.text[:n:n]
	a.text = a.text[n:]
	a.size += n
	return text
}

// clone returns a copy of a row whose bytes belong to someone else.
func (a *arena) clone(row parquet.Row) parquet.Row {
	to := a.row(len(row))
	for i, v := range row {
		switch v.Kind() {
		// Texts point into a page, which the reader fills again.
		case parquet.ByteArray:
			to[i] = parquet.ByteArrayValue(a.copyText(v.String())).Level(0, v.DefinitionLevel(), i)
		case parquet.FixedLenByteArray:
			to[i] = parquet.FixedLenByteArrayValue(a.copyText(string(v.ByteArray()))).Level(0, v.DefinitionLevel(), i)
		default:
			to[i] = v
		}
	}
	return to
}

// textValue returns a value of a text column, which shares the memory of s.
func (l *layout) textValue(a *arena, column int, s string) parquet.Value {
	return l.inColumn(parquet.ByteArrayValue(a.shareText(s)), column)
}

// inColumn gives a value, or null, the number of its column and its definition level: 1
// for a value of a column that may be null.
func (l *layout) inColumn(v parquet.Value, column int) parquet.Value {
	level := 0
	if !l.columns[column].required && !v.IsNull() {
		level = 1
	}
	return v.Level(0, level, column)
}

// nullValue returns the null of a column.
func (l *layout) nullValue(column int) parquet.Value { return parquet.NullValue().Level(0, 0, column) }

// encode returns a value of a table's column. The error, made by
// processors.Reject, says that the column cannot hold it.
func (l *layout) encode(a *arena, column int, v project.Value) (parquet.Value, error) {
	c := &l.columns[column]
	if v.IsNull() {
		if c.required {
			return parquet.Value{}, l.refuse(column, "a key is not null")
		}
		return l.nullValue(column), nil
	}
	if v.Kind() != c.typ.Holds() {
		return parquet.Value{}, l.refuse(column, fmt.Sprintf("holds no %s", v.Kind()))
	}
	switch v.Kind() {
	case project.Int:
		return l.inColumn(parquet.Int64Value(v.Int()), column), nil
	case project.Float:
		return l.inColumn(parquet.DoubleValue(v.Float()), column), nil
	case project.Bool:
		return l.inColumn(parquet.BooleanValue(v.Bool()), column), nil
	case project.Time:
		return l.inColumn(parquet.Int64Value(v.Micros()), column), nil
	case project.Date:
		return l.inColumn(parquet.Int32Value(int32(v.Days())), column), nil
	case project.Decimal:
		return l.encodeDecimal(a, column, v)
	case project.JSON:
		return l.textValue(a, column, v.JSON()), nil
	default:
		return l.textValue(a, column, v.Text()), nil
	}
}

func (l *layout) encodeDecimal(a *arena, column int, v project.Value) (parquet.Value, error) {
	typ := l.columns[column].typ
	// project has rounded it to the declared scale. Another one means that the row was made
	// for another declaration.
	if v.Scale() != typ.Scale {
		return parquet.Value{}, l.refuse(column, fmt.Sprintf("is a %s: %s has another scale", typ, v))
	}
	n, small := v.Unscaled()
	switch {
	case small && typ.Precision <= decimal32Max && int64(int32(n)) == n:
		return l.inColumn(parquet.Int32Value(int32(n)), column), nil
	case small && typ.Precision > decimal32Max && typ.Precision <= decimal64Max:
		return l.inColumn(parquet.Int64Value(n), column), nil
	case typ.Precision <= decimal64Max:
		return parquet.Value{}, l.refuse(column, fmt.Sprintf("is a %s: %s is too large", typ, v))
	}
	size := decimalBytes(typ)
	unscaled := v.UnscaledBig()
	if unscaled.BitLen() >= size*8 {
		return parquet.Value{}, l.refuse(column, fmt.Sprintf("is a %s: %s is too large", typ, v))
	}
	// Parquet wants two's complement; big.Int.FillBytes writes the absolute value.
	if unscaled.Sign() < 0 {
		unscaled = new(big.Int).Add(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(size*8)))
	}
	var buf [16]byte
	bytes := a.copyText(string(unscaled.FillBytes(buf[:size])))
	return l.inColumn(parquet.FixedLenByteArrayValue(bytes), column), nil
}

func (l *layout) refuse(column int, what string) error {
	return processors.Reject(fmt.Errorf("parquet: table %s: column %s %s", l.as, l.columns[column].as, what))
}

// decode returns the value of a column. It keeps nothing of v.
func (l *layout) decode(column int, v parquet.Value) project.Value {
	typ := l.columns[column].typ
	switch {
	case v.IsNull():
		return project.Value{}
	case typ.Kind == project.KindDecimal:
		return decodeDecimal(typ, v)
	}
	switch typ.Holds() {
	case project.Int:
		return project.IntOf(v.Int64())
	case project.Float:
		return project.FloatOf(v.Double())
	case project.Bool:
		return project.BoolOf(v.Boolean())
	case project.Time:
		return project.TimeOfMicros(v.Int64())
	case project.Date:
		return project.DateOf(int(v.Int32()))
	case project.JSON:
		return project.JSONOf(textOf(v))
	default:
		return project.TextOf(textOf(v))
	}
}

func decodeDecimal(typ project.Type, v parquet.Value) project.Value {
	switch v.Kind() {
	case parquet.Int32:
		return project.SmallDecimalOf(int64(v.Int32()), typ.Scale)
	case parquet.Int64:
		return project.SmallDecimalOf(v.Int64(), typ.Scale)
	default:
	}
	bytes := v.ByteArray()
	unscaled := new(big.Int).SetBytes(bytes)
	if len(bytes) > 0 && bytes[0]&0x80 != 0 {
		unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(len(bytes)*8)))
	}
	return project.DecimalOf(unscaled, typ.Scale)
}

// textOf returns a copy of a text, "" for null.
func textOf(v parquet.Value) string {
	if v.IsNull() {
		return ""
	}
	return string(v.ByteArray())
}
