package spec

import (
	"slices"

	"github.com/millrace/millrace/feed/document"
)

// Aggregate counts, sums or lists source items, or elements in them, in fields of
// the items that they belong to. Source items or elements with the same match
// values are one group; the fields of the target item of a group follow it.
type Aggregate struct {
	// Into is the container of the items that hold the fields, the target.
	Into string `json:"into" yaml:"into"`
	// Each is the path of an array in the source items whose elements are counted
	// and summed, such as details; arrays in arrays are written
	// details[*].options. Match and the fields read the element then: bare names
	// and element are the element, parent what holds its array, item the whole
	// item, index and parentIndex the places in the arrays, from 0. Default: the
	// source items themselves.
	Each document.Field `json:"each,omitzero" yaml:"each,omitempty"`
	// Match says which target item a source item (with each, an element) belongs
	// to: field of the target: field of the source. Together with where it must fix
	// the target's whole partition key, for there the exact state of a group is
	// kept; with create, the target's id too. It may be left out if where fixes the
	// target's id: there is one group then. At most 32.
	Match ByField[document.Field] `json:"match,omitempty" yaml:"match,omitempty"`
	// Where restricts the target items that hold the fields: an expression of the
	// SQL dialect, such as type = "customer". Default: all that have the match
	// fields.
	Where Expression `json:"where,omitzero" yaml:"where,omitempty"`
	// Create makes a target item that is missing, of the values that match and
	// where fix and the fields; and again when it goes while it has members. Default
	// false: the fields appear when the item does.
	Create bool `json:"create,omitempty" yaml:"create,omitempty"`
	// Set says what each field of the target is. At most 64; no field has two writers.
	Set ByField[AggregateField] `json:"set" yaml:"set"`
	// Consistency is eventual (soon after the change) or transactional (in the same
	// commit as the change, so that no reader sees one without the other; only
	// inside a logical partition). Default eventual.
	Consistency Consistency `json:"consistency,omitempty" yaml:"consistency,omitempty"`
}

// AggregateField is what one field of an aggregate is: exactly one of count, sum,
// min, max, avg and latest. Expressions are of the SQL dialect and read a source
// item, with each an element.
type AggregateField struct {
	// Count is how many there are, 0 if there are none. It is written count: true.
	Count bool `json:"count,omitempty" yaml:"count,omitempty"`
	// Sum adds up an expression, exactly; what is no number is left out. 0 over
	// nothing.
	Sum Expression `json:"sum,omitzero" yaml:"sum,omitempty"`
	// Min is the least value of an expression, in the order of ORDER BY; the field
	// is absent over nothing.
	Min Expression `json:"min,omitzero" yaml:"min,omitempty"`
	// Max is the greatest value of an expression; the field is absent over nothing.
	Max Expression `json:"max,omitzero" yaml:"max,omitempty"`
	// Avg is the mean of an expression over what is a number; the field is absent
	// over nothing.
	Avg Expression `json:"avg,omitzero" yaml:"avg,omitempty"`
	// Latest is how many of the newest are kept, as an array of objects, newest
	// first: 1 to 1000. It needs by and fields.
	Latest int `json:"latest,omitempty" yaml:"latest,omitempty"`
	// By is the expression that tells which are the newest: those with the greatest
	// value. What has none is left out. Only with latest.
	By Expression `json:"by,omitzero" yaml:"by,omitempty"`
	// Fields are what is kept of each of the newest: fields of the source item, with
	// each of the element. Only with latest.
	Fields []document.Field `json:"fields,omitempty" yaml:"fields,omitempty"`
	// Each is the path of an array in the source item (with the aggregate's each, in
	// the element) over whose elements this field alone runs, such as details.
	// Default: none.
	Each document.Field `json:"each,omitzero" yaml:"each,omitempty"`
	// Where restricts what this field alone counts. Default: all.
	Where Expression `json:"where,omitzero" yaml:"where,omitempty"`
}

// Consistency is when the fields of an aggregate follow a change.
type Consistency string

// When the fields of an aggregate follow a change. The zero value is Eventual.
const (
	Eventual      Consistency = "eventual"      // soon after it
	Transactional Consistency = "transactional" // in the same commit
)

func (a *Aggregate) clone() *Aggregate {
	c := *a
	c.Match, c.Set = slices.Clone(c.Match), slices.Clone(c.Set)
	for i := range c.Set {
		c.Set[i].Value.Fields = slices.Clone(c.Set[i].Value.Fields)
	}
	return &c
}
