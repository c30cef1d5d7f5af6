package query

import (
	"maps"
	"slices"
)

// FunctionNames are the names of all functions, those of the time and the aggregates
// included; RefusedNames of those that are refused.
func FunctionNames() []string {
	names := slices.Concat(functionNames, slices.Collect(maps.Keys(clockFunctions)), slices.Collect(maps.Keys(queryFunctions)), []string{tryContains}, slices.Collect(maps.Keys(aggregates)))
	slices.Sort(names)
	return names
}

func RefusedNames() []string { return slices.Sorted(maps.Keys(refusedFunctions)) }

// EvalWithin is Eval with another bound than WorkMax.
func (e *Expr) EvalWithin(item []byte, workMax int64) Value {
	f := e.counted([][]byte{item})
	f.workMax = workMax
	v := e.eval(f.item(), f)
	if f.spent {
		v = Value{}
	}
	f.free()
	return v
}

// ValueOf returns the value of raw JSON without space around it.
func ValueOf(raw []byte) Value { return valueOf(raw) }

// InSet reports whether the expression, x IN (list), looks x up in a set of constants.
func (e *Expr) InSet() bool { return compileInSet(e.root.(*in)) != nil }
