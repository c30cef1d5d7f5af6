package query

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// dateFunctions are the functions of dates and times. These are text in ISO 8601: a
// date, with T and the time of day, with Z or an offset, or UTC without one. The
// years go from 1 to 9999.
var dateFunctions = map[string]*function{
	"DATETIMEADD": {least: 3, most: 3, three: func(part, n, at Value) Value {
		t, ok := timeOf(at)
		k, okK := n.int64()
		if !ok || !okK {
			return Value{}
		}
		return timeValue(addTime(t, partOf(part), k))
	}},
	"DATETIMEBIN":       {least: 2, most: 4, many: timeBin},
	"DATETIMEDIFF":      {least: 3, most: 3, three: timeDiff},
	"DATETIMEFROMPARTS": {least: 3, most: 7, many: timeFromParts},
	"DATETIMEPART": {least: 2, most: 2, two: func(part, at Value) Value {
		t, ok := timeOf(at)
		if !ok {
			return Value{}
		}
		return partValue(t, partOf(part))
	}},
	"DATETIMETOTICKS": {least: 1, most: 1, one: func(at Value) Value {
		if t, ok := timeOf(at); ok {
			return intValue(int(ticks(t)))
		}
		return Value{}
	}},
	"DATETIMETOTIMESTAMP": {least: 1, most: 1, one: func(at Value) Value {
		if t, ok := timeOf(at); ok {
			return intValue(int(t.UnixMilli()))
		}
		return Value{}
	}},
	"TICKSTODATETIME": {least: 1, most: 1, one: func(n Value) Value {
		k, ok := n.int64()
		if !ok {
			return Value{}
		}
		return timeValue(time.Unix(k/1e7, k%1e7*100), true)
	}},
	"TIMESTAMPTODATETIME": {least: 1, most: 1, one: func(n Value) Value {
		k, ok := n.int64()
		if !ok {
			return Value{}
		}
		return timeValue(time.UnixMilli(k), true)
	}},
}

// ticks returns the time in units of 100 ns since 1970.
func ticks(t time.Time) int64 { return t.Unix()*1e7 + int64(t.Nanosecond()/100) }

// appendTime appends a time as YYYY-MM-DDThh:mm:ss.fffffffZ.
func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.0000000Z")
}

// timeValue returns a time as text, Undefined if ok is false or the year is beyond
// four digits.
func timeValue(t time.Time, ok bool) Value {
	if y := t.UTC().Year(); !ok || y < 1 || y > 9999 {
		return Value{}
	}
	return stringValue(appendTime(nil, t))
}

// timeOf reads a time.
func timeOf(v Value) (t time.Time, ok bool) {
	// time.Parse takes a comma before the fraction too, which ISO 8601 has and the dialect
	// has not.
	const shortest = len("2006-01-02")
	if v.typ != String || len(v.data) < shortest || bytes.IndexByte(v.data, ',') >= 0 {
		return t, false
	}
	layout := "2006-01-02"
	if len(v.data) > shortest {
		layout = "2006-01-02T15:04:05"
		if bytes.ContainsAny(v.data[shortest:], "Z+-") {
			layout += "Z07:00"
		}
	}
	t, err := time.Parse(layout, string(v.data))
	return t.UTC(), err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999
}

// part is a part of a date or time.
type part uint8

const (
	noPart part = iota
	yearPart
	monthPart
	weekPart
	dayPart
	hourPart
	minutePart
	secondPart
	milliPart
	microPart
	nanoPart
)

// partNames are the names of the parts, in small letters.
var partNames = map[string]part{
	"year": yearPart, "yyyy": yearPart, "yy": yearPart, "month": monthPart, "mm": monthPart, "m": monthPart,
	"week": weekPart, "wk": weekPart, "ww": weekPart, "day": dayPart, "dd": dayPart, "d": dayPart,
	"hour": hourPart, "hh": hourPart, "minute": minutePart, "mi": minutePart, "n": minutePart,
	"second": secondPart, "ss": secondPart, "s": secondPart, "millisecond": milliPart, "ms": milliPart,
	"microsecond": microPart, "mcs": microPart, "nanosecond": nanoPart, "ns": nanoPart,
}

// partLength are the lengths of the parts that have one.
var partLength = map[part]time.Duration{
	weekPart: 7 * 24 * time.Hour, dayPart: 24 * time.Hour, hourPart: time.Hour, minutePart: time.Minute, secondPart: time.Second,
	milliPart: time.Millisecond, microPart: time.Microsecond, nanoPart: time.Nanosecond,
}

const monthsOfYear = 12

func partOf(v Value) part {
	if v.typ != String {
		return noPart
	}
	return partNames[strings.ToLower(string(v.data))]
}

// addTime adds n parts. Months keep the day, or take the last one of a shorter month.
func addTime(t time.Time, p part, n int64) (time.Time, bool) {
	const (
		yearsMost   = 10_000
		secondsMost = yearsMost * 366 * 24 * 3600
	)
	switch p {
	case noPart:
		return t, false
	case yearPart, monthPart:
		// Before any arithmetic: DateTimeAdd of about 2^63 years came round to a date.
		if far(n, monthsOfYear*yearsMost) {
			return t, false
		}
		if p == yearPart {
			n *= monthsOfYear
		}
		// By the first of the month, because time.Date moves January 31 plus a month to
		// March 3. It has to be February 28.
		first := time.Date(t.Year(), t.Month()+time.Month(n), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
		last := first.AddDate(0, 1, -1).Day()
		return first.AddDate(0, 0, min(t.Day(), last)-1), true
	default:
	}
	unit := int64(partLength[p])
	// Seconds and the rest apart, since a Duration holds less than 300 years.
	perSecond := int64(time.Second) / max(1, min(unit, int64(time.Second)))
	seconds, rest := n/perSecond, n%perSecond*unit
	if unit > int64(time.Second) {
		if far(n, secondsMost) {
			return t, false
		}
		seconds, rest = n*(unit/int64(time.Second)), 0
	}
	if far(seconds, secondsMost) {
		return t, false
	}
	return time.Unix(t.Unix()+seconds, int64(t.Nanosecond())+rest), true
}

// far reports whether n is beyond most in either direction.
func far(n, most int64) bool { return n < -most || n > most }

// timeDiff counts the boundaries of a part that lie between two times.
func timeDiff(name, from, to Value) Value {
	a, okA := timeOf(from)
	b, okB := timeOf(to)
	p := partOf(name)
	if !okA || !okB || p == noPart {
		return Value{}
	}
	switch p {
	case yearPart:
		return intValue(b.Year() - a.Year())
	case monthPart:
		return intValue(monthsOfYear*(b.Year()-a.Year()) + int(b.Month()) - int(a.Month()))
	default:
	}
	unit := int64(partLength[p])
	if unit >= int64(time.Second) {
		unit /= int64(time.Second)
		return intValue(int(floorDiv(b.Unix(), unit) - floorDiv(a.Unix(), unit)))
	}
	perSecond := int64(time.Second) / unit
	// 9,999 years have more nanoseconds than 64 bits, so the seconds become units exactly.
	n := Value{typ: Number, data: strconv.AppendInt(nil, b.Unix()-a.Unix(), 10)}
	n = arith('*', n, intValue(int(perSecond)))
	return arith('+', n, intValue(int(int64(b.Nanosecond())/unit-int64(a.Nanosecond())/unit)))
}

// floorDiv rounds down also before 1970, where Go's division rounds up to zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func partValue(t time.Time, p part) Value {
	switch p {
	case yearPart:
		return intValue(t.Year())
	case monthPart:
		return intValue(int(t.Month()))
	case dayPart:
		return intValue(t.Day())
	case hourPart:
		return intValue(t.Hour())
	case minutePart:
		return intValue(t.Minute())
	case secondPart:
		return intValue(t.Second())
	case milliPart:
		return intValue(t.Nanosecond() / 1e6)
	case microPart:
		return intValue(t.Nanosecond() / 1e3)
	case nanoPart:
		return intValue(t.Nanosecond())
	default:
		return Value{}
	}
}

// timeFromParts returns the time of year, month, day, hour, minute, second and
// fraction in 100 ns.
func timeFromParts(args []Value) Value {
	parts := [7]int{}
	for i, a := range args {
		n, ok := a.int()
		if !ok || n < 0 {
			return Value{}
		}
		parts[i] = n
	}
	const fractionMost = 1e7
	if parts[6] >= fractionMost {
		return Value{}
	}
	for _, n := range parts[:6] {
		if n > 9999 {
			return Value{}
		}
	}
	t := time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], parts[6]*100, time.UTC)
	// time.Date normalizes February 30 to March 2. Such parts are no date.
	same := t.Year() == parts[0] && int(t.Month()) == parts[1] && t.Day() == parts[2] && t.Hour() == parts[3] &&
		t.Minute() == parts[4] && t.Second() == parts[5]
	return timeValue(t, same)
}

// timeBin rounds a time down to a multiple of size parts since origin, 1970 unless it
// is given.
func timeBin(args []Value) Value {
	t, ok := timeOf(args[0])
	unit := partLength[partOf(args[1])]
	size, origin := int64(1), time.Unix(0, 0)
	if len(args) > 2 {
		n, okN := args[2].int64()
		ok, size = ok && okN, n
	}
	if len(args) > 3 {
		at, okAt := timeOf(args[3])
		ok, origin = ok && okAt, at
	}
	const sizeMost = 1 << 20
	if !ok || unit == 0 || size < 1 || size > sizeMost || size > int64(1<<62)/int64(unit) {
		return Value{}
	}
	// In ticks of 100 ns, which is also what a time is printed in; a narrower bin is one tick.
	width := int64(unit) * size / 100
	if width == 0 {
		width = 1
	}
	bin := ticks(origin) + floorDiv(ticks(t)-ticks(origin), width)*width
	return timeValue(time.Unix(floorDiv(bin, 1e7), (bin-floorDiv(bin, 1e7)*1e7)*100), true)
}
