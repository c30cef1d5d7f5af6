package document_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
)

// decode decodes raw with encoding/json, numbers as exact rationals: the model
// that this package is compared with.
func decode(tb testing.TB, raw []byte) any {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("encoding/json refuses %.200q: %v", raw, err)
	}
	return exact(v)
}

// exact replaces numbers in v by the text of their exact values.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return number(r.RatString())
		}
		return v
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// number is the exact value of a number as a fraction.
type number string

func cmpValues(a, b any) bool { return reflect.DeepEqual(a, b) }

// errRefused and errBounds are why the model does not patch: as it must, or
// because a sum would have more digits than a patch may make.
var (
	errRefused = errors.New("refused")
	errBounds  = errors.New("out of the model's bounds")
)

// modelPatch carries out operations on a decoded item.
func modelPatch(tb testing.TB, v any, ops []document.Op) (any, error) {
	tb.Helper()
	for _, op := range ops {
		path, err := document.ParsePointer(op.Path)
		if err != nil {
			return nil, err
		}
		var value any
		switch {
		case op.Kind == document.OpMove:
			from, err := document.ParsePointer(op.From)
			if err != nil {
				return nil, err
			}
			if v, value, err = modelOp(v, from, document.OpRemove, nil); err != nil {
				return nil, err
			}
			op.Kind = document.OpAdd
		case len(op.Value) > 0:
			value = decode(tb, op.Value)
		}
		if v, _, err = modelOp(v, path, op.Kind, value); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// modelOp carries out one operation at p in v. It returns v and what was removed.
func modelOp(v any, p document.Path, kind string, value any) (after, removed any, err error) {
	switch v := v.(type) {
	case map[string]any:
		old, found := v[p[0].Name]
		if len(p) > 1 {
			if !found {
				return nil, nil, errRefused
			}
			v[p[0].Name], removed, err = modelOp(old, p[1:], kind, value)
			return v, removed, err
		}
		if kind == document.OpRemove {
			delete(v, p[0].Name)
		} else if v[p[0].Name], err = modelValue(old, found, kind, value); err != nil {
			return nil, nil, err
		}
		if !found && (kind == document.OpReplace || kind == document.OpRemove) {
			return nil, nil, errRefused
		}
		return v, old, nil
	case []any:
		return modelElement(v, p, kind, value)
	}
	return nil, nil, errRefused
}

func modelElement(v []any, p document.Path, kind string, value any) (after, removed any, err error) {
	at := -1
	switch s := p[0]; {
	case s.IsIndex:
		at = s.Index
	case s.Name == "-":
		at = len(v)
	case s.KeyValue != "":
		for i, e := range slices.Backward(v) {
			if m, ok := e.(map[string]any); ok {
				var key any
				d := json.NewDecoder(strings.NewReader(s.KeyValue))
				d.UseNumber()
				if d.Decode(&key) == nil && m[s.KeyName] != nil && cmpValues(m[s.KeyName], exact(key)) {
					at = i
				}
			}
		}
		if at < 0 || kind == document.OpAdd && len(p) == 1 {
			return nil, nil, errRefused
		}
	}
	if at < 0 || at > len(v) || at == len(v) && (len(p) > 1 || kind == document.OpReplace || kind == document.OpRemove) {
		return nil, nil, errRefused
	}
	switch {
	case len(p) > 1:
		v[at], removed, err = modelOp(v[at], p[1:], kind, value)
		return v, removed, err
	case kind == document.OpRemove:
		removed = v[at]
		return append(v[:at:at], v[at+1:]...), removed, nil
	case kind == document.OpAdd || at == len(v):
		return append(append(v[:at:at], value), v[at:]...), nil, nil
	}
	v[at], err = modelValue(v[at], true, kind, value)
	return v, nil, err
}

// modelValue returns what an operation makes of an old value.
func modelValue(old any, found bool, kind string, value any) (any, error) {
	if kind != document.OpIncr || !found {
		return value, nil
	}
	a, ok := old.(number)
	if !ok {
		return nil, errRefused
	}
	b := value.(number)
	if len(a) > 50 || len(b) > 50 {
		return nil, errBounds
	}
	x, _ := new(big.Rat).SetString(string(a))
	y, _ := new(big.Rat).SetString(string(b))
	return number(x.Add(x, y).RatString()), nil
}

// modelSet sets fields of members in the decoded item. ok is false if it must be
// refused.
func modelSet(tb testing.TB, body []byte, list []document.FieldValue) (after any, changed, ok bool) {
	tb.Helper()
	after = decode(tb, body)
	for _, f := range list {
		at, names := after.(map[string]any), f.Path
		for len(names) > 1 {
			next, found := at[names[0].Name]
			if m, isMap := next.(map[string]any); isMap {
				at, names = m, names[1:]
				continue
			}
			if f.Value == nil {
				break
			}
			if found && next != nil {
				return nil, false, false
			}
			m := map[string]any{}
			at[names[0].Name] = m
			at, names, changed = m, names[1:], true
		}
		name := names[0].Name
		old, found := at[name]
		switch {
		case f.Value != nil:
			value := decode(tb, f.Value)
			changed = changed || !found || !cmpValues(old, value)
			at[name] = value
		case found && len(names) == 1:
			delete(at, name)
			changed = true
		}
	}
	return after, changed, true
}

var names = []string{"a", "b", "c", "id", "0", "é", `q"`, "*"}

func randomObject(r *rand.Rand, depth int) string {
	var members []string
	for _, i := range r.Perm(len(names))[:2+r.IntN(5)] {
		name := string(document.AppendQuote(nil, names[i]))
		if names[i] == "a" && r.IntN(2) == 0 {
			name = `"\u0061"`
		}
		members = append(members, space(r)+name+space(r)+":"+space(r)+randomValue(r, depth-1)+space(r))
	}
	return "{" + space(r) + strings.Join(members, ",") + "}"
}

func randomValue(r *rand.Rand, depth int) string {
	scalars := []string{"null", "true", "false", "0", "1", "1.0", "-2.50", "1e2", "9007199254740993", `""`, `"x"`, `"\u0078"`, `"a\\\"b"`}
	switch n := r.IntN(4); {
	case depth <= 0 || n == 0:
		return scalars[r.IntN(len(scalars))]
	case n == 1:
		var elements []string
		for range r.IntN(4) {
			elements = append(elements, space(r)+randomValue(r, depth-1)+space(r))
		}
		return "[" + space(r) + strings.Join(elements, ",") + "]"
	}
	return randomObject(r, depth)
}

func space(r *rand.Rand) string { return []string{"", "", "", " ", "\n\t"}[r.IntN(5)] }

func randomOp(r *rand.Rand) document.Op {
	op := document.Op{Path: randomPointer(r)}
	op.Kind = []string{"add", "set", "replace", "remove", "incr", "move"}[r.IntN(6)]
	switch op.Kind {
	case document.OpMove:
		op.From = randomPointer(r)
	case document.OpIncr:
		op.Value = json.RawMessage([]string{"1", "-0.5", "1e3"}[r.IntN(3)])
	default:
		op.Value = json.RawMessage(randomValue(r, 2))
	}
	return op
}

func randomPointer(r *rand.Rand) string {
	tokens := []string{"a", "b", "c", "id", "é", "0", "1", "-", `[id="x"]`, "[id=1]"}
	var b strings.Builder
	for range 1 + r.IntN(3)/2 + r.IntN(2) {
		b.WriteString("/" + tokens[r.IntN(len(tokens))])
	}
	return b.String()
}

func splices(o1, l1 uint32, s1 []byte, o2, l2 uint32, s2 []byte) []document.Splice {
	return []document.Splice{{Offset: o1, Len: l1, Old: s1}, {Offset: o2, Len: l2, Old: s2}}
}

// undoOneByOne is Undo without thought of cost.
func undoOneByOne(body []byte, undo []document.Splice) ([]byte, error) {
	for _, s := range undo {
		end := uint64(s.Offset) + uint64(s.Len)
		if end > uint64(len(body)) {
			return nil, errRefused
		}
		body = slices.Concat(body[:s.Offset], s.Old, body[end:])
	}
	return body, nil
}
