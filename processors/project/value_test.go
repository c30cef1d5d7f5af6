package project_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project"
)

func TestParseType(t *testing.T) {
	for text, want := range map[string]project.Type{
		"": {}, "string": {Kind: project.KindString}, " int64 ": {Kind: project.KindInt64}, "double": {Kind: project.KindDouble},
		"decimal(12,2)": {Kind: project.KindDecimal, Precision: 12, Scale: 2}, "decimal( 38 , 38 )": {Kind: project.KindDecimal, Precision: 38, Scale: 38},
		"bool": {Kind: project.KindBool}, "timestamp": {Kind: project.KindTimestamp}, "date": {Kind: project.KindDate}, "json": {Kind: project.KindJSON},
	} {
		got, err := project.ParseType(text)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := project.ParseType(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q", text, got)
		}
	}
	for _, text := range []string{"int", "decimal", "decimal(0,0)", "decimal(39,0)", "decimal(5,6)", "decimal(5)", "decimal(5,2", "string()", "decimal(a,b)", "Bool"} {
		if got, err := project.ParseType(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// one returns a projection of one column of a type.
func one(t testing.TB, typ string) *project.Projection {
	t.Helper()
	parsed, err := project.ParseType(typ)
	if err != nil {
		t.Fatal(err)
	}
	cfg := analytics(t)
	cfg.Tables = []project.Table{{
		Name: "t", Key: []string{"id"}, Columns: []project.Column{{Name: "id", Expr: "id"}, {Name: "v", Expr: "v", Type: parsed}},
	}}
	return compile(t, cfg)
}

func TestConversions(t *testing.T) {
	const bad = "!"
	for typ, cases := range map[string]map[string]string{
		"": {
			`"a"`: `"a"`, `1.50`: `"1.50"`, `true`: `"true"`, `{"a": 1}`: `"{\"a\": 1}"`, `[1, 2]`: `"[1, 2]"`, `"\u00e9\n"`: `"é\n"`, `null`: `null`,
		},
		"string": {`"a"`: `"a"`, `""`: `""`, `1`: bad, `true`: bad, `{}`: bad, `null`: `null`},
		"int64": {
			`0`: `0`, `-0`: `0`, `12.0`: `12`, `1.2e1`: `12`, `120e-1`: `12`, `9223372036854775807`: `9223372036854775807`,
			`-9223372036854775808`: `-9223372036854775808`, `9.223372036854775807e18`: `9223372036854775807`, `0e99999`: `0`,
			`9223372036854775808`: bad, `-9223372036854775809`: bad, `1.5`: bad, `1e-5`: bad, `1e400`: bad, `"1"`: bad, `true`: bad,
			`1000000000000000000000e-3`: `1000000000000000000`,
		},
		"double": {`1`: `1`, `0.1`: `0.1`, `1e400`: bad, `-1e400`: bad, `1e-400`: `0`, `-0.0`: `0`, `1.7976931348623157e308`: `1.7976931348623157e+308`, `"1"`: bad},
		"decimal(5,2)": {
			`0`: `0.00`, `-0.0`: `0.00`, `1.5`: `1.50`, `-1.05`: `-1.05`, `999.99`: `999.99`, `1.500000`: `1.50`, `15e-1`: `1.50`, `0.01`: `0.01`, `1e2`: `100.00`,
			`0.001`: `0.00`, `0.005`: `0.01`, `-0.005`: `-0.01`, `0.0049999999999999999999999999999999999999999999999999999`: `0.00`, `699.0982`: `699.10`,
			`1.995`: `2.00`, `-9.996`: `-10.00`, `0.995`: `1.00`, `1.1049`: `1.10`, `1e-99999`: `0.00`, `0.096`: `0.10`, `199.004999999999999999999999999999999999999999999999999999999`: `199.00`,
			`1000`: bad, `1e3`: bad, `-999.995`: bad, `999.9949`: `999.99`, `"1.5"`: bad, `1e99999`: bad,
		},
		"decimal(38,0)": {
			`99999999999999999999999999999999999999`: `99999999999999999999999999999999999999`, `1e37`: `10000000000000000000000000000000000000`,
			`100000000000000000000000000000000000000`: bad, `-99999999999999999999999999999999999999.0`: `-99999999999999999999999999999999999999`, `1e38`: bad,
		},
		"decimal(38,38)": {
			`0.12345678901234567890123456789012345678`: `0.12345678901234567890123456789012345678`, `1`: bad,
			`0.999999999999999999999999999999999999995`: bad, `0.123456789012345678901234567890123456785`: `0.12345678901234567890123456789012345679`, `1e-38`: `0.00000000000000000000000000000000000001`,
		},
		"bool": {`true`: `true`, `false`: `false`, `0`: bad, `"true"`: bad},
		"timestamp": {
			`"2024-01-31T08:30:00Z"`: `"2024-01-31T08:30:00Z"`, `"2014-08-16T00:00:00"`: `"2014-08-16T00:00:00Z"`, `"2024-01-31"`: `"2024-01-31T00:00:00Z"`,
			`"2024-01-31 08:30:00.5+02:00"`: `"2024-01-31T06:30:00.5Z"`, `"2024-01-31T08:30Z"`: `"2024-01-31T08:30:00Z"`, `"2024-01-31T23:30:00-01:30"`: `"2024-02-01T01:00:00Z"`,
			`"2024-01-31T08:30:00.1234567Z"`: `"2024-01-31T08:30:00.123456Z"`, `"1969-12-31T23:59:59.999999Z"`: `"1969-12-31T23:59:59.999999Z"`,
			`"0001-01-01T00:00:00"`: `"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59.9999999Z"`: `"9999-12-31T23:59:59.999999Z"`,
			`"0001-01-01T00:00:00+01:00"`: bad, `"9999-12-31T23:59:59-01:00"`: bad, `"2024-02-30"`: bad, `"2024-1-31"`: bad, `"24-01-31"`: bad, `"2024-01-31T"`: bad,
			`"2024-01-31T24:00:00"`: bad, `"2024-01-31T08:30:60Z"`: bad, `"2024-01-31T08:30:00."`: bad, `"2024-01-31T08:30:00+2"`: bad, `"2024-01-31Z"`: bad, `1706689800`: bad, `""`: bad,
		},
		"date": {
			`"2024-02-29"`: `"2024-02-29"`, `"2014-08-16T00:00:00"`: `"2014-08-16"`, `"2014-08-16T00:00:00.000Z"`: `"2014-08-16"`, `"0001-01-01"`: `"0001-01-01"`, `"9999-12-31"`: `"9999-12-31"`,
			`"2014-08-16T00:00:01"`: bad, `"2014-08-16T00:00:00.0000001"`: bad, `"2014-08-16T02:00:00+02:00"`: bad, `"2023-02-29"`: bad, `20140816`: bad,
		},
		"json": {`{"a": [1.50, null]}`: `{"a": [1.50, null]}`, `"a\n"`: `"a\n"`, `12.340`: `12.340`, `true`: `true`, `null`: `null`},
	} {
		p := one(t, typ)
		for in, want := range cases {
			rows, rejects := p.RowsOf(key(t, "c1"), "x", []byte(`{"id":"x","v":`+in+`}`))
			switch {
			case want == bad && len(rejects) == 1 && rejects[0].Column == "v" && rejects[0].Reason != "":
			case want == bad:
				t.Errorf("%s of %s: %v, want a reject", typ, in, rows)
			case len(rows) != 1:
				t.Errorf("%s of %s: rejected: %v", typ, in, rejects[0].Reason)
			case string(rows[0].Values[1].AppendJSON(nil)) != want:
				t.Errorf("%s of %s is %s, want %s", typ, in, rows[0].Values[1].AppendJSON(nil), want)
			}
		}
	}
}

func TestValues(t *testing.T) {
	n, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	d := project.DecimalOf(n, 4)
	if got := d.String(); got != "-12345678901234567890123456.7890" {
		t.Errorf("a decimal prints as %s", got)
	}
	if _, ok := d.Unscaled(); ok || d.UnscaledBig().Cmp(n) != 0 || d.Scale() != 4 {
		t.Errorf("%s does not come back", d)
	}
	if project.DecimalOf(big.NewInt(5), 2) != project.SmallDecimalOf(5, 2) {
		t.Error("equal decimals differ")
	}
	if project.FloatOf(math.Copysign(0, -1)) != project.FloatOf(0) {
		t.Error("minus zero is another value")
	}
	if at := time.Date(2024, 1, 2, 3, 4, 5, 6789, time.UTC); !project.TimeOf(at).Time().Equal(at.Truncate(time.Microsecond)) {
		t.Error("a time does not come back")
	}
	a, b := project.JSONOf(`{"a":1,"b":2.0}`), project.JSONOf(`{"b":2, "a":1}`)
	if a == b || !a.Equal(b) || a.Equal(project.JSONOf(`{"a":1}`)) || a.Equal(project.TextOf(`{"a":1,"b":2.0}`)) {
		t.Error("JSON is not compared by what it means")
	}
	defer func() {
		if r, ok := recover().(string); !ok || !strings.Contains(r, "read as") {
			t.Errorf("a value is read as what it is not: %v", r)
		}
	}()
	_ = project.IntOf(1).Text()
}
