package document_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document"
)

// seeds are bodies that the fuzz tests begin with.
var seeds = []string{
	`{}`, `{"a":1}`, ` {"a" : [1, {"id":"x","n":1.50}, {"id":"y"}] , "b":{"c":null}}`,
	`{"tags":[{"id":"x","name":"o"},{"id":"y","name":"o"}],"é":"\u00e9\ud83d\ude00","n":-1.5e10}`,
	`{"a":{"a":{"a":[[[1,2],[3]],[]]}},"0":0,"*":[],"[id=1]":{"-":1}}`,
	`{"a":1,"a":2}`, `[]`, `{"a":"\ud800"}`, `{"a":1e99999999}`, `{"a":`, "", `{"a":tru}`, `{"a":01}`, `nul`, `"`, `{"`, `{"a"`, `{"a":"\`,
}

func FuzzCheck(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := document.Check(body)
		if err == nil != acceptable(body) {
			t.Fatalf("%q: %v, encoding/json says %v", body, err, json.Valid(body))
		}
		// Nothing panics on what is not valid either.
		document.ID(body)
		document.Members(body, func(_, raw []byte) bool {
			document.Elements(raw, func(int, []byte) bool { return true })
			return true
		})
	})
}

// acceptable tells, by encoding/json, whether body is an item.
func acceptable(body []byte) bool {
	if !json.Valid(body) || !utf8.Valid(body) || bytes.TrimLeft(body, " \t\r\n")[0] != '{' {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	ok := distinct(d, 0)
	return ok && !unpaired(body)
}

// distinct reads a value and tells whether its objects have distinct names, its
// numbers small exponents and it no more depth than items may have.
func distinct(d *json.Decoder, depth int) bool {
	token, _ := d.Token()
	switch v := token.(type) {
	case json.Number:
		_, exp, _ := strings.Cut(strings.ToLower(v.String()), "e")
		exp = strings.TrimLeft(strings.TrimLeft(exp, "+-"), "0")
		return len(exp) < 7 || exp == "1000000"
	case json.Delim:
		names := make(map[string]bool)
		ok := depth < document.DepthMax
		for d.More() {
			if v == '{' {
				name, _ := d.Token()
				ok = ok && !names[name.(string)]
				names[name.(string)] = true
			}
			ok = distinct(d, depth+1) && ok
		}
		_, _ = d.Token()
		return ok
	}
	return true
}

// unpaired reports whether a valid text escapes half of a surrogate pair, which
// encoding/json reads as U+FFFD.
func unpaired(body []byte) bool {
	plain := strings.NewReplacer(`\\`, "", "\uFFFD", "", `\ufffd`, "", `\uFFFD`, "", `\uFffd`, "").Replace(string(body))
	if !strings.Contains(strings.ToLower(plain), `\ud`) {
		return false
	}
	var v any
	_ = json.Unmarshal(body, &v)
	out, _ := json.Marshal(v)
	in := strings.Count(string(body), "\uFFFD") + strings.Count(strings.ToLower(string(body)), `\ufffd`)
	return strings.Count(string(out), "\uFFFD")+strings.Count(string(out), `\ufffd`) > in
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/a/0/*", `/a/[id="x"]/~0~1`, `a.b[0]["c d"][*][id = 'x'].e`, "a[", "/", "", `a["\u00e9" = 1]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := document.ParsePointer(s); err == nil && p.Pointer() != s {
			t.Fatalf("pointer %q printed as %q", s, p.Pointer())
		}
		p, err := document.ParseField(s)
		if err != nil {
			return
		}
		printed := p.String()
		q, err := document.ParseField(printed)
		if err != nil || q.String() != printed || len(q) != len(p) {
			t.Fatalf("field %q printed as %q: %v", s, printed, err)
		}
		for i := range p {
			if p[i] != q[i] {
				t.Fatalf("field %q printed as %q: step %d is %v, was %v", s, printed, i, q[i], p[i])
			}
		}
		if !p.Touched(p.Pointer()) {
			t.Fatalf("field %q is not touched at %q", s, p.Pointer())
		}
		for _, body := range seeds {
			document.Get([]byte(body), p)
			document.Walk([]byte(body), p, func([]byte, int) bool { return true })
		}
	})
}

func FuzzPatch(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), []byte(`[{"op":"set","path":"/a","value":2},{"op":"incr","path":"/n","value":0.1},{"op":"move","from":"/a","path":"/b"}]`))
		f.Add([]byte(s), []byte(`[{"op":"add","path":"/a/0","value":{"id":"z"}},{"op":"remove","path":"/a/[id=\"y\"]"}]`))
	}
	f.Fuzz(func(t *testing.T, body, patch []byte) {
		var ops []document.Op
		if json.Unmarshal(patch, &ops) != nil {
			return
		}
		p, err := document.PatchRules{OpsMax: -1}.Compile(ops)
		if err != nil {
			return
		}
		before := string(body)
		after, undo, err := p.Apply(body)
		if document.Check([]byte(before)) != nil {
			return // it did not panic
		}
		comparePatch(t, before, ops, after, err)
		if err == nil {
			checkUndo(t, before, body, after, undo)
		}
	})
}

// comparePatch compares the outcome of a patch with the model's.
func comparePatch(t *testing.T, before string, ops []document.Op, after []byte, err error) {
	t.Helper()
	want, modelErr := modelPatch(t, decode(t, []byte(before)), ops)
	if errors.Is(modelErr, errBounds) || isSizeError(err) {
		return
	}
	if (err == nil) != (modelErr == nil) {
		t.Fatalf("%s patched by %+v: %v, the model says %v", before, ops, err, modelErr)
	}
	if err == nil && !cmpValues(decode(t, after), want) {
		t.Fatalf("%s patched by %+v to %s, want %v", before, ops, after, want)
	}
}

// TestPatchModel compares random patches of random items with the model.
func TestPatchModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	applied := 0
	for range 4000 {
		body := randomObject(r, 3)
		ops := make([]document.Op, 1+r.IntN(3))
		for i := range ops {
			ops[i] = randomOp(r)
		}
		p, err := document.CompilePatch(ops)
		if err != nil {
			continue
		}
		after, undo, err := p.Apply([]byte(body))
		comparePatch(t, body, ops, after, err)
		if err == nil {
			applied++
			checkUndo(t, body, []byte(body), after, undo)
		}
	}
	if applied < 200 {
		t.Errorf("only %d of 4000 patches could be applied; the test shows nothing", applied)
	}
}

// TestSetterModel compares random setters of random items with the model, and
// tells whether the bytes around one field stay.
func TestSetterModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	applied := 0
	for range 4000 {
		body := []byte(randomObject(r, 3))
		list := make([]document.FieldValue, 1+r.IntN(3))
		for i := range list {
			for range 1 + r.IntN(3) {
				list[i].Path = append(list[i].Path, document.Step{Name: names[r.IntN(4)]})
			}
			if r.IntN(4) > 0 {
				list[i].Value = []byte(randomValue(r, 1))
			}
		}
		s, err := document.NewSetter(list)
		if err != nil {
			continue
		}
		after, undo, changed, err := s.Apply(body)
		want, wantChanged, ok := modelSet(t, body, list)
		if (err == nil) != ok {
			t.Fatalf("%s set to %+v: %v, the model says %v", body, list, err, ok)
		}
		if err != nil {
			continue
		}
		applied++
		if changed != wantChanged || !cmpValues(decode(t, after), want) {
			t.Fatalf("%s set to %+v: %s (changed: %v), want %v (%v)", body, list, after, changed, want, wantChanged)
		}
		checkUndo(t, string(body), body, after, undo)
		document.Walk(body, list[0].Path, func(raw []byte, at int) bool {
			if len(list) == 1 && list[0].Value != nil && changed {
				want := string(body[:at]) + string(list[0].Value) + string(body[at+len(raw):])
				if want != string(after) {
					t.Fatalf("%s set to %+v: %s, want %s", body, list, after, want)
				}
			}
			return true
		})
	}
	if applied < 600 {
		t.Errorf("only %d of 4000 setters could be applied; the test shows nothing", applied)
	}
}

func FuzzUndo(f *testing.F) {
	f.Add([]byte(`{"a":1}`), uint32(1), uint32(2), []byte("x"), uint32(0), uint32(4), []byte(""), uint32(0), uint32(0), []byte("y"))
	f.Add([]byte(`{"b":2,"c":3}`), uint32(1), uint32(0), []byte(`"a":1,`), uint32(17), uint32(1), []byte("4"), uint32(18), uint32(1), []byte(""))
	f.Add([]byte(`{"b":2}`), uint32(5), uint32(1), []byte("1000"), uint32(4), uint32(2), []byte(""), uint32(1), uint32(4), []byte(""))
	f.Add([]byte(`{}`), uint32(1), uint32(1), []byte("}"), uint32(1), uint32(2), []byte(""), uint32(math.MaxUint32), uint32(math.MaxUint32), []byte(""))
	f.Fuzz(func(t *testing.T, body []byte, o1, l1 uint32, s1 []byte, o2, l2 uint32, s2 []byte, o3, l3 uint32, s3 []byte) {
		undo := splices(o1, l1, s1, o2, l2, s2)
		undo = append(undo, document.Splice{Offset: o3, Len: l3, Old: s3})
		for n := range len(undo) + 1 {
			before := bytes.Clone(body)
			got, err := document.Undo(body, undo[:n])
			want, wantErr := undoOneByOne(body, undo[:n])
			if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
				t.Fatalf("%q undone by %v to %q (%v), want %q (%v)", body, undo[:n], got, err, want, wantErr)
			}
			if !bytes.Equal(body, before) {
				t.Fatalf("the item was written to: %q, was %q", body, before)
			}
		}
	})
}

func FuzzSetter(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), []byte(`"new"`))
	}
	f.Fuzz(func(t *testing.T, body, value []byte) {
		if document.CheckValue(value) != nil {
			return
		}
		v := string(value)
		list := []appender{}
		for _, pairs := range [][]string{{"a:=" + v}, {"a", "b:=" + v, "b2.c:=1"}, {"a[1].n:=" + v}, {`a[id = "y"].x.y:=` + v, "n"}} {
			s, err := document.NewSetter(fields(t, pairs...))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		for _, text := range []string{"a", "tags", "a[*]", "a.a.a[0][0]"} {
			array, err := document.ParseField(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, remove := range []bool{false, true} {
				set := fields(t, "n:="+v, "o.p:=1", "name")
				if remove {
					set = nil
				}
				s, err := document.NewEachSetter(array, fields(t, `id:="x"`), set, remove)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, s)
			}
		}
		valid := document.Check(body) == nil
		before := string(body)
		for _, s := range list {
			after, undo, changed, err := s.Apply(body)
			if !valid || err != nil {
				continue // it did not panic
			}
			checkUndo(t, before, body, after, undo)
			if holds, err := s.Holds(after); err != nil || !holds || !changed && len(undo) > 0 {
				t.Fatalf("%s set to %s does not hold: %v", before, after, err)
			}
		}
	})
}
