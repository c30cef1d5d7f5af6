package spec

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// scalarPlace returns the place of the byte at offset of a scalar's value, where
// lines is the file. The value is found again in the file by its characters that
// are not white space, in order; so folding, indentation and the quotes of all
// five styles need no rules of their own. If that leads nowhere, it returns the
// place of the scalar.
func scalarPlace(file string, lines []string, n *yaml.Node, offset int) Place {
	// The value of a folded text is in one line, and offset 10 of it is b:
	//
	//	line 12  where: >          a = 1 and b =
	//	line 13    a = 1
	//	line 14    and b =
	//
	// b is the seventh character that is no space, in both. The seventh in the file is at 14:7.
	start := Place{file, n.Line, n.Column}
	r := newScalarReader(lines, n)
	last := start
	// One back, so that an empty text, or an error before its first character, ends at start.
	last.Column--
	for i, want := range n.Value {
		if unicode.IsSpace(want) {
			if i >= offset {
				break
			}
			continue
		}
		got, where := r.next()
		if got != want {
			return start
		}
		last = Place{file, where.Line, where.Column}
		if i >= offset {
			return last
		}
	}
	// The error is at the end, or in the space before the next word: behind what was read last.
	last.Column++
	return last
}

// scalarReader reads the characters of a scalar that are not white space.
type scalarReader struct {
	lines  [][]rune
	style  yaml.Style
	line   int // index into lines
	column int // index into the line
}

func newScalarReader(lines []string, n *yaml.Node) *scalarReader {
	r := &scalarReader{style: n.Style &^ (yaml.TaggedStyle | yaml.FlowStyle), line: n.Line - 1, column: n.Column - 1}
	for _, l := range lines {
		r.lines = append(r.lines, []rune(l))
	}
	r.skipProperties(n)
	if r.style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		// The scalar begins at its | or >, the text in the line below.
		r.line, r.column = r.line+1, 0
	}
	if r.style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		r.column++
	}
	return r
}

// skipProperties goes past the tag and the anchor before a scalar.
func (r *scalarReader) skipProperties(n *yaml.Node) {
	if n.Style&yaml.TaggedStyle == 0 && n.Anchor == "" {
		return
	}
	for r.line < len(r.lines) {
		rest := strings.TrimLeft(string(r.lines[r.line][min(r.column, len(r.lines[r.line])):]), " \t")
		r.column = len(r.lines[r.line]) - utf8.RuneCountInString(rest)
		if rest == "" || (rest[0] != '!' && rest[0] != '&') {
			return
		}
		for r.column < len(r.lines[r.line]) && !unicode.IsSpace(r.lines[r.line][r.column]) {
			r.column++
		}
	}
}

// next returns the next character that is not white space and its place; zero at
// the end of the file.
func (r *scalarReader) next() (rune, Place) {
	for r.line < len(r.lines) {
		line := r.lines[r.line]
		if r.column >= len(line) {
			r.line, r.column = r.line+1, 0
			continue
		}
		c := line[r.column]
		at := Place{Line: r.line + 1, Column: r.column + 1}
		r.column++
		switch {
		case unicode.IsSpace(c):
			continue
		// The quote that ends the scalar never comes here: the value is at its end before.
		case r.style == yaml.SingleQuotedStyle && c == '\'':
			r.column++ // '' stands for one
		case r.style == yaml.DoubleQuotedStyle && c == '\\':
			if c = r.escape(line); unicode.IsSpace(c) {
				continue
			}
		}
		return c, at
	}
	return 0, Place{}
}

// escape reads what follows a backslash in double quotes.
func (r *scalarReader) escape(line []rune) rune {
	if r.column >= len(line) {
		return ' ' // an escaped line break joins lines
	}
	c := line[r.column]
	r.column++
	digits := 0
	switch c {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	// All of these are white space: \N is U+0085, \_ U+00A0, \L and \P are U+2028 and U+2029.
	// The value has them as such, where they are passed over too.
	case 'n', 't', 'r', 'v', 'f', 'N', 'L', 'P', '_', ' ', '\t':
		return ' '
	case '0':
		return 0
	case 'a':
		return '\a'
	case 'b':
		return '\b'
	case 'e':
		return 0x1b
	default:
		return c
	}
	var value rune
	for ; digits > 0 && r.column < len(line); digits-- {
		value = value<<4 | hexDigit(line[r.column])
		r.column++
	}
	return value
}

func hexDigit(c rune) rune {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0
}
