package query_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

// elementRoots are the names of an element, what it is in, the item and the
// indexes of both.
var elementRoots = [][]string{{"element"}, {"parent"}, {"item", "c", "root"}, {"index"}, {"parentIndex"}}

// option is the second option of the first detail of an order.
func option() [][]byte {
	const detail = `{"sku": "SE-1", "price": 9.5, "x": [{"y": 1}, {"y": 2}], "parent": "inner"}`
	return [][]byte{
		[]byte(`{"name": "size", "extra": 0.25, "index": "own", "item": {"id": 7}, "in": 5, "at": 1, "a b": 8}`),
		[]byte(detail),
		[]byte(`{"id": "o1", "c": "see", "total": 12, "name": "order", "details": [` + detail + `]}`),
		[]byte(` 1 `),
		nil,
	}
}

func TestEvalIn(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a bare name is a property of root 0", `name`, `"size"`},
		{"root 0 by its name", `element.name`, `"size"`},
		{"a root alone is all of it", `IS_OBJECT(element) AND IS_OBJECT(parent) AND IS_OBJECT(item)`, `true`},
		{"a root that is a scalar", `index`, `1`},
		{"a scalar has no properties", `index.name`, ``},
		{"several roots in one operation", `parent.price + extra`, `9.75`},
		{"a property of the same name in each root", `name || "-" || item.name`, `"size-order"`},
		{"all names of a root", `item.id = c.id AND c.id = root.id`, `true`},

		{"a root hides a property", `index + 1`, `2`},
		{"the hidden property behind its root", `element.index`, `"own"`},
		{"a root hides a property that has properties", `item.id`, `"o1"`},
		{"which are read behind its root", `element.item.id`, `7`},
		{"behind another root names are properties", `parent.parent`, `"inner"`},
		{"even those of roots", `item.c`, `"see"`},
		{"names of roots have a case", `Index`, ``},
		{"no root of that name", `document.id`, ``},

		{"an element of an array of another root", `parent.x[0].y`, `1`},
		{"the whole way down", `item.details[0].x[1].y`, `2`},
		{"a computed index", `parent.x[index].y`, `2`},
		{"an index of root 0 into another root", `parent.x[at].y`, `2`},
		{"a computed index beyond the end", `parent.x[index + 1].y`, ``},
		{"a computed name", `item["to" || "tal"]`, `12`},
		{"a root in an object that is made", `{n: name, i: index, p: parentIndex}.i`, `1`},
		{"a root in an array that is made", `[index, parentIndex, parent.price][1]`, `9.5`},

		{"an undefined root", `parentIndex`, ``},
		{"and what is in it", `parentIndex.x[0]`, ``},
		{"computing with an undefined root", `parentIndex + 1`, ``},
		{"comparing with an undefined root", `parentIndex = parentIndex`, ``},
		{"an undefined root is not defined", `IS_DEFINED(parentIndex)`, `false`},
		{"a default for an undefined root", `parentIndex ?? -1`, `-1`},
		{"an undefined root decides nothing", `parentIndex = 0 OR index = 1`, `true`},

		{"a text of another root", `parent.sku = "SE-1"`, `true`},
		{"another text than that of another root", `parent.sku != "SE-1"`, `false`},
		{"a text that an undefined root might have", `parentIndex != "x"`, ``},
		{"functions of several roots", `CONCAT(UPPER(name), "/", parent.sku)`, `"SIZE/SE-1"`},
		{"functions that take a root", `ARRAY_CONTAINS(parent.x, {y: index})`, `true`},
		{"a regular expression", `REGEXMATCH(item.id, "^o[0-9]")`, `true`},
		{"LIKE with a pattern of another root", `"SE-1x" LIKE parent.sku || "%"`, `true`},
		{"IN over roots", `index IN (parentIndex, 0, 1)`, `true`},
		{"BETWEEN roots", `index BETWEEN 0 AND item.total`, `true`},
		{"a choice between roots", `index = 0 ? element : parent.sku`, `"SE-1"`},
		{"signs", `-index & ~0`, `-1`},
		{"a word of the language", `element.in`, `5`},
		{"a name that needs quotes", `element["a b"]`, `8`},
	} {
		e, err := query.ParseScoped(c.text, elementRoots)
		if err != nil {
			t.Errorf("%s: %s: %v", c.name, c.text, err)
			continue
		}
		roots := option()
		v := e.EvalIn(roots...)
		if got := string(v.AppendJSON(nil)); got != c.want {
			t.Errorf("%s: %s is %q, want %q", c.name, c.text, got, c.want)
		}
		if got := e.TrueIn(roots...); got != (c.want == "true") {
			t.Errorf("%s: %s is true: %v", c.name, c.text, got)
		}
		again, err := query.ParseScoped(e.String(), elementRoots)
		if err != nil {
			t.Errorf("%s: %s printed as %s: %v", c.name, c.text, e, err)
			continue
		}
		if got := string(again.EvalIn(roots...).AppendJSON(nil)); got != c.want {
			t.Errorf("%s: %s printed as %s, which is %q, want %q", c.name, c.text, e, got, c.want)
		}
	}
}

// Roots that are left out are undefined, those that nothing names are not read, and
// a single root is the item.
func TestEvalIn_Roots(t *testing.T) {
	e, err := query.ParseScoped(`name ?? parent.sku ?? index ?? "none"`, elementRoots)
	if err != nil {
		t.Fatal(err)
	}
	roots := option()
	for _, c := range []struct {
		roots [][]byte
		want  string
	}{
		{nil, `none`},
		{[][]byte{nil}, `none`},
		{[][]byte{{}, {}, {}}, `none`},
		{roots[:1], `size`},
		{[][]byte{nil, roots[1]}, `SE-1`},
		{[][]byte{[]byte(`[]`), nil, nil, []byte(`3`)}, `3`},
		{[][]byte{roots[0], nil, nil, nil, nil, []byte(`{`)}, `size`},
	} {
		if got := e.EvalIn(c.roots...).Text(); got != c.want {
			t.Errorf("of %q it is %s, want %s", c.roots, got, c.want)
		}
	}
	if got := e.Eval(roots[0]).Text(); got != `size` {
		t.Errorf("of the element alone it is %s", got)
	}
	single, err := query.ParseExpr(`item.name = name AND c["a b"] = 8`)
	if err != nil {
		t.Fatal(err)
	}
	if !single.TrueIn(roots...) || !single.True(roots[0]) || single.TrueIn() {
		t.Error("an expression over one root reads others, or none")
	}
}

// An empty scope has properties only; of two roots of one name the first is read;
// changing the names later changes nothing.
func TestParseScoped_Names(t *testing.T) {
	e, err := query.ParseScoped(`c.index`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Eval([]byte(`{"c":{"index":1}}`)).Text(); got != `1` || e.String() != `c.index` {
		t.Errorf("%s without roots is %s", e, got)
	}
	names := [][]string{{"true", "a b", "x"}, {"x", "true", "y", "z"}, {"y", "w"}}
	e, err = query.ParseScoped(`[x, y, z, w, x.y, y.x, x["true"]]`, names)
	if err != nil {
		t.Fatal(err)
	}
	names[0][2], names[1] = "changed", nil
	roots := [][]byte{[]byte(`{"y": 1, "true": 2}`), []byte(`{"x": 3}`), []byte(`4`)}
	if got, want := string(e.EvalIn(roots...).Raw()), `[{"y": 1, "true": 2},{"x": 3},{"x": 3},4,1,3,2]`; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	if got, want := e.String(), `[x, y, y, w, x.y, y.x, x.true]`; got != want {
		t.Errorf("printed as %s, want %s", got, want)
	}
}

func TestString_Scoped(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`element.name = parent.name`, `name = parent.name`},
		{`element.index = index`, `element.index = index`},
		{`root.total > c.x`, `item.total > item.x`},
		{`element["parent"].x`, `element.parent.x`},
		{`element[0]`, `element[0]`},
		{`parent`, `parent`},
		{`parent["a b"][index]`, `parent["a b"][index]`},
		{`(parent).x`, `parent.x`},
		{`element["in"] IN (index)`, `element.in IN (index)`},
	} {
		e, err := query.ParseScoped(c.text, elementRoots)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := e.String(); got != c.want {
			t.Errorf("%s printed as %s, want %s", c.text, got, c.want)
		}
	}
}

func TestParseScoped_Errors(t *testing.T) {
	for text, want := range map[string]string{
		`parent. = 1`:   "line 1, column 9: want the name of a property behind the point, near `= 1`",
		`index(1)`:      "line 1, column 1: there is no function INDEX, near `index(1)`",
		`parent parent`: "line 1, column 8: want an operator or the end, near `parent`",
	} {
		_, err := query.ParseScoped(text, elementRoots)
		if _, ok := errors.AsType[*query.SyntaxError](err); !ok || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestPathsIn(t *testing.T) {
	e, err := query.ParseScoped(`parent.x[index].y = extra AND item.id IN (parent.sku, name, element.index) AND parent.x[0].y > IIF(a, element.name, c)`, elementRoots)
	if err != nil {
		t.Fatal(err)
	}
	want := [][][]string{
		{{"extra"}, {"name"}, {"index"}, {"a"}},
		{{"x"}, {"sku"}, {"x", "0", "y"}},
		{{"id"}, {}},
		{{}},
		nil,
		nil,
	}
	for root := range want {
		if diff := cmp.Diff(want[root], e.PathsIn(root)); diff != "" {
			t.Errorf("root %d: %s", root, diff)
		}
	}
	if diff := cmp.Diff(want[0], e.Paths()); diff != "" {
		t.Error(diff)
	}
}

func TestPath(t *testing.T) {
	for _, c := range []struct {
		text  string
		root  int
		names []string
		ok    bool
	}{
		{`id`, 0, []string{"id"}, true},
		{`element.id`, 0, []string{"id"}, true},
		{`(parent.x[0]["a b"])`, 1, []string{"x", "0", "a b"}, true},
		{`item`, 2, []string{}, true},
		{`index`, 3, []string{}, true},
		{`parent.x[index]`, 0, nil, false},
		{`+id`, 0, nil, false},
		{`1`, 0, nil, false},
	} {
		e, err := query.ParseScoped(c.text, elementRoots)
		if err != nil {
			t.Fatal(err)
		}
		root, names, ok := e.Path()
		if diff := cmp.Diff(c.names, names); root != c.root || ok != c.ok || diff != "" {
			t.Errorf("%s is a path of root %d: %v %s", c.text, root, ok, diff)
		}
	}
}

func TestEqualitiesIn(t *testing.T) {
	e, err := query.ParseScoped(`kind = "a" AND parent.kind = "b" AND 3 = item.kind.x AND index = 0 AND parent.x[0] = 1 AND parent.a = item.a`, elementRoots)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]query.Equality{
		{{Path: []string{"kind"}, Value: []byte(`"a"`)}},
		{{Path: []string{"kind"}, Value: []byte(`"b"`)}},
		{{Path: []string{"kind", "x"}, Value: []byte(`3`)}},
		nil,
	}
	for root := range want {
		if diff := cmp.Diff(want[root], e.EqualitiesIn(root)); diff != "" {
			t.Errorf("root %d: %s", root, diff)
		}
	}
	if diff := cmp.Diff(want[0], e.Equalities()); diff != "" {
		t.Error(diff)
	}
}

func TestBind_Scoped(t *testing.T) {
	e, err := query.ParseScoped(`parent.x[@i].y = @y AND index = @i AND element[@n] = @own`, elementRoots)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := e.Bind(map[string][]byte{"i": []byte("1"), "y": []byte("2"), "n": []byte(`"index"`), "own": []byte(`"own"`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bound.String(), `parent.x[1].y = 2 AND index = 1 AND element.index = "own"`; got != want {
		t.Errorf("bound to %s, want %s", got, want)
	}
	roots := option()
	if !bound.TrueIn(roots...) || e.TrueIn(roots...) {
		t.Error("a parameter has no value before it is bound, or none after")
	}
	if diff := cmp.Diff([][]string{{"x", "1", "y"}}, bound.PathsIn(1)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]query.Equality{{Path: []string{"index"}, Value: []byte(`"own"`)}}, bound.Equalities()); diff != "" {
		t.Error(diff)
	}
}

func TestTrueIn_DoesNotAllocate(t *testing.T) {
	e, err := query.ParseScoped(`name = "size" AND parent.price > 9 AND index = 1 AND item.id LIKE "o%" AND NOT parentIndex = 0`, elementRoots)
	if err != nil {
		t.Fatal(err)
	}
	roots := option()
	roots[4] = []byte(`2`)
	if n := testing.AllocsPerRun(100, func() {
		if !e.TrueIn(roots...) {
			t.Fatal("not true")
		}
	}); n != 0 {
		t.Errorf("allocates %v times", n)
	}
}

func ExampleParseScoped() {
	e, err := query.ParseScoped(`name || " of " || parent.sku || ", line " || ToString(index + 1)`,
		[][]string{{"element"}, {"parent"}, {"item", "c", "root"}, {"index"}})
	if err != nil {
		panic(err)
	}
	element, parent, item, index := []byte(`{"name": "size"}`), []byte(`{"sku": "SE-1"}`), []byte(`{"id": "o1"}`), []byte(`0`)
	fmt.Println(e.EvalIn(element, parent, item, index).Text())
	fmt.Println(e.PathsIn(0), e.PathsIn(1), e.PathsIn(2), e.PathsIn(3))
	// Output:
	// size of SE-1, line 1
	// [[name]] [[sku]] [] [[]]
}
