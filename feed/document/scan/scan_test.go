package scan_test

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document/scan"
)

func FuzzText_SaysWhatTheStandardLibraryReads(f *testing.F) {
	for _, s := range []string{`"plain"`, `"\u00e9\ud83d\ude00\n\"\\\/\b\f\r\t"`, `"\ud83dx\ude00\ud800\u0041"`, `"\`, `"\u12`, `"`, ``} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got := scan.Unquote([]byte(raw))
		var want string
		if len(raw) < 2 || raw[0] != '"' || !utf8.ValidString(raw) || json.Unmarshal([]byte(raw), &want) != nil || raw[len(raw)-1] != '"' {
			return // it did not panic
		}
		if string(got) != want {
			t.Fatalf("%q says %q, want %q", raw, got, want)
		}
		inside := []byte(raw[1 : len(raw)-1])
		var read []byte
		r := scan.Read(inside)
		for c, ok := r.Next(); ok; c, ok = r.Next() {
			read = append(read, c)
		}
		if string(read) != want || !scan.SameName(inside, want) || !scan.EqualTexts(inside, inside) {
			t.Fatalf("%q was read as %q, want %q", raw, read, want)
		}
	})
}

func FuzzValue_EndsWhereTheStandardLibraryEnds(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"}]\""}],"c":null}`, `[[],{},"",-1.5e3]`, `"x`, `[[`, `{"a"`, `]`, `1 2`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		start := scan.Space(b, 0)
		end := scan.Value(b, start)
		var names []string
		for i := scan.FirstMember(b, start); i >= 0; {
			quote, value := scan.MemberValue(b, i)
			if quote < 0 {
				break
			}
			names = append(names, string(scan.Unquote(b[i:quote+1])))
			if i = scan.Value(b, value); i < 0 {
				break
			}
			i = scan.Next(b, i)
		}
		if !json.Valid(b) || !utf8.Valid(b) {
			return // it did not panic
		}
		if rest := scan.Space(b, end); end < 0 || rest != len(b) {
			t.Fatalf("%q ends at %d", text, end)
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(b, &want) != nil {
			return
		}
		for _, name := range names {
			if _, ok := want[name]; !ok {
				t.Fatalf("%q has no member %q", text, name)
			}
		}
		for name := range want {
			if !slices.Contains(names, name) || scan.Member(b, start, name) < 0 {
				t.Fatalf("%q: member %q was not found", text, name)
			}
		}
	})
}
