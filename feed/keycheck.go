package feed

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document/decimal"
)

// checkKey says what is wrong with the encoding of a key, if anything is.
func checkKey(enc string) error {
	if enc == "" {
		return errors.New("empty")
	}
	levels, text := 0, 0
	for rest := enc; rest != ""; levels++ {
		n, err := checkComponent(rest)
		if err != nil {
			return fmt.Errorf("byte %d: %w", len(enc)-len(rest), err)
		}
		if rest[0] == keyString {
			text += n - 2 // without the type byte and the end
		}
		rest = rest[n:]
	}
	if levels > KeyLevelsMax {
		return fmt.Errorf("%d components, at most %d", levels, KeyLevelsMax)
	}
	if text > KeyBytesMax {
		return fmt.Errorf("strings of %d bytes, at most %d", text, KeyBytesMax)
	}
	return nil
}

// checkComponent returns the length of the first component.
func checkComponent(enc string) (int, error) {
	switch enc[0] {
	case keyMissing, keyNull, keyFalse, keyTrue:
		return 1, nil
	case keyNumber:
		if len(enc) < 9 {
			return 0, errors.New("number is cut short")
		}
		// Minus zero is refused like NaN: NewPartitionKey makes it zero, and equal keys must
		// have equal bytes.
		bits := binary.LittleEndian.Uint64([]byte(enc[1:9]))
		if f := math.Float64frombits(bits); math.IsNaN(f) || math.IsInf(f, 0) || f == 0 && bits != 0 {
			return 0, fmt.Errorf("number %v has no place in a key", f)
		}
		return 9, nil
	case keyString:
		end := strings.IndexByte(enc, keyStringEnd)
		if end < 0 {
			return 0, errors.New("string has no end")
		}
		if !utf8.ValidString(enc[1:end]) {
			return 0, errors.New("string is not UTF-8")
		}
		return end + 1, nil
	}
	return 0, fmt.Errorf("unknown type byte %02x", enc[0])
}

// exactFloat returns the double that text, a JSON number, names. An integer
// must be held exactly; a fraction must be the shortest that names its double
// (0.1 is not held exactly, but nothing else of that length is taken for it).
// So two texts that give one double are equal as decimals.
func exactFloat(text string) (float64, error) {
	if !json.Valid([]byte(text)) || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return 0, fmt.Errorf("%q is not a JSON number", text)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is beyond what a double holds", text)
	}
	if len(text) <= 15 && !strings.ContainsAny(text, "eE") {
		return f, nil // a double tells all decimals of 15 digits apart
	}
	if !decimal.Equal([]byte(text), appendNumber(nil, f)) {
		return 0, fmt.Errorf("%s has more digits than a double holds exactly (nearest %s)", text, appendNumber(nil, f))
	}
	return f, nil
}

// appendNumber prints f so that exactFloat reads it back: integers with all
// digits, others as short as they can be.
func appendNumber(b []byte, f float64) []byte {
	if f == math.Trunc(f) {
		return strconv.AppendFloat(b, f, 'f', 0, 64)
	}
	if a := math.Abs(f); a < 1e-6 {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

const hexDigits = "0123456789abcdef"

// appendJSONString quotes s, which is UTF-8. Not encoding/json, which also escapes < > & and
// some line separators: these texts are names, and one key must have one text.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// PartitionKeyEnd returns where the partition key ends with whose text, as String prints it, s begins;
// -1 if it does with none. So what follows the key may hold whatever characters the key is written with.
func PartitionKeyEnd(s string) int {
	if s == "" || s[0] != '[' {
		return -1
	}
	quoted := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ']' && !quoted:
			return i + 1
		}
	}
	return -1
}
