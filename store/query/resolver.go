package query

import (
	"maps"
	"slices"
)

// resolver writes paths behind aliases as those of the item.
type resolver struct{ sources map[int]*path }

// newResolver knows what the outer one knows, and the sources of a selection. A
// source of IN stands for the path of its array.
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
		to, ok = r.whole(to)
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

// whole returns a path as one of the item.
func (r *resolver) whole(p *path) (*path, bool) {
	if p.root == 0 {
		return p, true
	}
	to, ok := r.sources[p.root]
	if !ok {
		return nil, false
	}
	return &path{steps: slices.Concat(to.steps, p.steps)}, true
}

// resolve returns the properties that n is a path of: those of the item or, if each
// is not nil, those within an element of the array there.
func (r *resolver) resolve(n node) (names, each []string, ok bool) {
	p, ok := n.(*path)
	if !ok {
		return nil, nil, false
	}
	if p, ok = r.whole(p); !ok {
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
