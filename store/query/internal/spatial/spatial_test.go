package spatial_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/query/internal/spatial"
)

func unbounded(int) bool { return true }

// read reads a shape from its kind and its coordinates.
func read(t *testing.T, text string) *spatial.Shape {
	t.Helper()
	s, err := spatial.Read([]byte(geoJSON(text)), unbounded)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// geoJSON returns the object of a kind and its coordinates: Point[1,2].
func geoJSON(text string) string {
	kind, coordinates, _ := strings.Cut(text, "[")
	return `{"type":"` + kind + `","coordinates":[` + coordinates + `}`
}

// box returns a polygon around a rectangle, whose sides are no parallels.
func box(west, south, east, north int) string {
	return "Polygon[" + ring(west, south, east, north) + "]"
}

func ring(west, south, east, north int) string {
	return fmt.Sprintf("[[%d,%d],[%d,%d],[%d,%d],[%d,%d],[%d,%d]]", west, south, east, south, east, north, west, north, west, south)
}

// inverse is box with its ring the other way round.
func inverse(west, south, east, north int) string {
	return "Polygon[" + back(west, south, east, north) + "]"
}

func back(west, south, east, north int) string {
	return fmt.Sprintf("[[%d,%d],[%d,%d],[%d,%d],[%d,%d],[%d,%d]]", west, south, west, north, east, north, east, south, west, south)
}

// The lengths and the area that the service's documentation shows, for st_distance and st_area, and lengths along the
// meridian and the equator, which tables give.
func TestMeasures(t *testing.T) {
	for _, c := range []struct {
		one, two string
		want     float64
		error    float64 // of the parts that the last digits are of
	}{
		{"Point[-122.12826822304672,47.63980239335718]", "Point[-122.11758113953535,47.66901087006131]", 3345.269817267368, 3e-8},
		{"Point[-96.84368664765994,46.81297794314663]", "Point[-122.11758113953535,47.66901087006131]", 1907438.421299902, 3e-11},
		{"Point[0,0]", "Point[0,90]", 10001965.729312744, 1e-9},
		{"Point[7,0]", "Point[8,0]", 6378137 * math.Pi / 180, 1e-14},
		{"Point[0,90]", "Point[120,-90]", 20003931.458625488, 1e-9},
		{"Point[0,0]", "Point[180,0]", 20003931.458625488, 1e-9},
		{"Point[0,90]", "Point[77,90]", 0, 0},
		{"Point[180,5]", "Point[-180,5]", 0, 0},
		{"Point[179.5,0]", "Point[-179.5,0]", 6378137 * math.Pi / 180, 1e-13},
		{"Point[1,1]", "Point[1,1,500]", 0, 0},
		{"Point[5,1]", "LineString[[0,0],[10,0]]", 110574.38855779878, 1e-9},
		{"LineString[[0,1],[10,1]]", "LineString[[0,2],[-5,5]]", 110575.06481433614, 2e-6},
		{"Point[5,-1]", box(0, 0, 10, 10), 110574.38855779878, 1e-9},
		{"Point[5,5]", "Polygon[" + ring(0, 0, 10, 10) + "," + back(4, 4, 6, 6) + "]", 110485.98, 1e-3},
		{box(0, 0, 1, 1), "MultiPolygon[[" + ring(40, 0, 50, 10) + "],[" + ring(2, 0, 3, 1) + "]]", 111302.64933943081, 1e-11},
		{box(0, 0, 10, 10), box(5, 5, 15, 15), 0, 0},
	} {
		one, two := read(t, c.one), read(t, c.two)
		got, mirrored := spatial.Distance(one, two, unbounded), spatial.Distance(two, one, unbounded)
		if math.Abs(got-c.want) > c.want*c.error || math.Abs(got-mirrored) > got*1e-12 {
			t.Errorf("from %s to %s are %.6f m, and back %.6f m, want %.6f m", c.one, c.two, got, mirrored, c.want)
		}
	}
	const surface = 510065621724088.44 // of the whole ellipsoid
	for _, c := range []struct {
		shape       string
		want, error float64
	}{
		{"Polygon[[[31.8,-5],[32,-5],[32,-4.7],[31.8,-4.7],[31.8,-5]]]", 735970283.0522614, 2e-10},
		{"Polygon[[[0,0],[90,0],[0,90],[0,0]]]", surface / 8, 1e-9},
		{"Polygon[[[0,0],[0,90],[90,0],[0,0]]]", surface * 7 / 8, 1e-9},
		{"Polygon[[[0,0],[120,0],[-120,0],[0,0]]]", surface / 2, 1e-9},
		{"MultiPolygon[[[[0,0],[90,0],[0,90],[0,0]]],[[[-170,-1],[-171,-1],[-90,-90],[-170,-1]]]]", surface/8 + surface/2/360*0.9825, 2e-5},
		{"Point[1,2]", 0, 0},
		{"LineString[[1,2],[3,4]]", 0, 0},
	} {
		if got := read(t, c.shape).Area(unbounded); math.Abs(got-c.want) > c.want*c.error {
			t.Errorf("%s covers %.6g m², want %.6g m²: %g", c.shape, got, c.want, got/c.want-1)
		}
	}
	whole, hole := read(t, box(0, 0, 10, 10)).Area(unbounded), read(t, box(4, 4, 6, 6)).Area(unbounded)
	for _, ring := range []string{ring(4, 4, 6, 6), back(4, 4, 6, 6)} {
		if got := read(t, "Polygon["+"[[0,0],[10,0],[10,10],[0,10],[0,0]],"+ring+"]").Area(unbounded); math.Abs(got-whole+hole) > 1 {
			t.Errorf("with the hole %s the area is %g, want %g", ring, got, whole-hole)
		}
	}
}

func TestRelations(t *testing.T) {
	holed := "Polygon[" + ring(0, 0, 10, 10) + "," + back(4, 4, 6, 6) + "]"
	islands := "MultiPolygon[[" + ring(0, 0, 10, 10) + "],[" + ring(20, 0, 30, 10) + "]]"
	antimeridian := "Polygon[[[170,-10],[-170,-10],[-170,10],[170,10],[170,-10]]]"
	northern := "Polygon[[[0,70],[120,70],[-120,70],[0,70]]]"
	for _, c := range []struct {
		one, two                 string
		intersects, within, back bool // back: two lies within one
	}{
		{"Point[1,1]", "Point[1,1]", true, true, true},
		{"Point[1,1]", "Point[1,1.0000001]", false, false, false},
		{"Point[33,90]", "Point[0,90]", true, true, true},
		{"Point[5,5]", box(0, 0, 10, 10), true, true, false},
		{"Point[0,5]", box(0, 0, 10, 10), true, false, false}, // on its border
		{"Point[0,0]", box(0, 0, 10, 10), true, false, false},
		{"Point[15,5]", box(0, 0, 10, 10), false, false, false},
		{"Point[5,5]", inverse(0, 0, 10, 10), false, false, false},
		{"Point[-100,-80]", inverse(0, 0, 10, 10), true, true, false},
		{"Point[5,5]", holed, false, false, false},
		{"Point[4,5]", holed, true, false, false},
		{"Point[2,2]", holed, true, true, false},
		{"Point[25,5]", islands, true, true, false},
		{"Point[15,5]", islands, false, false, false},
		{"Point[180,0]", antimeridian, true, true, false},
		{"Point[-180,0]", antimeridian, true, true, false},
		{"Point[0,0]", antimeridian, false, false, false},
		{"Point[12,90]", northern, true, true, false},
		{"Point[12,80]", northern, true, true, false},
		{"Point[12,60]", northern, false, false, false},
		{"Point[5,0]", "LineString[[0,0],[10,0]]", true, true, false},
		{"Point[0,0]", "LineString[[0,0],[10,0]]", true, false, false}, // its end
		{"Point[0,0]", "LineString[[0,0],[10,0],[5,5],[0,0]]", true, true, false},
		{"Point[5,1]", "LineString[[0,0],[10,0]]", false, false, false},
		{"LineString[[2,0],[8,0]]", "LineString[[0,0],[5,0],[10,0]]", true, true, false},
		{"LineString[[2,0],[11,0]]", "LineString[[0,0],[10,0]]", true, false, false},
		{"LineString[[2,-1],[2,1]]", "LineString[[0,0],[10,0]]", true, false, false},
		{"LineString[[2,1],[2,3]]", "LineString[[0,0],[10,0]]", false, false, false},
		{"LineString[[1,1],[9,9]]", box(0, 0, 10, 10), true, true, false},
		{"LineString[[0,0],[9,9]]", box(0, 0, 10, 10), true, true, false},
		{"LineString[[0,1],[0,9]]", box(0, 0, 10, 10), true, false, false}, // along its border
		{"LineString[[1,1],[19,9]]", box(0, 0, 10, 10), true, false, false},
		{"LineString[[1,1],[9,9]]", holed, true, false, false},
		{"LineString[[4.5,4.5],[5.5,5.5]]", holed, false, false, false},
		{"LineString[[5,5],[25,5]]", islands, true, false, false},
		{"LineString[[11,5],[19,5]]", islands, false, false, false},
		{box(1, 1, 9, 9), box(0, 0, 10, 10), true, true, false},
		{box(0, 0, 10, 10), box(0, 0, 10, 10), true, true, true},
		{box(0, 0, 5, 10), box(0, 0, 10, 10), true, true, false}, // the longer arc between two places of a parallel lies farther north
		{"Polygon[[[0,0],[5,0],[5,5],[0,5],[0,0]]]", box(0, 0, 10, 10), true, true, false},
		{box(5, 5, 15, 15), box(0, 0, 10, 10), true, false, false},
		{box(20, 20, 30, 30), box(0, 0, 10, 10), false, false, false},
		{box(0, -10, 10, 0), box(0, 0, 10, 10), true, false, false}, // they share a side
		{box(3, 3, 7, 7), holed, true, false, false},
		{box(4, 4, 6, 6), holed, true, false, false}, // what fills its hole
		{"Polygon[[[4.5,4.5],[5.5,4.5],[5.5,5.5],[4.5,5.5],[4.5,4.5]]]", holed, false, false, false},
		{box(0, 0, 10, 10), holed, true, false, true},
		{box(1, 1, 3, 3), holed, true, true, false},
		{box(22, 2, 24, 4), islands, true, true, false},
		{islands, box(-1, -1, 31, 11), true, true, false},
		{islands, box(-1, -1, 11, 11), true, false, false},
		{inverse(0, 0, 10, 10), inverse(20, 0, 30, 10), true, false, false},
		{inverse(0, 0, 10, 10), inverse(1, 1, 9, 9), true, true, false},
		{inverse(0, 0, 10, 10), box(1, 1, 9, 9), false, false, false},
		{box(20, 20, 30, 30), inverse(0, 0, 10, 10), true, true, false},
	} {
		one, two := read(t, c.one), read(t, c.two)
		if got := spatial.Intersects(one, two, unbounded); got != c.intersects || got != spatial.Intersects(two, one, unbounded) {
			t.Errorf("%s intersects %s: %v", c.one, c.two, got)
		}
		if got := spatial.Within(one, two, unbounded); got != c.within {
			t.Errorf("%s within %s: %v", c.one, c.two, got)
		}
		if got := spatial.Within(two, one, unbounded); got != c.back {
			t.Errorf("%s within %s: %v", c.two, c.one, got)
		}
		if apart := spatial.Distance(one, two, unbounded); (apart == 0) != c.intersects {
			t.Errorf("%s is %g m from %s", c.one, apart, c.two)
		}
	}
}

func TestRead_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		`Point[133.75682784306348,-184.38876194345323]`: "Latitude values must be between -90 and 90 degrees.",
		`Point[181,0]`:                       "Longitude values must be between -180 and 180 degrees.",
		`Point[1]`:                           "at least two numbers",
		`Point[]`:                            "at least two numbers",
		`Point["1","2"]`:                     "at least two numbers",
		`Point[1e999,0]`:                     "at least two numbers",
		`Point[1,2,null]`:                    "at least two numbers",
		`Point[[1,2]]`:                       "at least two numbers",
		`MultiPoint[[1,2]]`:                  "of the type Point, LineString, Polygon or MultiPolygon",
		`point[1,2]`:                         "of the type Point, LineString, Polygon or MultiPolygon",
		`LineString[]`:                       "fewer than two distinct positions",
		`LineString[[1,2],[1,2]]`:            "fewer than two distinct positions",
		`LineString[1,2]`:                    "at least two numbers",
		`LineString[[0,0],[180,0]]`:          "opposite on Earth",
		`LineString[[0,90],[7,-90]]`:         "opposite on Earth",
		`Polygon[]`:                          "has no ring",
		`Polygon[[]]`:                        "ring number 1 has fewer than four positions",
		`Polygon[[[0,0],[1,0],[0,0]]]`:       "ring number 1 has fewer than four positions",
		`Polygon[[[0,0],[0,0],[1,0],[0,0]]]`: "fewer than three distinct ones",
		`Polygon[[[31.8,-5],[31.8,-4.7],[32,-4.7],[32,-5]]]`: "The Polygon input is not valid because the start and end points of the ring number 1 are not the same. " +
			"Each ring of a polygon must have the same start and end points.",
		`Polygon[[[0,0],[2,2],[2,0],[0,2],[0,0]]]`:                                              "ring number 1 crosses or touches itself",
		`Polygon[[[0,0],[2,0],[1,1],[2,2],[0,2],[1,1],[0,0]]]`:                                  "ring number 1 crosses or touches itself",
		`Polygon[[[0,0],[10,0],[20,0],[30,0],[0,0]]]`:                                           "ring number 1 crosses or touches itself",
		`Polygon[[[0,0],[10,0],[20,0],[20,20],[15,0],[0,0]]]`:                                   "ring number 1 crosses or touches itself",
		`Polygon[[[0,0],[1e-13,0],[0,1e-13],[0,0]]]`:                                            "ring number 1 crosses or touches itself",
		`Polygon[[[0,0],[2,0],[0,0],[0,2],[0,0]]]`:                                              "ring number 1 crosses or touches itself",
		`Polygon[` + ring(0, 0, 10, 10) + `,` + ring(20, 0, 30, 10) + `]`:                       "ring number 2 lies outside of the first ring",
		`Polygon[` + ring(0, 0, 10, 10) + `,` + ring(5, 5, 15, 15) + `]`:                        "rings number 1 and 2 cross",
		`Polygon[` + ring(0, 0, 10, 10) + `,` + ring(0, 0, 10, 10) + `]`:                        "the first ring once more",
		`Polygon[` + ring(0, 0, 10, 10) + `,` + ring(2, 2, 8, 8) + `,` + ring(3, 3, 4, 4) + `]`: "ring number 3 lies within the ring number 2",
		`MultiPolygon[]`:   "has no polygon",
		`MultiPolygon[[]]`: "has no ring",
		`MultiPolygon[[` + ring(0, 0, 10, 10) + `],[` + ring(5, 5, 15, 15) + `]]`: "polygons number 1 and 2 overlap",
		`MultiPolygon[[` + ring(0, 0, 10, 10) + `],[` + ring(2, 2, 8, 8) + `]]`:   "polygons number 1 and 2 overlap",
		`MultiPolygon[[` + ring(0, 0, 10, 10) + `],[` + ring(0, 0, 10, 10) + `]]`: "polygons number 1 and 2 overlap",
		"LineString[" + strings.Repeat("[1,1],", spatial.PlacesMax) + "[2,2]]":    "more than 65536 positions",
	} {
		if _, err := spatial.Read([]byte(geoJSON(text)), unbounded); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{`42`, `null`, `"Point"`, `[]`, `{}`, `{"type":"Point"}`, `{"type":"Point","coordinates":null}`, `{"type":"Polygon","coordinates":{}}`} {
		if _, err := spatial.Read([]byte(text), unbounded); err == nil {
			t.Errorf("%s is read", text)
		}
	}
	// Rings may touch each other at a corner, and positions have more than two numbers.
	for _, text := range []string{
		`Polygon[` + ring(0, 0, 10, 10) + `,[[0,0],[2,1],[1,2],[0,0]]]`,
		`Polygon[[[0,0,9],[1,0,9],[1,0,8],[0,1],[0,0,7]]]`,
		`MultiPolygon[[` + ring(0, 0, 10, 10) + `],[[[0,0],[-2,0],[-2,-2],[0,0]]]]`,
	} {
		read(t, text)
	}
}

// star returns a polygon with n corners around a place, each second of which is farther from it by a part.
func star(longitude, latitude, size, part float64, n int) string {
	var b strings.Builder
	b.WriteString("Polygon[[")
	for i := range n + 1 {
		sin, cos := math.Sincos(2 * math.Pi * float64(i%n) / float64(n))
		far := size * (1 + part*float64(i%n%2))
		fmt.Fprintf(&b, "[%.12f,%.12f],", longitude+far*cos, latitude+far*sin)
	}
	return strings.TrimSuffix(b.String(), ",") + "]]"
}

// Whatever is asked, it ends soon after the budget does, and costs about as much time as it says.
func TestBudget(t *testing.T) {
	one, two := read(t, star(0, 0, 4, 1, 1000)), read(t, star(1, 1, 4, 1, 1000))
	line := read(t, strings.Replace(strings.Replace(star(2, 2, 4, 1, 1000), "Polygon[[", "LineString[", 1), "]]]", "]]", 1))
	for name, f := range map[string]func(spatial.Budget){
		"read":        func(b spatial.Budget) { _, _ = spatial.Read([]byte(geoJSON(star(0, 0, 4, 1, 1000))), b) },
		"intersects":  func(b spatial.Budget) { spatial.Intersects(read(t, star(40, 0, 4, 1, 1000)), two, b) },
		"within":      func(b spatial.Budget) { spatial.Within(one, read(t, star(0, 0, 4.5, 1, 1000)), b) },
		"line within": func(b spatial.Budget) { spatial.Within(line, two, b) },
		"distance":    func(b spatial.Budget) { spatial.Distance(read(t, star(40, 0, 4, 1, 1000)), two, b) },
		"area":        func(b spatial.Budget) { one.Area(b) },
	} {
		for _, most := range []int{0, 1000, 1 << 20} {
			left, over := most, 0
			f(func(n int) bool {
				if left -= n; left < 0 {
					over++
				}
				return left >= 0
			})
			if over > 10_000 {
				t.Errorf("%s asks %d times more after its budget of %d was spent", name, over, most)
			}
		}
	}
	if _, err := spatial.Read([]byte(geoJSON("Point[1,2]")), func(int) bool { return false }); !errors.Is(err, spatial.ErrSpent) {
		t.Errorf("without a budget a shape is read: %v", err)
	}
}

func FuzzSpatial(f *testing.F) {
	for _, text := range []string{
		"Point[0,90]", "Point[-180,-0.0]", "LineString[[0,0],[179.9999999999,0]]", box(0, 0, 10, 10), inverse(-180, -90, 180, 90), box(170, -10, -170, 10),
		"Polygon[[[0,0],[2,2],[2,0],[0,2],[0,0]]]", "Polygon[[[0,0],[1e-300,0],[0,1e-300],[0,0]]]", "Polygon[[[0,90],[90,90],[180,90],[0,90]]]", "MultiPolygon[[" + ring(0, 0, 10, 10) + "],[" + ring(20, 0, 30, 10) + "]]",
		"Polygon[" + ring(0, 0, 10, 10) + "," + back(4, 4, 6, 6) + "]", "Polygon[[[0,0],[10,0],[20,0],[30,0],[0,0]]]", "Polygon[[]]", "Polygon[[[]]]", "Point[1e308,-1e308]", "Polygon[[[0,0],[0,45],[0,90],[0,0]]]", `Polygon[{"a":1}]`,
	} {
		f.Add(text, "Point[1,1]")
		f.Add(text, "Polygon[[[0,0],[120,0],[-120,0],[0,0]]]")
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, a, b string) { relate(t, geoJSON(a), geoJSON(b)) })
}

// relate holds what the functions say of two shapes against each other, if they are shapes.
func relate(t *testing.T, a, b string) {
	t.Helper()
	left := 1 << 26
	work := func(n int) bool { left -= n; return left >= 0 }
	one, err := spatial.Read([]byte(a), work)
	if err != nil {
		return
	}
	two, err := spatial.Read([]byte(b), work)
	if err != nil {
		return
	}
	apart, back := spatial.Distance(one, two, work), spatial.Distance(two, one, work)
	intersects, within, area := spatial.Intersects(one, two, work), spatial.Within(one, two, work), one.Area(work)
	self, same := spatial.Within(one, one, work), spatial.Distance(one, one, work)
	if left < 0 {
		return
	}
	switch {
	case !(apart >= 0 && apart < 20_100_000) || math.Abs(apart-back) > 1e-3+apart*1e-4:
		t.Errorf("%s is %g m from %s, and back %g m", a, apart, b, back)
	case (apart == 0) != intersects && apart > 1e-6:
		t.Errorf("%s is %g m from %s, but intersects: %v", a, apart, b, intersects)
	case within && !intersects:
		t.Errorf("%s lies within %s and does not intersect it", a, b)
	case !(area >= 0 && area <= 510_065_622e6*1.000001):
		t.Errorf("%s covers %g m²", a, area)
	case same != 0:
		t.Errorf("%s is %g m from itself", a, same)
	case !self && (area == 0 || area > 1):
		t.Errorf("%s does not lie within itself", a)
	case within && two.Area(work) > 0 && area > two.Area(work)*1.000001+1:
		t.Errorf("%s lies within %s, which is smaller", a, b)
	}
}

// onGrid returns a shape of a kind whose corners are on a grid, by two bytes each. The byte 255 ends a ring. Every second four
// kinds are on a coarse grid over all the Earth.
func onGrid(kind uint8, corners []byte) string {
	var rings []string
	for ring := range strings.SplitSeq(string(corners), "\xff") {
		var places []string
		for i := 0; i+1 < len(ring); i += 2 {
			x, y := int(int8(ring[i])), int(int8(ring[i+1]))
			if kind&4 != 0 {
				x, y = x%13*15, y%7*15
			}
			places = append(places, fmt.Sprintf("[%d,%d]", x, y%91))
		}
		if len(places) > 0 && kind&3 >= 2 {
			places = append(places, places[0])
		}
		rings = append(rings, strings.Join(places, ","))
	}
	switch kind & 3 {
	case 0:
		place, _, _ := strings.Cut(rings[0][:max(0, len(rings[0])-1)], "],")
		return `{"type":"Point","coordinates":` + place + `]}`
	case 1:
		return `{"type":"LineString","coordinates":[` + rings[0] + `]}`
	case 2:
		return `{"type":"Polygon","coordinates":[[` + strings.Join(rings, "],[") + `]]}`
	}
	return `{"type":"MultiPolygon","coordinates":[[[` + strings.Join(rings, "]],[[") + `]]]}`
}

// Corners on a grid, at the poles and at both ends of 180 degrees lie on each other's sides more often than not.
func FuzzSpatial_Grid(f *testing.F) {
	for kind := range uint8(8) {
		f.Add(kind, []byte("\x00\x00\x0a\x00\x0a\x0a\x00\x0a"), uint8(6), []byte("\x00\x00\x05\x00\x05\x05"))
		f.Add(kind, []byte("\x00\x06\x0c\x01\xf4\x01"), uint8(1), []byte("\x0c\x00\xf4\x00"))
		f.Add(kind, []byte("\x00\x00\x14\x00\x14\x14\x00\x14\xff\x02\x02\x02\x05\x05\x05\xff\x07\x07\x07\x09\x09\x09"), kind, []byte("\x01\x01\x09\x01\x09\x09\x01\x09"))
	}
	f.Fuzz(func(t *testing.T, one uint8, corners []byte, two uint8, others []byte) {
		relate(t, onGrid(one, corners), onGrid(two, others))
	})
}

func BenchmarkWithin(b *testing.B) {
	for _, n := range []int{4, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := spatial.Read([]byte(geoJSON(star(0, 0, 4, 10/float64(n), n))), unbounded)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p, err := spatial.Read([]byte(`{"type":"Point","coordinates":[1.25,2.5]}`), unbounded)
				if err != nil || !spatial.Within(p, s, unbounded) {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{4, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			text := []byte(geoJSON(star(0, 0, 4, 10/float64(n), n)))
			for b.Loop() {
				if _, err := spatial.Read(text, unbounded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDistance(b *testing.B) {
	one, _ := spatial.Read([]byte(`{"type":"Point","coordinates":[1.25,2.5]}`), unbounded)
	two, _ := spatial.Read([]byte(`{"type":"Point","coordinates":[10.25,20.5]}`), unbounded)
	for b.Loop() {
		spatial.Distance(one, two, unbounded)
	}
}
