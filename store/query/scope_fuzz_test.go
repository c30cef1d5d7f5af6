package query

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

var (
	fuzzScope = [][]string{{"element"}, {"parent"}, {"item", "c", "root"}, {"index"}, {"parentIndex"}}
	fuzzRoots = [][][]byte{
		{
			[]byte(`{"a":1,"b":"x","index":"own","parent":{"x":2},"c":[3],"i":"x"}`),
			[]byte(`{"x":[{"y":1},{"y":"z"}],"b":"x","a":2.5}`),
			[]byte(`{"id":"o1","details":[{"x":[{"y":1}]}],"a":{"b":true}}`),
			[]byte(`1`), []byte(`0`),
		},
		{[]byte(`"scalar"`), []byte(`[[1,2],[3]]`), []byte(`{}`), []byte(`0`), nil},
		{nil, nil, []byte(`{"a":1,"b":"x"}`), nil, nil},
		{[]byte(`true`)},
		nil,
	}
)

// FuzzParseScoped holds an expression over roots against the same one over a single
// item that has the roots as properties.
func FuzzParseScoped(f *testing.F) {
	for _, s := range []string{
		`parent.x[0].y = a AND index = 1`, `parent.x[index].y ?? element.index`, `element.parent.x + parent.a * parentIndex`,
		`{a: item, b: [root.id, c.details[index].x[0]["y"]]}.b[1]`, `parent.b = "x" AND b != "x" OR parent[1][0] = 3`,
		`index`, `element`, `parent`, `index.a`, `index(1)`, `element.element`, `Parent.x`, `parent[i][index].y`,
		`IIF(index IN (parentIndex, 0), CONCAT(b, parent.b), ToString(item))`, `item.a.b ? element : parentIndex`,
		`b LIKE parent.b || "%" AND NOT (a BETWEEN parentIndex AND index)`, `element = "scalar"`, `ARRAY_CONTAINS(parent.x, {y: index})`,
		`REGEXMATCH(b, parent.b)`, `-index - -parentIndex`,
		`EXISTS(SELECT VALUE x.y FROM x IN parent.x WHERE x.y = a AND index = 1)`, `(SELECT VALUE COUNT(x) FROM x IN parent.x JOIN d IN item.details) = parentIndex`,
		`ARRAY(SELECT TOP 2 e FROM parent.x AS e)`, `parent.x[@i].y = @j`, `element["a b"]["in"][0]`, `element[0] || c["c"]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseScoped(text, fuzzScope)
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		printed := e.String()
		again, err := ParseScoped(printed, fuzzScope)
		if err != nil {
			t.Fatalf("%q printed as %q: %v", text, printed, err)
		}
		if !reflect.DeepEqual(e.root, again.root) {
			t.Fatalf("%q printed as %q, which is read as %q", text, printed, again)
		}
		joined := joinRoots(e)
		for _, roots := range fuzzRoots {
			v, want := e.EvalIn(roots...), joined.Eval(joinedItem(roots))
			if !bytes.Equal(v.AppendJSON(nil), want.AppendJSON(nil)) || v.typ != want.typ {
				t.Fatalf("%q of %q is %s, want %s", text, roots, v.AppendJSON(nil), want.AppendJSON(nil))
			}
			if v.Bool() != e.TrueIn(roots...) {
				t.Fatalf("%q of %q is %s, but true: %v", text, roots, v.AppendJSON(nil), !v.Bool())
			}
			if !reflect.DeepEqual(v, e.EvalIn(readRoots(e, roots)...)) {
				t.Fatalf("%q of %q depends on a root that PathsIn does not name", text, roots)
			}
			if v.Bool() {
				checkEqualities(t, e, roots)
			}
		}
	})
}

// checkEqualities reports whether what must hold for e to be true holds.
func checkEqualities(t *testing.T, e *Expr, roots [][]byte) {
	t.Helper()
	for root := range roots {
		for _, q := range e.EqualitiesIn(root) {
			var steps []step
			for _, name := range q.Path {
				steps = append(steps, step{name: name})
			}
			if !same(valueOf((*frame)(nil).lookup(roots[root], steps)), parsed(q.Value)) {
				t.Fatalf("%q is true of %q, where %v of root %d is not %s", e, roots, q.Path, root, q.Value)
			}
		}
	}
}

// joinRoots returns e over a single item with the roots as its properties.
func joinRoots(e *Expr) *Expr {
	return newExpr(transform(e.root, func(n node) node {
		if p, ok := n.(*path); ok && p.root < len(fuzzScope) {
			return &path{steps: append([]step{{name: strconv.Itoa(p.root)}}, p.steps...)}
		}
		return n
	}), nil, false)
}

// joinedItem returns the item that joinRoots reads.
func joinedItem(roots [][]byte) []byte {
	item := []byte{'{'}
	for i, raw := range roots {
		if raw == nil {
			continue
		}
		if len(item) > 1 {
			item = append(item, ',')
		}
		item = append(append(strconv.AppendQuote(item, strconv.Itoa(i)), ':'), raw...)
	}
	return append(item, '}')
}

// readRoots returns the roots without those that e says it does not read.
func readRoots(e *Expr, roots [][]byte) [][]byte {
	roots = slices.Clone(roots)
	for i := range roots {
		if len(e.PathsIn(i)) == 0 {
			roots[i] = nil
		}
	}
	return roots
}
