package project

import (
	"fmt"
	"time"
)

// parseTimestamp reads a time of ISO 8601:
//
//	YYYY-MM-DD [ (T|space) hh:mm [ :ss [ .digits ] ] [ Z | ±hh:mm ] ]
//
// with years from 0001 to 9999, in UTC too.
func parseTimestamp(s string) (Value, error) {
	t, ok := scanTime(s)
	if !ok {
		return Value{}, fmt.Errorf("is %s, and the column takes times such as 2024-01-31T08:30:00Z", quoted(s))
	}
	// 0001-01-01T00:00+01:00 is in the year 0 in UTC.
	if t.seconds < secondsMin || t.seconds > secondsMax {
		return Value{}, fmt.Errorf("is %s, which is beyond the years 1 to 9999 in UTC", quoted(s))
	}
	return TimeOfMicros(t.seconds*1_000_000 + t.micros), nil
}

// parseDate reads YYYY-MM-DD, and a time that is midnight in UTC.
func parseDate(s string) (Value, error) {
	t, ok := scanTime(s)
	if !ok || t.offset {
		return Value{}, fmt.Errorf("is %s, and the column takes dates such as 2024-01-31", quoted(s))
	}
	// micros would not do: 00:00:00.0000001 is no midnight, and has none.
	if t.clock || t.seconds%secondsOfDay != 0 {
		return Value{}, fmt.Errorf("is %s, with a time of day, and the column takes dates; an expression can cut it, such as LEFT(orderDate, 10)",
			quoted(s))
	}
	return DateOf(int(t.seconds / secondsOfDay)), nil
}

// The first and the last second of the years 1 to 9999.
var (
	secondsMin = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	secondsMax = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 1
)

// scanned is a time that was read.
type scanned struct {
	seconds, micros int64 // after 1970 in UTC; micros from 0 to 999,999
	offset          bool  // it has one that is not Z
	clock           bool  // it has a fraction of a second that is not zero
}

func scanTime(s string) (t scanned, ok bool) {
	// Nothing is looked at in between: when ok is false once, next returns 0, which is no digit and
	// no sign, so all that follows is passed through without reading.
	r := timeReader{s: s, ok: true}
	year := r.number(4, 1, 9999)
	r.expect('-')
	month := r.number(2, 1, 12)
	r.expect('-')
	day := r.number(2, 1, 31)
	var hour, minute, second, offset int
	if r.ok && r.at < len(s) {
		r.expectAny('T', 't', ' ')
		hour = r.number(2, 0, 23)
		r.expect(':')
		minute = r.number(2, 0, 59)
		if r.next() == ':' {
			r.at++
			second = r.number(2, 0, 59)
			t.micros, t.clock = r.fraction()
		}
		offset, t.offset = r.zone()
	}
	if !r.ok || r.at != len(s) {
		return t, false
	}
	at := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if at.Day() != day {
		return t, false // there is no 30 February
	}
	t.seconds = at.Unix() - int64(offset)*60
	return t, true
}

// timeReader reads a time from left to right; ok turns false at what is none.
type timeReader struct {
	s  string
	at int
	ok bool
}

// next returns the byte that comes, 0 at the end.
func (r *timeReader) next() byte {
	if !r.ok || r.at >= len(r.s) {
		return 0
	}
	return r.s[r.at]
}

func (r *timeReader) expect(c byte) { r.expectAny(c) }

func (r *timeReader) expectAny(allowed ...byte) {
	for _, c := range allowed {
		if r.next() == c {
			r.at++
			return
		}
	}
	r.ok = false
}

// number reads exactly so many digits.
func (r *timeReader) number(digits, least, most int) int {
	n := 0
	for range digits {
		c := r.next()
		if c < '0' || c > '9' {
			r.ok = false
			return 0
		}
		n = n*10 + int(c-'0')
		r.at++
	}
	if n < least || n > most {
		r.ok = false
	}
	return n
}

// fraction reads .digits if it is there: microseconds, what is finer cut off, and
// whether there was anything but zeros.
func (r *timeReader) fraction() (micros int64, some bool) {
	if r.next() != '.' {
		return 0, false
	}
	r.at++
	digits := 0
	for ; r.next() >= '0' && r.next() <= '9'; r.at++ {
		some = some || r.next() != '0'
		if digits++; digits <= 6 {
			micros = micros*10 + int64(r.next()-'0')
		}
	}
	if digits == 0 {
		r.ok = false
	}
	for ; digits < 6; digits++ {
		micros *= 10
	}
	return micros, some
}

// zone reads Z or ±hh:mm if it is there: minutes east of UTC.
func (r *timeReader) zone() (minutes int, offset bool) {
	sign := 1
	switch r.next() {
	case 'Z', 'z':
		r.at++
		return 0, false
	case '-':
		sign = -1
	case '+':
	default:
		return 0, false
	}
	r.at++
	hours := r.number(2, 0, 23)
	r.expect(':')
	return sign * (hours*60 + r.number(2, 0, 59)), true
}
