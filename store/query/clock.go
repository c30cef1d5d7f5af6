package query

import (
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

// At returns the query with now as the result of GetCurrentDateTime and its like. now must be
// the same on all pages.
func (q *Query) At(now time.Time) *Query {
	if !q.asksTime() {
		return q
	}
	text := setClock(&subquery{of: q.text}, now).(*subquery).of
	return &Query{text, q.container, newPlan(text)}
}

func (q *Query) asksTime() bool {
	asks := false
	visit(&subquery{of: q.text}, func(n node) {
		c, ok := n.(*call)
		asks = asks || ok && clockFunctions[c.name] != nil
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

// setClock returns n with the time in place of the calls of clockFunctions.
func setClock(n node, now time.Time) node {
	return transform(n, func(n node) node {
		if c, ok := n.(*call); ok && clockFunctions[c.name] != nil {
			return &literal{clockValue(c.name, now)}
		}
		return n
	})
}
