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
)

const (
	// KeyLevelsMax is the most components that a partition key can have.
	KeyLevelsMax = 3
	// KeyBytesMax bounds the bytes of all strings of one partition key.
	KeyBytesMax = 2048
)

// ErrKey is the cause of every refusal to make a PartitionKey.
var ErrKey = errors.New("feed: bad partition key")

// missing is the type of Missing.
type missing struct{}

// Missing stands for a component whose property the item does not have. It is
// not null.
var Missing any = missing{}

// Type bytes of the encoding, which are those of the effective partition key
// of Azure Cosmos DB, version 2.
const (
	keyMissing   = 0x00
	keyNull      = 0x01
	keyFalse     = 0x02
	keyTrue      = 0x03
	keyNumber    = 0x05
	keyString    = 0x08
	keyStringEnd = 0xFF
)

// PartitionKey is a partition key value: the list of one to three components
// that an item has at the paths of its container's partition key. It is
// comparable: equal keys are ==. The zero PartitionKey has no component and
// means none.
type PartitionKey struct {
	enc string
}

// NewPartitionKey makes a key of one to three components. Each is nil, a bool,
// a string, a float64, int, int64 or json.Number, or Missing. Minus zero
// becomes zero.
//
// The error is ErrKey: for another type, for no or too many components, for
// strings that are not UTF-8 or above KeyBytesMax together, and for a number
// that would not come out of the key as it went in, because distinct values
// would share one logical partition: an integer that a double does not hold
// exactly, or a fraction with more digits than a double tells apart.
func NewPartitionKey(components ...any) (PartitionKey, error) {
	if len(components) == 0 || len(components) > KeyLevelsMax {
		return PartitionKey{}, fmt.Errorf("%w: %d components, want 1 to %d", ErrKey, len(components), KeyLevelsMax)
	}
	// Most keys fit into scratch, so encoding them allocates nothing but the final string.
	var scratch [96]byte
	enc, text := scratch[:0], 0
	for i, component := range components {
		var err error
		if enc, err = appendComponent(enc, component); err != nil {
			return PartitionKey{}, fmt.Errorf("%w: component %d: %w", ErrKey, i+1, err)
		}
		if s, ok := component.(string); ok {
			text += len(s)
		}
	}
	if text > KeyBytesMax {
		return PartitionKey{}, fmt.Errorf("%w: strings of %d bytes, at most %d", ErrKey, text, KeyBytesMax)
	}
	return PartitionKey{enc: string(enc)}, nil
}

// StringKey is NewPartitionKey of one string.
func StringKey(text []byte) (PartitionKey, error) {
	// Most keys are of this kind, and each write makes them twice: a string in an interface costs two allocations more.
	switch {
	case !utf8.Valid(text):
		return PartitionKey{}, fmt.Errorf("%w: component 1: %w", ErrKey, errNoUTF8)
	case len(text) > KeyBytesMax:
		return PartitionKey{}, fmt.Errorf("%w: strings of %d bytes, at most %d", ErrKey, len(text), KeyBytesMax)
	}
	var scratch [96]byte
	return PartitionKey{enc: string(append(append(append(scratch[:0], keyString), text...), keyStringEnd))}, nil
}

var errNoUTF8 = errors.New("string is not UTF-8")

// PartitionKeyFromEncoded makes the key whose Encoded is enc. The error is
// ErrKey if no key has that encoding.
func PartitionKeyFromEncoded(enc string) (PartitionKey, error) {
	if err := checkKey(enc); err != nil {
		return PartitionKey{}, fmt.Errorf("%w: encoding %x: %w", ErrKey, enc, err)
	}
	return PartitionKey{enc: enc}, nil
}

// ParsePartitionKey reads the form that PartitionKey.String prints, a JSON
// array of one to three scalars; an empty object stands for Missing. The error
// is ErrKey.
func ParsePartitionKey(text string) (PartitionKey, error) {
	// Most have this form, and every request of an item has one.
	if plain, ok := plainKey(text); ok {
		return StringKey([]byte(plain))
	}
	// Components stay raw: decoding to any would make every number a double, and a number
	// that a double does not hold must be refused, not rounded.
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return PartitionKey{}, fmt.Errorf("%w: %q: want a JSON array of 1 to %d scalars", ErrKey, text, KeyLevelsMax)
	}
	components := make([]any, len(raw))
	for i, r := range raw {
		switch r[0] {
		case '"':
			// encoding/json would replace bad bytes, so that two texts gave one key.
			if !utf8.Valid(r) {
				return PartitionKey{}, fmt.Errorf("%w: component %d: not UTF-8", ErrKey, i+1)
			}
			var s string
			if err := json.Unmarshal(r, &s); err != nil {
				return PartitionKey{}, fmt.Errorf("%w: component %d: %w", ErrKey, i+1, err)
			}
			components[i] = s
		case 't', 'f':
			components[i] = r[0] == 't'
		case 'n':
			components[i] = nil
		case '{', '[':
			if string(r) != "{}" {
				return PartitionKey{}, fmt.Errorf("%w: component %d: %s is not a scalar", ErrKey, i+1, r)
			}
			components[i] = Missing
		default:
			components[i] = json.Number(r)
		}
	}
	return NewPartitionKey(components...)
}

// plainKey returns the string of a key of one string that stands in its JSON as it is.
func plainKey(text string) (plain string, ok bool) {
	plain, opens := strings.CutPrefix(text, `["`)
	plain, closes := strings.CutSuffix(plain, `"]`)
	if !opens || !closes {
		return "", false
	}
	for i := range len(plain) {
		if c := plain[i]; c == '"' || c == '\\' || c < ' ' {
			return "", false
		}
	}
	return plain, true
}

// Encoded returns the key's bytes: for each component a type byte, followed by
// eight bytes of a little-endian double (05), or UTF-8 and FF (08). Equal keys
// have equal bytes, and the encoding of a prefix is a prefix.
func (k PartitionKey) Encoded() string { return k.enc }

// IsZero reports whether k is no key at all.
func (k PartitionKey) IsZero() bool { return k.enc == "" }

// Equal is ==, for tools that look for a method.
func (k PartitionKey) Equal(l PartitionKey) bool { return k == l }

// Levels is the number of components.
func (k PartitionKey) Levels() int {
	n := 0
	for rest := k.enc; rest != ""; n++ {
		rest = rest[componentLen(rest):]
	}
	return n
}

// Components returns the key's components: nil, bool, float64, string or
// Missing.
func (k PartitionKey) Components() []any {
	var components []any
	for rest := k.enc; rest != ""; {
		n := componentLen(rest)
		components = append(components, decodeComponent(rest[:n]))
		rest = rest[n:]
	}
	return components
}

// String prints the key as a JSON array, a missing component as {}.
// ParsePartitionKey reads it back.
func (k PartitionKey) String() string {
	b := make([]byte, 0, len(k.enc)+16)
	b = append(b, '[')
	for i, component := range k.Components() {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := component.(type) {
		case nil:
			b = append(b, "null"...)
		case bool:
			b = strconv.AppendBool(b, v)
		case float64:
			b = appendNumber(b, v)
		case string:
			b = appendJSONString(b, v)
		default:
			b = append(b, "{}"...)
		}
	}
	return string(append(b, ']'))
}

// appendComponent appends the encoding of one component.
func appendComponent(b []byte, component any) ([]byte, error) {
	switch v := component.(type) {
	case missing:
		return append(b, keyMissing), nil
	case nil:
		return append(b, keyNull), nil
	case bool:
		if v {
			return append(b, keyTrue), nil
		}
		return append(b, keyFalse), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errNoUTF8
		}
		b = append(b, keyString)
		b = append(b, v...)
		return append(b, keyStringEnd), nil
	case float64:
		return appendDouble(b, v)
	case int:
		return appendInteger(b, int64(v))
	case int64:
		return appendInteger(b, v)
	case json.Number:
		f, err := exactFloat(string(v))
		if err != nil {
			return nil, err
		}
		return appendDouble(b, f)
	}
	return nil, fmt.Errorf("%T is not a JSON scalar", component)
}

func appendInteger(b []byte, n int64) ([]byte, error) {
	f := float64(n)
	// An integer near the top rounds up to 1<<63, which no int64 holds, and converting that
	// back is not defined in Go. So it is compared first.
	if f >= 1<<63 || int64(f) != n {
		return nil, fmt.Errorf("%d is beyond what a double holds exactly", n)
	}
	return appendDouble(b, f)
}

func appendDouble(b []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v is not a JSON number", f)
	}
	if f == 0 {
		f = 0 // minus zero is zero
	}
	b = append(b, keyNumber)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f)), nil
}

// componentLen is the length of the first component of a valid encoding.
func componentLen(enc string) int {
	switch enc[0] {
	case keyNumber:
		return 9
	case keyString:
		// FF ends a string because UTF-8 never contains it. A valid encoding has it, so the
		// loop ends.
		for i := 1; ; i++ {
			if enc[i] == keyStringEnd {
				return i + 1
			}
		}
	}
	return 1
}

func decodeComponent(enc string) any {
	switch enc[0] {
	case keyMissing:
		return Missing
	case keyFalse:
		return false
	case keyTrue:
		return true
	case keyNumber:
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(enc[1:9])))
	case keyString:
		return enc[1 : len(enc)-1]
	}
	return nil
}
