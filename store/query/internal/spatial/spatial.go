// Package spatial relates and measures places on Earth that are written in GeoJSON: points, lines, polygons and
// multipolygons.
//
// The Earth is the ellipsoid of WGS-84. A side is the arc in which a plane through two places and the centre of the
// Earth cuts it, which is what the service measures too: the examples in its documentation give these lengths and areas
// to ten digits. Seen from the centre such an arc is a part of a great circle. So a place is kept as its direction from
// the centre, and s2 relates the directions:
//
//	longitude, latitude  --place-->  direction  --s2-->  crossing, inside, nearest
//	                                    |
//	                                    +--span-->  metres along the ellipsoid
//
// A polygon is what lies to the left of its outer ring, so one whose ring runs clockwise is all the Earth but for what the
// ring encloses. A hole takes away the side on which the outer ring is not, whichever way it runs.
//
// Every function that takes long counts its work by a Budget, and gives up when that is spent; its result then means
// nothing. A Shape does not change once it is read, so any number of goroutines may use it.
package spatial

import (
	"math"
	"slices"

	"github.com/golang/geo/r3"
	"github.com/golang/geo/s1"
	"github.com/golang/geo/s2"
)

// The ellipsoid of WGS-84.
const (
	radius     = 6378137.0 // at the equator, in metres
	flattening = 1 / 298.257223563
	polar      = radius * (1 - flattening)
	// eccentricity2 is the square of its eccentricity.
	eccentricity2 = flattening * (2 - flattening)
)

// PlacesMax bounds the positions of a shape.
const PlacesMax = 1 << 16

// PlaceBytes is about how much memory a position of a shape takes while a function of shapes runs.
const PlaceBytes = 256

// touch is how near two places lie that count as one, in radians: 60 nanometres, some hundred times the error of what is
// computed.
const touch = 1e-14

// The costs of work, in units of about a nanosecond.
const (
	workByte  = 8   // a byte that is read
	workPair  = 4   // two sides that are seen to be far from each other
	workNear  = 400 // two sides that may touch
	workPlace = 24  // a side that is passed on the way to a place
	workSpan  = 1000
)

// placesAtOnce is how many sides are passed between two looks at the budget.
const placesAtOnce = 256

// Budget counts work. It returns false when no more may be done.
type Budget func(work int) bool

// Kind is a kind of shape.
type Kind uint8

// The kinds of shapes.
const (
	Point Kind = iota
	LineString
	Polygon
	MultiPolygon
)

// Shape is a place, a line or an area. A MultiPolygon has any number of areas.
type Shape struct {
	kind  Kind
	areas []area // of a Polygon or a MultiPolygon
	sides []side // all of them; of a Point one without length
}

// area is a polygon. The area lies to the left of all its rings.
type area struct {
	rings []ring
	sides []side
}

// ring is a closed line.
type ring struct {
	places       []s2.Point
	originInside bool // s2.OriginPoint lies to the left
}

// side is an arc, shorter than half of a circle.
type side struct {
	a, b  s2.Point
	mid   s2.Point
	reach float64 // no place of the side is farther from mid, through the Earth
}

// place returns a direction from the centre of the Earth.
func place(longitude, latitude float64) s2.Point {
	if longitude == -180 {
		longitude = 180 // the same meridian in the same bits
	}
	lng, lat := longitude*math.Pi/180, latitude*math.Pi/180
	across := math.Cos(lat)
	if math.Abs(latitude) == 90 {
		across = 0
	}
	v := r3.Vector{X: across * math.Cos(lng), Y: across * math.Sin(lng), Z: (1 - eccentricity2) * math.Sin(lat)}
	return s2.Point{Vector: v.Normalize()}
}

// oppositeMax is how near to each other's opposite the ends of a side may lie: nearer, it has no direction.
const oppositeMax = 1e-9

// newSide returns the side from a to b; ok is false if they are opposite to each other.
func newSide(a, b s2.Point) (s side, ok bool) {
	sum := a.Add(b.Vector)
	if sum.Norm() < oppositeMax {
		return side{}, false
	}
	mid := s2.Point{Vector: sum.Normalize()}
	reach := max(chord(mid, a), chord(mid, b)) + 1e-15/sum.Norm()
	return side{a: a, b: b, mid: mid, reach: reach}, true
}

// chord returns the distance of two directions through the unit sphere.
func chord(a, b s2.Point) float64 { return a.Sub(b.Vector).Norm() }

// far reports whether two sides certainly do not touch.
func (s *side) far(t *side) bool {
	sum := s.reach + t.reach + touch
	return s.mid.Sub(t.mid.Vector).Norm2() > sum*sum
}

// has reports whether a place lies on the side, its ends included.
func (s *side) has(p s2.Point) bool {
	reach := s.reach + touch
	if s.mid.Sub(p.Vector).Norm2() > reach*reach {
		return false
	}
	if s.a == s.b {
		return true
	}
	return s2.IsDistanceLess(p, s.a, s.b, s1.ChordAngle(touch*touch))
}

// touches reports whether two sides have a place in common.
func (s *side) touches(t *side) bool {
	if s.a != s.b && t.a != t.b && s2.CrossingSign(s.a, s.b, t.a, t.b) != s2.DoNotCross {
		return true
	}
	return s.has(t.a) || s.has(t.b) || t.has(s.a) || t.has(s.b)
}

// newRing returns a ring of at least three places, each of them once.
func newRing(places []s2.Point, work Budget) ring {
	r := ring{places: places}
	// Whether s2's origin is inside follows from a corner, of which the angle tells.
	r.originInside = r.contains(places[1], work) != s2.AngleContainsVertex(places[0], places[1], places[2])
	return r
}

// contains reports whether a place lies to the left of the ring. Of a place on the ring the answer is either one.
func (r *ring) contains(p s2.Point, work Budget) bool {
	in := r.originInside
	crosser := s2.NewChainEdgeCrosser(s2.OriginPoint(), p, r.places[len(r.places)-1])
	// Some at a time: a side that lies in one plane with the two ends may take much longer than others.
	for some := range slices.Chunk(r.places, placesAtOnce) {
		if !work(workPlace * len(some)) {
			return false
		}
		for _, next := range some {
			if crosser.EdgeOrVertexChainCrossing(next) {
				in = !in
			}
		}
	}
	return in
}

// reversed returns the ring that runs the other way.
func (r *ring) reversed() ring {
	n := len(r.places)
	places := make([]s2.Point, n)
	for i, p := range r.places {
		places[n-1-i] = p
	}
	return ring{places: places, originInside: !r.originInside}
}

// where is where a place lies.
type where int8

const (
	outside where = -1
	border  where = 0 // a place on a line, and on a point, is there too
	inside  where = 1
)

// on reports whether a place lies on one of the sides.
func on(sides []side, p s2.Point, work Budget) bool {
	if !work(workPair * len(sides)) {
		return false
	}
	for i := range sides {
		if sides[i].has(p) {
			return true
		}
	}
	return false
}

// find returns where a place lies.
func (a *area) find(p s2.Point, work Budget) where {
	if on(a.sides, p, work) {
		return border
	}
	for i := range a.rings {
		if !a.rings[i].contains(p, work) {
			return outside
		}
	}
	return inside
}

// find returns where a place lies.
func (s *Shape) find(p s2.Point, work Budget) where {
	if len(s.areas) == 0 {
		if on(s.sides, p, work) {
			return border
		}
		return outside
	}
	at := outside
	for i := range s.areas {
		at = max(at, s.areas[i].find(p, work))
	}
	return at
}
