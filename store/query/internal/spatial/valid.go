package spatial

import (
	"cmp"
	"slices"

	"github.com/golang/geo/s2"
)

const touchesItself = "The Polygon input is not valid because the ring number %d crosses or touches itself."

// simple refuses an area if sides of it cross, or if a ring comes back to where it was.
func (r *reader) simple(a *area, begins []int) bool {
	ringOf := make([]int, len(a.sides))
	for i, begin := range begins {
		for j := begin; j < begin+len(a.rings[i].places); j++ {
			ringOf[j] = i
		}
	}
	sweep(a.sides, func(i, j int) bool {
		if !r.work(workNear) {
			return false
		}
		x, y := &a.sides[i], &a.sides[j]
		one, two := ringOf[i]+1, ringOf[j]+1
		n := len(a.rings[one-1].places)
		apart := i - j
		switch {
		case one != two:
			if s2.CrossingSign(x.a, x.b, y.a, y.b) == s2.Cross {
				return r.refuse("The Polygon input is not valid because the rings number %d and %d cross.", min(one, two), max(one, two))
			}
		case apart == 1 || apart == -1 || apart == n-1 || apart == 1-n:
			// Neighbours have a corner in common and nothing else.
			if x.b != y.a {
				x, y = y, x
			}
			if x.has(y.b) || y.has(x.a) {
				return r.refuse(touchesItself, one)
			}
		case x.touches(y):
			return r.refuse(touchesItself, one)
		}
		return true
	}, r.work)
	return r.reason == nil
}

// sweep calls f with the numbers of any two sides that may touch, until it returns false.
func sweep(sides []side, f func(i, j int) bool, work Budget) {
	// In the order of their lowest places a side meets only such as begin before it ends.
	order := make([]int, len(sides))
	for i := range order {
		order[i] = i
	}
	low := func(i int) float64 { return sides[i].mid.Z - sides[i].reach }
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(low(i), low(j)), i-j) })
	for n, i := range order {
		high := sides[i].mid.Z + sides[i].reach + touch
		for _, j := range order[n+1:] {
			if low(j) > high || !work(workPair) {
				break
			}
			if !sides[i].far(&sides[j]) && !f(i, j) {
				return
			}
		}
	}
}

// holes turns the rings within the first one so that the area lies to their left, and refuses those that do not lie there.
func (r *reader) holes(a *area, begins []int) bool {
	outer := area{rings: a.rings[:1], sides: a.sides[:len(a.rings[0].places)]}
	for i := 1; i < len(a.rings); i++ {
		hole := &a.rings[i]
		sides := a.sides[begins[i] : begins[i]+len(hole.places)]
		for _, p := range hole.places {
			if outer.find(p, r.work) == outside {
				return r.refuse("The Polygon input is not valid because the ring number %d lies outside of the first ring.", i+1)
			}
		}
		within := area{rings: a.rings[i : i+1], sides: sides}
		switch lies(&outer, &within, r.work) {
		case border:
			return r.refuse("The Polygon input is not valid because the ring number %d is the first ring once more.", i+1)
		case outside:
			*hole = hole.reversed()
			slices.Reverse(sides)
			for j := range sides {
				sides[j].a, sides[j].b = sides[j].b, sides[j].a
			}
		case inside:
		}
	}
	for i := 1; i < len(a.rings); i++ {
		for j := 1; j < len(a.rings); j++ {
			one := area{rings: a.rings[i : i+1], sides: a.sides[begins[i] : begins[i]+len(a.rings[i].places)]}
			two := area{rings: a.rings[j : j+1], sides: a.sides[begins[j] : begins[j]+len(a.rings[j].places)]}
			if i != j && lies(&one, &two, r.work) != inside {
				return r.refuse("The Polygon input is not valid because the ring number %d lies within the ring number %d.", i+1, j+1)
			}
		}
	}
	return true
}

// lies returns where one area's outer ring lies in another area: where its first place lies that is on no border.
func lies(one, in *area, work Budget) where {
	for _, p := range one.rings[0].places {
		if at := in.find(p, work); at != border {
			return at
		}
	}
	return border
}

// apart refuses a MultiPolygon whose polygons overlap.
func (r *reader) apart(s *Shape) {
	if r.reason != nil || len(s.areas) < 2 {
		return
	}
	var areaOf []int
	for i := range s.areas {
		for range s.areas[i].sides {
			areaOf = append(areaOf, i)
		}
	}
	overlap := func(i, j int) bool {
		return r.refuse("The MultiPolygon input is not valid because the polygons number %d and %d overlap.", min(i, j)+1, max(i, j)+1)
	}
	sweep(s.sides, func(i, j int) bool {
		if areaOf[i] == areaOf[j] {
			return true
		}
		if !r.work(workNear) {
			return false
		}
		x, y := &s.sides[i], &s.sides[j]
		return s2.CrossingSign(x.a, x.b, y.a, y.b) != s2.Cross || overlap(areaOf[i], areaOf[j])
	}, r.work)
	for i := range s.areas {
		for j := range s.areas {
			if r.reason != nil || !r.work(workPair) {
				return
			}
			if i != j && lies(&s.areas[i], &s.areas[j], r.work) != outside {
				overlap(i, j)
			}
		}
	}
}
