package processors

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/store/query"
)

// Problem is one thing that is wrong with the declaration of a pipeline.
type Problem struct {
	// Field is the place in the pipeline's spec, such as source.where,
	// cascade.match.categoryId, aggregate.set.lifetimeValue.sum or
	// project.tables.orders.columns.price.type.
	Field string
	// Message says what is wrong and what to do.
	Message string
	// Line and Column are the place inside the text of an expression, from 1;
	// zero if the problem is the field as a whole.
	Line, Column int
}

func (p Problem) String() string { return p.Field + " " + p.Message }

// Problems collects what is wrong with a declaration, so that its author learns all of it
// at once. The zero value is ready to use.
type Problems []Problem

// Add adds a problem of a field.
func (p *Problems) Add(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// Expression reads the expression of a field by parse; nil for none, and for a bad one,
// which it adds with its place in the text.
func (p *Problems) Expression(field, text string, parse func(string) (*query.Expr, error)) *query.Expr {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	e, err := parse(text)
	if err == nil {
		return e
	}
	if syntax, ok := errors.AsType[*query.SyntaxError](err); ok {
		*p = append(*p, Problem{Field: field, Message: syntax.Msg, Line: syntax.Line, Column: syntax.Column})
	} else {
		p.Add(field, "%v", err)
	}
	return nil
}

// Err returns all problems of a pipeline's declaration joined, nil if there are none.
func (p Problems) Err(pipeline string) error {
	if len(p) == 0 {
		return nil
	}
	errs := make([]error, len(p))
	for i := range p {
		errs[i] = errors.New(p[i].String())
	}
	return fmt.Errorf("pipeline %s: %w", pipeline, errors.Join(errs...))
}
