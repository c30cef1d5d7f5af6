package pgsink

import (
	"math/big"
	"strings"
	"testing"

	"github.com/millrace/millrace/processors/project"
)

func decimal(t testing.TB, digits string, scale int) project.Value {
	t.Helper()
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		t.Fatalf("%q is no number", digits)
	}
	return project.DecimalOf(n, scale)
}

func TestNumericsComeBack(t *testing.T) {
	for _, digits := range []string{
		"0", "1", "-1", "9", "10", "9999", "10000", "-10001", "12345678", "99999999", "100000000", "9223372036854775807", "-9223372036854775808",
		"9223372036854775808", "99999999999999999999999999999999999999", "-10000000000000000000000000000000000000",
	} {
		for scale := range project.DecimalScaleMax + 1 {
			typ := project.Type{Kind: project.KindDecimal, Precision: project.DecimalPrecisionMax, Scale: scale}
			want := decimal(t, digits, scale)
			got, err := decodeValue(typ, appendValue(nil, want))
			if err != nil || got != want {
				t.Errorf("%s with scale %d comes back as %s: %v", digits, scale, got, err)
			}
		}
	}
}

func TestNumericOfMoreDigitsIsRefused(t *testing.T) {
	data := appendValue(nil, decimal(t, "12345", 3)) // 12.345
	typ := project.Type{Kind: project.KindDecimal, Precision: 10, Scale: 2}
	if v, err := decodeValue(typ, data); err == nil {
		t.Errorf("12.345 is read as %s", v)
	}
	if v, err := decodeValue(typ, []byte{0, 0, 0, 0, 0xC0, 0, 0, 0}); err == nil {
		t.Errorf("NaN is read as %s", v)
	}
}

// Whatever comes from a server, reading it ends in a value or an error, and a
// numeric that was read is written as it was.
func FuzzDecode(f *testing.F) {
	for _, v := range []project.Value{project.SmallDecimalOf(-12345, 2), project.IntOf(7), project.TextOf("x"), project.JSONOf(`{}`)} {
		f.Add(uint8(project.KindDecimal), appendValue(nil, v))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		typ := project.Type{Kind: project.Kind(kind % uint8(project.KindJSON+1)), Precision: 38, Scale: 9}
		v, err := decodeValue(typ, data)
		if err != nil || typ.Kind != project.KindDecimal {
			return
		}
		if again, err := decodeValue(typ, appendValue(nil, v)); err != nil || again != v {
			t.Errorf("%s is read again as %s: %v", v, again, err)
		}
	})
}

func TestSourcesComeBack(t *testing.T) {
	for _, source := range []string{
		`customer/["c1"]/o7`, `customer/["\u0000","]/"]/o7`, "customer/[\"\\u0000\"]/o\x007\x00", "customer/[]/\x00", "", "no source", "customer/[\"a\"]/b]/\x00", "[a]/[\"]/\\\"\\u0000\"]/]/\x00",
	} {
		text := sourceText(source)
		if strings.ContainsRune(text, 0) {
			t.Errorf("%q is written as %q", source, text)
		}
		if got := sourceOf(text); got != source {
			t.Errorf("%q comes back as %q", source, got)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 62) + "ü"
	columns := func(names ...string) []project.ColumnSchema {
		list := make([]project.ColumnSchema, len(names))
		for i, name := range names {
			list[i].Name = name
		}
		return list
	}
	names := []string{"id", `a "quoted" name`, "xmin", "xmin_2f", long, long + "a", strings.Repeat("x", 63), strings.Repeat("x", 64), "SELECT"}
	mapped := columnNames(columns(names...), nil)
	seen := map[string]bool{}
	for i, m := range mapped {
		if len(m) > identifierMax || seen[m] || strings.ToValidUTF8(m, "?") != m {
			t.Errorf("%q is mapped to %q", names[i], m)
		}
		seen[m] = true
		if usual := len(names[i]) <= identifierMax && names[i] != "xmin"; (m == names[i]) != usual {
			t.Errorf("%q is mapped to %q", names[i], m)
		}
	}
	// What was mapped stays so, whatever comes beside it.
	known := map[string]string{"b": "a", long: "was here"}
	if got := columnNames(columns("a", "b", long), known); got[1] != "a" || got[2] != "was here" || got[0] == "a" {
		t.Errorf("mapped anew: %q", got)
	}
}
