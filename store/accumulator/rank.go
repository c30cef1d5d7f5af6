package accumulator

import (
	"bytes"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// A key of min, max and latest begins with the canonical form of a value,
// complemented where the greatest comes first. For min and max, the text of a
// number that is not in its shortest form follows, so that it comes out as it went
// in. For latest, partition key, id and a digest of what is copied follow: a member
// that is replaced has another key.

const (
	// digestBytes are those of the SHA-256 of a copy that stand in its key.
	digestBytes = 16
	// rankTextMax bounds the text of a number in a key; a longer one comes out in
	// its shortest form.
	rankTextMax = 64
)

// rank returns the beginning of the key of a value; ok is false if it is left out.
// The key is good until rank is called again.
func (d *Delta) rank(to *field, v query.Value) (key []byte, ok bool) {
	switch v.Type() {
	case query.Undefined, query.Array, query.Object:
		return nil, false
	default:
	}
	d.text = v.AppendJSON(d.text[:0])
	key, ok = appendScalar(d.form[:0], d.text)
	d.form = key
	if !ok || len(key) > ScalarBytesMax {
		return nil, false
	}
	if to.mask != 0 {
		flip(key)
	}
	// 1.0 and 1 have one form. The text behind it keeps them apart, and gives 1.0 back.
	if to.Func != Latest && v.Type() == query.Number && len(d.text) <= rankTextMax && !isPlain(d.text) {
		key = append(key, d.text...)
		d.form = key
	}
	return key, true
}

// appendRanked appends the value of a key of min or max.
func appendRanked(dst, key []byte, mask byte) []byte {
	if n := scanScalar(key, mask); n > 0 && n < len(key) {
		return append(dst, key[n:]...)
	}
	return appendScalarJSON(dst, key, mask)
}

// checkRank reports whether a key is one that rank and Fold make. Deltas come from other
// processes, so their keys are checked before they become keys of records.
func (f *field) checkRank(key []byte) bool {
	n := scanScalar(key, f.mask)
	if n == 0 || n > ScalarBytesMax {
		return false
	}
	if key[0]^f.mask == rankString && !utf8.Valid(appendScalarText(nil, key[:n], f.mask)) {
		return false
	}
	isNumber, rest := key[0]^f.mask == rankNumber, key[n:]
	if f.Func != Latest {
		if len(rest) == 0 {
			return true
		}
		if !isNumber || len(rest) > rankTextMax || isPlain(rest) || document.KindOf(rest) != document.Number || document.CheckValue(rest) != nil {
			return false
		}
		form := document.AppendCanonical(make([]byte, 0, n), rest)
		if f.mask != 0 {
			flip(form)
		}
		return bytes.Equal(form, key[:n]) && bytes.Equal(bytes.TrimSpace(rest), rest)
	}
	for range 2 {
		end := escapedLen(rest)
		if end == 0 {
			return false
		}
		rest = rest[end:]
	}
	return len(rest) == digestBytes
}

// appendEscaped appends s with a mark of its end, in its order: 00 in s becomes 00 FF, and 00 01
// ends it.
func appendEscaped(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, s[i])
		if s[i] == 0 {
			dst = append(dst, 0xFF)
		}
	}
	return append(dst, 0, 1)
}

// escapedLen is the length of what appendEscaped wrote at the beginning of b, 0 if
// it wrote none.
func escapedLen(b []byte) int {
	for i := 0; ; i += 2 {
		n := bytes.IndexByte(b[i:], 0)
		if n < 0 || i+n+1 >= len(b) {
			return 0
		}
		i += n
		switch b[i+1] {
		case 1:
			return i + 2
		case 0xFF:
		default:
			return 0
		}
	}
}
