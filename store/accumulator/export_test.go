package accumulator

import "github.com/millrace/millrace/store/query"

// RankTextMax is rankTextMax.
const RankTextMax = rankTextMax

// Rank is the key of a value of min, or of max.
func Rank(fn Func, v query.Value) ([]byte, bool) {
	f := field{Field: Field{Func: fn}}
	if fn == Max {
		f.mask = flipped
	}
	key, ok := new(Delta).rank(&f, v)
	return key, ok && f.checkRank(key)
}

// Ranked is the raw value of a key.
func Ranked(fn Func, key []byte) []byte {
	mask := byte(0)
	if fn == Max {
		mask = flipped
	}
	return appendRanked(nil, key, mask)
}

// Decimal is an exact number.
type Decimal struct{ d decimal }

// ParseDecimal reads a JSON number.
func ParseDecimal(text string) (Decimal, bool) {
	d, ok := parseDecimal([]byte(text))
	return Decimal{d}, ok
}

// Add adds.
func (d Decimal) Add(e Decimal) Decimal { return Decimal{d.d.add(e.d)} }

// Neg negates.
func (d Decimal) Neg() Decimal { return Decimal{d.d.neg()} }

// Quotient is the mean.
func (d Decimal) Quotient(n int64) Decimal { return Decimal{d.d.quotient(n)} }

// String is the JSON number.
func (d Decimal) String() string { return string(d.d.appendText(nil)) }

// Encoded is the stored form, and what it is read as.
func (d Decimal) Encoded() (data []byte, read Decimal, err error) {
	data = appendDecimal(nil, d.d)
	r := reader{b: data, all: len(data)}
	read.d = r.decimal("decimal")
	return data, read, r.end()
}

// GroupOf returns the group of raw scalars in the order of Spec.Match. ok is false
// if one is no scalar, or if all together are too long.
func GroupOf(values ...[]byte) (g Group, ok bool) {
	var enc []byte
	for _, raw := range values {
		if enc, ok = appendScalar(enc, raw); !ok {
			return "", false
		}
	}
	return Group(enc), len(enc) <= GroupBytesMax
}

// Len is the number of records.
func (m *Memory) Len() int { return m.len }
