package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// pipeline reads the spec of a pipeline.
func (d *Decoder) pipeline(n *yaml.Node, s *PipelineSpec) {
	before := len(d.findings)
	var kinds []string // those that are there
	kind := func(name string, read func(*yaml.Node, string)) field {
		return field{name, "", func(n *yaml.Node, path string) {
			kinds = append(kinds, path)
			read(n, path)
		}}
	}
	fields := []field{
		{"source", "it names the container that is copied: {container: productMeta}", func(n *yaml.Node, path string) {
			d.mapping(n, path,
				field{"container", "the name of the container that is copied is expected", d.text(&s.Source.Container)},
				field{"where", "", d.where(&s.Source.Where)},
			)
		}},
		kind("cascade", func(n *yaml.Node, path string) {
			s.Cascade = &Cascade{}
			d.cascade(n, path, s.Cascade)
		}),
		kind("aggregate", func(n *yaml.Node, path string) {
			s.Aggregate = &Aggregate{}
			d.aggregate(n, path, s.Aggregate)
		}),
		kind("project", func(n *yaml.Node, path string) {
			s.Project = &Project{}
			d.project(n, path, s.Project)
		}),
		{"onError", "", oneOfTexts(d, &s.OnError, Park, Halt)},
	}
	switch ok := d.mapping(n, "spec", fields...); {
	// A field that is unknown was told of, and is probably the kind that is missing.
	case ok && len(kinds) == 0 && !mayMean(n, fields, "cascade", "aggregate", "project"):
		d.findings.Add(d.places.at("spec"), "spec does not say what is copied, and where to; one of cascade, aggregate and project is expected, "+
			"such as cascade: {into: product, match: {categoryId: id}, set: {categoryName: name}}")
	case len(kinds) > 1:
		// mapping read them in its own order. The one that comes first in the file is let be.
		slices.SortFunc(kinds, func(a, b string) int { return d.places.key(a).Line - d.places.key(b).Line })
		for _, path := range kinds[1:] {
			d.findings.Add(d.places.key(path), "%s: a pipeline is of one kind, and %s stands in line %d; declare another pipeline for it",
				path, kinds[0], d.places.key(kinds[0]).Line)
		}
	}
	// Defaults before the rules, which expect them: what is checked is what will run.
	s.normalize()
	if s.Project != nil && s.Project.Sink.Container != nil {
		s.Project.keepTypes()
	}
	if before != len(d.findings) {
		return // what could not be read would be found again as a wrong value
	}
	// The rules of a cascade are about the partition keys of its containers, so Check applies
	// them (rule.go).
	switch {
	case s.Aggregate != nil:
		d.checkAggregate(s)
	case s.Project != nil:
		d.checkProject(s)
	}
}

// mayMean tells whether a mapping has a field, none of fields, that may be a misspelt one of
// names: whatever is not taken for another of fields.
func mayMean(n *yaml.Node, fields []field, names ...string) bool {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	n = resolve(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := resolve(n.Content[i]).Value
		if hint := Nearest(name, all); !slices.Contains(all, name) && (hint == "" || slices.Contains(names, hint)) {
			return true
		}
	}
	return false
}

func (d *Decoder) cascade(n *yaml.Node, path string, c *Cascade) {
	d.mapping(n, path,
		field{"into", "the name of the container that holds the copies is expected", d.text(&c.Into)},
		field{"each", "", func(n *yaml.Node, path string) {
			var text string
			if d.text(&text)(n, path); text != "" {
				c.Each, _ = d.fieldPath(n, path, text)
			}
		}},
		field{
			"match", "it says how a copy names its source, field of the target: field of the source, such as {categoryId: id}",
			d.match(&c.Match),
		},
		field{"where", "", d.where(&c.Where)},
		field{
			"set", "it says what is copied, field of the target: field of the source, such as {categoryName: name}",
			d.pairs(&c.Set, "{categoryName: name}", d.fieldPath, d.fieldPath),
		},
		field{"onSourceDelete", "", oneOfTexts(d, &c.OnSourceDelete, Keep, Clear, Delete)},
	)
}

// match reads how a copy names its source: fields of the target to fields of the
// source, or to lists of them.
func (d *Decoder) match(into *ByField[SourceFields]) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		entries := d.entries(n, path, "field of the target: field of the source is expected, such as {categoryId: id}")
		for _, e := range entries {
			at := Join(path, e.name)
			copied, ok := d.fieldPath(e.key, at, e.name)
			nodes, list := []*yaml.Node{e.value}, e.value.Kind == yaml.SequenceNode
			if list {
				nodes = e.value.Content
			}
			if IsNull(e.value) || len(nodes) == 0 {
				d.bad(e.value, "%s is empty; the name of a field of the source is expected, or a list of such", at)
				continue
			}
			var fields SourceFields
			for i, n := range nodes {
				at := at
				if list {
					at = fmt.Sprintf("%s[%d]", at, i)
					d.places[at] = d.at(n)
				}
				var text string
				if d.text(&text)(resolve(n), at); text == "" {
					continue
				}
				if f, ok := d.fieldPath(resolve(n), at, text); ok {
					fields = append(fields, f)
				}
			}
			// A list without the field that could not be read would say less than was declared: fewer
			// fields have to be equal.
			if ok && len(fields) == len(nodes) {
				into.put(copied, fields)
			}
		}
	}
}

// oneOfTexts reads one of some texts.
func oneOfTexts[T ~string](d *Decoder, into *T, values ...T) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		var text string
		d.text(&text)(n, path)
		all := make([]string, len(values))
		for i, v := range values {
			if all[i] = string(v); all[i] == text {
				*into = v
				return
			}
		}
		if text != "" {
			d.bad(n, "%s is %q; %s is expected%s", path, text, oneOf(all), didYouMean(text, all))
		}
	}
}

// fieldPath reads the path of a field, and reports what is none.
func (d *Decoder) fieldPath(n *yaml.Node, path, text string) (document.Field, bool) {
	f, err := document.NewField(text)
	pe, ok := errors.AsType[*document.PathError](err)
	switch {
	case ok:
		d.findings.Add(scalarPlace(d.File, d.lines, n, pe.Offset), "%s: %q is not the path of a field such as name or address.city: %s", path, text, pe.Msg)
	case err != nil:
		d.bad(n, "%s: %s", path, err)
	case strings.HasPrefix(text, "/"):
		d.bad(n, "%s: %q is written as a pointer; a field is expected: %s", path, text,
			strings.ReplaceAll(strings.TrimPrefix(text, "/"), "/", "."))
	// LOWER(name) is a path too, of a field with that name. Nobody means it, and if one does, it
	// can be quoted: ["LOWER(name)"].
	case !strings.ContainsAny(text, `"'`) && slices.ContainsFunc(f.Path(), func(s document.Step) bool { return strings.Contains(s.Name, "(") }):
		d.bad(n, "%s: %q is computed; the path of a field is expected, such as name or address.city", path, text)
	default:
		return f, true
	}
	return document.Field{}, false
}

// namesPath reads the path of a field that is written: names alone.
func (d *Decoder) namesPath(n *yaml.Node, path, text string) (document.Field, bool) {
	f, ok := d.fieldPath(n, path, text)
	if ok && !isNames(f.Path()) {
		d.bad(n, "%s: %q is not a field that can be set; names joined by dots are expected, such as address.city", path, text)
		return document.Field{}, false
	}
	return f, ok
}

// isNames tells whether a path is names alone.
func isNames(p document.Path) bool {
	for i := range p {
		if s := &p[i]; s.IsIndex || s.All || s.KeyName != "" || s.KeyValue != "" || s.Name == "-" {
			return false
		}
	}
	return true
}

// each reads the path of an array, or of arrays in arrays.
func (d *Decoder) each(into *document.Field) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		var text string
		d.text(&text)(n, path)
		if text == "" {
			return
		}
		f, ok := d.fieldPath(n, path, text)
		if !ok {
			return
		}
		p := f.Path()
		switch {
		case p[len(p)-1].All:
			d.bad(n, "%s: %q names elements; the array is expected: %s", path, text, p[:len(p)-1])
		case slices.ContainsFunc(scopeOf(f).arrays, func(array document.Path) bool { return len(array) == 0 || !isNames(array) }):
			d.bad(n, "%s: %q is not the path of an array; names joined by dots are expected, such as details, and [*] where an array lies in the elements of another, such as details[*].options", path, text)
		default:
			*into = f
		}
	}
}

// where reads a condition on an item.
func (d *Decoder) where(into *Expression) func(*yaml.Node, string) {
	return d.expression(into, Scope{}, `type = "category"`)
}

// expression reads an expression in a scope and points into it where it is wrong.
func (d *Decoder) expression(into *Expression, s Scope, example string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.ScalarNode {
			d.bad(n, "%s is %s; an expression is expected, such as %s", path, describe(n), example)
			return
		}
		if e := d.parseExpression(n, path, s); e != nil {
			*into = Expression{n.Value, e}
		}
	}
}

// parseExpression parses a scalar in a scope; nil if it is wrong, which is
// reported.
func (d *Decoder) parseExpression(n *yaml.Node, path string, s Scope) *query.Expr {
	e, err := s.Parse(n.Value)
	if se, ok := errors.AsType[*query.SyntaxError](err); ok {
		near := "at the end"
		if se.Near != "" {
			near = "near " + se.Near
		}
		d.findings.Add(scalarPlace(d.File, d.lines, n, se.Offset), "%s: %s, %s", path, se.Msg, near)
		return nil
	}
	if err != nil {
		d.bad(n, "%s: %s", path, err)
		return nil
	}
	if err := e.Refused(); err != nil {
		d.bad(n, "%s: %s", path, err)
		return nil
	}
	// The parser is that of queries, which come with values for their parameters.
	if names := e.Params(); len(names) > 0 {
		d.bad(n, "%s: @%s is a parameter of a query, and has no value here; write the value", path, names[0])
		return nil
	}
	if len(s.arrays) == 1 && len(s.read(e, rootParentIndex)) > 0 {
		d.bad(n, "%s: parentIndex is never there: %s lies in no other array; write element.parentIndex if a field is meant", path, s.arrays[0])
		return nil
	}
	return e
}

// sourceField reads the path of a field in a scope.
func (d *Decoder) sourceField(s Scope) fieldReader {
	return func(n *yaml.Node, path, text string) (document.Field, bool) {
		f, ok := d.fieldPath(n, path, text)
		if !ok {
			return document.Field{}, false
		}
		root, _, whole := s.ref(f)
		switch {
		case slices.ContainsFunc(f.Path(), func(step document.Step) bool { return step.All }):
			d.bad(n, "%s: %q means many values, and one is expected; each names the array whose elements are meant", path, text)
		case whole:
			d.bad(n, "%s: %q is the whole item; a field of it is expected, such as %s.id", path, text, text)
		case root == rootParentIndex && len(s.arrays) == 1:
			d.bad(n, "%s: parentIndex is never there: %s lies in no other array; write element.parentIndex if a field is meant", path, s.arrays[0])
		default:
			return f, true
		}
		return document.Field{}, false
	}
}
