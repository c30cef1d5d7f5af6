package spatial

import (
	"cmp"
	"slices"

	"github.com/golang/geo/s2"
)

// Intersects reports whether two shapes have a place in common. Lines have their ends, and areas their borders.
func Intersects(one, two *Shape, work Budget) bool {
	for i := range one.sides {
		x := &one.sides[i]
		if !work(workPair * len(two.sides)) {
			return false
		}
		for j := range two.sides {
			y := &two.sides[j]
			if x.far(y) {
				continue
			}
			if !work(workNear) {
				return false
			}
			if x.touches(y) {
				return true
			}
		}
	}
	// No lines meet, so each ring, line or point lies wholly in the other shape or not at all.
	return one.anyIn(two, work) || two.anyIn(one, work)
}

// anyIn reports whether a ring, line or point of the shape, none of which meets a line of the other, lies within the other.
func (s *Shape) anyIn(of *Shape, work Budget) bool {
	if len(of.areas) == 0 {
		return false
	}
	if len(s.areas) == 0 {
		return of.find(s.sides[0].a, work) == inside
	}
	for i := range s.areas {
		for j := range s.areas[i].rings {
			if of.find(s.areas[i].rings[j].places[0], work) == inside {
				return true
			}
		}
	}
	return false
}

// Within reports whether a shape lies in another one, with all its places and not on the border alone. The border of a
// line is its two ends, unless they are one.
func Within(s, in *Shape, work Budget) bool {
	switch {
	case s.kind == Point:
		p := s.sides[0].a
		at := in.find(p, work)
		if in.kind == LineString && at == border {
			first, last := in.sides[0].a, in.sides[len(in.sides)-1].b
			return first == last || chord(p, first) > touch && chord(p, last) > touch
		}
		return at == inside || at == border && in.kind == Point
	case s.kind == LineString && in.kind == LineString:
		return every(s.sides, in.sides, func(p s2.Point) bool { return in.find(p, work) == border }, work)
	case s.kind == LineString && len(in.areas) > 0:
		most := outside
		return every(s.sides, in.sides, func(p s2.Point) bool {
			at := in.find(p, work)
			most = max(most, at)
			return at != outside
		}, work) && most == inside
	case len(s.areas) > 0 && len(in.areas) > 0:
		for i := range s.areas {
			if !s.areas[i].within(in, work) {
				return false
			}
		}
		return true
	}
	return false // an area in a line, or either in a point
}

// within reports whether the area lies in the shape.
func (a *area) within(in *Shape, work Budget) bool {
	// The border of the area lies in the shape, and no border of the shape lies inside of the area, so that the inside
	// of the area is wholly in the shape or wholly out of it; one place tells which.
	return every(a.sides, in.sides, func(p s2.Point) bool { return in.find(p, work) != outside }, work) &&
		every(in.sides, a.sides, func(p s2.Point) bool { return a.find(p, work) != inside }, work) &&
		in.find(a.inner(work), work) == inside
}

// inset is how far from its border the place lies that inner returns: 0.6 mm.
const inset = 1e-10

// inner returns a place inside of the area; if it is nowhere wide enough, one beside it.
func (a *area) inner(work Budget) (p s2.Point) {
	for i := range a.sides {
		s := &a.sides[i]
		left := s.a.PointCross(s.b).Normalize()
		p = s2.Point{Vector: s.mid.Add(left.Mul(inset)).Normalize()}
		if !work(workNear) || a.find(p, work) == inside {
			break
		}
	}
	return p
}

// every reports whether f is true of places in all pieces into which others cut the sides.
func every(sides, others []side, f func(p s2.Point) bool, work Budget) bool {
	for i := range sides {
		s := &sides[i]
		cuts := s.cuts(others, work)
		for j := 1; j < len(cuts); j++ {
			if !work(workNear) {
				return false
			}
			mid := s2.Point{Vector: cuts[j-1].Add(cuts[j].Vector).Normalize()}
			// What is shorter lies as near to a place of another piece as touches it.
			if chord(cuts[j-1], cuts[j]) > 4*touch && !f(mid) {
				return false
			}
		}
	}
	return true
}

// cuts returns the ends of the side and the places between them at which others meet it, in order.
func (s *side) cuts(others []side, work Budget) []s2.Point {
	cuts := []s2.Point{s.a, s.b}
	if !work(workPair * len(others)) {
		return cuts
	}
	for i := range others {
		t := &others[i]
		if s.far(t) {
			continue
		}
		if !work(workNear) {
			return cuts
		}
		if t.a != t.b && s2.CrossingSign(s.a, s.b, t.a, t.b) == s2.Cross {
			cuts = append(cuts, s2.Intersection(s.a, s.b, t.a, t.b))
		}
		for _, end := range []s2.Point{t.a, t.b} {
			if s.has(end) {
				cuts = append(cuts, end)
			}
		}
	}
	slices.SortFunc(cuts, func(x, y s2.Point) int { return cmp.Compare(chord(s.a, x), chord(s.a, y)) })
	return cuts
}
