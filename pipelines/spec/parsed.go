package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// Expression is an expression of the SQL dialect as it was declared, and what it was
// parsed to in its scope. It is written as its text everywhere. The zero Expression is
// none.
//
// What names mean depends on the arrays around an expression, so it cannot be parsed
// alone: the decoder of YAML parses each as it comes to it, and PipelineSpec.UnmarshalJSON
// all of them when their arrays are known. Outside of these two an Expression that has a
// text is parsed.
type Expression struct {
	text string
	expr *query.Expr
}

// String returns the expression as it was declared, "" for none.
func (e Expression) String() string { return e.text }

// Expr returns what was parsed, nil for none.
func (e Expression) Expr() *query.Expr { return e.expr }

// IsZero tells whether there is none.
func (e Expression) IsZero() bool { return e.text == "" }

// Equal tells whether two expressions are written alike.
func (e Expression) Equal(other Expression) bool { return e.text == other.text }

// MarshalText returns the expression as it was declared.
func (e Expression) MarshalText() ([]byte, error) { return []byte(e.text), nil }

// UnmarshalText keeps the text for PipelineSpec.UnmarshalJSON.
func (e *Expression) UnmarshalText(text []byte) error {
	*e = Expression{text: string(text)}
	return nil
}

// equalities returns what must be equal for the expression to be true.
func (e Expression) equalities() []query.Equality {
	if e.expr == nil {
		return nil
	}
	return e.expr.Equalities()
}

// constant returns the scalar that the expression is, as JSON, nil if it is none.
func (e Expression) constant() []byte {
	if e.expr == nil {
		return nil
	}
	return e.expr.Constant()
}

// SourceFields are the fields of a source that one field of a copy equals; one, but
// for sources that hold one value in several fields, such as an item whose id is also
// its partition key. One field is written as a text, several as a list of texts.
type SourceFields []document.Field

// MarshalJSON writes one field as a text, several as an array.
func (f SourceFields) MarshalJSON() ([]byte, error) {
	if len(f) == 1 {
		return json.Marshal(f[0])
	}
	return json.Marshal([]document.Field(f))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *SourceFields) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*f = make(SourceFields, 1)
		return json.Unmarshal(data, &(*f)[0])
	}
	return json.Unmarshal(data, (*[]document.Field)(f))
}

// MarshalYAML writes one field as a text, several as a list.
func (f SourceFields) MarshalYAML() (any, error) {
	if len(f) == 1 {
		return f[0], nil
	}
	return []document.Field(f), nil
}

// ByField are values by the field of the target that they are for, in the order of the
// fields' texts. They are written as a mapping.
type ByField[V any] []Entry[V]

// Entry is a field of the target, and what is said of it.
type Entry[V any] struct {
	Field document.Field
	Value V
}

// put adds a value for a field that has none.
func (b *ByField[V]) put(field document.Field, value V) {
	at, _ := slices.BinarySearchFunc(*b, field.String(), func(e Entry[V], text string) int { return strings.Compare(e.Field.String(), text) })
	*b = slices.Insert(*b, at, Entry[V]{field, value})
}

// has tells whether there is a value for the field that is written so.
func (b ByField[V]) has(text string) bool {
	return slices.ContainsFunc(b, func(e Entry[V]) bool { return e.Field.String() == text })
}

// MarshalJSON writes an object in the order of the fields.
func (b ByField[V]) MarshalJSON() ([]byte, error) {
	if b == nil {
		return []byte("null"), nil
	}
	return orderedJSON(b, func(e *Entry[V]) (string, any) { return e.Field.String(), e.Value })
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *ByField[V]) UnmarshalJSON(data []byte) error {
	*b = nil
	return readOrdered(data, func(name string, dec *json.Decoder) error {
		field, err := document.NewField(name)
		if err != nil {
			return err
		}
		var value V
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.put(field, value)
		return nil
	})
}

// MarshalYAML writes a mapping, which the encoder brings into its own order: a2 before a10.
func (b ByField[V]) MarshalYAML() (any, error) {
	all := make(map[string]V, len(b))
	for _, e := range b {
		all[e.Field.String()] = e.Value
	}
	return all, nil
}

// IsZero tells whether there is nothing in it.
func (b ByField[V]) IsZero() bool { return len(b) == 0 }

// UnmarshalJSON reads a spec and parses its expressions. The error names the one that
// cannot be parsed: only a damaged record has such, for what is registered was parsed.
func (s *PipelineSpec) UnmarshalJSON(data []byte) error {
	type plain PipelineSpec
	// First the texts, then the expressions: an array stands before or behind the
	// expressions that it is the scope of, as encoding/json comes to it.
	*s = PipelineSpec{}
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	var errs []error
	s.expressions(func(at string, e *Expression, in Scope, _ bool) {
		var err error
		if e.expr, err = in.Parse(e.text); err != nil {
			errs = append(errs, fmt.Errorf("spec.%s: %w", at, err))
		}
	})
	return errors.Join(errs...)
}

// expressions calls visit for each expression that there is, with where it stands, the
// scope in which it is read, and whether it is a condition: then only whether it is true
// counts.
func (s *PipelineSpec) expressions(visit func(at string, e *Expression, in Scope, condition bool)) {
	each := func(at string, e *Expression, in Scope, condition bool) {
		if !e.IsZero() {
			visit(at, e, in, condition)
		}
	}
	each("source.where", &s.Source.Where, Scope{}, true)
	if c := s.Cascade; c != nil {
		each("cascade.where", &c.Where, Scope{}, true)
	}
	if a := s.Aggregate; a != nil {
		each("aggregate.where", &a.Where, Scope{}, true)
		for i := range a.Set {
			f, at := &a.Set[i].Value, "aggregate.set."+a.Set[i].Field.String()
			for _, of := range f.expressions() {
				each(at+"."+of.name, of.e, scopeOf(a.Each, f.Each), of.e == &f.Where)
			}
		}
	}
	if p := s.Project; p != nil {
		for i := range p.Tables {
			t, at := &p.Tables[i], "project.tables."+p.Tables[i].Name
			in := scopeOf(t.Each)
			each(at+".where", &t.Where, in.ofWhere(), true)
			for j := range t.Columns {
				each(at+".columns."+t.Columns[j].Name, &t.Columns[j].Expr, in, false)
			}
		}
	}
}

// namedExpression is an expression of a field, and its name there.
type namedExpression struct {
	name string
	e    *Expression
}

// expressions returns all expressions that a field can have.
func (f *AggregateField) expressions() []namedExpression {
	return []namedExpression{{"sum", &f.Sum}, {"min", &f.Min}, {"max", &f.Max}, {"avg", &f.Avg}, {"by", &f.By}, {"where", &f.Where}}
}
