package query_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

const (
	seattle = `{"type": "Point", "coordinates": [-122.12826822304672, 47.63980239335718]}`
	nearby  = `{"type": "Point", "coordinates": [-122.11758113953535, 47.66901087006131]}`
	field   = `{"type": "Polygon", "coordinates": [[[31.8, -5], [32, -5], [32, -4.7], [31.8, -4.7], [31.8, -5]]]}`
	campus  = `{"type": "Polygon", "coordinates": [[[-122.13236581015025, 47.64606476313813], [-122.13221982500913, 47.633757091363975],
		[-122.11840598103835, 47.641749416109235], [-122.12061400629656, 47.64589264786028], [-122.13236581015025, 47.64606476313813]]]}`
)

// The spatial functions give what the service's documentation shows, and are undefined of what is no valid GeoJSON.
func TestSpatial(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`ABS(ST_DISTANCE(` + seattle + `, ` + nearby + `) / 1000 - 3.345269817267368) < 1e-6`, `true`},
		{`ABS(ST_AREA(` + field + `) - 735970283.0522614) < 0.2`, `true`},
		{`ST_WITHIN({"type": "Point", "coordinates": [-122.12824857332558, 47.6395516675712]}, ` + campus + `)`, `true`},
		{`ST_WITHIN({"type": "Point", "coordinates": [31.9, -4.8]}, ` + field + `)`, `true`},
		{`ST_WITHIN({"type": "Point", "coordinates": [31, -4.8]}, ` + field + `)`, `false`},
		{`NOT ST_WITHIN({'type': 'Point', 'coordinates': [0, 40]}, {'type':'Polygon','coordinates':[[[-60,20], [70,20], [70,70], [-60,70], [-60,20]]]})`, `true`},
		{`ST_INTERSECTS(` + field + `, {"type": "LineString", "coordinates": [[31, -4.8], [33, -4.8]]})`, `true`},
		{`ST_INTERSECTS(` + field + `, ` + campus + `)`, `false`},
		{`ST_AREA(` + seattle + `)`, `0`},
		{`ST_ISVALID(` + seattle + `)`, `true`},
		{`st_isvalid({"type": "Point", "coordinates": [133.75682784306348, -184.38876194345323]})`, `false`},
		{`ST_ISVALID(42)`, `false`},
		{`ST_ISVALID(undefined)`, ``},
		{`ST_ISVALIDDETAILED(` + campus + `)`, `{"valid":true}`},
		{`ST_ISVALIDDETAILED({"type": "Point", "coordinates": [133.75682784306348, -184.38876194345323]})`, `{"valid":false,"reason":"Latitude values must be between -90 and 90 degrees."}`},
		{
			`ST_ISVALIDDETAILED({"type": "Polygon", "coordinates": [[[31.8, -5], [31.8, -4.7], [32, -4.7], [32, -5]]]})`,
			`{"valid":false,"reason":"The Polygon input is not valid because the start and end points of the ring number 1 are not the same. Each ring of a polygon must have the same start and end points."}`,
		},
		{`ST_ISVALIDDETAILED(42).valid`, `false`},
		{`ST_ISVALIDDETAILED(undefined)`, ``},
		{`ST_WITHIN(42, 1337)`, ``},
		{`ST_DISTANCE(` + seattle + `, null)`, ``},
		{`ST_DISTANCE(undefined, ` + seattle + `)`, ``},
		{`ST_DISTANCE(` + seattle + `, {"type": "Point", "coordinates": [100, 100]})`, ``},
		{`ST_INTERSECTS({"type": "MultiPoint", "coordinates": []}, ` + field + `)`, ``},
		{`ST_AREA({"type": "Polygon", "coordinates": []})`, ``},
	} {
		if got := value(t, c.text); got != c.want {
			t.Errorf("%s is %s, want %s", c.text, got, c.want)
		}
	}
}

// A query may order by a distance, and several runs share the shape of a constant.
func TestSpatial_OfItems(t *testing.T) {
	var items []string
	for i := range 20 {
		items = append(items, fmt.Sprintf(`{"id":"%d","at":{"type":"Point","coordinates":[%d,0]}}`, i, i*7%20))
	}
	items = append(items, `{"id":"none"}`, `{"id":"wrong","at":{"type":"Point","coordinates":[100,100]}}`)
	q := mustParse(t, `SELECT VALUE c.at.coordinates[0] FROM c WHERE ST_WITHIN(c.at, {"type":"Polygon","coordinates":[[[4.5,-1],[9.5,-1],[9.5,1],[4.5,1],[4.5,-1]]]})
		ORDER BY ST_DISTANCE(c.at, {"type":"Point","coordinates":[6.8,0]})`)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if got := strings.Join(ask(t, q, items), " "); got != "7 6 8 5 9" {
				t.Errorf("the nearest are %s", got)
			}
		})
	}
	group.Wait()
}

// starOf returns the coordinates of a ring with n corners that every side of another one of another size meets.
func starOf(n int, size float64) string {
	var b strings.Builder
	for i := range n {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
		far := size * float64(1+i%2)
		b.WriteString("[" + strconv.FormatFloat(far*cos, 'f', 9, 64) + "," + strconv.FormatFloat(far*sin, 'f', 9, 64) + "],")
	}
	return "[" + b.String() + "[" + strconv.FormatFloat(size, 'f', 9, 64) + ",0.0]]"
}

// Shapes with tens of thousands of positions end with the time that a query has.
func TestSpatial_EndsInTime(t *testing.T) {
	item := []byte(`{"id":"1","a":{"type":"Polygon","coordinates":[` + starOf(20_000, 1) + `]},"b":{"type":"Polygon","coordinates":[` + starOf(20_000, 1.5) + `]}}`)
	for _, text := range []string{
		`ST_WITHIN(c.a, c.b)`, `ST_DISTANCE(c.a, {"type": "Polygon", "coordinates": [` + starOf(2000, 30) + `]})`, `ST_ISVALID(c.a)`,
		`ARRAY_LENGTH(ARRAY(SELECT VALUE ST_AREA(c.b) FROM x IN c.a.coordinates[0])) = 1`,
	} {
		run, err := mustParse(t, `SELECT VALUE 1 FROM c WHERE `+text).Run(query.RunConfig{End: time.Now().Add(time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Item(item, nil); !errors.Is(err, query.ErrTooMuch) {
			t.Errorf("%.40s: %v, want ErrTooMuch", text, err)
		}
	}
}
