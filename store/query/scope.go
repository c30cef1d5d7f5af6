package query

import (
	"slices"
	"strings"
)

// scope holds the names of the roots. A name that several roots have belongs to the first.
type scope [][]string

// root returns the root that a name is.
func (s scope) root(name string) (root int, ok bool) {
	for i, names := range s {
		if slices.Contains(names, name) {
			return i, true
		}
	}
	return 0, false
}

// name returns how a root is written; "" if it cannot be.
func (s scope) name(root int) string {
	if root >= len(s) {
		return ""
	}
	for _, name := range s[root] {
		if r, _ := s.root(name); r == root && plain(name) && !reserved(name) {
			return name
		}
	}
	return ""
}

// reserved reports whether a name is a word of the language.
func reserved(name string) bool { return keywords[strings.ToUpper(name)] }

// ParseScoped reads a text as one expression over several roots, such as an
// element, the item that it is in, and its index. roots[i] are the names of root i;
// if two roots have a name, it is the first one's. A name of a root hides the
// property of root 0 that is named so; every other name that stands first is a
// property of root 0. A root without names cannot be read, except for root 0. The
// error is a *SyntaxError.
func ParseScoped(text string, roots [][]string) (*Expr, error) {
	return MeaningNow.ParseScoped(text, roots)
}

// EvalIn returns the value of the expression where root i is roots[i], valid JSON. A root that
// is nil or left out is undefined; further roots are not read. The value may share memory
// with the roots. EvalIn does not keep the slice, but arguments that are listed in the call
// are allocated by it: a caller for whom that counts passes a slice that it uses again.
func (e *Expr) EvalIn(roots ...[]byte) Value {
	f := e.counted(roots)
	v := e.eval(f.item(), f)
	if f.spent {
		v = Value{}
	}
	f.free()
	return v
}

// counted returns a frame whose budget counts work and reads no clock. MeaningTyped had no
// budget, so its expressions have none.
func (e *Expr) counted(roots [][]byte) *frame {
	f := newFrame(e.slots, roots)
	if !e.old {
		f.workMax, f.madeMax = WorkMax, MadeMax
	}
	return f
}

// TrueIn reports whether the expression is true where root i is roots[i], as EvalIn
// says. It allocates no more than True does.
func (e *Expr) TrueIn(roots ...[]byte) bool {
	f := e.counted(roots)
	is := e.test(f.item(), f) == isTrue && !f.spent
	f.free()
	return is
}
