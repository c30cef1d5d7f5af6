package query

import (
	"math"
	"math/bits"
)

// angleFunctions compute with doubles.
var angleFunctions = map[string]*function{
	"ACOS": math1(math.Acos), "ASIN": math1(math.Asin), "ATAN": math1(math.Atan),
	"ATN2": {least: 2, most: 2, two: func(y, x Value) Value {
		if y.typ != Number || x.typ != Number {
			return Value{}
		}
		return floatValue(math.Atan2(y.Float(), x.Float()))
	}},
	"COS": math1(math.Cos), "SIN": math1(math.Sin), "TAN": math1(math.Tan),
	"COT":     math1(func(x float64) float64 { return 1 / math.Tan(x) }),
	"DEGREES": math1(func(x float64) float64 { return x * 180 / math.Pi }),
	"RADIANS": math1(func(x float64) float64 { return x * math.Pi / 180 }),
	"NUMBERBIN": {least: 1, most: 2, two: func(x, size Value) Value {
		if size.typ == Undefined {
			size = intValue(1)
		}
		if x.typ != Number || size.typ != Number || size.Float() <= 0 {
			return Value{}
		}
		return arith('*', floatValue(math.Floor(x.Float()/size.Float())), size)
	}},
}

// integerFunctions compute with integers of 64 bits. Any other argument, and a result that
// does not fit, is undefined.
var integerFunctions = map[string]*function{
	"INTADD": int2(func(a, b int64) (int64, bool) { return a + b, (a+b > a) == (b > 0) }),
	"INTSUB": int2(func(a, b int64) (int64, bool) { return a - b, (a-b < a) == (b > 0) }),
	"INTMUL": int2(func(a, b int64) (int64, bool) {
		// The product of the amounts has 128 bits. It fits if it has 63, or is exactly the
		// least int64.
		high, low := bits.Mul64(magnitude(a), magnitude(b))
		n := a * b
		return n, high == 0 && (low <= math.MaxInt64 || low == 1<<63 && (a < 0) != (b < 0))
	}),
	"INTDIV":    int2(func(a, b int64) (int64, bool) { return quotient(a, b, false) }),
	"INTMOD":    int2(func(a, b int64) (int64, bool) { return quotient(a, b, true) }),
	"INTBITAND": int2(func(a, b int64) (int64, bool) { return a & b, true }),
	"INTBITOR":  int2(func(a, b int64) (int64, bool) { return a | b, true }),
	"INTBITXOR": int2(func(a, b int64) (int64, bool) { return a ^ b, true }),
	"INTBITNOT": {least: 1, most: 1, one: func(v Value) Value {
		return integer(v, intValue(0), func(a, _ int64) (int64, bool) { return ^a, true })
	}},
	"INTBITLEFTSHIFT":  int2(func(a, b int64) (int64, bool) { return a << (uint64(b) & 63), b >= 0 }),
	"INTBITRIGHTSHIFT": int2(func(a, b int64) (int64, bool) { return a >> (uint64(b) & 63), b >= 0 }),
}

// magnitude returns the amount of n.
func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func quotient(a, b int64, rest bool) (int64, bool) {
	switch {
	case b == 0, a == math.MinInt64 && b == -1: // the amount of the least integer does not fit
		return 0, false
	case rest:
		return a % b, true
	}
	return a / b, true
}

func int2(f func(a, b int64) (int64, bool)) *function {
	return &function{least: 2, most: 2, two: func(x, y Value) Value { return integer(x, y, f) }}
}

func integer(x, y Value, f func(a, b int64) (int64, bool)) Value {
	a, okA := x.int64()
	b, okB := y.int64()
	if !okA || !okB {
		return Value{}
	}
	n, ok := f(a, b)
	if !ok {
		return Value{}
	}
	return intValue(int(n))
}
