// Package format is how numbers and times are shown to people, in all commands alike.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package format

import (
	"fmt"
	"time"
)

// Count prints a number with commas.
func Count[N int | int64 | uint64](n N) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural prints a number and its noun: 1 copy, 2 copies.
func Plural[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Age prints seconds in few characters; a dash for none.
func Age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Ago prints how long before now something was.
func Ago(now, then time.Time) string {
	if now.Sub(then) < time.Second {
		return "now"
	}
	return Age(now.Sub(then).Truncate(time.Second).Seconds()) + " ago"
}

// Rate prints how many a second something is: few with a decimal, none as 0.
func Rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 10:
		return fmt.Sprintf("%.1f", perSecond)
	}
	return Count(int64(perSecond + 0.5))
}

// Size prints a number of bytes in few characters.
func Size(bytes float64) string {
	if bytes < 1000 {
		return fmt.Sprintf("%.0f B", max(bytes, 0))
	}
	for _, unit := range []string{"kB", "MB"} {
		if bytes /= 1000; bytes < 999.5 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
	}
	return fmt.Sprintf("%.3g GB", bytes/1000)
}

// Percent prints a part of a whole, a small one with a decimal.
func Percent(part float64) string {
	switch percent := part * 100; {
	case percent <= 0:
		return "0 %"
	case percent < 0.1:
		return "<0.1 %"
	case percent < 9.95:
		return fmt.Sprintf("%.1f %%", percent)
	default:
		return fmt.Sprintf("%.0f %%", percent)
	}
}
