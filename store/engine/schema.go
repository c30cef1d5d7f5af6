package engine

import (
	"bytes"
	"crypto/sha256"
	"math"
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed/document"
)

// Schema says what is kept beside the items of a partition. It follows from the
// container's settings in the log. A Schema must not change while it is in use.
type Schema struct {
	Indexes    []Index
	UniqueKeys []UniqueKey
	// DefaultTTL is the container's default time to live in seconds: nil is off,
	// -1 is on without a default, n > 0 is n seconds after the last write.
	DefaultTTL *int64
}

// Index is one index. Batches maintain it from the moment it is in the schema,
// ready or not; BuildIndex adds the items that were there before.
type Index struct {
	Number uint32        // never used again for another path
	Path   document.Path // may hold one step for all elements
	// Where restricts the index to items for which it is true; nil takes all. It
	// must give the same answer for the same body always.
	Where func(body []byte) bool
	// Ordered gives arrays and objects an entry too, so that the entries are all
	// items that have a value at Path, in order. It has no effect on a path with a
	// step for all elements.
	Ordered bool
	Ready   bool // for the owner; the engine does not look at it
}

// UniqueKey is a list of paths whose values together are unique inside a logical
// partition.
type UniqueKey struct {
	Number uint32
	Paths  []document.Path
}

// ttlMax is the longest time to live in seconds.
const ttlMax = math.MaxInt32

// ttlPath leads to the item's own time to live.
var ttlPath = document.Path{{Name: "ttl"}}

// Expires returns when an item ends, in unix milliseconds, or 0 for never, from
// its body and the time of the last client's write in unix milliseconds. As in
// Azure Cosmos DB: without a default time to live nothing ends; otherwise the
// item's own ttl (-1 is never, else seconds) counts before the default. A ttl that
// is neither -1 nor a whole number from 1 to 2147483647 counts as absent.
func (s *Schema) Expires(body []byte, modified int64) int64 {
	if s.DefaultTTL == nil {
		return 0
	}
	ttl := *s.DefaultTTL
	if raw, ok := document.Get(body, ttlPath); ok {
		if own, ok := parseTTL(raw); ok {
			ttl = own
		}
	}
	if ttl <= 0 {
		return 0
	}
	return modified + min(ttl, ttlMax)*1000
}

// ValidTTL says whether a raw JSON value can be an item's ttl: -1, or a whole
// number of seconds from 1 to 2147483647.
func ValidTTL(raw []byte) bool {
	_, ok := parseTTL(raw)
	return ok
}

// parseTTL reads an item's ttl.
func parseTTL(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(raw), 64) // 1e3 and 10.0 are whole numbers too
		if err != nil || f != math.Trunc(f) || math.Abs(f) > ttlMax {
			return 0, false
		}
		n = int64(f)
	}
	return n, n == -1 || n >= 1 && n <= ttlMax
}

// values collects canonical values: of one index in one item, each once. It is
// used again to save allocations.
type values struct {
	buf []byte
	at  []int // where in buf each value ends
}

// reset forgets all values.
func (v *values) reset() { v.buf, v.at = v.buf[:0], v.at[:0] }

// len is the number of values.
func (v *values) len() int { return len(v.at) }

// get returns value i.
func (v *values) get(i int) []byte {
	if i == 0 {
		return v.buf[:v.at[0]]
	}
	return v.buf[v.at[i-1]:v.at[i]]
}

// has tells whether b is one of the values.
func (v *values) has(b []byte) bool {
	for i := range v.at {
		if bytes.Equal(v.get(i), b) {
			return true
		}
	}
	return false
}

// of sets v to the values that the index has in an item.
func (v *values) of(x *Index, body []byte) {
	if x.Where != nil && !x.Where(body) {
		v.reset()
		return
	}
	// At a path without a step for all elements an item has one value: a scalar, which collect takes, or
	// an array or object, which it leaves. So nothing collected means one of the latter, or no value.
	v.collect(body, x.Path)
	if x.Ordered && v.len() == 0 {
		v.mark(body, x.Path)
	}
}

// mark sets v to the mark of an array or object of an item at path.
func (v *values) mark(body []byte, path document.Path) {
	if slices.ContainsFunc(path, func(s document.Step) bool { return s.All }) {
		return
	}
	raw, ok := document.Get(body, path)
	if !ok || len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '[':
		v.buf = append(v.buf, markArray)
	case '{':
		v.buf = append(v.buf, markObject)
	default:
		return
	}
	v.at = append(v.at, len(v.buf))
}

// collect sets v to the scalars of an item at path.
func (v *values) collect(body []byte, path document.Path) {
	v.reset()
	all := slices.ContainsFunc(path, func(s document.Step) bool { return s.All })
	if !all {
		if raw, ok := document.Get(body, path); ok {
			v.add(raw)
		}
		return
	}
	// putIndexes compares the bytes of all values before and after, and build writes an entry for each. So
	// they stand in one order, each once:
	//
	//	["b", "a", "b"]   a b
	//	["a", "b"]        a b    nothing to write when one becomes the other
	//
	// Most arrays are short or in order already. To sort takes memory for the list, so that comes last.
	sorted := true
	document.Walk(body, path, func(raw []byte, _ int) bool {
		n := len(v.at)
		v.add(raw)
		if len(v.at) > n && n > 0 && bytes.Compare(v.get(n-1), v.get(n)) >= 0 {
			sorted = false
		}
		return true
	})
	if !sorted {
		v.sort()
	}
}

// add appends the index form of a raw scalar; nothing for an array or object.
func (v *values) add(raw []byte) {
	n := len(v.buf)
	if v.buf = AppendIndexValue(v.buf, raw); len(v.buf) > n {
		v.at = append(v.at, len(v.buf))
	}
}

// sort puts the values in order and leaves each once.
func (v *values) sort() {
	parts := make([][]byte, len(v.at))
	for i := range parts {
		parts[i] = v.get(i)
	}
	slices.SortFunc(parts, bytes.Compare)
	parts = slices.CompactFunc(parts, bytes.Equal)
	buf := make([]byte, 0, len(v.buf))
	v.at = v.at[:0]
	for _, p := range parts {
		buf = append(buf, p...)
		v.at = append(v.at, len(buf))
	}
	v.buf = buf
}

// longMark is set in the first byte of an index value that was cut.
const longMark = 0x80

// AppendIndexValue appends the form that a raw JSON scalar has in the keys of
// index entries: its canonical form, or, if that is longer than IndexValueMax, its
// beginning and 16 bytes of its SHA-256. Arrays and objects append nothing.
func AppendIndexValue(dst, raw []byte) []byte {
	start := len(dst)
	dst = document.AppendCanonical(dst, raw)
	if c := dst[start:]; len(c) > IndexValueMax {
		// Before the mark is set: the sum is that of the canonical form.
		sum := sha256.Sum256(c)
		// No canonical form begins with this bit. So a long value is never equal to a short one, nor the
		// beginning of one, and a scan for one of them does not meet the other.
		c[0] |= longMark
		dst = append(dst[:start+IndexValueMax-16], sum[:16]...)
	}
	return dst
}
