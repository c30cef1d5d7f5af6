package spatial

import (
	"math"

	"github.com/golang/geo/s2"
)

// Distance returns how many metres two shapes are apart, along the ellipsoid; 0 if they have a place in common.
//
// Of two places it is exact but for the last digits. Of sides, the two nearest places are those whose directions are
// nearest to each other, which are as good as the nearest for all that is not half the Earth away: an angle is worth the
// same length in every direction but for some millionths, and 0.3 % less at a pole than at the equator.
func Distance(one, two *Shape, work Budget) float64 {
	if Intersects(one, two, work) {
		return 0
	}
	least := math.Inf(1)
	for i := range one.sides {
		x := &one.sides[i]
		if !work(workPair * len(two.sides)) {
			return 0
		}
		for j := range two.sides {
			y := &two.sides[j]
			// An angle is no less than its chord, and no length is less than at a pole.
			if (chord(x.mid, y.mid)-x.reach-y.reach)*polar >= least {
				continue
			}
			if !work(workSpan) {
				return 0
			}
			p, q := nearest(x, y)
			least = min(least, span(p, q))
		}
	}
	return least
}

// nearest returns the places of two sides that are nearest to each other.
func nearest(x, y *side) (p, q s2.Point) {
	switch {
	case x.a == x.b && y.a == y.b:
		return x.a, y.a
	case x.a == x.b:
		return x.a, s2.Project(x.a, y.a, y.b)
	case y.a == y.b:
		return s2.Project(y.a, x.a, x.b), y.a
	}
	return s2.EdgePairClosestPoints(x.a, x.b, y.a, y.b)
}

// The nodes and weights of Gauss and Legendre for ten nodes between -1 and 1; the other five mirror these.
var (
	gaussNodes   = [...]float64{0.14887433898163122, 0.4333953941292472, 0.6794095682990244, 0.8650633666889845, 0.9739065285171717}
	gaussWeights = [...]float64{0.29552422471475287, 0.26926671930999635, 0.21908636251598204, 0.1494513491505806, 0.06667134430868814}
)

// span returns the length in metres of the arc between two places in which the plane through them and the centre cuts the
// ellipsoid.
func span(p, q s2.Point) float64 {
	angle := float64(p.Distance(q))
	if angle == 0 {
		return 0
	}
	// Across the plane, at a right angle to p, towards q. Two opposite places lie in many planes; the arc through a
	// pole is the shortest.
	across := q.Sub(p.Mul(p.Dot(q.Vector)))
	if across.Norm() < 1e-12 && p.Dot(q.Vector) < 0 {
		pole := s2.PointFromCoords(0, 0, 1)
		if across = pole.Sub(p.Mul(p.Z)); across.Norm() < 1e-12 {
			across = s2.Ortho(p).Vector
		}
	}
	across = across.Normalize()
	// In the direction at the angle t from p the ellipsoid is 1/√g from the centre:
	//
	//	g(t) = A cos²t + 2C cos t sin t + B sin²t
	const flat, high = 1 / (radius * radius), 1 / (polar * polar)
	a := (p.X*p.X+p.Y*p.Y)*flat + p.Z*p.Z*high
	b := (across.X*across.X+across.Y*across.Y)*flat + across.Z*across.Z*high
	c := (p.X*across.X+p.Y*across.Y)*flat + p.Z*across.Z*high
	speed := func(t float64) float64 {
		sin, cos := math.Sincos(t)
		g := a*cos*cos + 2*c*cos*sin + b*sin*sin
		turn := 2*cos*sin*(b-a) + 2*c*(cos*cos-sin*sin)
		r := 1 / math.Sqrt(g)
		return math.Hypot(r, turn*r/(2*g))
	}
	sum := 0.0
	for i, node := range gaussNodes {
		sum += gaussWeights[i] * (speed(angle/2*(1-node)) + speed(angle/2*(1+node)))
	}
	return sum * angle / 2
}

// Area returns how many square metres of the ellipsoid a shape covers; 0 for points and lines.
func (s *Shape) Area(work Budget) float64 {
	sum := 0.0
	for i := range s.areas {
		for j := range s.areas[i].rings {
			r := s.areas[i].rings[j]
			if j == 0 {
				sum += r.area(work)
				continue
			}
			// What is to the right is taken away. It is small as a rule, and the rest of the Earth is not.
			hole := r.reversed()
			sum -= hole.area(work)
		}
	}
	return max(0, sum)
}

// A side is cut into pieces of at most pieceMax radians where its area is measured; a ring into about piecesMax at most.
const (
	pieceMax  = 0.01
	piecesMax = 1 << 17
)

// area returns how many square metres lie to the left of the ring.
func (r *ring) area(work Budget) float64 {
	length := 0.0
	n := len(r.places)
	for i, p := range r.places {
		length += float64(p.Distance(r.places[(i+1)%n]))
	}
	piece := max(pieceMax, length/piecesMax)
	if !work(workNear * (n + int(length/piece))) {
		return 0
	}
	// On a sphere of as much surface, with latitudes that keep areas, the area is a matter of angles. A side is no great
	// circle there, but a short piece of it nearly is.
	var places []s2.Point
	for i, p := range r.places {
		next := r.places[(i+1)%n]
		pieces := int(math.Ceil(float64(p.Distance(next)) / piece))
		for j := range max(1, pieces) {
			at := p
			if j > 0 {
				at = s2.Interpolate(float64(j)/float64(pieces), p, next)
			}
			if q := authalic(at); len(places) == 0 || places[len(places)-1] != q {
				places = append(places, q)
			}
		}
	}
	if len(places) > 1 && places[0] == places[len(places)-1] {
		places = places[:len(places)-1]
	}
	if len(places) < 3 {
		return 0
	}
	// The surface of the ellipsoid is that of the sphere with this radius.
	e := math.Sqrt(eccentricity2)
	square := radius * radius / 2 * (1 + (1-eccentricity2)/e*math.Atanh(e))
	return s2.LoopFromPoints(places).Area() * square
}

// authalic returns the direction of a place on the sphere on which areas are as on the ellipsoid: by J. P. Snyder, Map
// Projections: A Working Manual, 1987, equation 3-18.
func authalic(p s2.Point) s2.Point {
	const (
		e2 = eccentricity2
		e4 = e2 * e2
		e6 = e4 * e2
	)
	across := math.Hypot(p.X, p.Y)
	lat := math.Atan2(p.Z/(1-e2), across)
	lat += -(e2/3+31*e4/180+59*e6/560)*math.Sin(2*lat) + (17*e4/360+61*e6/1260)*math.Sin(4*lat) - 383*e6/45360*math.Sin(6*lat)
	if across == 0 {
		return p
	}
	sin, cos := math.Sincos(lat)
	return s2.PointFromCoords(p.X/across*cos, p.Y/across*cos, sin)
}
