package spatial

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/golang/geo/s2"

	"github.com/millrace/millrace/feed/document"
)

// ErrSpent says that the budget was spent before a shape was read.
var ErrSpent = errors.New("spatial: the budget is spent")

// reader reads one shape.
type reader struct {
	work   Budget
	left   int // how many positions there may still be
	reason error
}

// refuse notes the first reason why the text is no valid shape.
func (r *reader) refuse(format string, args ...any) bool {
	if r.reason == nil {
		r.reason = fmt.Errorf(format, args...)
	}
	return false
}

// Read reads an object of GeoJSON, of valid JSON. An error other than ErrSpent tells people why it is no valid shape.
func Read(raw []byte, work Budget) (*Shape, error) {
	if !work(workByte * len(raw)) {
		return nil, ErrSpent
	}
	// Once more is asked for than there is, nothing that was found since means anything.
	spent := false
	counted := func(n int) bool {
		spent = spent || !work(n)
		return !spent
	}
	r := &reader{work: counted, left: PlacesMax}
	s := r.shape(raw)
	switch {
	case spent:
		return nil, ErrSpent
	case r.reason != nil:
		return nil, r.reason
	}
	return s, nil
}

// shape reads the object.
func (r *reader) shape(raw []byte) *Shape {
	var kind, coordinates []byte
	document.Members(raw, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			kind = value
		case "coordinates":
			coordinates = value
		}
		return true
	})
	s := &Shape{}
	switch string(kind) {
	case `"Point"`:
		s.kind = Point
		if p, ok := r.position(coordinates); ok {
			s.sides = []side{{a: p, b: p, mid: p}}
		}
	case `"LineString"`:
		s.kind = LineString
		r.line(s, coordinates)
	case `"Polygon"`:
		s.kind = Polygon
		r.polygon(s, coordinates)
	case `"MultiPolygon"`:
		s.kind = MultiPolygon
		r.each(coordinates, "The coordinates of a MultiPolygon are an array of those of polygons.", func(polygon []byte) bool {
			return r.polygon(s, polygon)
		})
		if r.reason == nil && len(s.areas) == 0 {
			r.refuse("The MultiPolygon input is not valid because it has no polygon.")
		}
		r.apart(s)
	default:
		r.refuse("The input is not a GeoJSON object of the type Point, LineString, Polygon or MultiPolygon.")
	}
	return s
}

// each calls f for the elements of an array until it returns false. Of another value reason says what it ought to be.
func (r *reader) each(raw []byte, reason string, f func(element []byte) bool) {
	if len(raw) == 0 || raw[0] != '[' {
		r.refuse("%s", reason)
		return
	}
	document.Elements(raw, func(_ int, element []byte) bool { return f(element) && r.reason == nil })
}

// position reads a longitude and a latitude. What follows them, such as an altitude, is passed over, but must be a number.
func (r *reader) position(raw []byte) (p s2.Point, ok bool) {
	const reason = "A position is an array of at least two numbers: longitude and latitude."
	var of [2]float64
	n := 0
	r.each(raw, reason, func(number []byte) bool {
		x, err := strconv.ParseFloat(string(number), 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			return r.refuse("%s", reason)
		}
		if n < len(of) {
			of[n] = x
		}
		n++
		return true
	})
	r.left--
	switch {
	case r.reason != nil:
	case n < len(of):
		r.refuse("%s", reason)
	case of[0] < -180 || of[0] > 180:
		r.refuse("Longitude values must be between -180 and 180 degrees.")
	case of[1] < -90 || of[1] > 90:
		r.refuse("Latitude values must be between -90 and 90 degrees.")
	case r.left < 0:
		r.refuse("The input has more than %d positions.", PlacesMax)
	}
	return place(of[0], of[1]), r.reason == nil
}

// positions reads an array of positions. n is how many there are; one that is like the one before it is left out.
func (r *reader) positions(raw []byte) (places []s2.Point, n int) {
	r.each(raw, "Coordinates are an array of positions.", func(position []byte) bool {
		p, ok := r.position(position)
		if n++; ok && (places == nil || places[len(places)-1] != p) {
			places = append(places, p)
		}
		return ok
	})
	return places, n
}

// join returns the sides between places that follow each other.
func (r *reader) join(places []s2.Point) []side {
	sides := make([]side, 0, len(places))
	for i := 1; i < len(places); i++ {
		s, ok := newSide(places[i-1], places[i])
		if !ok {
			r.refuse("The input is not valid because two positions that follow each other are opposite on Earth.")
			return nil
		}
		sides = append(sides, s)
	}
	return sides
}

// line reads the coordinates of a LineString.
func (r *reader) line(s *Shape, raw []byte) {
	places, _ := r.positions(raw)
	if r.reason == nil && len(places) < 2 {
		r.refuse("The LineString input is not valid because it has fewer than two distinct positions.")
	}
	s.sides = r.join(places)
}

// polygon reads the coordinates of a Polygon and adds its area to the shape.
func (r *reader) polygon(s *Shape, raw []byte) bool {
	var a area
	var begins []int // the first side of each ring
	r.each(raw, "The coordinates of a Polygon are an array of rings.", func(coordinates []byte) bool {
		number := len(a.rings) + 1
		places, n := r.positions(coordinates)
		closed := len(places) > 0 && places[0] == places[len(places)-1]
		switch {
		case r.reason != nil:
			return false
		case n > 0 && !closed:
			return r.refuse("The Polygon input is not valid because the start and end points of the ring number %d are not the same. "+
				"Each ring of a polygon must have the same start and end points.", number)
		case n < 4 || len(places) < 4:
			return r.refuse("The Polygon input is not valid because the ring number %d has fewer than four positions, or fewer than three distinct ones.", number)
		}
		sides := r.join(places)
		if r.reason != nil {
			return false
		}
		begins = append(begins, len(a.sides))
		a.sides = append(a.sides, sides...)
		a.rings = append(a.rings, newRing(places[:len(places)-1], r.work))
		return true
	})
	if r.reason == nil && len(a.rings) == 0 {
		r.refuse("The Polygon input is not valid because it has no ring.")
	}
	if r.reason == nil && r.simple(&a, begins) && r.holes(&a, begins) {
		s.areas = append(s.areas, a)
		if s.kind == Polygon {
			s.sides = a.sides
		} else {
			s.sides = append(s.sides, a.sides...)
		}
	}
	return r.reason == nil
}
