package query

import (
	"strconv"
	"time"
)

// clockFunctions are the functions that ask for the time. A run of a query asks
// once, so that all of its rows and pages see the same time.
var clockFunctions = map[string]*function{
	"GETCURRENTDATETIME": {}, "GETCURRENTDATETIMESTATIC": {},
	"GETCURRENTTICKS": {}, "GETCURRENTTICKSSTATIC": {},
	"GETCURRENTTIMESTAMP": {}, "GETCURRENTTIMESTAMPSTATIC": {},
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
