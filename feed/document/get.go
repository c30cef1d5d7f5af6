package document

import (
	"bytes"

	"github.com/millrace/millrace/feed/document/scan"
)

// Get returns the value at p, which shares memory with body. ok is false if there
// is none. Where p has a step for all elements, it is the first value that Walk
// finds. Get stops as soon as it has found the value and does not allocate.
func Get(body []byte, p Path) (raw []byte, ok bool) {
	i := find(body, scan.Space(body, 0), p)
	if i < 0 {
		return nil, false
	}
	end := scan.Value(body, i)
	if end < 0 {
		return nil, false
	}
	return body[i:end:end], true
}

// find returns the index of the first value at p from the value at b[i], or -1.
func find(b []byte, i int, p Path) int {
	// What a step means depends on the value that it meets, see Step.
	for n := range p {
		if i < 0 || i >= len(b) {
			return -1
		}
		s := &p[n]
		switch {
		case b[i] == '{' && s.inObject():
			i = scan.Member(b, i, s.Name)
		case b[i] != '[':
			return -1
		case s.IsIndex:
			i = scan.Element(b, i, s.Index)
		case s.KeyValue != "":
			i = findKey(b, i, s.KeyName, s.KeyValue)
		case s.All:
			return findAny(b, i, p[n+1:])
		default:
			return -1
		}
	}
	if i >= len(b) {
		return -1
	}
	return i
}

// findAny returns the index of the first value at p from an element of the array
// at b[i].
func findAny(b []byte, i int, p Path) int {
	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, i) {
		if v := find(b, i, p); v >= 0 {
			return v
		}
		if i = scan.Value(b, i); i < 0 {
			return -1
		}
	}
	return -1
}

// Walk calls f for every value at p, in the order in which they stand in body:
// the raw value, which shares memory with body, and its offset. It ends when f
// returns false. It does not allocate.
func Walk(body []byte, p Path, f func(raw []byte, offset int) bool) {
	walk(body, scan.Space(body, 0), p, f)
}

// walk is Walk from the value at b[i]. It returns false if f did.
func walk(b []byte, i int, p Path, f func(raw []byte, offset int) bool) bool {
	// Up to the first [*] there is one value, which find reaches without recursion.
	n := 0
	for n < len(p) && !p[n].All {
		n++
	}
	if i = find(b, i, p[:n]); i < 0 {
		return true
	}
	if n == len(p) {
		end := scan.Value(b, i)
		return end < 0 || f(b[i:end], i)
	}
	if b[i] == '{' && p[n].inObject() {
		if i = scan.Member(b, i, p[n].Name); i < 0 {
			return true
		}
		return walk(b, i, p[n+1:], f)
	}
	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, i) {
		if !walk(b, i, p[n+1:], f) {
			return false
		}
		if i = scan.Value(b, i); i < 0 {
			return true
		}
	}
	return true
}

// Members calls f for every member of a raw object, in order, with the text of its name and
// its raw value. Both share memory with obj, except for a name with escapes. It ends when
// f returns false, and does nothing if obj is not an object.
func Members(obj []byte, f func(name, raw []byte) bool) {
	for i := scan.FirstMember(obj, scan.Space(obj, 0)); i >= 0; i = scan.Next(obj, i) {
		quote, value := scan.MemberValue(obj, i)
		if quote < 0 {
			return
		}
		name := obj[i+1 : quote : quote] // clipped, so that f cannot append into the item
		if bytes.IndexByte(name, '\\') >= 0 {
			name = scan.AppendText(nil, name)
		}
		if i = scan.Value(obj, value); i < 0 || !f(name, obj[value:i:i]) {
			return
		}
	}
}

// Elements calls f for every element of a raw array, in order, with its index and its raw
// value, which shares memory with arr. It ends when f returns false, and does nothing if
// arr is not an array.
func Elements(arr []byte, f func(i int, raw []byte) bool) {
	n := 0
	for i := scan.FirstElement(arr, scan.Space(arr, 0)); i >= 0; i = scan.Next(arr, i) {
		start := i
		if i = scan.Value(arr, i); i < 0 || !f(n, arr[start:i:i]) {
			return
		}
		n++
	}
}
