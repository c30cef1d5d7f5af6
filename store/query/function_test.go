package query_test

import (
	"testing"

	"github.com/millrace/millrace/store/query"
)

// Functions that came with queries; TestFunctions has the others.
func TestFunctions_OfQueries(t *testing.T) {
	const at = `"2020-01-02T03:04:05.6789123Z"`
	for _, c := range []struct{ text, want string }{
		{`[DateTimePart("yyyy", ` + at + `), DateTimePart("m", ` + at + `), DateTimePart("dd", ` + at + `), DateTimePart("hh", ` + at + `)]`, `[2020,1,2,3]`},
		{`[DateTimePart("mi", ` + at + `), DateTimePart("SS", ` + at + `), DateTimePart("ms", ` + at + `), DateTimePart("ns", ` + at + `)]`, `[4,5,678,678912300]`},
		{`DateTimePart("week", ` + at + `)`, ``},
		{`DateTimePart(1, ` + at + `)`, ``},
		{`DateTimePart("yyyy", "2020-13-01")`, ``},
		{`DateTimePart("yyyy", "20-01-01")`, ``},
		{`DateTimePart("hh", "2020-01-02T03:04:05+02:00")`, `1`},
		{`DateTimeAdd("hh", -4, ` + at + `)`, `"2020-01-01T23:04:05.6789123Z"`},
		{`DateTimeAdd("ns", 250, ` + at + `)`, `"2020-01-02T03:04:05.6789125Z"`},
		{`DateTimeAdd("mcs", 3000001, ` + at + `)`, `"2020-01-02T03:04:08.6789133Z"`},
		{`DateTimeAdd("dd", 1000000, ` + at + `)`, `"4757-11-29T03:04:05.6789123Z"`},
		{`DateTimeAdd("yyyy", 9000, ` + at + `)`, ``},
		{`DateTimeAdd("ss", 9223372036854775807, ` + at + `)`, ``},
		{`DateTimeAdd("yyyy", 9223372036854775807, ` + at + `)`, ``},
		{`DateTimeAdd("yyyy", -9223372036854775808, ` + at + `)`, ``},
		{`DateTimeAdd("ns", -9223372036854775808, ` + at + `)`, `"1727-09-23T03:16:48.8241364Z"`},
		{`DateTimeAdd("yyyy", 1.5, ` + at + `)`, ``},
		{`DateTimeAdd("mm", -12, "2020-02-29")`, `"2019-02-28T00:00:00.0000000Z"`},
		{`DateTimeDiff("ww", "2020-01-01", "2020-01-15")`, `2`},
		{`DateTimeDiff("ns", "0001-01-01", "9999-12-31")`, `315537811200000000000`},
		{`DateTimeDiff("ss", "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00.4Z")`, `1`},
		{`DateTimeDiff("x", "2020-01-01", "2020-01-15")`, ``},
		{`DateTimeBin("1969-12-31T23:59:59Z", "hh")`, `"1969-12-31T23:00:00.0000000Z"`},
		{`DateTimeBin("2020-01-01", "yyyy")`, ``},
		{`DateTimeBin("2020-01-01", "dd", 0)`, ``},
		{`DateTimeFromParts(2020, 2, 30)`, ``},
		{`DateTimeFromParts(2020, 2, 29, 23, 59, 59, 9999999)`, `"2020-02-29T23:59:59.9999999Z"`},
		{`DateTimeFromParts(2020, -1, 1)`, ``},
		{`TicksToDateTime(9223372036854775807)`, ``},
		{`TimestampToDateTime("1")`, ``},
		{`DateTimeToTimestamp("x")`, ``},

		{`ROUND(DEGREES(PI())) + ROUND(RADIANS(180))`, `183`},
		{`[ACOS(1), ASIN(0), ATAN(0), ATN2(0, 1), COS(0), SIN(0), TAN(0)]`, `[0,0,0,0,1,0,0]`},
		{`ACOS(2)`, ``},
		{`COT(0)`, ``},
		{`ATN2("1", 1)`, ``},
		{`[NumberBin(37.752, 10), NumberBin(-1.5), NumberBin(1, 0)]`, `[30,-2]`},
		{`[IntSub(1, 2), IntBitAnd(6, 3), IntBitOr(6, 3), IntBitXor(6, 3), IntBitLeftShift(1, 40), IntBitRightShift(-8, 1)]`, `[-1,2,7,5,1099511627776,-4]`},
		{`IntDiv(1, 0)`, ``},
		{`IntMod(-9223372036854775808, -1)`, ``},
		{`IntAdd(1.5, 1)`, ``},
		{`IntMul(3037000500, 3037000500)`, ``},

		{`ARRAY_SUM([1, 0.5]) + ARRAY_MAX([3, 1]) + ARRAY_MIN([3, 1])`, `5.5`},
		{`ARRAY_SUM(["x"])`, ``},
		{`ARRAY_AVG([])`, ``},
		{`ARRAY_MAX("x")`, ``},
		{`SetDifference([1, 2, 1], [2])`, `[1]`},
		{`SetUnion([{"a": 1, "b": 2}], [{"b": 2.0, "a": 1}, 1])`, `[{"a":1,"b":2},1]`},
		{`SetUnion([1], "x")`, ``},
		{`ObjectToArray({"a": 1, "b": [2]}, "key", "value")`, `[{"key":"a","value":1},{"key":"b","value":[2]}]`},
		{`ObjectToArray({"a": 1}, 5)`, ``},
		{`ObjectToArray({"a": 1}, "x", "x")`, ``},
		{`Choose(1, "a")`, `"a"`},
		{`Choose(0, "a")`, ``},
		{`StringJoin(["a", 1], "-")`, ``},
		{`StringJoin([], "-")`, `""`},
		{`StringSplit("a--b", "-")`, `["a","","b"]`},
		{`StringSplit("a", "")`, ``},

		{`90071992547409930000004 / 2`, `45035996273704965000002`},
		{`90071992547409930000005 % 2`, `1`},
		{`1e30 / 3`, `3.333333333333333e+29`},
		{`3 IN (1, 2, 3, 4, 5, 6, 7, 8)`, `true`},
		{`9 IN (1, 2, 3, 4, 5, 6, 7, 8)`, `false`},
		{`"9" IN (1, 2, 3, 4, 5, 6, 7, 8)`, `false`},
		{`"9" IN (1, 2, 3, 4, 5, 6, 7, "8")`, `false`},
		{`"9" IN (1, 2, 3, 4, 5, 6, undefined, "8")`, ``},
		{`"8" IN (1, 2, 3, 4, 5, 6, 7, "8")`, `true`},
		{`missing IN (1, 2, 3, 4, 5, 6, 7, 8)`, ``},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := string(e.Eval([]byte(`{}`)).AppendJSON(nil)); got != c.want {
			t.Errorf("%s is %q, want %q", c.text, got, c.want)
		}
	}
}
