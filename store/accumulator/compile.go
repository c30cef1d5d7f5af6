package accumulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// compiler compiles one Spec and collects all its problems.
type compiler struct {
	r        Rule
	problems []*FieldError
}

func joined(problems []*FieldError) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

func compile(s Spec) (*Rule, []*FieldError) {
	c := &compiler{r: Rule{spec: s}}
	if s.Expressions > query.MeaningNow {
		c.bad("expressions", "have the meaning %d; this release knows up to %d", s.Expressions, query.MeaningNow)
		return &c.r, c.problems
	}
	c.r.sourceWhere = c.expr("source.where", s.SourceWhere, 0)
	c.r.levels = c.each("aggregate.each", s.Each)
	c.match(s.Match)
	c.r.targetWhere = c.expr("aggregate.where", s.TargetWhere, 0)
	c.constants()
	c.fields(s.Set)
	c.writes()
	c.identity()
	// The digest is of the declaration as JSON, of which all that follows is compiled.
	text, err := json.Marshal(s)
	if err != nil {
		c.bad("aggregate", "cannot be written as JSON: %v", err)
	}
	c.r.digest = uint32(xxhash.Sum64(text))
	return &c.r, c.problems
}

func (c *compiler) bad(field, format string, args ...any) {
	c.problems = append(c.problems, &FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// badPath reports a path that cannot be read.
func (c *compiler) badPath(field string, err error) {
	p, ok := errors.AsType[*document.PathError](err)
	if !ok {
		c.bad(field, "%v", err)
		return
	}
	c.problems = append(c.problems, &FieldError{
		Field: field, Offset: p.Offset, Line: 1, Column: utf8.RuneCountInString(p.Text[:p.Offset]) + 1, Message: fmt.Sprintf("is %q: %s", p.Text, p.Msg),
	})
}

// expr compiles an expression that stands depth arrays deep; nil for none.
func (c *compiler) expr(field, text string, depth int) *query.Expr {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	e, err := c.r.spec.Meaning().ParseScoped(text, rootsOf(depth))
	if syntax, ok := errors.AsType[*query.SyntaxError](err); ok {
		c.problems = append(c.problems, &FieldError{
			Field: field, Offset: syntax.Offset, Line: syntax.Line, Column: syntax.Column, Message: syntax.Msg,
		})
		return nil
	}
	if err != nil {
		c.bad(field, "%v", err)
		return nil
	}
	if params := e.Params(); len(params) > 0 {
		c.bad(field, "has the parameter @%s, which has no value here", params[0])
	}
	return e
}

// each compiles a path of arrays; nil for none.
func (c *compiler) each(field, text string) []document.Path {
	if text == "" {
		return nil
	}
	path, err := document.ParseField(text)
	if err != nil {
		c.badPath(field, err)
		return nil
	}
	levels := splitEach(path)
	if len(levels) > EachDepthMax {
		c.bad(field, "leads through %d arrays; at most %d are allowed", len(levels), EachDepthMax)
		return nil
	}
	if len(levels[0]) == 0 {
		c.bad(field, "is %q: it begins with [*]; the name of an array is expected", text)
		return nil
	}
	return levels
}

// names reads a path of names alone: such a field can be written.
func (c *compiler) names(field, text string) document.Path {
	path, err := document.ParseField(text)
	if err != nil {
		c.badPath(field, err)
		return nil
	}
	if !isNames(path) {
		c.bad(field, "is %q; names joined by dots are expected, such as totals.count", text)
		return nil
	}
	return path
}

func isNames(path document.Path) bool {
	for i := range path {
		if s := &path[i]; s.IsIndex || s.All || s.KeyName != "" || s.KeyValue != "" || s.Name == "-" {
			return false
		}
	}
	return true
}

// isSingle reports whether a path leads to one value at most.
func isSingle(path document.Path) bool {
	return !slices.ContainsFunc(path, func(s document.Step) bool { return s.All && s.Name == "" || s.Name == "-" })
}

func (c *compiler) match(pairs []Pair) {
	if len(pairs) > PairsMax {
		c.bad("aggregate.match", "has %d fields; at most %d are allowed", len(pairs), PairsMax)
		return
	}
	for i, p := range pairs {
		field := "aggregate.match." + p.Target
		target := c.names(field, p.Target)
		source, named, err := parseRef(p.Source, len(c.r.levels))
		switch {
		case err != nil:
			c.badPath(field, err)
		case !isSingle(source.path):
			c.bad(field, "is %q; one value is expected, and [*] means many: use each", p.Source)
		case named && len(source.path) == 0 && (len(c.r.levels) == 0 || source.root == rootItem || source.root == rootParent && len(c.r.levels) == 1):
			c.bad(field, "is the whole item; a field of it is expected, such as %s.id", p.Source)
		}
		// A field of the target has one pair, and no field within it another.
		for j := range i {
			if other := c.r.match[j].target; target != nil && other != nil && other.Overlaps(target) {
				c.bad(field, "is there twice, or lies inside another: %s", pairs[j].Target)
			}
		}
		c.r.match = append(c.r.match, pair{target, source})
	}
}

// constants collects the fields of the target that where fixes, except those that match fixes.
func (c *compiler) constants() {
	if c.r.targetWhere == nil {
		return
	}
	for _, e := range c.r.targetWhere.Equalities() {
		path := make(document.Path, len(e.Path))
		for i, name := range e.Path {
			path[i] = document.Step{Name: name}
		}
		form := document.AppendCanonical(nil, e.Value)
		if len(form) == 0 || c.r.matched(path) >= 0 || c.r.constant(path) != nil {
			continue
		}
		c.r.constants = append(c.r.constants, constant{path, e.Value, form})
	}
}

// writes refuses fields that write what selects their target: the fields of match, those that
// where reads, and the id. The aggregate would move its own target to another group.
func (c *compiler) writes() {
	var where []document.Path
	if c.r.targetWhere != nil {
		for _, names := range c.r.targetWhere.Paths() {
			where = append(where, document.PathOf(names))
		}
	}
	for i := range c.r.fields {
		path := c.r.fields[i].path
		if path == nil {
			continue
		}
		at := fieldName(&c.r.fields[i].Field, "")
		for _, m := range c.r.match {
			if m.target != nil && path.Overlaps(m.target) {
				c.bad(at, "writes the field by which the target is matched")
			}
		}
		for _, read := range where {
			if path.Overlaps(read) {
				c.bad(at, "writes what aggregate.where reads: %s", read)
			}
		}
		if path[0].Name == "id" {
			c.bad(at, "writes the target's id, which cannot be changed")
		}
		for j := range i {
			if other := c.r.fields[j].path; other != nil && other.Overlaps(path) {
				c.bad(at, "is there twice, or lies inside another: %s", other)
			}
		}
	}
}

// identity requires the declaration to say which target a group has. It needs a rule without other
// problems.
func (c *compiler) identity() {
	if len(c.problems) > 0 {
		return
	}
	switch {
	case len(c.r.match) == 0 && !c.r.FixesTargetID():
		c.bad("aggregate.match", "is empty, so all members are of one group; fix its one target in where (id = ...), or match fields")
	case c.r.spec.Create && !c.r.FixesTargetID():
		c.bad("aggregate.create", "needs to know the id of the target it makes; match a field with id, or fix it in where (id = ...)")
	}
}
