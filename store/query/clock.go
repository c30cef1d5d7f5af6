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

// ticksAtEpoch are the ticks, of 100 ns since the beginning of year 1, at the
// beginning of 1970.
const ticksAtEpoch = 621_355_968_000_000_000

// ticks returns 100 ns since 1970, as DateTimeToTicks has it.
func ticks(t time.Time) int64 { return t.Unix()*1e7 + int64(t.Nanosecond()/100) }

// appendTime appends a time as YYYY-MM-DDThh:mm:ss.fffffffZ.
func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.0000000Z")
}
