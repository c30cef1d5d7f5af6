package console

import (
	"bytes"
	"encoding/json"
	"html/template"
)

// indentMax bounds what is indented: deep in an item each line of two bytes gets hundreds of spaces.
const indentMax = 64 << 10

// highlight prints JSON indented, with a class around each key, text, number and word. What is no
// JSON, or larger than indentMax, is printed as it is.
func highlight(raw []byte) template.HTML {
	var text, out bytes.Buffer
	if len(raw) > indentMax || json.Indent(&text, raw, "", "  ") != nil {
		template.HTMLEscape(&out, raw)
		return template.HTML(out.String()) //nolint:gosec // escaped above
	}
	span := func(class string, token []byte) {
		out.WriteString(`<span class="` + class + `">`)
		template.HTMLEscape(&out, token)
		out.WriteString(`</span>`)
	}
	b := text.Bytes()
	for i := 0; i < len(b); {
		n := 1
		switch c := b[i]; {
		case c == '"':
			n = stringLen(b[i:])
			if i+n < len(b) && b[i+n] == ':' {
				span("key", b[i:i+n])
			} else {
				span("text", b[i:i+n])
			}
		case c == '-' || c >= '0' && c <= '9':
			for i+n < len(b) && bytes.IndexByte([]byte("+-.eE0123456789"), b[i+n]) >= 0 {
				n++
			}
			span("number", b[i:i+n])
		case c >= 'a' && c <= 'z':
			for i+n < len(b) && b[i+n] >= 'a' && b[i+n] <= 'z' {
				n++
			}
			span("word", b[i:i+n])
		default:
			out.WriteByte(c) // a space, a comma or a bracket
		}
		i += n
	}
	return template.HTML(out.String()) //nolint:gosec // tokens are escaped above
}

// stringLen returns the length of the JSON string with which b begins, quotes included.
func stringLen(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
