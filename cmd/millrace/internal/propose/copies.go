package propose

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
)

// setMax bounds the fields that a proposal sets.
const setMax = 8

// titles are fields of a source that are copied where nothing is yet: what an item is called.
var titles = []string{"name", "title", "displayName"}

// copies returns the fields beside a reference that are those of the item that it names.
// Where there are none, it is the name of that item, under a name that is not there yet.
func copies(source, target *group, p place, rivals []string, match []Match, refs []reference) []Copy {
	// The fields by which an item is found or told apart are not set: id, type, partition key. An
	// element of an array has none of these; its id is a field as any other.
	taken := map[string]bool{"id": p.each == "", p.field: true}
	if p.each == "" {
		taken[target.field] = true
		for _, names := range target.keys {
			taken[strings.Join(names, joint)] = true
		}
	}
	var set []Copy
	fields := scalars(refs, func(r *reference) object { return r.holder })
	of := scalars(refs, func(r *reference) object { return r.source })
	for _, field := range fields {
		if taken[field] || slices.ContainsFunc(match, func(m Match) bool { return m.Field == fieldOf(field) }) {
			continue
		}
		if c, ok := copyOf(source, field, of, refs); ok && len(set) < setMax && !belongs(field, c.from, p.field, rivals) {
			set = append(set, c.Copy)
		}
	}
	if len(set) > 0 {
		return set
	}
	for _, title := range titles {
		name := beside(p.field, title)
		if slices.Contains(of, title) && !taken[name] && !slices.Contains(fields, name) {
			return []Copy{{Field: fieldOf(name), Source: fieldOf(title)}}
		}
	}
	return nil
}

// found is a copy, and the path of its source as names.
type found struct {
	Copy
	from string
}

// belongs says that a field is named for another reference than the one at hand: editorName
// is that of editorId, also where the author has the same name.
func belongs(field, from, reference string, rivals []string) bool {
	last := from[strings.LastIndex(from, joint)+1:]
	return field != beside(reference, last) && slices.ContainsFunc(rivals, func(r string) bool { return field == beside(r, last) })
}

// copyOf returns which field of the source a field is a copy of, if it is of one. Equal
// values alone are no proof: many items have quantity 1. The field is named like the
// source's (name, categoryName), and most are equal; or nearly all are, with values that
// differ from source to source.
func copyOf(source *group, field string, of []string, refs []reference) (best found, ok bool) {
	path := strings.Split(field, joint)
	for _, from := range of {
		if from == "id" || from == source.field {
			continue
		}
		share, values := Share{}, map[string]bool{}
		for i := range refs {
			if refs[i].source == nil {
				continue
			}
			mine := at(refs[i].holder, path)
			if mine == nil {
				continue
			}
			share.Of++
			if theirs := at(refs[i].source, strings.Split(from, joint)); same(mine, theirs) {
				share.Is++
				// Only texts count as different values. Numbers and truths meet by chance: quantity is 1, 2
				// or 3 in products and in orders.
				if text, isText := mine.(string); isText {
					values[text] = true
				}
			}
		}
		alike := namedLike(field, from)
		certain := share.Is*10 >= share.Of*9 && len(values) >= 3
		if share.Is*100 < share.Of*shareMin || share.Is == 0 || !alike && !certain {
			continue
		}
		// title and name of a category may be the same in all items. Then the name decides:
		// categoryName is a copy of name.
		if !ok || share.Is > best.Equal.Is || share.Is == best.Equal.Is && alike && !namedLike(field, best.from) {
			best, ok = found{Copy{Field: fieldOf(field), Source: fieldOf(from), Equal: share}, from}, true
		}
	}
	return best, ok
}

// namedLike says that a field is named like one of the source: name and categoryName are
// like name, and so is category.name.
func namedLike(field, from string) bool {
	last := func(path string) string { return strings.ToLower(path[strings.LastIndex(path, joint)+1:]) }
	return strings.HasSuffix(last(field), last(from))
}

// beside returns the name of a field beside a reference: categoryName beside categoryId,
// name beside id, category.name beside category.id.
func beside(reference, title string) string {
	cut := strings.LastIndex(reference, joint) + 1
	base := reference[cut:]
	// id last: of category_id it would leave category_.
	for _, end := range []string{"Id", "ID", "_id", "-id", "id"} {
		if rest, ok := strings.CutSuffix(base, end); ok {
			base = rest
			break
		}
	}
	if base == "" {
		return reference[:cut] + title
	}
	first := []rune(title)
	first[0] = unicode.ToUpper(first[0])
	return reference[:cut] + base + string(first)
}

// scalars returns the paths of texts, numbers and truths in one object of each reference,
// in order.
func scalars(refs []reference, of func(*reference) object) []string {
	found := map[string]bool{}
	var walk func(o object, path string, depth int)
	walk = func(o object, path string, depth int) {
		for name, v := range o {
			if strings.HasPrefix(name, "_") {
				continue
			}
			switch v := v.(type) {
			case string, json.Number, bool:
				found[path+name] = true
			case object:
				if depth < depthMax {
					walk(v, path+name+joint, depth+1)
				}
			}
		}
	}
	for i := range refs {
		if o := of(&refs[i]); o != nil && len(found) < placesMax {
			walk(o, "", 1)
		}
	}
	var all []string
	for path := range found {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

// same compares two scalars.
func same(a, b any) bool {
	// Two objects cannot be compared by ==, which panics.
	switch a.(type) {
	case string, json.Number, bool:
		return a == b
	}
	return false
}
