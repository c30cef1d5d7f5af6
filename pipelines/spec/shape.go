package spec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// Shape is which fields a pipeline reads and writes in one target, for what is
// checked between pipelines. Containers are named database/name.
type Shape struct {
	source, Target string
	// sourceIs and targetIs are what the wheres say of every item: path = value.
	sourceIs, targetIs []query.Equality
	// sourceReads and targetReads decide which copies there are: where, match,
	// arrays whose elements are read, keys of rows.
	sourceReads, targetReads []document.Path
	sets                     []setField
	// whole is the entry of sets that stands for whole items; nil if there is none.
	whole *setField
}

// setField is one field that a pipeline sets.
type setField struct {
	yaml   string          // path of its entry in the document
	target document.Path   // from the root of the target's item; empty: the item comes and goes
	values []document.Path // in the source item
	// made says that the field is written only when an item is made, with a value
	// that it then has for good.
	made bool
}

// ShapesOf returns the shapes of p, one for each container that it writes; nil if
// it writes none, or if a part of it does not parse.
func (c *Checker) ShapesOf(p *KnownPipeline) []*Shape {
	s := Shape{source: Metadata{Name: p.Spec.Source.Container, Database: p.Database}.String()}
	where, is, err := whereFields(p.Spec.Source.Where)
	if err != nil {
		return nil
	}
	s.sourceReads, s.sourceIs = where, is
	var ok bool
	switch {
	case p.Spec.Cascade != nil:
		s.Target = Metadata{Name: p.Spec.Cascade.Into, Database: p.Database}.String()
		ok = s.cascade(p.Spec.Cascade)
	case p.Spec.Aggregate != nil:
		s.Target = Metadata{Name: p.Spec.Aggregate.Into, Database: p.Database}.String()
		ok = s.aggregate(p.Spec.Aggregate)
	case p.Spec.Project != nil && p.Spec.Project.Sink.Container != nil:
		return tableShapes(&s, p.Database, p.Spec.Project)
	}
	if !ok {
		return nil
	}
	return []*Shape{&s}
}

func (s *Shape) cascade(cascade *Cascade) bool {
	var err error
	if s.targetReads, s.targetIs, err = whereFields(cascade.Where); err != nil {
		return false
	}
	var prefix document.Path
	if cascade.Each != "" {
		if prefix, err = document.ParseField(cascade.Each); err != nil {
			return false
		}
		prefix = append(prefix, document.Step{All: true})
	}
	for _, name := range slices.Sorted(maps.Keys(cascade.Match)) {
		for _, field := range cascade.Match[name] {
			target, value, ok := pair(prefix, name, field)
			if !ok {
				return false
			}
			s.targetReads = append(s.targetReads, target)
			s.sourceReads = append(s.sourceReads, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cascade.Set)) {
		target, value, ok := pair(prefix, name, cascade.Set[name])
		if !ok {
			return false
		}
		s.sets = append(s.sets, setField{yaml: "spec.cascade.set." + name, target: target, values: []document.Path{value}})
	}
	return true
}

// pair parses a field of the target and one of the source.
func pair(prefix document.Path, target, source string) (t, s document.Path, ok bool) {
	t, err := document.ParseField(target)
	if err != nil {
		return nil, nil, false
	}
	if s, err = document.ParseField(source); err != nil {
		return nil, nil, false
	}
	return slices.Concat(prefix, t), s, true
}

func (s *Shape) aggregate(a *Aggregate) bool {
	var err error
	if s.targetReads, s.targetIs, err = whereFields(a.Where); err != nil {
		return false
	}
	members, err := scopeOf(a.Each)
	if err != nil {
		return false
	}
	s.sourceReads = append(s.sourceReads, members.counts()...)
	var made []setField
	for _, name := range slices.Sorted(maps.Keys(a.Match)) {
		target, err := document.ParseField(name)
		if err != nil {
			return false
		}
		value, ok := members.refReads(a.Match[name])
		if !ok {
			return false
		}
		s.targetReads = append(s.targetReads, target)
		s.sourceReads = append(s.sourceReads, value...)
		made = append(made, setField{yaml: "spec.aggregate.match." + name, target: target, values: value, made: true})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Set)) {
		set := setField{yaml: "spec.aggregate.set." + name}
		var ok bool
		if set.target, err = document.ParseField(name); err != nil {
			return false
		}
		if set.values, ok = a.fieldReads(a.Set[name]); !ok {
			return false
		}
		s.sets = append(s.sets, set)
	}
	if a.Create {
		s.sets = append(s.sets, made...)
	}
	return true
}

// fieldReads returns what decides the value of a field beyond which members its
// group has.
func (a *Aggregate) fieldReads(f AggregateField) (reads []document.Path, ok bool) {
	s, err := scopeOf(a.Each, f.Each)
	if err != nil {
		return nil, false
	}
	if f.Each != "" {
		reads = append(reads, s.counts()...)
	}
	for _, text := range []string{f.Sum, f.Min, f.Max, f.Avg, f.By, f.Where} {
		if text == "" {
			continue
		}
		more, ok := s.readsOf(text)
		if !ok {
			return nil, false
		}
		reads = append(reads, more...)
	}
	for _, text := range f.Fields {
		more, ok := s.refReads(text)
		if !ok {
			return nil, false
		}
		reads = append(reads, more...)
	}
	return reads, true
}

// tableShapes returns a shape for each table of a projection into containers. A
// row is a whole item, which comes, goes and is written anew: besides a field for
// each column, it sets the item as such.
func tableShapes(of *Shape, database string, p *Project) []*Shape {
	var shapes []*Shape
	rejects := *of // may come of whatever is read
	for i := range p.Tables {
		s := *of
		s.Target = Metadata{p.Tables[i].Name, database}.String()
		if !s.table(&p.Tables[i]) {
			return nil
		}
		shapes = append(shapes, &s)
		rejects.sourceReads = slices.Concat(rejects.sourceReads, s.sourceReads)
		for j := range s.sets {
			rejects.sourceReads = append(rejects.sourceReads, s.sets[j].values...)
		}
	}
	if name := p.Sink.Container.Rejects; name != "" {
		rejects.Target = Metadata{Name: name, Database: database}.String()
		rejects.sets = []setField{{yaml: "spec.project.sink.container.rejects"}}
		rejects.whole = &rejects.sets[0]
		shapes = append(shapes, &rejects)
	}
	return shapes
}

func (s *Shape) table(t *NamedTable) bool {
	members, err := scopeOf(t.Each)
	if err != nil {
		return false
	}
	s.sourceReads = append(slices.Clip(s.sourceReads), members.counts()...)
	if t.Where != "" {
		reads, ok := Scope{members.arrays, true}.readsOf(t.Where)
		if !ok {
			return false
		}
		s.sourceReads = append(s.sourceReads, reads...)
	}
	yaml := "spec.project.tables." + t.Name
	s.sets = []setField{{yaml: yaml}}
	for i := range t.Columns {
		column := &t.Columns[i]
		values, ok := members.readsOf(column.Expr)
		if !ok {
			return false
		}
		if slices.Contains(t.Key, column.Name) {
			s.sourceReads = append(s.sourceReads, values...)
		}
		s.targetIs = append(s.targetIs, constant(column)...)
		s.sets = append(s.sets, setField{yaml: yaml + ".columns." + column.Name, target: document.Path{{Name: column.Name}}, values: values, made: len(values) == 0})
	}
	s.whole = &s.sets[0]
	return true
}

// constant returns what a column says of every row, if it is a constant.
func constant(c *NamedColumn) []query.Equality {
	e, err := query.ParseExpr(fmt.Sprintf("item[%s] = (%s)", document.AppendQuote(nil, c.Name), c.Expr))
	if err != nil || c.Type != "" && c.Type != "json" { // other types may make of it what it is not
		return nil
	}
	return e.Equalities()
}

// readsOf returns the paths in the item that a text reads; ok is false if it does
// not parse.
func (s Scope) readsOf(text string) (reads []document.Path, ok bool) {
	e, err := s.Parse(text)
	if err != nil {
		return nil, false
	}
	return s.reads(e), true
}

// whereFields returns what a condition on an item reads, and what it says is
// equal.
func whereFields(text string) (reads []document.Path, is []query.Equality, err error) {
	if text == "" {
		return nil, nil, nil
	}
	e, err := Scope{}.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	return Scope{}.reads(e), e.Equalities(), nil
}

// overlap tells whether one of two paths may lead into what the other does. An
// empty path is the item, which holds all others.
func overlap(a, b document.Path) bool { return a.Touched(b.Pointer()) }

// disjoint tells whether no item can satisfy both: some field that no pipeline
// sets would have to have two values.
func disjoint(a, b []query.Equality, set []document.Path) bool {
	for _, x := range a {
		for _, y := range b {
			if !slices.Equal(x.Path, y.Path) || document.Equal(x.Value, y.Value) {
				continue
			}
			path := named(x.Path)
			if !slices.ContainsFunc(set, func(s document.Path) bool { return overlap(s, path) }) {
				return true
			}
		}
	}
	return false
}

// SetPaths returns, for each container, the paths that pipelines set in items that
// are there: all others change by clients alone, and a where on them divides the
// items for good. A row's constants are its own: they never change.
func (c *Checker) SetPaths() map[string][]document.Path {
	set := map[string][]document.Path{}
	for _, p := range c.Pipelines {
		for _, s := range p.Shapes {
			for i := range s.sets {
				if f := &s.sets[i]; !f.made && f != s.whole {
					set[s.Target] = append(set[s.Target], f.target)
				}
			}
		}
	}
	return set
}
