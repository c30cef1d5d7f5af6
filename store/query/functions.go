package query

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/feed/document/decimal"
)

// TextMadeMax bounds the bytes of a string that a function makes; a longer one is
// undefined.
const TextMadeMax = 4 << 20

// function is a function of the language. Exactly one of one to manyFramed is set. Optional
// arguments that are left out are Undefined. Functions without a frame take time in
// proportion to their arguments and results, which the caller counts; the others count
// their work themselves.
type function struct {
	least, most int
	one         func(a Value) Value
	two         func(a, b Value) Value
	three       func(a, b, c Value) Value
	many        func(args []Value) Value
	framed      func(f *frame, a, b, c Value) Value
	manyFramed  func(f *frame, args []Value) Value
}

// argsMax bounds the arguments of functions that take any number.
const argsMax = 1000

// arity returns the message that the function takes another number of arguments than n.
func (f *function) arity(name string, n int) string {
	takes := fmt.Sprintf("%d to %d arguments", f.least, f.most)
	switch {
	case f.most == argsMax:
		takes = fmt.Sprintf("at least %d arguments", f.least)
	case f.least == f.most && f.least == 1:
		takes = "1 argument"
	case f.least == f.most:
		takes = fmt.Sprintf("%d arguments", f.least)
	}
	return fmt.Sprintf("%s takes %s, not %d", name, takes, n)
}

// typeTest returns a function that tells whether its argument is of one of the types.
func typeTest(types ...Type) *function {
	return &function{least: 1, most: 1, one: func(v Value) Value { return boolValue(slices.Contains(types, v.typ)) }}
}

// text1 returns a function from string to string.
func text1(f func(s []byte) []byte) *function {
	return &function{least: 1, most: 1, one: func(v Value) Value {
		if v.typ != String {
			return Value{}
		}
		return stringValue(f(v.data))
	}}
}

// math1 returns a function from double to double.
func math1(f func(x float64) float64) *function {
	return &function{least: 1, most: 1, one: func(v Value) Value {
		if v.typ != Number {
			return Value{}
		}
		return floatValue(f(v.Float()))
	}}
}

// functions are all functions by their names in capitals.
var functions = merge(typeFunctions, textFunctions, mathFunctions, angleFunctions, integerFunctions, arrayFunctions, setFunctions, dateFunctions)

// functionNames are their names in order.
var functionNames = slices.Sorted(maps.Keys(functions))

func merge[V any](tables ...map[string]V) map[string]V {
	all := make(map[string]V)
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

var typeFunctions = map[string]*function{
	"IS_ARRAY":         typeTest(Array),
	"IS_BOOL":          typeTest(Bool),
	"IS_BOOLEAN":       typeTest(Bool), // so the SDKs for Java and .NET call it where an ordered query goes on
	"IS_DEFINED":       typeTest(Null, Bool, Number, String, Array, Object),
	"IS_FINITE_NUMBER": typeTest(Number),
	"IS_INTEGER": {least: 1, most: 1, one: func(v Value) Value {
		return boolValue(v.typ == Number && isInteger(v.data))
	}},
	"IS_NULL":      typeTest(Null),
	"IS_NUMBER":    typeTest(Number),
	"IS_OBJECT":    typeTest(Object),
	"IS_PRIMITIVE": typeTest(Null, Bool, Number, String),
	"IS_STRING":    typeTest(String),
	"IIF": {least: 3, most: 3, three: func(c, a, b Value) Value {
		if c.Bool() {
			return a
		}
		return b
	}},
	"TOSTRING": {least: 1, most: 1, one: func(v Value) Value {
		if v.typ == Undefined {
			return v
		}
		return stringValue([]byte(v.Text()))
	}},
	"STRINGTOARRAY":   fromText(Array),
	"STRINGTOBOOLEAN": fromText(Bool),
	"STRINGTONULL":    fromText(Null),
	"STRINGTONUMBER":  fromText(Number),
	"STRINGTOOBJECT":  fromText(Object),
}

// fromText returns a function that reads a value of type t from a string.
func fromText(t Type) *function {
	return &function{least: 1, most: 1, one: func(v Value) Value {
		if v.typ != String {
			return Value{}
		}
		return ofType(t, parsed(v.data))
	}}
}

// isInteger reports whether a number has no fraction: 1.0 and 1e2 have
// none.
func isInteger(raw []byte) bool {
	d := decimal.Parse(raw)
	return d.IsInteger()
}

// compileCall compiles a call. Functions of up to three arguments get them without a slice, so
// that a call does not allocate.
func compileCall(n *call) eval {
	fn := functions[n.name]
	if fn == nil {
		fn = queryFunctions[n.name]
	}
	var special eval
	switch n.name {
	case "REGEXMATCH":
		special = compileRegexMatch(n)
	case "VECTORDISTANCE":
		special = compileVectorDistance(n)
	default:
		special = compileSpatial(n)
	}
	if special != nil {
		return special
	}
	if fn == nil || n.name == randomName {
		return func([]byte, *frame) Value { return Value{} } // a function of Query.At, before it
	}
	args := compileAll(n.args)
	if fn.many != nil || fn.manyFramed != nil {
		return func(item []byte, f *frame) Value {
			values, ok := f.arguments(item, args)
			switch {
			case !ok:
				return Value{}
			case fn.manyFramed != nil:
				return fn.manyFramed(f, values)
			}
			return f.result(fn.many(values))
		}
	}
	// Arguments that are left out evaluate to Undefined, so one function serves all numbers.
	for len(args) < 3 {
		args = append(args, func([]byte, *frame) Value { return Value{} })
	}
	a, b, c := args[0], args[1], args[2]
	switch {
	case fn.one != nil:
		return func(item []byte, f *frame) Value {
			v := a(item, f)
			if !f.charge(workNode + len(v.data)) {
				return Value{}
			}
			return f.result(fn.one(v))
		}
	case fn.two != nil:
		return func(item []byte, f *frame) Value {
			v, w := a(item, f), b(item, f)
			if !f.charge(workNode + len(v.data) + len(w.data)) {
				return Value{}
			}
			return f.result(fn.two(v, w))
		}
	}
	return func(item []byte, f *frame) Value {
		v, w, x := a(item, f), b(item, f), c(item, f)
		if !f.charge(workNode + len(v.data) + len(w.data) + len(x.data)) {
			return Value{}
		}
		if fn.framed != nil {
			return f.result(fn.framed(f, v, w, x))
		}
		return f.result(fn.three(v, w, x))
	}
}

// Functions calls the functions that a container has, for one run.
type Functions interface {
	// Call calls a function with arguments, as JSON; nil is an undefined one. It returns what the function returned as JSON,
	// nil if that is undefined. An error ends the query.
	Call(name string, args [][]byte) ([]byte, error)
}

// errNoFunctions says that a function would have to be called where there are no items.
var errNoFunctions = errors.New("functions of the container (udf.) are called where items are read: of the groups of a query, that is within aggregates and in GROUP BY alone")

// compileUDF compiles the call of a function that the container has.
func compileUDF(n *udf) eval {
	name, args := n.name, compileAll(n.args)
	return func(item []byte, f *frame) Value {
		values, ok := f.arguments(item, args)
		if !ok || f == nil || f.spent {
			return Value{}
		}
		if f.functions == nil {
			return f.fail(errNoFunctions)
		}
		texts := make([][]byte, len(values))
		for i, v := range values {
			if v.typ != Undefined {
				texts[i] = v.AppendJSON(nil)
			}
		}
		made, err := f.functions.Call(name, texts)
		if err != nil {
			return f.fail(err)
		}
		if made == nil || !f.chargeMade(len(made)) {
			return Value{}
		}
		return f.value(made)
	}
}

// fail ends the evaluation with an error.
func (f *frame) fail(err error) Value {
	if f.spent = true; f.failed == nil {
		f.failed = err
	}
	return Value{}
}

// result counts the memory of a function's result.
func (f *frame) result(v Value) Value {
	f.chargeMade(len(v.data))
	return v
}

// arguments computes the arguments of a call. ok is false if the budget is spent, which it is
// too when they have more than argsBytesMax bytes together.
func (f *frame) arguments(item []byte, args []eval) (values []Value, ok bool) {
	values = make([]Value, len(args))
	size := 0
	for i, a := range args {
		values[i] = a(item, f)
		if size += len(values[i].data); size > argsBytesMax && f != nil && f.madeMax > 0 {
			f.spent = true
		}
		if !f.charge(workNode + len(values[i].data)) {
			return nil, false
		}
	}
	return values, true
}

// refusedFunctions are functions of the service that are not here, with the reason.
var refusedFunctions = merge(
	reasons("items are not ranked by their text; ask which have it, by FullTextContains", "FULLTEXTSCORE", "RRF"),
	reasons("no function makes a list of the values of a group; ask for the values, or write ARRAY(SELECT …) of one item", "MAKELIST", "MAKESET"),
)

func reasons(reason string, names ...string) map[string]string {
	all := make(map[string]string)
	for _, name := range names {
		all[name] = reason
	}
	return all
}
