package propose

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// Sample is a container and some of its items.
type Sample struct {
	Container store.ContainerInfo
	Items     [][]byte
}

// object is a decoded item, or an element of one. Numbers are json.Number.
type object = map[string]any

// typeFields are names of a field that tells the types of items apart.
var typeFields = []string{"type", "kind", "entityType", "docType", "documentType", "entity"}

// typesMax bounds the types of a container: what has more values is no type.
const typesMax = 16

// group is items of one type.
type group struct {
	container *store.ContainerInfo
	// keys are the paths of the container's partition key, as names.
	keys [][]string
	// field and value are those of the type; "" if the container has one alone.
	field, value string
	items        []object
	ids          map[string]bool
}

// groups divides a sample by type.
func groups(s *Sample) []*group {
	all := group{container: &s.Container}
	for _, pointer := range s.Container.Spec.PartitionKey {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			return nil
		}
		var names []string
		for i := range path {
			names = append(names, path[i].Name)
		}
		all.keys = append(all.keys, names)
	}
	for _, body := range s.Items {
		if o, ok := decode(body); ok {
			all.items = append(all.items, o)
		}
	}
	all.field = typeField(all.items)
	types := map[string]*group{}
	var found []*group
	for _, o := range all.items {
		// Without a field of types this is "" for all: they are one group.
		value, _ := o[all.field].(string)
		g := types[value]
		if g == nil {
			g = &group{container: all.container, keys: all.keys, field: all.field, value: value, ids: map[string]bool{}}
			types[value] = g
			found = append(found, g)
		}
		g.items = append(g.items, o)
		if id, ok := o["id"].(string); ok {
			g.ids[id] = true
		}
	}
	slices.SortFunc(found, func(a, b *group) int { return strings.Compare(a.value, b.value) })
	return found
}

func decode(body []byte) (object, bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var o object
	return o, dec.Decode(&o) == nil && o != nil
}

// typeField returns the field that tells types apart: a text in every item, of few values.
func typeField(items []object) string {
	for _, name := range typeFields {
		values := map[string]bool{}
		all := len(items) > 0
		for _, o := range items {
			// In every item: where some have no type, no where could tell those apart.
			value, ok := o[name].(string)
			all = all && ok && value != ""
			values[value] = true
		}
		if all && len(values) <= typesMax {
			return name
		}
	}
	return ""
}

// where is the condition that g's items alone meet, "" if all of the container do.
func (g *group) where() string {
	if g.field == "" {
		return ""
	}
	text, err := json.Marshal(g.value)
	if err != nil {
		return ""
	}
	return g.field + " = " + string(text)
}

// place is where a text stands in items: in the item or in the elements of an array.
type place struct {
	each  string // the array's path as names joined by \x00; "" is the item itself
	field string // the field's path from the item or the element, likewise
}

// The bounds of what is looked at in an item.
const (
	depthMax    = 3   // objects within each other
	placesMax   = 256 // of a group
	elementsMax = 100 // of an array
)

const joint = "\x00"

// occurrence is a text at a place: what holds it, which is the item or an element.
type occurrence struct {
	holder object
	value  string
}

// places returns the texts of g's items by where they stand, in order of the places.
func (g *group) places() ([]place, map[place][]occurrence) {
	found := map[place][]occurrence{}
	add := func(p place, holder object, value string) {
		// A place that comes too late is left out; those that are known go on in all items, so that
		// their shares are of all.
		if _, known := found[p]; known || len(found) < placesMax {
			found[p] = append(found[p], occurrence{holder, value})
		}
	}
	for _, item := range g.items {
		texts(item, item, "", 1, func(holder object, field, value string) { add(place{"", field}, holder, value) })
		arrays(item, "", 1, func(path string, elements []any) {
			for _, e := range elements[:min(len(elements), elementsMax)] {
				if o, ok := e.(object); ok {
					texts(o, o, "", 1, func(holder object, field, value string) { add(place{path, field}, holder, value) })
				}
			}
		})
	}
	var all []place
	for p := range found {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b place) int {
		if a.each != b.each {
			return strings.Compare(a.each, b.each)
		}
		return strings.Compare(a.field, b.field)
	})
	return all, found
}

// texts calls f with the texts in o and the objects within it.
func texts(holder, o object, path string, depth int, f func(holder object, field, value string)) {
	for _, name := range slices.Sorted(maps.Keys(o)) { // the bounds cut the same each time
		if strings.HasPrefix(name, "_") {
			continue // the store's own
		}
		switch v := o[name].(type) {
		case string:
			f(holder, path+name, v)
		case object:
			if depth < depthMax {
				texts(holder, v, path+name+joint, depth+1, f)
			}
		}
	}
}

// arrays calls f with the arrays in o and the objects within it.
func arrays(o object, path string, depth int, f func(path string, elements []any)) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		switch v := o[name].(type) {
		case []any:
			f(path+name, v)
		case object:
			if depth < depthMax {
				arrays(v, path+name+joint, depth+1, f)
			}
		}
	}
}

// at returns the value at a path of names, nil if there is none.
func at(o object, path []string) any {
	for i, name := range path {
		v, ok := o[name]
		if !ok || i == len(path)-1 {
			return v
		}
		if o, ok = v.(object); !ok {
			return nil
		}
	}
	return nil
}

// fieldOf writes a path of names as documents do.
func fieldOf(path string) string {
	if path == "" {
		return ""
	}
	var p document.Path
	for name := range strings.SplitSeq(path, joint) {
		p = append(p, document.Step{Name: name})
	}
	return document.FieldOf(p).String()
}
