package accumulator

import (
	"slices"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// Rule is a compiled Spec. It is safe for concurrent use.
type Rule struct {
	spec        Spec
	digest      uint32 // of the spec, so that a Delta of another rule is refused
	sourceWhere *query.Expr
	targetWhere *query.Expr
	levels      []document.Path // arrays whose elements are the members
	match       []pair
	fields      []field
	constants   []constant
}

// pair is a compiled Pair.
type pair struct {
	target document.Path
	source ref
}

// field is a compiled Field.
type field struct {
	Field
	path   document.Path
	levels []document.Path // arrays in a member; none if the member counts
	depth  int             // arrays of the member and its own
	where  *query.Expr
	expr   *query.Expr // of latest: by
	copies copies      // of latest
	mask   byte        // of keys: flipped if the greatest comes first
	shown  int64       // how many members the value shows: 1 for min and max
}

// constant is a field of the target that where fixes.
type constant struct {
	path document.Path
	raw  []byte
	form []byte // canonical
}

// Compile compiles s. The error joins a *FieldError for everything that is wrong.
func Compile(s Spec) (*Rule, error) {
	r, problems := compile(s)
	if len(problems) > 0 {
		return nil, joined(problems)
	}
	return r, nil
}

// Check returns everything that is wrong with s, in the order of its fields.
func Check(s Spec) []*FieldError {
	_, problems := compile(s)
	return problems
}

// Spec returns the Spec from which r was compiled.
func (r *Rule) Spec() Spec { return r.spec }

// SourceReads returns the paths of a source item that the rule reads: a change that touches none
// of them (document.Path.Touched) has no share. If the number of elements of an array
// matters, the list has a path below the elements whose last name is empty.
func (r *Rule) SourceReads() []document.Path {
	var reads reads
	reads.expr(r.sourceWhere, nil)
	reads.elements(r.levels)
	for i := range r.match {
		reads.ref(r.match[i].source, r.levels)
	}
	for i := range r.fields {
		f := &r.fields[i]
		levels := slices.Concat(r.levels, f.levels)
		for n := range f.levels {
			reads.elements(levels[:len(r.levels)+n+1])
		}
		reads.expr(f.where, levels)
		reads.expr(f.expr, levels)
		for _, at := range f.copies.refs() {
			reads.ref(at, levels)
		}
	}
	return reads
}

// TargetWrites returns the paths of the fields of a target item that are set, in
// the order of Spec.Set.
func (r *Rule) TargetWrites() []document.Path {
	paths := make([]document.Path, len(r.fields))
	for i := range r.fields {
		paths[i] = r.fields[i].path
	}
	return paths
}

// Turns returns the names of the expressions of the rule that could have another result by
// query.MeaningNow than by query.MeaningTyped.
func (r *Rule) Turns() []string {
	var names []string
	look := func(name string, e *query.Expr, condition bool) {
		if e != nil && e.Turns(condition) {
			names = append(names, name)
		}
	}
	look("source.where", r.sourceWhere, true)
	look("aggregate.where", r.targetWhere, true)
	for i := range r.fields {
		f := &r.fields[i]
		look(fieldName(&f.Field, "where"), f.where, true)
		look(fieldName(&f.Field, ""), f.expr, false)
	}
	return names
}
