package pipelines

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/store/document"
	"github.com/millrace/millrace/store/query"
)

// shape is which fields a pipeline reads and writes, for what is checked between
// pipelines. Containers are named database/name.
type shape struct {
	source, target string
	// sourceIs and targetIs are what the wheres say of every item: path = value.
	sourceIs, targetIs []query.Equality
	// sourceReads and targetReads decide which copies there are: where and match.
	sourceReads, targetReads []document.Path
	sets                     []setField
}

// setField is one entry of set.
type setField struct {
	yaml   string        // path of the entry in the document
	target document.Path // from the root of the target's item
	value  document.Path // in the source item
}

// shapeOf returns the shape of p, nil if a part of it does not parse.
func (c *checker) shapeOf(p *knownPipeline) *shape {
	cascade := p.spec.Cascade
	if cascade == nil {
		return nil
	}
	s := &shape{
		source: Metadata{p.spec.Source.Container, p.Database}.String(),
		target: Metadata{cascade.Into, p.Database}.String(),
	}
	var err error
	if s.sourceReads, s.sourceIs, err = whereFields(p.spec.Source.Where); err != nil {
		return nil
	}
	if s.targetReads, s.targetIs, err = whereFields(cascade.Where); err != nil {
		return nil
	}
	var prefix document.Path
	if cascade.Each != "" {
		if prefix, err = document.ParseField(cascade.Each); err != nil {
			return nil
		}
		prefix = append(prefix, document.Step{All: true})
	}
	for _, name := range slices.Sorted(maps.Keys(cascade.Match)) {
		target, value, ok := pair(prefix, name, cascade.Match[name])
		if !ok {
			return nil
		}
		s.targetReads = append(s.targetReads, target)
		s.sourceReads = append(s.sourceReads, value)
	}
	for _, name := range slices.Sorted(maps.Keys(cascade.Set)) {
		target, value, ok := pair(prefix, name, cascade.Set[name])
		if !ok {
			return nil
		}
		s.sets = append(s.sets, setField{"spec.cascade.set." + name, target, value})
	}
	return s
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

// whereFields returns what an expression reads, and what it says is equal.
func whereFields(text string) (reads []document.Path, is []query.Equality, err error) {
	if text == "" {
		return nil, nil, nil
	}
	e, err := query.ParseExpr(text)
	if err != nil {
		return nil, nil, err
	}
	for _, names := range e.Paths() {
		reads = append(reads, named(names))
	}
	return reads, e.Equalities(), nil
}

func named(names []string) document.Path {
	p := make(document.Path, len(names))
	for i, n := range names {
		p[i] = document.Step{Name: n}
	}
	return p
}

// overlap tells whether one of two paths may lead into what the other does.
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

// setPaths returns, for each container, the paths that pipelines set: all others
// change by clients alone, and a where on them divides the items for good.
func (c *checker) setPaths() map[string][]document.Path {
	set := map[string][]document.Path{}
	for _, p := range c.pipelines {
		if p.shape == nil {
			continue
		}
		for _, s := range p.shape.sets {
			set[p.shape.target] = append(set[p.shape.target], s.target)
		}
	}
	return set
}
