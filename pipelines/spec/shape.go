package spec

import (
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
// it writes none.
func (c *Checker) ShapesOf(p *KnownPipeline) []*Shape {
	s := Shape{source: Metadata{Name: p.Spec.Source.Container, Database: p.Database}.String()}
	s.sourceReads, s.sourceIs = Scope{}.reads(p.Spec.Source.Where), p.Spec.Source.Where.equalities()
	switch {
	case p.Spec.Cascade != nil:
		s.Target = Metadata{Name: p.Spec.Cascade.Into, Database: p.Database}.String()
		s.cascade(p.Spec.Cascade)
	case p.Spec.Aggregate != nil:
		s.Target = Metadata{Name: p.Spec.Aggregate.Into, Database: p.Database}.String()
		s.aggregate(p.Spec.Aggregate)
	case p.Spec.Project != nil && p.Spec.Project.Sink.Container != nil:
		return tableShapes(&s, p.Database, p.Spec.Project)
	default:
		return nil
	}
	return []*Shape{&s}
}

func (s *Shape) cascade(cascade *Cascade) {
	s.targetReads, s.targetIs = Scope{}.reads(cascade.Where), cascade.Where.equalities()
	var prefix document.Path
	//	each: tags, match: {id: id}, set: {name: name}
	//	reads tags[*].id of the target, sets tags[*].name
	if !cascade.Each.IsZero() {
		prefix = append(slices.Clip(cascade.Each.Path()), document.Step{All: true})
	}
	for _, m := range cascade.Match {
		s.targetReads = append(s.targetReads, slices.Concat(prefix, m.Field.Path()))
		for _, field := range m.Value {
			s.sourceReads = append(s.sourceReads, field.Path())
		}
	}
	for _, set := range cascade.Set {
		s.sets = append(s.sets, setField{
			yaml: "spec.cascade.set." + set.Field.String(), target: slices.Concat(prefix, set.Field.Path()), values: []document.Path{set.Value.Path()},
		})
	}
}

func (s *Shape) aggregate(a *Aggregate) {
	s.targetReads, s.targetIs = Scope{}.reads(a.Where), a.Where.equalities()
	members := scopeOf(a.Each)
	// How many elements an array has decides every count, and no field of an
	// element does: counts stand for the one without the other.
	s.sourceReads = append(s.sourceReads, members.counts()...)
	var made []setField
	for _, m := range a.Match {
		value := members.refReads(m.Value)
		s.targetReads = append(s.targetReads, m.Field.Path())
		s.sourceReads = append(s.sourceReads, value...)
		made = append(made, setField{yaml: "spec.aggregate.match." + m.Field.String(), target: m.Field.Path(), values: value, made: true})
	}
	for i := range a.Set {
		field := a.Set[i].Field
		s.sets = append(s.sets, setField{yaml: "spec.aggregate.set." + field.String(), target: field.Path(), values: a.fieldReads(&a.Set[i].Value)})
	}
	// A target that is made gets the fields of match too. They are its identity
	// and never change, which is what made says.
	if a.Create {
		s.sets = append(s.sets, made...)
	}
}

// fieldReads returns what decides the value of a field beyond which members its
// group has.
func (a *Aggregate) fieldReads(f *AggregateField) (reads []document.Path) {
	s := scopeOf(a.Each, f.Each)
	if !f.Each.IsZero() {
		reads = append(reads, s.counts()...)
	}
	for _, of := range f.expressions() {
		reads = append(reads, s.reads(*of.e)...)
	}
	for _, kept := range f.Fields {
		reads = append(reads, s.refReads(kept)...)
	}
	return reads
}

// tableShapes returns a shape for each table of a projection into containers. A
// row is a whole item, which comes, goes and is written anew: besides a field for
// each column, it sets the item as such.
func tableShapes(of *Shape, database string, p *Project) []*Shape {
	var shapes []*Shape
	// A reject tells of whatever could not be computed, so it hangs on all that
	// any table reads.
	rejects := *of // may come of whatever is read
	for i := range p.Tables {
		s := *of
		s.Target = Metadata{p.Tables[i].Name, database}.String()
		s.table(&p.Tables[i])
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

func (s *Shape) table(t *NamedTable) {
	members := scopeOf(t.Each)
	s.sourceReads = slices.Concat(s.sourceReads, members.counts(), members.ofWhere().reads(t.Where))
	yaml := "spec.project.tables." + t.Name
	// The entry without a path is the row as such, which comes and goes: whoever
	// reads any item of the container depends on it.
	s.sets = []setField{{yaml: yaml}}
	for i := range t.Columns {
		column := &t.Columns[i]
		values := members.reads(column.Expr)
		if slices.Contains(t.Key, column.Name) {
			// What decides the key decides which row it is, not only one of its fields.
			s.sourceReads = append(s.sourceReads, values...)
		}
		// Other types may make of a constant what it is not.
		if value := column.Expr.constant(); value != nil && (column.Type == "" || column.Type == "json") {
			s.targetIs = append(s.targetIs, query.Equality{Path: []string{column.Name}, Value: value})
		}
		s.sets = append(s.sets, setField{yaml: yaml + ".columns." + column.Name, target: document.Path{{Name: column.Name}}, values: values, made: len(values) == 0})
	}
	s.whole = &s.sets[0]
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
			// type = "a" and type = "b" keep two pipelines apart for good, if no pipeline
			// sets type. If one does, an item can pass from one to the other, and a cycle
			// through both is possible.
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
