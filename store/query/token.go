package query

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// SyntaxError says where and why a text is not an expression.
type SyntaxError struct {
	Line   int // from 1
	Column int // in characters, from 1
	Offset int // in bytes, from 0
	Msg    string
	Near   string // the text there, shortened; empty at the end
}

func (e *SyntaxError) Error() string {
	where := "at the end"
	if e.Near != "" {
		where = "near `" + e.Near + "`"
	}
	return fmt.Sprintf("line %d, column %d: %s, %s", e.Line, e.Column, e.Msg, where)
}

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenNumber
	tokenString
	tokenParam
	tokenSign // operators, brackets and separators
)

// token is a token of the text. text is the name, the sign, the number as JSON, or the string
// with its escapes decoded.
type token struct {
	kind       tokenKind
	text       string
	start, end int
}

// is reports whether the token is the given sign.
func (t *token) is(sign string) bool { return t.kind == tokenSign && t.text == sign }

// word returns the token in capitals if it is a name.
func (t *token) word() string {
	if t.kind != tokenName {
		return ""
	}
	return strings.ToUpper(t.text)
}

// signs are all signs. A sign comes before its own beginnings, so the first that fits is the
// longest.
var signs = []string{
	">>>", "!=", "<>", "<=", ">=", "<<", ">>", "||", "??",
	"=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "~", "?", ":", ".", ",", "(", ")", "[", "]", "{", "}",
}

// lexer cuts a text into tokens.
type lexer struct {
	text string
	pos  int
}

// next returns the next token.
func (l *lexer) next() (token, *SyntaxError) {
	l.skip()
	start := l.pos
	if start == len(l.text) {
		return token{start: start, end: start}, nil
	}
	switch c := l.text[start]; {
	case c == '"' || c == '\'':
		return l.quoted()
	case isDigit(c) || c == '.' && start+1 < len(l.text) && isDigit(l.text[start+1]):
		return l.number()
	case c == '@':
		l.pos++
		if n := l.name(); n > 0 {
			return l.token(tokenParam, start), nil
		}
		return token{}, l.fail(start, "want the name of a parameter behind @")
	}
	if l.name() > 0 {
		return l.token(tokenName, start), nil
	}
	for _, s := range signs {
		if strings.HasPrefix(l.text[start:], s) {
			l.pos += len(s)
			return l.token(tokenSign, start), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(l.text[start:])
	return token{}, l.fail(start, fmt.Sprintf("%q has no meaning here", r))
}

func (l *lexer) token(kind tokenKind, start int) token {
	return token{kind, l.text[start:l.pos], start, l.pos}
}

// skip skips white space and comments.
func (l *lexer) skip() {
	for l.pos < len(l.text) {
		r, n := utf8.DecodeRuneInString(l.text[l.pos:])
		switch {
		case unicode.IsSpace(r):
			l.pos += n
		case strings.HasPrefix(l.text[l.pos:], "--"):
			end := strings.IndexByte(l.text[l.pos:], '\n')
			if end < 0 {
				end = len(l.text) - l.pos
			}
			l.pos += end
		default:
			return
		}
	}
}

// name skips a name and returns its length.
func (l *lexer) name() int {
	n := nameLen(l.text[l.pos:])
	l.pos += n
	return n
}

// nameLen returns how many bytes at the beginning of s are a name: letters,
// digits, _ and $, no digit first.
func nameLen(s string) int {
	for i, r := range s {
		if r == '_' || r == '$' || unicode.IsLetter(r) || i > 0 && unicode.IsDigit(r) {
			continue
		}
		return i
	}
	return len(s)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits skips digits and returns how many.
func (l *lexer) digits() int {
	start := l.pos
	for l.pos < len(l.text) && isDigit(l.text[l.pos]) {
		l.pos++
	}
	return l.pos - start
}

// number reads a number such as 1, 1.5, .5 or 1e-3 and makes it one of JSON.
func (l *lexer) number() (token, *SyntaxError) {
	start := l.pos
	l.digits()
	// JSON knows neither leading zeros nor .5, which SQL allows.
	text := strings.TrimLeft(l.text[start:l.pos], "0")
	if text == "" {
		text = "0"
	}
	if l.pos < len(l.text) && l.text[l.pos] == '.' {
		l.pos++
		if l.digits() == 0 {
			return token{}, l.fail(l.pos, "want a digit behind the point")
		}
		text += l.text[strings.IndexByte(l.text[start:], '.')+start : l.pos]
	}
	if exp := l.pos; l.pos < len(l.text) && l.text[l.pos]|0x20 == 'e' {
		l.pos++
		if l.pos < len(l.text) && (l.text[l.pos] == '+' || l.text[l.pos] == '-') {
			l.pos++
		}
		digits := l.digits()
		if digits == 0 {
			return token{}, l.fail(l.pos, "want a digit of the exponent")
		}
		// As items are checked: a few characters must not stand for a million digits.
		if len(strings.TrimLeft(l.text[l.pos-digits:l.pos], "0")) > 6 {
			return token{}, l.fail(start, "the number's exponent is beyond 999999")
		}
		text += l.text[exp:l.pos]
	}
	if nameLen(l.text[l.pos:]) > 0 {
		return token{}, l.fail(l.pos, "want an operator behind the number")
	}
	return token{tokenNumber, text, start, l.pos}, nil
}

// quoted reads a string in " or '.
func (l *lexer) quoted() (token, *SyntaxError) {
	start := l.pos
	quote := l.text[start]
	var b strings.Builder
	for l.pos++; l.pos < len(l.text); {
		c := l.text[l.pos]
		switch c {
		case quote:
			l.pos++
			return token{tokenString, b.String(), start, l.pos}, nil
		case '\\':
			r, n := unescape(l.text[l.pos:])
			if n == 0 {
				return token{}, l.fail(l.pos, `\ is followed by one of "'\/bfnrt or by u and the four hexadecimal digits of a character`)
			}
			b.WriteRune(r)
			l.pos += n
		default:
			r, n := utf8.DecodeRuneInString(l.text[l.pos:])
			if r == utf8.RuneError && n == 1 {
				return token{}, l.fail(l.pos, fmt.Sprintf("byte 0x%02X is not UTF-8", c))
			}
			b.WriteString(l.text[l.pos : l.pos+n])
			l.pos += n
		}
	}
	return token{}, l.fail(start, "the string does not end")
}

// fail returns the error at an offset.
func (l *lexer) fail(offset int, msg string) *SyntaxError {
	const nearMax = 24 // characters
	e := &SyntaxError{Line: 1, Column: 1, Offset: offset, Msg: msg}
	for _, r := range l.text[:offset] {
		e.Column++
		if r == '\n' {
			e.Line, e.Column = e.Line+1, 1
		}
	}
	// The rest of the line, shortened, so that the message shows where it is.
	near, _, _ := strings.Cut(l.text[offset:], "\n")
	if near = strings.ToValidUTF8(strings.TrimSpace(near), "\uFFFD"); utf8.RuneCountInString(near) > nearMax {
		near = string([]rune(near)[:nearMax]) + "…"
	}
	e.Near = near
	return e
}
