package query

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

var fuzzItems = []string{
	`{"a":1,"b":"x","c":{"c":[1,2,{"d":null}]},"tags":[{"id":"x"}],"t":true,"\u0061b":"\ud83d\ude00"}`,
	`{}`, `[]`, `{"a":`, `{"a"`, `nul`, ``, `{"a":[1,{"b"`, `"`,
}

// FuzzParse is in the package because it compares trees.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`a = 1 AND NOT (b <> "x" OR c.c[0] >= -2.5e3) AND tags[*] IN (1)`,
		`c["a b"].d ?? @p ? [1, {x: "y"}] : -(-1) || '\u00e9'`,
		`a NOT IN (1, 2) AND b NOT BETWEEN 1 AND 2 OR c NOT LIKE "a[b-c]%" ESCAPE "!"`,
		`~a & b | c ^ d << 1 >> 2 >>> 3`, `+a - -b * (c + d) / e % f`,
		`ARRAY_CONTAINS(tags, {"id": "x"}, true) AND CONTAINS(b, "X", true)`,
		`- - 1`, `NOT NOT a`, `a = NOT b = c`, `(a ? b : c) ? d : e`, `(a ?? b) ?? c`, `in.x`, `c`, `root[0]`, `-1[0]`, `f(`, `a--b`,
		`SUBSTRING(b, 0, 1) || REPLICATE("x", 3) || ToString(a + 0.1)`, `REGEXMATCH(b, "x*")`, `{"a": undefined}.a[1][b]`,
		`EXISTS(SELECT VALUE t FROM t IN tags WHERE t.id = b)`, `ARRAY(SELECT c.c, x FROM x IN c.c.c JOIN y IN [1]) = from`, `(SELECT VALUE MAX(x) FROM x IN c.c) ?? where`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseExpr(text)
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		printed := e.String()
		again, err := ParseExpr(printed)
		if err != nil {
			t.Fatalf("%q printed as %q: %v", text, printed, err)
		}
		if !reflect.DeepEqual(e.root, again.root) {
			t.Fatalf("%q printed as %q, which is read as %q", text, printed, again)
		}
		e.Paths()
		for _, item := range fuzzItems {
			v := e.Eval([]byte(item))
			if v.Bool() != e.True([]byte(item)) {
				t.Fatalf("%q of %s is %s, but true: %v", text, item, v.AppendJSON(nil), !v.Bool())
			}
			if v.typ != Undefined && strings.HasSuffix(item, "}") && parsed(v.AppendJSON(nil)).typ != v.typ {
				t.Fatalf("%q of %s is %s, which is no JSON", text, item, v.AppendJSON(nil))
			}
			if !v.Bool() {
				continue
			}
			for _, q := range e.Equalities() {
				var steps []step
				for _, name := range q.Path {
					steps = append(steps, step{name: name})
				}
				if !same(valueOf((*frame)(nil).lookup([]byte(item), steps)), parsed(q.Value)) {
					t.Fatalf("%q is true of %s, where %v is not %s", text, item, q.Path, q.Value)
				}
			}
		}
	})
}

// checkPosition reports whether an error names a place in the text.
func checkPosition(t *testing.T, text string, err error) {
	t.Helper()
	e, ok := errors.AsType[*SyntaxError](err)
	if !ok {
		t.Fatalf("%q: %T is no SyntaxError", text, err)
	}
	if e.Offset < 0 || e.Offset > len(text) || e.Line != 1+strings.Count(text[:e.Offset], "\n") || e.Column < 1 || e.Msg == "" {
		t.Fatalf("%q: %+v is no place", text, *e)
	}
}

func TestNesting(t *testing.T) {
	for name, text := range map[string]string{
		"parentheses": strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300),
		"signs":       strings.Repeat("- ", 300) + "a",
		"NOT":         strings.Repeat("NOT ", 300) + "a",
		"sums":        strings.Repeat("1 + ", 300) + "1",
		"steps":       "a" + strings.Repeat(".a", 300),
		"indexes":     "a" + strings.Repeat("[b]", 300),
		"choices":     strings.Repeat("a ? b : ", 300) + "c",
		"arrays":      strings.Repeat("[", 300) + strings.Repeat("]", 300),
		"calls":       strings.Repeat("ABS(", 300) + "1" + strings.Repeat(")", 300),
	} {
		if _, err := ParseExpr(text); err == nil || !strings.Contains(err.Error(), "nested more than 256 deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := "a = 0" + strings.Repeat(" OR a = 1", 20000)
	e, err := ParseExpr(long)
	if err != nil {
		t.Fatal(err)
	}
	if !e.True([]byte(`{"a":1}`)) || e.True([]byte(`{"a":2}`)) {
		t.Error("a long OR is wrong")
	}
	if _, err := ParseExpr(strings.Repeat(" ", TextMax) + "1"); err == nil {
		t.Error("a text that is too long was read")
	}
}
