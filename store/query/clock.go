package query

import (
	"strconv"
	"time"
)

// clockFunctions are the functions that ask for the time, which is set once, so that
// all rows and pages see the same.
var clockFunctions = map[string]*function{
	"GETCURRENTDATETIME": {}, "GETCURRENTDATETIMESTATIC": {},
	"GETCURRENTTICKS": {}, "GETCURRENTTICKSSTATIC": {},
	"GETCURRENTTIMESTAMP": {}, "GETCURRENTTIMESTAMPSTATIC": {},
}

// At returns the query at a time, that which GetCurrentDateTime and its kind say. It
// has to be the same on all pages.
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

// clockValue returns what such a function comes to.
func clockValue(name string, now time.Time) Value {
	switch name {
	case "GETCURRENTTICKS", "GETCURRENTTICKSSTATIC":
		return Value{typ: Number, data: strconv.AppendInt(nil, ticks(now), 10)}
	case "GETCURRENTTIMESTAMP", "GETCURRENTTIMESTAMPSTATIC":
		return Value{typ: Number, data: strconv.AppendInt(nil, now.UnixMilli(), 10)}
	}
	return stringValue(appendTime(nil, now))
}

// setClock returns the selection with the time in place of the functions that ask
// for it.
func setClock(n node, now time.Time) node {
	return transform(n, func(n node) node {
		if c, ok := n.(*call); ok && clockFunctions[c.name] != nil {
			return &literal{clockValue(c.name, now)}
		}
		return n
	})
}
