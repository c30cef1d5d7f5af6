package accumulator

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/store/query"
)

// Limits of a declaration and of what it may fold.
const (
	// PairsMax bounds the pairs of match.
	PairsMax = 32
	// FieldsMax bounds the fields of set.
	FieldsMax = 64
	// LatestMax bounds the members that a list of the latest keeps, CopiesMax the
	// fields that it copies of each.
	LatestMax = 1000
	CopiesMax = 64
	// EachDepthMax bounds the arrays within each other whose elements are members.
	EachDepthMax = 8

	// GroupBytesMax bounds a Group. A member whose match values are longer belongs
	// to no group, and a target whose values are longer is none.
	GroupBytesMax = 8 << 10
	// ScalarBytesMax bounds the canonical form of a value that min, max and the by
	// of latest look at. A longer one is left out.
	ScalarBytesMax = 8 << 10
	// DecimalDigitsMax bounds the digits of a number before the point, and those
	// behind it, that sum and avg take; all finite doubles lie within. A number
	// beyond is left out.
	DecimalDigitsMax = 400
)

// ErrFormat is the cause of every refusal to read a stored or sent form: the bytes
// are damaged, of another rule, or of a later version.
var ErrFormat = errors.New("accumulator: cannot read")

// Spec is the meaning of an aggregate. It is kept as JSON in control commits and
// registry records.
//
// Expressions read a member. Without Each, members are items: bare names, item, c
// and root read the item. With Each, members are elements: bare names and element
// read the element, parent what holds its array, item, c and root the whole item,
// index and parentIndex the places in the arrays, from 0.
type Spec struct {
	// SourceWhere selects source items; it reads the item, whatever Each says. ""
	// is all.
	SourceWhere string `json:"sourceWhere,omitempty"`
	// Each is the array in a source item whose elements are the members, such as
	// details, or details[*].options for arrays in its elements. "" makes the items
	// the members.
	Each string `json:"each,omitempty"`
	// Match says which members belong together and to which target, in the order of
	// Target, 1 to PairsMax. It may be empty if TargetWhere fixes the target's id.
	Match []Pair `json:"match"`
	// TargetWhere selects target items. "" is all that have the fields of Match.
	TargetWhere string `json:"targetWhere,omitempty"`
	// Create makes a target that is missing; match and where must fix its id.
	Create bool `json:"create,omitempty"`
	// Set are the fields of the target, in the order of Path, 1 to FieldsMax.
	Set []Field `json:"set"`
	// Expressions is the query.Meaning of all expressions of the rule, 0 for
	// query.MeaningTyped. It stays for as long as the rule lasts: what is taken away
	// must mean what it meant when it was added.
	Expressions query.Meaning `json:"expressions,omitempty"`
}

// Meaning is that of the expressions.
func (s *Spec) Meaning() query.Meaning { return max(s.Expressions, query.MeaningTyped) }

// Pair relates a field of the target to one of the source. Both are paths;
// Source begins at a member, or with the name of a root.
type Pair struct {
	Target string `json:"target"`
	Source string `json:"source"`
}

// Func is what a field says of the members of its group.
type Func string

// The functions.
const (
	// Count is how many members there are: an integer, 0 over nothing.
	Count Func = "count"
	// Sum is the exact sum of an expression, 0 over nothing. Values that are no numbers
	// are left out.
	Sum Func = "sum"
	// Avg is the mean of an expression, rounded half to even to 17 digits, absent
	// over nothing. Values that are no numbers are left out.
	Avg Func = "avg"
	// Min is the least value of an expression in the order of ORDER BY, absent over
	// nothing. Undefined, arrays and objects are left out.
	Min Func = "min"
	// Max is the greatest value, otherwise as Min.
	Max Func = "max"
	// Latest is an array of the newest members, newest first; [] over nothing.
	Latest Func = "latest"
)

// Field is one field of the target.
type Field struct {
	// Path is the field: names joined by dots.
	Path string `json:"path"`
	Func Func   `json:"func"`
	// Expr is what Sum, Avg, Min and Max are of.
	Expr string `json:"expr,omitempty"`
	// Each is an array in the member: the field is of its elements instead. Its
	// expressions read an element then, whose parent may be the member.
	Each string `json:"each,omitempty"`
	// Where selects members, or elements of Each. "" is all.
	Where string `json:"where,omitempty"`
	// N is how many Latest keeps, 1 to LatestMax; By is an expression of which the
	// greatest are the newest; Fields are paths of what is copied, as in Pair.Source.
	// Members of equal By stand in the order of partition key and id. Members
	// without By are left out.
	N      int      `json:"n,omitempty"`
	By     string   `json:"by,omitempty"`
	Fields []string `json:"fields,omitempty"`
}

// FieldError says what is wrong with one place of a Spec.
type FieldError struct {
	// Field is the place as a pipeline's spec names it: source.where,
	// aggregate.each, aggregate.where, aggregate.create, aggregate.match.customerId,
	// aggregate.set.total.sum. Behind the path of a field stand the name of its
	// function (for what it is of), each, where, by or fields.
	Field string
	// Offset is where in the text, in bytes, and Line and Column the same place, from
	// 1 and in characters. All are 0 if it is the text as a whole.
	Offset, Line, Column int
	// Message says what is wrong and what to do.
	Message string
}

func (e *FieldError) Error() string {
	if e.Line == 0 {
		return e.Field + " " + e.Message
	}
	return fmt.Sprintf("%s line %d, column %d: %s", e.Field, e.Line, e.Column, e.Message)
}
