package document

import (
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document/scan"
)

// Text returns the text of a raw JSON string, escapes decoded. ok is false if raw is not a
// string.
func Text(raw []byte) (text string, ok bool) {
	raw = scan.Trim(raw)
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	return string(scan.Unquote(raw)), true
}

// ID returns the id of an item. ok is false if the item has none, or if it is not a string.
func ID(body []byte) (id string, ok bool) {
	i := scan.Member(body, scan.Space(body, 0), "id")
	if i < 0 {
		return "", false
	}
	end := scan.Value(body, i)
	if end < 0 {
		return "", false
	}
	return Text(body[i:end])
}

// AppendQuote appends s as a JSON string to dst. It escapes only ", \ and control characters.
// Bytes that are not UTF-8 become U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0 // of the run that is copied as it is
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// Excerpt returns at most size bytes of a text for a message, followed by … if it was cut. It
// does not cut inside a character.
func Excerpt(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size], "") + "…"
}
