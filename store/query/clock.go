package query

import (
	"encoding/binary"
	"strconv"
	"time"
)

// clockFunctions are the functions that return the time. It is set once for a query, so that
// all rows and pages have the same. They are no entries of functions: Query.At replaces
// their calls by constants.
var clockFunctions = map[string]*function{
	"GETCURRENTDATETIME": {}, "GETCURRENTDATETIMESTATIC": {},
	"GETCURRENTTICKS": {}, "GETCURRENTTICKSSTATIC": {},
	"GETCURRENTTIMESTAMP": {}, "GETCURRENTTIMESTAMPSTATIC": {},
}

// randomName is the function whose result is chance.
const randomName = "RAND"

// random is a call of RAND in a query that has a time. Each call of the text has another seed.
type random struct{ seed uint64 }

func (n *random) children() []node { return nil }

// At returns the query with now as the result of GetCurrentDateTime and its like, and as what RAND
// begins with. now must be the same on all pages.
func (q *Query) At(now time.Time) *Query {
	if !q.asksTime() {
		return q
	}
	text := setClock(&subquery{of: q.text}, now).(*subquery).of
	return &Query{text, q.container, newPlan(text)}
}

// IsRandom reports whether rows depend on RAND, and so on which item is at hand, whatever is in it.
func (q *Query) IsRandom() bool { return isRandom(&subquery{of: q.text}) }

func isRandom(n node) bool {
	is := false
	visit(n, func(n node) {
		_, set := n.(*random)
		c, ok := n.(*call)
		is = is || set || ok && c.name == randomName
	})
	return is
}

func (q *Query) asksTime() bool {
	asks := false
	visit(&subquery{of: q.text}, func(n node) {
		c, ok := n.(*call)
		asks = asks || ok && (clockFunctions[c.name] != nil || c.name == randomName)
	})
	return asks
}

// clockValue returns the result of such a function at a time.
func clockValue(name string, now time.Time) Value {
	switch name {
	case "GETCURRENTTICKS", "GETCURRENTTICKSSTATIC":
		return Value{typ: Number, data: strconv.AppendInt(nil, ticks(now), 10)}
	case "GETCURRENTTIMESTAMP", "GETCURRENTTIMESTAMPSTATIC":
		return Value{typ: Number, data: strconv.AppendInt(nil, now.UnixMilli(), 10)}
	}
	return stringValue(appendTime(nil, now))
}

// setClock returns n with the time in place of the calls of clockFunctions, and RAND with its seeds.
func setClock(n node, now time.Time) node {
	calls := uint64(0)
	return transform(n, func(n node) node {
		c, ok := n.(*call)
		switch {
		case !ok:
		case clockFunctions[c.name] != nil:
			return &literal{clockValue(c.name, now)}
		case c.name == randomName:
			calls++
			return &random{scramble(scramble(uint64(now.UnixMicro())) + calls)}
		}
		return n
	})
}

// compileRandom compiles a call of RAND: a number from 0 to below 1 that follows from the time of the
// query, the place of the call in the text, the item, and the row of the item. So a row that is made
// again, for another page or by another partition's owner, has the same.
func compileRandom(n *random) eval {
	return func(_ []byte, f *frame) Value {
		h := n.seed
		if f != nil {
			for rank := f.rank; len(rank) > 0; {
				var eight [8]byte
				k := copy(eight[:], rank)
				h, rank = scramble(h^binary.LittleEndian.Uint64(eight[:])), rank[k:]
			}
			h = scramble(h + uint64(f.steps))
		}
		const digits = 53 // those of a double
		return floatValue(float64(h>>(64-digits)) / (1 << digits))
	}
}

// scramble is the finalizer of SplitMix64.
func scramble(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
