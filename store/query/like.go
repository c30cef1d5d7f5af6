package query

import (
	"bytes"
	"unicode/utf8"
)

// pattern is a compiled pattern of LIKE.
type pattern struct {
	pieces []piece
	texts  [][]byte // the texts before, between and behind each %, if there are no other signs
}

// piece is one character of a pattern, or what stands for characters.
type piece struct {
	r      rune
	any    bool // % stands for any characters
	one    bool // _ stands for one
	ranges []runeRange
	except bool // [^…]
}

// pieceSize is about what a character of a pattern becomes in memory.
const pieceSize = 40

type runeRange struct{ low, high rune }

func (p *piece) matches(r rune) bool {
	switch {
	case p.one:
		return true
	case p.ranges == nil:
		return p.r == r
	}
	for _, rg := range p.ranges {
		if r >= rg.low && r <= rg.high {
			return !p.except
		}
	}
	return p.except
}

// compileLike compiles a LIKE. A constant pattern is read once, any other for each item.
func compileLike(n *like) test {
	x, text, escape := compile(n.x), compile(n.pattern), eval(func([]byte, *frame) Value { return stringValue(nil) })
	_, fixed := constant(n.pattern)
	if n.escape != nil {
		escape = compile(n.escape)
		_, fixedEscape := constant(n.escape)
		fixed = fixed && fixedEscape
	}
	if fixed {
		p, ok := newPattern(text(nil, nil), escape(nil, nil))
		if !ok {
			return func([]byte, *frame) tri { return isUndefined }
		}
		return func(item []byte, f *frame) tri { return p.test(x(item, f), f) }
	}
	return func(item []byte, f *frame) tri {
		pattern := text(item, f)
		if !f.chargeMade(pieceSize * len(pattern.data)) {
			return isUndefined
		}
		p, ok := newPattern(pattern, escape(item, f))
		if !ok {
			return isUndefined
		}
		return p.test(x(item, f), f)
	}
}

// newPattern compiles a pattern: % stands for any characters, _ for one, [a-z] for
// one of these and [^a-z] for one other; the character behind escape for itself. ok
// is false if text is no string, or escape neither empty nor one character.
func newPattern(text, escape Value) (p pattern, ok bool) {
	if text.typ != String || escape.typ != String || utf8.RuneCount(escape.data) > 1 {
		return pattern{}, false
	}
	pieces := newPieces(text, escape)
	return pattern{pieces, textsOf(pieces)}, true
}

// textsOf returns the texts of a pattern whose only sign is %, else nil: "a%b%" has "a", "b"
// and "". Such a pattern is matched by searching for one text after the other, in one pass;
// most patterns are of this form.
func textsOf(pieces []piece) [][]byte {
	texts := [][]byte{{}}
	for _, p := range pieces {
		last := len(texts) - 1
		switch {
		case p.any:
			texts = append(texts, []byte{})
		// The last one stands for bytes that are no UTF-8, too. As a character it matches any of those in s,
		// which a search for its bytes would not find.
		case p.one, p.ranges != nil, p.r == utf8.RuneError:
			return nil
		default:
			texts[last] = utf8.AppendRune(texts[last], p.r)
		}
	}
	return texts
}

// newPieces reads a pattern, which is a string.
func newPieces(text, escape Value) (p []piece) {
	esc := rune(-1)
	if len(escape.data) > 0 {
		esc, _ = utf8.DecodeRune(escape.data)
	}
	// The last ] tells for every [ whether one can follow, so that a pattern of many [ without
	// a ] is not searched to its end for each.
	runes := []rune(string(text.data))
	closed := len(runes) - 1
	for ; closed >= 0 && runes[closed] != ']'; closed-- {
	}
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case r == esc && i+1 < len(runes):
			i++
			p = append(p, piece{r: runes[i]})
		case r == '%': // several % are one
			if len(p) == 0 || !p[len(p)-1].any {
				p = append(p, piece{any: true})
			}
		case r == '_':
			p = append(p, piece{one: true})
		case r == '[' && i < closed:
			set, n := newSet(runes[i:])
			p = append(p, set)
			i += n - 1
		default:
			p = append(p, piece{r: r})
		}
	}
	return p
}

// newSet reads [a-z] at the beginning of runes and returns its length. A bracket
// that is not closed stands for itself.
func newSet(runes []rune) (p piece, n int) {
	end := -1
	for i := 1; i < len(runes); i++ {
		if runes[i] == ']' {
			end = i
			break
		}
	}
	if end < 2 { // [] names no character
		return piece{r: '['}, 1
	}
	inside := runes[1:end]
	if inside[0] == '^' && len(inside) > 1 {
		p.except, inside = true, inside[1:]
	}
	for i := 0; i < len(inside); i++ {
		if i+2 < len(inside) && inside[i+1] == '-' {
			p.ranges = append(p.ranges, runeRange{inside[i], inside[i+2]})
			i += 2
			continue
		}
		p.ranges = append(p.ranges, runeRange{inside[i], inside[i]})
	}
	return p, end + 1
}

// test reports whether the whole of v matches; it is undefined unless v is a string.
func (p pattern) test(v Value, f *frame) tri {
	if v.typ != String {
		return isUndefined
	}
	if p.texts != nil {
		f.charge(workNode + len(v.data)/workScan)
		return triOf(matchTexts(v.data, p.texts))
	}
	return triOf(match(v.data, p.pieces, f))
}

// matchTexts finds each text behind the one before it. The first text and the last must be the
// ends of s; between them the first place of each text is enough, since an earlier place
// leaves more room for the rest.
func matchTexts(s []byte, texts [][]byte) bool {
	first, last := texts[0], texts[len(texts)-1]
	if len(texts) == 1 {
		return bytes.Equal(s, first)
	}
	if len(s) < len(first)+len(last) || !bytes.HasPrefix(s, first) || !bytes.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, text := range texts[1 : len(texts)-1] {
		i := bytes.Index(s, text)
		if i < 0 {
			return false
		}
		s = s[i+len(text):]
	}
	return true
}

// match walks s and the pattern side by side. Where they differ it goes back to the last % and
// lets it stand for one character more:
//
//	s "aab", pattern "%ab"    % is "": a matches a, a differs from b; back
//	                          % is "a": ab matches
//
// Only the last % is tried again: what stands before it matched as early as possible. That
// may take as many steps as the characters of s times those of the pattern, so match counts
// them. When the budget is spent its result means nothing.
func match(s []byte, p []piece, f *frame) bool {
	i, back, from := 0, -1, 0
	pos := 0
	for pos < len(s) {
		work := workStep
		if i < len(p) {
			work += len(p[i].ranges)
		}
		if !f.charge(work) {
			return false
		}
		r, size := utf8.DecodeRune(s[pos:])
		switch {
		case i < len(p) && p[i].any:
			back, from = i, pos
			i++
		case i < len(p) && p[i].matches(r):
			i++
			pos += size
		case back >= 0:
			_, size = utf8.DecodeRune(s[from:])
			from += size
			i, pos = back+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i].any {
		i++
	}
	return i == len(p)
}
