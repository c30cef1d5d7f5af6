package query

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// textFunctions are the functions of strings. Characters are those of Unicode.
var textFunctions = map[string]*function{
	"CONCAT":     {least: 2, most: argsMax, many: concatAll},
	"CONTAINS":   textSearch(bytes.Contains),
	"STARTSWITH": textSearch(bytes.HasPrefix),
	"ENDSWITH":   textSearch(bytes.HasSuffix),
	"STRINGEQUALS": textSearch(func(s, t []byte) bool {
		return bytes.Equal(s, t)
	}),
	"INDEX_OF": {least: 2, most: 3, three: indexOf},
	"LEFT":     {least: 2, most: 2, two: func(s, n Value) Value { return substring(s, intValue(0), n) }},
	"RIGHT": {least: 2, most: 2, two: func(s, n Value) Value {
		k, ok := n.int()
		if !ok || s.typ != String {
			return Value{}
		}
		return substring(s, intValue(max(0, utf8.RuneCount(s.data)-max(0, k))), n)
	}},
	"LENGTH": {least: 1, most: 1, one: func(v Value) Value {
		if v.typ != String {
			return Value{}
		}
		return intValue(utf8.RuneCount(v.data))
	}},
	"LOWER": text1(bytes.ToLower),
	"UPPER": text1(bytes.ToUpper),
	"LTRIM": trimmed(true, false),
	"RTRIM": trimmed(false, true),
	"TRIM":  trimmed(true, true),
	"REGEXMATCH": {least: 2, most: 3, framed: func(f *frame, s, re, flags Value) Value {
		return f.regexMatch(s, f.newRegexp(re, flags))
	}},
	"REPLACE":   {least: 3, most: 3, three: replace},
	"REPLICATE": {least: 2, most: 2, two: replicate},
	"REVERSE": text1(func(s []byte) []byte {
		runes := []rune(string(s))
		slices.Reverse(runes)
		return []byte(string(runes))
	}),
	"SUBSTRING": {least: 3, most: 3, three: substring},
}

// textSearch returns a function of two strings, such as CONTAINS. Its third argument, if
// true, makes it ignore case.
func textSearch(f func(s, t []byte) bool) *function {
	return &function{least: 2, most: 3, three: func(s, t, ignoreCase Value) Value {
		if s.typ != String || t.typ != String || ignoreCase.typ != Undefined && ignoreCase.typ != Bool {
			return Value{}
		}
		if ignoreCase.b {
			return boolValue(f(bytes.ToLower(s.data), bytes.ToLower(t.data)))
		}
		return boolValue(f(s.data, t.data))
	}}
}

func concatAll(args []Value) Value {
	// The size first, so that a result beyond the bound is never made.
	size := 0
	for _, a := range args {
		if a.typ != String {
			return Value{}
		}
		size += len(a.data)
	}
	if size > TextMadeMax {
		return Value{}
	}
	out := make([]byte, 0, size)
	for _, a := range args {
		out = append(out, a.data...)
	}
	return stringValue(out)
}

// indexOf returns the index in characters of t in s, from a given one on; -1 if it
// is not there.
func indexOf(s, t, from Value) Value {
	if s.typ != String || t.typ != String {
		return Value{}
	}
	start := 0
	if from.typ != Undefined {
		n, ok := from.int()
		if !ok {
			return Value{}
		}
		start = max(0, n)
	}
	skip := offset(s.data, start) // bytes are searched, characters are counted
	at := bytes.Index(s.data[skip:], t.data)
	if at < 0 {
		return intValue(-1)
	}
	return intValue(utf8.RuneCount(s.data[:skip+at]))
}

// offset returns the offset in bytes of character n of s, or its length.
func offset(s []byte, n int) int {
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, size := utf8.DecodeRune(s[i:])
		i += size
	}
	return i
}

// substring returns length characters of s from start on, fewer where it ends.
func substring(s, start, length Value) Value {
	from, ok := start.int()
	n, okN := length.int()
	if s.typ != String || !ok || !okN {
		return Value{}
	}
	rest := s.data[offset(s.data, max(0, from)):]
	return stringValue(rest[:offset(rest, max(0, n))])
}

// trimmed returns a function that cuts white space, or the characters of its
// second argument, from the ends.
func trimmed(left, right bool) *function {
	return &function{least: 1, most: 2, two: func(s, cut Value) Value {
		if s.typ != String || cut.typ != Undefined && cut.typ != String {
			return Value{}
		}
		set := " \t\n\v\f\r\u0085\u00A0"
		if cut.typ == String {
			set = string(cut.data)
		}
		in := make(map[rune]bool) // searching the set itself would take its length for each character
		for _, r := range set {
			in[r] = true
		}
		out := s.data
		if left {
			out = bytes.TrimLeftFunc(out, func(r rune) bool { return in[r] })
		}
		if right {
			out = bytes.TrimRightFunc(out, func(r rune) bool { return in[r] })
		}
		return stringValue(out)
	}}
}

func replace(s, from, to Value) Value {
	if s.typ != String || from.typ != String || to.typ != String {
		return Value{}
	}
	if len(from.data) == 0 {
		return s
	}
	// Counted before it is made: one character replaced by a long text grows a thousandfold.
	n := bytes.Count(s.data, from.data)
	if len(s.data)+n*(len(to.data)-len(from.data)) > TextMadeMax {
		return Value{}
	}
	return stringValue(bytes.ReplaceAll(s.data, from.data, to.data))
}

func replicate(s, count Value) Value {
	n, ok := count.int()
	if s.typ != String || !ok || n < 0 || len(s.data) > 0 && n > TextMadeMax/len(s.data) {
		return Value{}
	}
	if len(s.data) == 0 {
		return s
	}
	return stringValue(bytes.Repeat(s.data, n))
}
