package query

import (
	"maps"
	"slices"
)

// resolver translates paths of aliases to paths of the item:
//
//	FROM c JOIN t IN c.tags    t.id is c.tags[each].id
type resolver struct{ sources map[int]*path }

// newResolver returns a resolver with the sources of the outer one and of a selection. Sources
// that are subqueries are left out: their values are no paths of the item.
func newResolver(outer *resolver, s *selection) *resolver {
	r := &resolver{make(map[int]*path)}
	if outer != nil {
		maps.Copy(r.sources, outer.sources)
	}
	for _, f := range s.from {
		to, ok := f.of.(*path)
		if !ok {
			continue
		}
		to, ok = r.ofItem(to)
		switch {
		case !ok:
		case f.each:
			r.sources[f.slot] = to.child(step{isIndex: true, index: eachIndex})
		default:
			r.sources[f.slot] = to
		}
	}
	return r
}

// eachIndex is the step from an array to any of its elements.
const eachIndex = -1

// ofItem returns p as a path of the item; ok is false if its root is not known.
func (r *resolver) ofItem(p *path) (*path, bool) {
	if p.root == 0 {
		return p, true
	}
	to, ok := r.sources[p.root]
	if !ok {
		return nil, false
	}
	return &path{steps: slices.Concat(to.steps, p.steps)}, true
}

// resolve returns the properties that n is a path of. If each is not nil, it is the path of an
// array in the item, and names are properties within an element. ok is false for every
// other expression, and for an array within an array.
func (r *resolver) resolve(n node) (names, each []string, ok bool) {
	p, ok := n.(*path)
	if !ok {
		return nil, nil, false
	}
	if p, ok = r.ofItem(p); !ok {
		return nil, nil, false
	}
	for _, s := range p.steps {
		switch {
		case !s.isIndex:
			names = append(names, s.name)
		case s.index == eachIndex && each == nil && len(names) > 0:
			each, names = names, nil
		default:
			return nil, nil, false
		}
	}
	return names, each, len(names) > 0 || each != nil
}
