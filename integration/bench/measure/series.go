//go:build linux

// Package measure holds what the benchmarks have in common: samples and their
// noise, latencies, the tables of a report, the bars that it must clear, and what
// must be known of the machine to read any of it.
package measure

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Series are the samples of one figure, one for each round.
type Series []float64

// Median returns the middle sample, the mean of the two middle ones if their
// number is even, and 0 if there is none.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Min returns the lowest sample, 0 if there is none.
func (s Series) Min() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Min(s)
}

// Max returns the highest sample, 0 if there is none.
func (s Series) Max() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

// String returns "median [lowest..highest]", or the sample alone if there is one.
func (s Series) String() string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return Number(s[0])
	}
	return fmt.Sprintf("%s [%s..%s]", Number(s.Median()), Number(s.Min()), Number(s.Max()))
}

// Over divides s by d round by round. Samples of one round were taken minutes
// apart at most, so a machine that is slow for a while is slow for both.
func (s Series) Over(d Series) Series {
	ratios := make(Series, 0, min(len(s), len(d)))
	for i := range min(len(s), len(d)) {
		if d[i] != 0 {
			ratios = append(ratios, s[i]/d[i])
		}
	}
	return ratios
}

// Number prints v with three significant digits, and whole if it has more.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case v == 0:
		return "0"
	case a >= 99.95:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// thousands sets commas into the digits of a whole number.
func thousands(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Latencies are the times that single operations took.
type Latencies []time.Duration

// Quantile returns the latency below which the fraction q of the operations lie,
// 0 if there are none. It sorts l.
func (l Latencies) Quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	if !slices.IsSorted(l) {
		slices.Sort(l)
	}
	return l[min(int(q*float64(len(l))), len(l)-1)]
}

// Milliseconds returns d in milliseconds, as tables show latencies.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
