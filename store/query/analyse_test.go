package query_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

func TestString(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`a=1 and(b or c)`, `a = 1 AND (b OR c)`},
		{`(a and b) or c`, `a AND b OR c`},
		{`a and (b and c)`, `a AND (b AND c)`},
		{`not(a=1)`, `NOT a = 1`},
		{`(not a)=1`, `(NOT a) = 1`},
		{`a not in(1)`, `NOT a IN (1)`},
		{`a <> 'x'`, `a != "x"`},
		{`c.a.b`, `a.b`},
		{`c["in"]`, `c.in`},
		{`c.c`, `c.c`},
		{`c["a b"][0]`, `c["a b"][0]`},
		{`a - (b - c)`, `a - (b - c)`},
		{`-(-1)`, `-(-1)`},
		{`(a ? b : c) ? d : e`, `(a ? b : c) ? d : e`},
		{`lower(a)||"x"`, `LOWER(a) || "x"`},
		{`.50`, `0.50`},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := e.String(); got != c.want {
			t.Errorf("%s printed as %s, want %s", c.text, got, c.want)
		}
	}
}

func TestParseExprAs(t *testing.T) {
	e, err := query.ParseExprAs(`o.a = c.a AND item = 1`, "o")
	if err != nil {
		t.Fatal(err)
	}
	if !e.True([]byte(`{"a":1,"c":{"a":1},"item":1}`)) {
		t.Error("o is not the item, or c and item are not properties of it")
	}
	if got := e.String(); got != `a = c.a AND item = 1` {
		t.Errorf("printed as %s", got)
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		text string
		want [][]string
	}{
		{`1 = 1`, nil},
		{`a = b.c AND a > tags[0].name`, [][]string{{"a"}, {"b", "c"}, {"tags", "0", "name"}}},
		{`tags[i].name`, [][]string{{"tags"}, {"i"}}},
		{`IS_DEFINED(c)`, [][]string{{}}},
		{`x IN (y, [z]) OR u BETWEEN v AND w`, [][]string{{"x"}, {"y"}, {"z"}, {"u"}, {"v"}, {"w"}}},
		{`{a: b} = d LIKE e ESCAPE f`, [][]string{{"b"}, {"d"}, {"e"}, {"f"}}},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, e.Paths()); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

func TestEqualities(t *testing.T) {
	for _, c := range []struct {
		text string
		want []query.Equality
	}{
		{`a = 1`, []query.Equality{{Path: []string{"a"}, Value: []byte("1")}}},
		{`a = 1 OR b = 2`, nil},
		{`NOT a = 1`, nil},
		{`a = 1 AND (b OR d = 3) AND ('x' = c.b.c AND d = -1.50)`, []query.Equality{
			{Path: []string{"a"}, Value: []byte("1")},
			{Path: []string{"b", "c"}, Value: []byte(`"x"`)},
			{Path: []string{"d"}, Value: []byte("-1.50")},
		}},
		{`a = null AND b = undefined AND d = e AND tags[0] = 1 AND f = [1]`, []query.Equality{{Path: []string{"a"}, Value: []byte("null")}}},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, e.Equalities()); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

func TestBind(t *testing.T) {
	e, err := query.ParseExpr(`a = @x AND tags[@i].id = @id OR a = @x`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x", "i", "id"}, e.Params()); diff != "" {
		t.Error(diff)
	}
	bound, err := e.Bind(map[string][]byte{"x": []byte("1"), "i": []byte("1"), "id": []byte(`"t"`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bound.String(), `a = 1 AND tags[1].id = "t" OR a = 1`; got != want {
		t.Errorf("bound to %s, want %s", got, want)
	}
	if !bound.True([]byte(`{"a":1}`)) || e.True([]byte(`{"a":1}`)) {
		t.Error("a parameter has no value before it is bound, or none after")
	}
	for _, params := range []map[string][]byte{nil, {"x": []byte("1"), "i": []byte("x"), "id": []byte("1")}} {
		if _, err := e.Bind(params); err == nil {
			t.Errorf("bound %v", params)
		}
	}
}

func TestCompare(t *testing.T) {
	ordered := []string{`undefined`, `null`, `false`, `true`, `-1e300`, `-1`, `0`, `0.5`, `9007199254740992`, `9007199254740993`, `""`, `"a"`, `"b"`, `[]`, `[1]`, `{}`}
	values := make([]query.Value, len(ordered))
	for i, text := range ordered {
		e, err := query.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		values[i] = e.Eval(nil)
	}
	for i := range values {
		for j := range values {
			if got := query.Compare(values[i], values[j]); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s compare as %d", ordered[i], ordered[j], got)
			}
		}
	}
}
