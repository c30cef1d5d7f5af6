package document

import (
	"fmt"
	"strconv"
	"strings"
)

// Step is one step of a Path. What it means depends on the value in which it is taken.
//
// In an object it is the member Name; a step of which only the fields below Name
// are set leads nowhere. In an array it is the element at Index if IsIndex, every
// element if All, the first element that is an object whose member KeyName equals
// KeyValue if KeyValue is not empty, and the place after the last element if Name
// is "-".
type Step struct {
	Name     string
	Index    int
	IsIndex  bool
	All      bool
	KeyName  string
	KeyValue string // a raw JSON scalar
}

// inObject reports whether the step can lead from an object to a member.
func (s *Step) inObject() bool {
	return s.Name != "" || !s.IsIndex && !s.All && s.KeyValue == ""
}

// isEnd reports whether the step means the place after the last element.
func (s *Step) isEnd() bool { return s.Name == "-" }

// Path leads from a value to values within it. The empty path is the value itself.
type Path []Step

// ParsePointer reads a JSON pointer (RFC 6901), in which * and [key=value] are
// understood in arrays: /tags/*/id, /tags/[id="x"]/name. A / or ~ in a key's value
// is written ~1 or ~0 as everywhere in a pointer. The error is a *PathError.
func ParsePointer(s string) (Path, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, &PathError{Text: s, Msg: "a JSON pointer begins with /"}
	}
	p := make(Path, 0, strings.Count(s, "/"))
	for start := 1; start <= len(s); {
		end := len(s)
		if n := strings.IndexByte(s[start:], '/'); n >= 0 {
			end = start + n
		}
		// RFC 6901 has two escapes, ~0 and ~1. Any other ~ is an error there and here.
		token := s[start:end]
		for i := 0; i < len(token); i++ {
			if token[i] == '~' && (i+1 == len(token) || token[i+1] != '0' && token[i+1] != '1') {
				return nil, &PathError{Text: s, Offset: start + i, Msg: "~ must be written ~0, and / in a name ~1"}
			}
		}
		p = append(p, pointerStep(unescapeToken(token)))
		start = end + 1
	}
	if len(p) > DepthMax {
		return nil, &PathError{Text: s, Msg: fmt.Sprintf("more than %d steps", DepthMax)}
	}
	return p, nil
}

// pointerStep returns what a token of a pointer means.
func pointerStep(token string) Step {
	step := Step{Name: token}
	switch {
	case token == "*":
		step.All = true
	case strings.HasPrefix(token, "["):
		if key, err := parseBrackets(token, 0); err == nil && key.end == len(token) && key.step.KeyValue != "" {
			step.KeyName, step.KeyValue = key.step.KeyName, key.step.KeyValue
		}
	default:
		step.Index, step.IsIndex = parseIndex(token)
	}
	return step
}

// parseIndex reads an index of an array: digits without a leading zero.
func parseIndex(s string) (n int, ok bool) {
	// Nine digits fit an int of 32 bits, and no array of an item is so long.
	if s == "" || len(s) > 9 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// PathOf returns the path of properties and, written in digits, elements, as the paths
// of an expression have them.
func PathOf(names []string) Path {
	p := make(Path, len(names))
	for i, n := range names {
		p[i].Name = n
		if index, err := strconv.Atoi(n); err == nil && index >= 0 && strconv.Itoa(index) == n {
			p[i].Index, p[i].IsIndex = index, true
		}
	}
	return p
}

// Pointer returns the path as a JSON pointer. ParsePointer reads it back, except
// that a step of a field may then also mean a member: in [0] and [*], it does not.
func (p Path) Pointer() string {
	var b []byte
	for i := range p {
		b = p[i].appendToken(append(b, '/'))
	}
	return string(b)
}

// appendToken appends the step as a token of a pointer.
func (s *Step) appendToken(dst []byte) []byte {
	name := s.Name
	if !s.inObject() {
		switch {
		case s.IsIndex:
			return strconv.AppendInt(dst, int64(s.Index), 10)
		case s.All:
			return append(dst, '*')
		}
		name = "[" + fieldName(s.KeyName) + "=" + s.KeyValue + "]"
	}
	for i := range len(name) {
		switch c := name[i]; c {
		case '~':
			dst = append(dst, '~', '0')
		case '/':
			dst = append(dst, '~', '1')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func unescapeToken(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	// ~1 first, as RFC 6901 asks: ~01 means ~1 and not /.
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// Touched reports whether a change at the given pointer, the Path of a splice, may alter what
// p reads: whether one of the two leads to the same value as the other, or to a parent of
// it. It does not know the item, so a step by key or * counts as meeting every element. It
// does not allocate for pointers without ~.
func (p Path) Touched(pointer string) bool {
	//	p = /a/b      pointer /a     true: a parent changed
	//	              pointer /a/b/c true: a child changed
	//	              pointer /a/c   false
	for i := range p {
		if pointer == "" {
			return true
		}
		pointer = pointer[1:]
		token := pointer
		if n := strings.IndexByte(pointer, '/'); n >= 0 {
			token, pointer = pointer[:n], pointer[n:]
		} else {
			pointer = ""
		}
		if !p[i].mayBe(unescapeToken(token)) {
			return false
		}
	}
	return true
}

// mayBe reports whether the step and a token of a concrete pointer, or one in which
// * or [key=value] stands for an index, may mean the same place.
func (s *Step) mayBe(token string) bool {
	if s.inObject() && s.Name == token {
		return true
	}
	element := token == "*" || token == "-" || strings.HasPrefix(token, "[")
	n, isIndex := parseIndex(token)
	switch {
	case s.All || s.KeyValue != "":
		return element || isIndex
	case s.IsIndex:
		return element || isIndex && n == s.Index
	}
	return false
}

// Overlaps reports whether two paths lead to the same value, or one to a parent of the other's.
// Only names are compared, so both must be made of names.
func (p Path) Overlaps(q Path) bool {
	for i := range min(len(p), len(q)) {
		if p[i].Name != q[i].Name {
			return false
		}
	}
	return true
}

// covers reports whether p leads to the same value as q or to a parent of it. Only steps by
// name are compared; a path with another step covers nothing.
func (p Path) covers(q Path) bool {
	if len(p) > len(q) {
		return false
	}
	for i := range p {
		if p[i].Name != q[i].Name || !p[i].inObject() || !q[i].inObject() {
			return false
		}
	}
	return true
}
