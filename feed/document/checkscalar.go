package document

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/feed/document/scan"
)

// This file checks words, numbers and strings.

func (c *checker) word(i int, want string) int {
	if !bytes.HasPrefix(c.body[i:], []byte(want)) {
		return c.fail(i, "%s where a value must stand", describe(c.body, i))
	}
	return i + len(want)
}

func (c *checker) number(i int) int {
	start := i
	if c.body[i] == '-' {
		i++
	}
	first := i
	if i = c.digits(i); i < 0 {
		return -1
	}
	// JSON has no leading zeros. The digits are read first, so that the error names them all.
	if c.body[first] == '0' && i > first+1 {
		return c.fail(first, "a number must not begin with 0 and another digit")
	}
	if i < len(c.body) && c.body[i] == '.' {
		if i = c.digits(i + 1); i < 0 {
			return -1
		}
	}
	if i < len(c.body) && c.body[i]|0x20 == 'e' {
		exp := i + 1
		if i = exp; i < len(c.body) && (c.body[i] == '+' || c.body[i] == '-') {
			i++
		}
		if i = c.digits(i); i < 0 {
			return -1
		}
		// Valid JSON, but a few bytes that stand for a gigabyte of digits.
		if e := decimal.Exponent(c.body[exp:i]); e > ExponentMax || e < -ExponentMax {
			return c.fail(start, "the number's exponent is beyond %d", ExponentMax)
		}
	}
	return i
}

func (c *checker) digits(i int) int {
	start := i
	for i < len(c.body) && c.body[i] >= '0' && c.body[i] <= '9' {
		i++
	}
	if i == start {
		return c.fail(i, "%s where a digit must stand", describe(c.body, i))
	}
	return i
}

// text checks the string whose opening quote is body[i].
func (c *checker) text(i int) int {
	body := c.body
	i++
	for {
		// Eight bytes at a time up to a quote, a backslash or a control character. The lowest
		// mark of each function is exact, so the first byte of the three is found.
		for i+8 <= len(body) {
			w := binary.LittleEndian.Uint64(body[i:])
			m := scan.HasByte(w, '"') | scan.HasByte(w, '\\') | scan.HasControl(w)
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(body) {
			return c.fail(len(body), "the text ends within a string")
		}
		switch b := body[i]; {
		case b == '"':
			return i + 1
		case b == '\\':
			n := c.escape(i)
			if n < 0 {
				return -1
			}
			i += n
		case b < ' ':
			return c.fail(i, "control character 0x%02X in a string, write \\u%04x", b, b)
		default:
			i++
		}
	}
}

// escape returns the length of the escape that begins at body[i].
func (c *checker) escape(i int) int {
	raw := c.body[i:]
	if len(raw) < 2 || strings.IndexByte(`"\/bfnrtu`, raw[1]) < 0 {
		return c.fail(i, "\\ with no character of \"\\/bfnrtu behind it")
	}
	if raw[1] != 'u' {
		return 2
	}
	r := scan.HexRune(raw)
	if r < 0 {
		return c.fail(i, "\\u without four hexadecimal digits")
	}
	if !utf16.IsSurrogate(r) {
		return 6
	}
	// The high half of a pair must be followed by an escape of the low half. A half alone has
	// no UTF-8, so it would come back as U+FFFD from every reader that decodes it.
	if r < 0xDC00 && len(raw) > 7 && raw[6] == '\\' && raw[7] == 'u' {
		if utf16.DecodeRune(r, scan.HexRune(raw[6:])) != utf8.RuneError {
			return 12
		}
	}
	return c.fail(i, "half of a surrogate pair, which is no character")
}

// skipJSONSpace returns the index of the first byte from i that is not one of the
// four kinds of white space.
func skipJSONSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// describe names what stands at body[i], for errors.
func describe(body []byte, i int) string {
	if i >= len(body) {
		return "the end of the text"
	}
	switch c := body[i]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(body[i:], []byte(word)) {
			return word
		}
	}
	r, _ := utf8.DecodeRune(body[i:]) // a whole character: a message must not show half of one
	return fmt.Sprintf("%q", r)
}
