package pgsink

import (
	"strconv"

	"github.com/millrace/millrace/processors/project"
)

// Object identifiers of types, from PostgreSQL's pg_type.dat.
const (
	oidBool, oidBoolArray               = 16, 1000
	oidBytea, oidByteaArray             = 17, 1001
	oidInt8, oidInt8Array               = 20, 1016
	oidText, oidTextArray               = 25, 1009
	oidJSON, oidJSONArray               = 114, 199
	oidFloat8, oidFloat8Array           = 701, 1022
	oidDate, oidDateArray               = 1082, 1182
	oidTimestamptz, oidTimestamptzArray = 1184, 1185
	oidNumeric, oidNumericArray         = 1700, 1231
	oidJSONB, oidJSONBArray             = 3802, 3807
)

// columnType is how PostgreSQL holds the values of a type.
type columnType struct {
	name         string // in a declaration
	array        string // of many values, as a parameter
	oid, arrayID uint32
}

// typeOf returns the PostgreSQL type of a column.
func typeOf(t project.Type) columnType {
	switch t.Holds() {
	case project.Int:
		return columnType{"bigint", "bigint[]", oidInt8, oidInt8Array}
	case project.Float:
		return columnType{"double precision", "double precision[]", oidFloat8, oidFloat8Array}
	case project.Decimal:
		name := "numeric(" + strconv.Itoa(t.Precision) + "," + strconv.Itoa(t.Scale) + ")"
		return columnType{name, "numeric[]", oidNumeric, oidNumericArray}
	case project.Bool:
		return columnType{"boolean", "boolean[]", oidBool, oidBoolArray}
	case project.Time:
		return columnType{"timestamp with time zone", "timestamp with time zone[]", oidTimestamptz, oidTimestamptzArray}
	case project.Date:
		return columnType{"date", "date[]", oidDate, oidDateArray}
	case project.JSON:
		return columnType{"jsonb", "jsonb[]", oidJSONB, oidJSONBArray}
	default:
		return columnType{"text", "text[]", oidText, oidTextArray}
	}
}
