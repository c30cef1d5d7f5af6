package spec

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cutBytesMax bounds the expressions that are put together.
const cutBytesMax = 16 << 10

// stitch puts together the expressions that YAML has cut up. Inside { } a comma
// ends a value that is not quoted, so that
//
//	{name: CONCAT(first, " ", last), city: city}
//
// is read as the fields name, " ", last) and city. What is meant is plain, since
// the first value opens a parenthesis that it does not close: the value goes on to
// where it is closed, and what YAML took for fields up to there is part of it.
func (d *Decoder) stitch(n *yaml.Node) {
	if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 {
		d.stitchMapping(n)
	}
	for _, child := range n.Content {
		d.stitch(child)
	}
}

func (d *Decoder) stitchMapping(n *yaml.Node) {
	for i := 1; i < len(n.Content); i += 2 {
		value := n.Content[i]
		if value.Kind != yaml.ScalarNode || value.Style != 0 || !opens(value.Value) {
			continue
		}
		text, end, ok := d.whole(value)
		if ok {
			value.Value, value.Tag = text, "!!str"
		}
		next := i + 1
		for next < len(n.Content) && (ok && before(n.Content[next], end) || !ok && isBare(n.Content[next+1])) {
			next += 2
		}
		n.Content = slices.Delete(n.Content, i+1, next)
	}
}

// isBare tells whether a value is that of a key without a colon, which is a piece
// of an expression that is not closed. The parser of expressions will say so.
func isBare(value *yaml.Node) bool { return IsNull(value) && value.Value == "" }

// opens tells whether a text opens a parenthesis that it does not close.
func opens(text string) bool {
	var b balance
	for _, c := range text {
		b.take(c)
	}
	return b.depth > 0
}

// whole reads the text of a value from the file, up to the comma or bracket
// behind the last parenthesis, and returns where that stands.
func (d *Decoder) whole(n *yaml.Node) (text string, end Place, ok bool) {
	var out strings.Builder
	var b balance
	column := n.Column - 1
	for line := n.Line - 1; line >= 0 && line < len(d.lines) && out.Len() <= cutBytesMax; line++ {
		for i, c := range []rune(d.lines[line]) {
			if i < column {
				continue
			}
			if b.depth == 0 && !b.quoted() && (c == ',' || c == '}') {
				return strings.TrimSpace(out.String()), Place{Line: line + 1, Column: i + 1}, true
			}
			b.take(c)
			out.WriteRune(c)
		}
		out.WriteByte('\n')
		column = 0
	}
	return "", Place{}, false
}

// before tells whether n begins before a place.
func before(n *yaml.Node, at Place) bool {
	return n.Line < at.Line || n.Line == at.Line && n.Column < at.Column
}

// balance counts the open brackets of an expression.
type balance struct {
	depth int
	quote rune // of the text that c is in, 0 if it is in none
	skip  bool // c is escaped
}

func (b *balance) quoted() bool { return b.quote != 0 }

func (b *balance) take(c rune) {
	switch {
	case b.skip:
		b.skip = false
	case b.quote != 0 && c == '\\':
		b.skip = true
	case b.quote != 0:
		if c == b.quote {
			b.quote = 0
		}
	case c == '"' || c == '\'':
		b.quote = c
	case c == '(' || c == '[' || c == '{':
		b.depth++
	case c == ')' || c == ']' || c == '}':
		b.depth--
	}
}
