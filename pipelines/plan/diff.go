package plan

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/feed/document"
)

// diffJSON returns where two JSON values differ; nil stands for a value that is not there.
// Members of objects and elements of arrays are compared one by one, elements by their index.
// path is that of the values. The edits share no memory with them.
//
//	{"a":1,"b":[1,2]}   {"b":[1,3],"c":true}   a: 1 -> absent   b[1]: 2 -> 3   c: absent -> true
func diffJSON(path document.Path, old, is []byte) []Edit {
	d := differ{}
	d.value(path, old, is)
	return d.edits
}

type differ struct{ edits []Edit }

func (d *differ) value(path document.Path, old, is []byte) {
	switch {
	case old == nil && is == nil:
	case old == nil || is == nil:
		d.edits = append(d.edits, Edit{path.String(), bytes.Clone(old), bytes.Clone(is)})
	case document.KindOf(old) == document.Object && document.KindOf(is) == document.Object:
		d.objects(path, old, is)
	case document.KindOf(old) == document.Array && document.KindOf(is) == document.Array:
		d.arrays(path, old, is)
	case !document.Equal(old, is):
		d.edits = append(d.edits, Edit{path.String(), bytes.Clone(old), bytes.Clone(is)})
	}
}

// objects compares the members of two objects: those of the old one in their order,
// then those that are new.
func (d *differ) objects(path document.Path, old, is []byte) {
	child := func(name []byte) document.Path {
		return append(slices.Clip(path), document.Step{Name: string(name)})
	}
	document.Members(old, func(name, raw []byte) bool {
		other, _ := document.Get(is, document.Path{{Name: string(name)}})
		d.value(child(name), raw, other)
		return true
	})
	document.Members(is, func(name, raw []byte) bool {
		if _, ok := document.Get(old, document.Path{{Name: string(name)}}); !ok {
			d.value(child(name), nil, raw)
		}
		return true
	})
}

func (d *differ) arrays(path document.Path, old, is []byte) {
	a, b := Elements(old), Elements(is)
	for i := range max(len(a), len(b)) {
		var x, y []byte
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		d.value(append(slices.Clip(path), document.Step{Index: i, IsIndex: true}), x, y)
	}
}

// Elements returns the elements of an array, as JSON; none if it is no array.
func Elements(array []byte) [][]byte {
	var all [][]byte
	document.Elements(array, func(_ int, raw []byte) bool {
		all = append(all, raw)
		return true
	})
	return all
}
