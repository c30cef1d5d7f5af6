package document_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
)

func TestCheckAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"an empty object":              `{}`,
		"white space":                  " \t\r\n{ \"a\" : [ ] }\n",
		"every kind":                   `{"a":null,"b":true,"c":false,"d":-0.5e+10,"e":"é\u00e9\ud83d\ude00\n","f":[1,[2],{}]}`,
		"one name in two objects":      `{"a":{"a":1},"b":[{"a":1},{"a":2}]}`,
		"integers of any length":       `{"n":123456789012345678901234567890}`,
		"as deep as may be":            strings.Repeat(`{"a":`, 127) + "[]" + strings.Repeat("}", 127),
		"many members":                 manyMembers(1000),
		"names that differ in escapes": `{"a":1,"\u0062":2,"\\u0062":3}`,
	} {
		if err := document.Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "line 1, column 1: nothing here, want a JSON object"},
		{"\uFEFF{}", "line 1, column 1: byte order mark, want a JSON object"},
		{`[1]`, "line 1, column 1: an item is a JSON object, not an array"},
		{`null`, "line 1, column 1: an item is a JSON object, not null"},
		{`{} {}`, "line 1, column 4: an object after the end of the value"},
		{"{\n  \"é\": 1,\n  \"é\": 2}", `line 3, column 3: the object has a member "é" already`},
		{`{"ä":1,"\u00e4":2}`, `line 1, column 8: the object has a member "ä" already`},
		{`{"m039":0,` + manyMembers(40)[1:], `line 1, column 362: the object has a member "m039" already`},
		{"{\"a\":\"\xff\"}", "line 1, column 7: byte 0xFF is not UTF-8"},
		{"{\"a\":\"\n\"}", `line 1, column 7: control character 0x0A in a string, write \u000a`},
		{`{"a":"\x"}`, `line 1, column 7: \ with no character of "\/bfnrtu behind it`},
		{`{"a":"\u12g4"}`, `line 1, column 7: \u without four hexadecimal digits`},
		{`{"a":"\ud800"}`, `line 1, column 7: half of a surrogate pair, which is no character`},
		{`{"a":"\udc00\ud800"}`, `line 1, column 7: half of a surrogate pair, which is no character`},
		{`{"a":01}`, "line 1, column 6: a number must not begin with 0 and another digit"},
		{`{"a":1.}`, "line 1, column 8: '}' where a digit must stand"},
		{`{"a":-}`, "line 1, column 7: '}' where a digit must stand"},
		{`{"a":1e1000001}`, "line 1, column 6: the number's exponent is beyond 1000000"},
		{`{"a":+1}`, "line 1, column 6: '+' where a value must stand"},
		{`{"a":nul}`, "line 1, column 6: 'n' where a value must stand"},
		{`{"a" 1}`, "line 1, column 6: a number where the colon after a name must stand"},
		{`{"a":1,}`, "line 1, column 8: '}' where the name of a member must stand"},
		{`{"a":[1,]}`, "line 1, column 9: ']' where a value must stand"},
		{`{"a":[1 2]}`, "line 1, column 9: a number where a comma or ] must stand"},
		{`{"a":1`, "line 1, column 7: the end of the text where a comma or } must stand"},
		{`{"a`, "line 1, column 4: the text ends within a string"},
		{strings.Repeat(`{"a":`, 128) + "[]" + strings.Repeat("}", 128), "line 1, column 641: nested more than 128 deep"},
	} {
		err := document.Check([]byte(c.text))
		if err == nil || err.Error() != c.want {
			t.Errorf("%.60q:\n got %v\nwant %s", c.text, err, c.want)
		}
		if _, ok := errors.AsType[*document.SyntaxError](err); !ok {
			t.Errorf("%.60q: %T is no SyntaxError", c.text, err)
		}
	}
	big := `{"a":"` + strings.Repeat("x", document.SizeMax) + `"}`
	if e, ok := errors.AsType[*document.SizeError](document.Check([]byte(big))); !ok || e.Size != len(big) {
		t.Errorf("an item of %d bytes: %v", len(big), e)
	}
}

func TestCheckID(t *testing.T) {
	for id, ok := range map[string]bool{
		"x": true, "a b+c%20é\"'": true, strings.Repeat("x", 1023): true,
		"": false, strings.Repeat("x", 1024): false, "a/b": true, `a\b`: true, "a?": true, "#": true, "\xff": false,
	} {
		if err := document.CheckID(id); (err == nil) != ok {
			t.Errorf("%.20q: %v", id, err)
		}
		if err := document.CheckPlainID(id); (err == nil) != (ok && !strings.ContainsAny(id, `/\?#`)) {
			t.Errorf("%.20q, plain: %v", id, err)
		}
	}
}

func TestCheckNewID(t *testing.T) {
	for id, ok := range map[string]bool{"x": true, "...": true, ".a": true, ".": false, "..": false, "": false, "a/b": true, `a\b`: true} {
		if err := document.CheckNewID(id); (err == nil) != ok {
			t.Errorf("%.20q: %v", id, err)
		}
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%03d":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}
