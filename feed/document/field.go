package document

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseField reads a path as pipelines write it: names joined by dots, and in
// brackets an index, *, a quoted name or a key with its value:
//
//	address.city   addresses[0].city   tags[*].id   a["b c"]   tags[id = "x"].name
//
// A bare name holds no space, dot, quote, bracket, =, * or control character.
// Quoted text is in " or ' with the escapes of JSON; a key's value is a JSON
// scalar, text also in '. The error is a *PathError.
func ParseField(s string) (Path, error) {
	var p Path
	i := skipText(s, 0)
	end := len(strings.TrimRightFunc(s, unicode.IsSpace))
	for first := true; i < end; first = false {
		if len(p) == DepthMax {
			return nil, &PathError{Text: s, Offset: i, Msg: "more than " + strconv.Itoa(DepthMax) + " steps"}
		}
		if s[i] == '[' {
			step, err := parseBrackets(s, i)
			if err != nil {
				return nil, err
			}
			p, i = append(p, step.step), step.end
			continue
		}
		if !first {
			if s[i] != '.' {
				return nil, &PathError{Text: s, Offset: i, Msg: "want . or [ or the end"}
			}
			i++
		}
		n := bareName(s[i:end])
		if n == 0 {
			return nil, &PathError{Text: s, Offset: i, Msg: `want a name; one that is not plain is written ["…"]`}
		}
		p, i = append(p, Step{Name: s[i : i+n]}), i+n
	}
	if len(p) == 0 {
		return nil, &PathError{Text: s, Msg: "want a name"}
	}
	return p, nil
}

// Field is a path as somebody wrote it, with its parsed form. Everything that writes it writes
// that text. The zero Field is no field.
type Field struct {
	text string
	path Path
}

// NewField parses a path as ParseField does.
func NewField(text string) (Field, error) {
	p, err := ParseField(text)
	if err != nil {
		return Field{}, err
	}
	return Field{text, p}, nil
}

// FieldOf returns the Field whose text is p.String().
func FieldOf(p Path) Field { return Field{p.String(), p} }

// String returns the path as it was written.
func (f Field) String() string { return f.text }

// Path returns the parsed path, nil for the zero Field. It must not be changed.
func (f Field) Path() Path { return f.path }

// IsZero reports whether f is no field.
func (f Field) IsZero() bool { return f.path == nil }

// Equal reports whether two fields have the same text. Other texts may mean the same path.
func (f Field) Equal(other Field) bool { return f.text == other.text }

// MarshalText returns the path as it was written.
func (f Field) MarshalText() ([]byte, error) { return []byte(f.text), nil }

// UnmarshalText parses what MarshalText wrote.
func (f *Field) UnmarshalText(text []byte) (err error) {
	*f, err = NewField(string(text))
	return err
}

// String returns the path as a field, as ParseField reads it.
func (p Path) String() string {
	var b []byte
	for i := range p {
		s := &p[i]
		switch {
		case s.IsIndex:
			b = append(strconv.AppendInt(append(b, '['), int64(s.Index), 10), ']')
		case s.All:
			b = append(b, "[*]"...)
		case s.KeyValue != "":
			b = append(append(b, '['), fieldName(s.KeyName)...)
			b = append(append(append(b, " = "...), s.KeyValue...), ']')
		case bareName(s.Name) == len(s.Name) && s.Name != "":
			if len(b) > 0 {
				b = append(b, '.')
			}
			b = append(b, s.Name...)
		default:
			b = append(AppendQuote(append(b, '['), s.Name), ']')
		}
	}
	return string(b)
}

// fieldName returns a name as it is written before = in brackets.
func fieldName(name string) string {
	if _, isIndex := parseIndex(name); name != "" && bareName(name) == len(name) && !isIndex {
		return name
	}
	return string(AppendQuote(nil, name))
}

// bareName returns how many bytes at the beginning of s are a bare name.
func bareName(s string) int {
	for i, r := range s {
		if r <= ' ' || strings.ContainsRune(`.[]"'=*`, r) || r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r) {
			return i
		}
	}
	return len(s)
}

// brackets is what stands in brackets, and the index behind them.
type brackets struct {
	step Step
	end  int
}

// parseBrackets reads the step in brackets that begins at s[i].
func parseBrackets(s string, i int) (b brackets, err error) {
	fail := func(msg string) (brackets, error) {
		return brackets{}, &PathError{Text: s, Offset: min(i, len(s)), Msg: msg}
	}
	var step Step
	i = skipText(s, i+1)
	name, quoted := "", false
	switch {
	case i == len(s):
		return fail("want an index, *, a name or a key")
	case s[i] == '*':
		step.All = true
		i++
	case s[i] == '"' || s[i] == '\'':
		raw, n, msg := quotedText(s[i:])
		if msg != "" {
			return fail(msg)
		}
		name, _ = Text(raw)
		quoted = true
		i += n
	default:
		n := bareName(s[i:])
		name = s[i : i+n]
		i += n
	}
	// What follows decides what the name was: = makes it a key, quotes a member's name, and
	// alone it must be an index.
	//
	//	[id = "x"]   ["id"]   [0]
	i = skipText(s, i)
	if i < len(s) && s[i] == '=' && !step.All && (quoted || name != "") {
		i = skipText(s, i+1)
		raw, n, msg := keyValue(s[i:])
		if msg != "" {
			return fail(msg)
		}
		step.KeyName, step.KeyValue = name, string(raw)
		i = skipText(s, i+n)
	} else if quoted {
		step.Name = name
	} else if !step.All {
		var ok bool
		if step.Index, ok = parseIndex(name); !ok {
			return fail(`want an index, *, a quoted name or key = value`)
		}
		step.IsIndex = true
	}
	if i >= len(s) || s[i] != ']' {
		return fail("want ]")
	}
	return brackets{step, i + 1}, nil
}

// keyValue reads the raw scalar at the beginning of s and returns its length
// there. msg says what is wrong.
func keyValue(s string) (raw []byte, n int, msg string) {
	const want = "want a string, a number, true, false or null"
	if s == "" {
		return nil, 0, want
	}
	if s[0] == '"' || s[0] == '\'' {
		return quotedText(s)
	}
	// Not a string, so neither a space nor a bracket can be in it. CheckValue says whether it
	// is JSON.
	if n = strings.IndexAny(s, " ]"); n < 0 {
		n = len(s)
	}
	raw = []byte(s[:n])
	if CheckValue(raw) != nil || KindOf(raw) > Number {
		return nil, 0, want
	}
	return raw, n, ""
}

// quotedText reads the text in " or ' at the beginning of s as a raw JSON string
// and returns its length in s. msg says what is wrong.
func quotedText(s string) (raw []byte, n int, msg string) {
	quote := s[0]
	raw = []byte{'"'}
	for n = 1; n < len(s) && s[n] != quote; n++ {
		// The result is a JSON string, in which ' has no escape and " needs one.
		switch c := s[n]; {
		case c == '\\' && n+1 < len(s):
			n++
			if s[n] != '\'' {
				raw = append(raw, '\\')
			}
			raw = append(raw, s[n])
		case c == '"':
			raw = append(raw, '\\', '"')
		default:
			raw = append(raw, c)
		}
	}
	if n >= len(s) {
		return nil, 0, "the quoted text does not end"
	}
	raw = append(raw, '"')
	if CheckValue(raw) != nil {
		return nil, 0, "the quoted text is not UTF-8 with the escapes of JSON"
	}
	if text, ok := Text(raw); ok && bytes.IndexByte(raw, '\\') >= 0 {
		raw = AppendQuote(nil, text) // one form for each text
	}
	return raw, n + 1, ""
}

// skipText returns the index of the first byte of s from i that is no space.
func skipText(s string, i int) int {
	for i < len(s) && s[i] <= ' ' {
		i++
	}
	return i
}
