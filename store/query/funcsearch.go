package query

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query/internal/spatial"
)

// queryFunctions are functions that queries have and expressions in a log have not: a release
// before them could not read such a log.
var queryFunctions = merge(spatialFunctions, map[string]*function{
	"DOCUMENTID":       {least: 1, most: 1, one: documentID},
	"ORDERRID":         {least: 1, most: 1, one: orderRID},
	"FULLTEXTCONTAINS": {least: 2, most: 2, manyFramed: (*frame).fullTextAll},
	"FULLTEXTCONTAINSALL": {
		least: 2, most: argsMax, manyFramed: (*frame).fullTextAll,
	},
	"FULLTEXTCONTAINSANY": {
		least: 2, most: argsMax, manyFramed: (*frame).fullTextAny,
	},
	randomName:       {}, // Query.At replaces its calls
	"VECTORDISTANCE": {least: 2, most: 4, manyFramed: (*frame).vectorDistance},
})

// spatialFunctions are the functions of places on Earth, which compileSpatial compiles.
var spatialFunctions = map[string]*function{
	"ST_AREA": {least: 1, most: 1}, "ST_DISTANCE": {least: 2, most: 2}, "ST_INTERSECTS": {least: 2, most: 2},
	"ST_ISVALID": {least: 1, most: 1}, "ST_ISVALIDDETAILED": {least: 1, most: 1}, "ST_WITHIN": {least: 2, most: 2},
}

// A resource id of an item has the number of the item behind the container's.
const (
	ridOfItem = 8
	ridBytes  = 16
)

// itemRID returns the resource id of an item, which it has over the protocol.
func itemRID(v Value) (raw []byte, ok bool) {
	if v.typ != Object {
		return nil, false
	}
	i, end := locate(v.data, []step{{name: "_rid"}})
	if end < 0 {
		return nil, false
	}
	text := valueOf(v.data[i:end])
	raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(text.data), "-", "/"))
	return raw, text.typ == String && err == nil && len(raw) == ridBytes
}

// documentID returns the number of an item in its container: what its _rid has behind the
// container's, in the order of bytes in which the service reads it.
func documentID(v Value) Value {
	raw, ok := itemRID(v)
	if !ok {
		return Value{}
	}
	return Value{typ: Number, data: strconv.AppendUint(nil, binary.LittleEndian.Uint64(raw[ridOfItem:]), 10)}
}

// orderRID returns a resource id for rows of a plan: a client that goes on within rows of one place in the order goes on at the
// number in it, which SDKs read in different ways. So it is half of the item's number, written to be the greater for the greater
// number whether the first of its bytes counts most, with a sign, as in the SDK for Java, or the last, as in the service:
//
//	number 0x0123456 789abcde     bytes 01 23 45 67 67 45 23 01
//
// Two items may have the same.
func orderRID(v Value) Value {
	raw, ok := itemRID(v)
	if !ok {
		return Value{}
	}
	number := raw[ridOfItem:]
	for i := range len(number) / 2 {
		number[i] = number[len(number)-1-i]
	}
	return stringValue([]byte(strings.ReplaceAll(base64.StdEncoding.EncodeToString(raw), "/", "-")))
}

// fullTextAll reports whether a text has all of the phrases.
func (f *frame) fullTextAll(args []Value) Value { return f.fullText(args, false) }

// fullTextAny reports whether a text has one of the phrases.
func (f *frame) fullTextAny(args []Value) Value { return f.fullText(args, true) }

// fullText reports whether the first argument has the phrase that each of the others is, or any
// of them. It is undefined if one of them is no string.
func (f *frame) fullText(args []Value, anyOf bool) Value {
	for _, a := range args {
		if a.typ != String {
			return Value{}
		}
	}
	for _, phrase := range args[1:] {
		if f.hasPhrase(args[0].data, phrase.data) == anyOf {
			return boolValue(anyOf)
		}
	}
	return boolValue(!anyOf)
}

// hasPhrase reports whether the words of a phrase stand beside each other in a text, whatever
// their case and what stands between them. A phrase without words is nowhere.
//
//	"The Red-Bicycle!"   has "red bicycle" and "RED", not "bicycle red" and not "cycle"
func (f *frame) hasPhrase(text, phrase []byte) bool {
	var words [][]byte
	for word, rest := nextWord(phrase); word != nil; word, rest = nextWord(rest) {
		words = append(words, word)
	}
	if len(words) == 0 || !f.charge(workStep*len(phrase)) {
		return false
	}
	for word, rest := nextWord(text); word != nil; word, rest = nextWord(rest) {
		if !f.charge(workStep * len(word)) {
			return false
		}
		if bytes.EqualFold(word, words[0]) && f.beginsWith(rest, words[1:]) {
			return true
		}
	}
	return false
}

// beginsWith reports whether the next words of a text are the given ones.
func (f *frame) beginsWith(text []byte, words [][]byte) bool {
	for _, want := range words {
		var word []byte
		if word, text = nextWord(text); !f.charge(workStep*len(word)) || !bytes.EqualFold(word, want) {
			return false
		}
	}
	return true
}

// nextWord returns the first word of a text and what follows it; nil if there is no word. A word
// is of letters, marks and digits.
func nextWord(text []byte) (word, rest []byte) {
	begin := -1
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		is := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		switch {
		case is && begin < 0:
			begin = i
		case !is && begin >= 0:
			return text[begin:i], text[i:]
		}
		i += size
	}
	if begin < 0 {
		return nil, nil
	}
	return text[begin:], nil
}

// metric is how VECTORDISTANCE compares two vectors.
type metric uint8

const (
	cosine     metric = iota // 1 is nearest, -1 farthest
	dotProduct               // the greatest is nearest
	euclidean                // 0 is nearest
)

// VectorMax bounds the numbers of a vector.
const VectorMax = 16 << 10

// metrics are the distance functions, in small letters.
var metrics = map[string]metric{"cosine": cosine, "dotproduct": dotProduct, "euclidean": euclidean}

// metricOf returns the metric that a call of VECTORDISTANCE asks for. The other options tune the
// service's indexes, and have no effect here.
func metricOf(options Value) (m metric, err error) {
	if options.typ == Undefined {
		return cosine, nil
	}
	if options.typ != Object {
		return 0, fmt.Errorf("VECTORDISTANCE takes an object of options, such as {\"distanceFunction\": \"cosine\"}, not %s", document.Excerpt(options.Text(), textShown))
	}
	document.Members(options.data, func(name, raw []byte) bool {
		if string(name) != "distanceFunction" {
			return true
		}
		v, ok := valueOf(raw), false
		if m, ok = metrics[strings.ToLower(string(v.data))]; !ok || v.typ != String {
			err = fmt.Errorf("VECTORDISTANCE knows the distance functions cosine, dotproduct and euclidean, not %s", document.Excerpt(string(raw), textShown))
		}
		return err == nil
	})
	return m, err
}

// WithDistances returns the query in which each call of VECTORDISTANCE whose options name no distance function has the one
// of the property that it compares: of has them by JSON pointers. Parameters have their values already.
func (q *Query) WithDistances(of map[string]string) *Query {
	r := newResolver(nil, q.text)
	text := transform(&subquery{of: q.text}, func(n node) node {
		c, ok := n.(*call)
		if !ok || c.name != "VECTORDISTANCE" {
			return n
		}
		for _, arg := range c.args[:2] {
			names, each, ok := r.resolve(arg)
			var at document.Path
			for _, name := range names {
				at = append(at, document.Step{Name: name})
			}
			if name := of[at.Pointer()]; ok && each == nil && name != "" {
				return c.withDistance(name)
			}
		}
		return n
	}).(*subquery).of
	return &Query{text, q.container, newPlan(text)}
}

// withDistance returns a call of VECTORDISTANCE with a distance function, unless its options name one.
func (n *call) withDistance(name string) *call {
	options, named := []byte{'{'}, false
	if len(n.args) > 3 {
		v, _ := constant(n.args[3])
		document.Members(v.data, func(member, raw []byte) bool {
			named = named || string(member) == "distanceFunction"
			options = append(append(document.AppendQuote(options, string(member)), ':'), raw...)
			options = append(options, ',')
			return true
		})
	}
	if named {
		return n
	}
	options = append(document.AppendQuote(append(options, `"distanceFunction":`...), name), '}')
	args := append(slices.Clone(n.args), &literal{boolValue(false)})[:3]
	return &call{n.name, append(args, &literal{Value{typ: Object, data: options}})}
}

// textShown is how many bytes of a value an error shows.
const textShown = 60

// checkVectors returns an error if options of VECTORDISTANCE are wrong, or depend on items.
func checkVectors(root node) (err error) {
	visit(root, func(n node) {
		if c, ok := n.(*call); ok && err == nil {
			err = checkVector(c)
		}
	})
	return err
}

// checkVector is checkVectors of one call, which may be one of another function.
func checkVector(n *call) error {
	if n.name != "VECTORDISTANCE" || len(n.args) < 4 {
		return nil
	}
	if _, is := n.args[3].(*param); is {
		return nil // Bind looks at its value
	}
	options, ok := constant(n.args[3])
	if !ok {
		return errors.New("the options of VECTORDISTANCE are to be written in the query")
	}
	_, err := metricOf(options)
	return err
}

// nearestIsGreatest reports whether the nearest of two vectors has the greatest result.
func (n *call) nearestIsGreatest() bool {
	if len(n.args) < 4 {
		return true
	}
	options, _ := constant(n.args[3])
	m, _ := metricOf(options)
	return m != euclidean
}

func (f *frame) vectorDistance(args []Value) Value {
	var options Value
	if len(args) > 3 {
		options = args[3]
	}
	m, err := metricOf(options)
	if err != nil {
		return Value{}
	}
	a, okA := f.vector(nil, args[0])
	b, okB := f.vector(nil, args[1])
	if !okA || !okB {
		return Value{}
	}
	return floatValue(distance(m, a, b))
}

// compileVectorDistance compiles a call of VECTORDISTANCE with one constant vector, which is read
// once; it returns nil for every other call. Nearly all calls compare a property with a constant.
func compileVectorDistance(n *call) eval {
	for i, arg := range n.args[:2] {
		v, ok := constant(arg)
		if !ok {
			continue
		}
		var options Value
		if len(n.args) > 3 {
			options, ok = constant(n.args[3])
		}
		m, err := metricOf(options)
		to, isVector := (*frame)(nil).vector(nil, v)
		if !ok || err != nil || !isVector {
			return nil
		}
		of := compile(n.args[1-i])
		return func(item []byte, f *frame) Value {
			v := of(item, f)
			a, ok := f.vector(make([]float64, 0, len(to)), v)
			if !ok {
				return Value{}
			}
			return floatValue(distance(m, a, to))
		}
	}
	return nil
}

// vector appends the numbers of an array. ok is false for every other value, an array of more
// than VectorMax, and where the budget is spent.
func (f *frame) vector(dst []float64, v Value) (numbers []float64, ok bool) {
	if v.typ != Array || !f.charge(workStep*len(v.data)) {
		return nil, false
	}
	ok = true
	document.Elements(v.data, func(_ int, raw []byte) bool {
		n, err := strconv.ParseFloat(string(raw), 64)
		ok = err == nil && len(dst) < VectorMax
		dst = append(dst, n)
		return ok
	})
	return dst, ok
}

// distance compares two vectors. It is no number for two of different lengths, and for an angle
// with a vector of zeros.
func distance(m metric, a, b []float64) float64 {
	if len(a) != len(b) {
		return math.NaN()
	}
	var dot, aa, bb, square float64
	for i, x := range a {
		y := b[i]
		dot += x * y
		aa += x * x
		bb += y * y
		square += (x - y) * (x - y)
	}
	switch m {
	case dotProduct:
		return dot
	case euclidean:
		return math.Sqrt(square)
	default:
		return max(-1, min(1, dot/math.Sqrt(aa)/math.Sqrt(bb)))
	}
}

// errNoShape says that an argument of a spatial function is undefined.
var errNoShape = errors.New("query: the shape is undefined")

// shapeKeptMax is the most bytes of a constant whose shape is kept from one item to the next.
const shapeKeptMax = 256 << 10

// shape is an argument of a spatial function.
type shape struct {
	of   *spatial.Shape
	err  error // why there is none
	held int   // bytes that it takes while the function runs
}

// compileShape compiles an argument of a spatial function. A constant is read for the first item, whose budget bounds that,
// and is ready for those that follow.
func compileShape(arg node) func(item []byte, f *frame) shape {
	v, ok := constant(arg)
	if !ok {
		value := compile(arg)
		return func(item []byte, f *frame) shape { return f.shape(value(item, f)) }
	}
	var kept atomic.Pointer[shape]
	return func(_ []byte, f *frame) shape {
		if s := kept.Load(); s != nil {
			return *s
		}
		s := f.shape(v)
		if !errors.Is(s.err, spatial.ErrSpent) && len(v.data) <= shapeKeptMax {
			kept.Store(&shape{of: s.of, err: s.err})
		}
		return s
	}
}

// shape reads a shape. Its memory is given back by release.
func (f *frame) shape(v Value) shape {
	if v.typ == Undefined {
		return shape{err: errNoShape}
	}
	s := shape{held: min(len(v.data)/len("[1,2],"), spatial.PlacesMax) * spatial.PlaceBytes}
	if f != nil {
		f.hold(s.held)
	}
	s.of, s.err = spatial.Read(v.data, f.charge)
	return s
}

// release gives back the memory of a shape.
func (f *frame) release(s shape) {
	if f != nil {
		f.hold(-s.held)
	}
}

// compileSpatial compiles a call of a spatial function; it returns nil for every other call.
func compileSpatial(n *call) eval {
	if spatialFunctions[n.name] == nil {
		return nil
	}
	first := compileShape(n.args[0])
	if len(n.args) == 1 {
		return func(item []byte, f *frame) Value {
			s := first(item, f)
			defer f.release(s)
			if !f.charge(workNode) || errors.Is(s.err, errNoShape) || errors.Is(s.err, spatial.ErrSpent) {
				return Value{}
			}
			return f.result(f.spatialOne(n.name, s))
		}
	}
	second := compileShape(n.args[1])
	return func(item []byte, f *frame) Value {
		s, t := first(item, f), second(item, f)
		defer f.release(s)
		defer f.release(t)
		if !f.charge(workNode) || s.err != nil || t.err != nil {
			return Value{}
		}
		switch n.name {
		case "ST_DISTANCE":
			return f.result(floatValue(spatial.Distance(s.of, t.of, f.charge)))
		case "ST_INTERSECTS":
			return boolValue(spatial.Intersects(s.of, t.of, f.charge))
		default:
			return boolValue(spatial.Within(s.of, t.of, f.charge))
		}
	}
}

// spatialOne calls a function of one argument, which is defined.
func (f *frame) spatialOne(name string, s shape) Value {
	switch {
	case name == "ST_ISVALID":
		return boolValue(s.err == nil)
	case name == "ST_ISVALIDDETAILED" && s.err == nil:
		return Value{typ: Object, data: []byte(`{"valid":true}`)}
	case name == "ST_ISVALIDDETAILED":
		return Value{typ: Object, data: append(document.AppendQuote([]byte(`{"valid":false,"reason":`), s.err.Error()), '}')}
	case s.err != nil:
		return Value{}
	}
	return floatValue(s.of.Area(f.charge))
}
