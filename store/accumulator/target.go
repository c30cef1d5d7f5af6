package accumulator

import (
	"encoding/json"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// TargetGroup returns the group whose fields an item of the target carries. ok is false if the
// item is not a target: where does not select it, or a field of match is absent or not a
// scalar.
func (r *Rule) TargetGroup(body []byte) (g Group, ok bool) {
	if r.targetWhere != nil && !r.targetWhere.True(body) {
		return "", false
	}
	var scratch [128]byte
	form := scratch[:0]
	for i := range r.match {
		raw, _ := document.Get(body, r.match[i].target)
		if form, ok = appendScalar(form, raw); !ok {
			return "", false
		}
	}
	if len(form) > GroupBytesMax {
		return "", false
	}
	return Group(form), true
}

// idPath is where the id of an item is.
var idPath = document.Path{{Name: "id"}}

// FixesTargetID reports whether match and where fix the id of the target: each group
// has at most one target in a logical partition then.
func (r *Rule) FixesTargetID() bool { return r.fixes(idPath) }

// FixesTargetKey reports whether match and where fix the whole partition key of the
// target, given its paths. A group has its state in the target's partition, so a
// rule that does not cannot be kept.
func (r *Rule) FixesTargetKey(paths []document.Path) bool {
	for _, path := range paths {
		if !r.fixes(path) {
			return false
		}
	}
	return len(paths) > 0
}

// TargetID returns the id of the target of a group; ok is false if match and where
// do not fix it, or fix what is no id.
func (r *Rule) TargetID(g Group) (id string, ok bool) {
	form := r.fixed(g, idPath)
	if len(form) == 0 || form[0] != rankString {
		return "", false
	}
	id = string(appendScalarText(nil, form, 0))
	return id, document.CheckID(id) == nil
}

// TargetKey returns the partition key of the target of a group, given the paths of
// the partition key; ok is false if match and where do not fix it, or fix what is
// no partition key.
func (r *Rule) TargetKey(g Group, paths []document.Path) (key feed.PartitionKey, ok bool) {
	var scratch [128]byte
	enc := scratch[:0]
	for _, path := range paths {
		form := r.fixed(g, path)
		if len(form) == 0 {
			return feed.PartitionKey{}, false
		}
		if enc, ok = appendKeyComponent(enc, form); !ok {
			return feed.PartitionKey{}, false
		}
	}
	key, err := feed.PartitionKeyFromEncoded(string(enc))
	return key, err == nil
}

// appendKeyComponent appends a canonical form as a component of a partition key.
func appendKeyComponent(dst, form []byte) ([]byte, bool) {
	switch form[0] {
	case rankString:
		const stringEnd = 0xFF
		return append(appendScalarText(append(dst, form[0]), form, 0), stringEnd), true
	case rankNumber:
		key, err := feed.NewPartitionKey(json.Number(appendScalarNumber(nil, form, 0)))
		return append(dst, key.Encoded()...), err == nil
	}
	// Null, false and true have the same bytes in both.
	return append(dst, form[0]), true
}

// NewTarget returns the body of the target to create for a group: its id, what match
// and where fix, and the fields of s. ok is false if match and where do not fix its
// id and its partition key, whose paths are given, or select something else.
func (r *Rule) NewTarget(g Group, s *State, paths []document.Path) (body []byte, ok bool) {
	if _, ok = r.TargetID(g); !ok || !r.FixesTargetKey(paths) {
		return nil, false
	}
	if _, ok = r.TargetKey(g, paths); !ok {
		return nil, false
	}
	fields := []document.FieldValue{{Path: idPath, Value: appendScalarJSON(nil, r.fixed(g, idPath), 0)}}
	add := func(path document.Path, raw []byte) {
		if raw != nil && !equalNames(path, idPath) {
			fields = append(fields, document.FieldValue{Path: path, Value: raw})
		}
	}
	for i, raw := range g.Values() {
		add(r.match[i].target, raw)
	}
	for i := range r.constants {
		add(r.constants[i].path, r.constants[i].raw)
	}
	for _, v := range s.Values() {
		add(v.Path, v.Value)
	}
	// The setter refuses fields that exclude each other, such as match: a and where: a.b = 1.
	setter, err := document.NewSetter(fields)
	if err != nil {
		return nil, false
	}
	body, _, _, err = setter.Apply([]byte("{}"))
	if err != nil {
		return nil, false
	}
	// where may ask for more than its equalities. Then the body is no target of the group.
	is, ok := r.TargetGroup(body)
	return body, ok && is == g
}

// fixes reports whether match or where fixes a field of the target.
func (r *Rule) fixes(path document.Path) bool {
	return r.matched(path) >= 0 || r.constant(path) != nil
}

// fixed returns the canonical form of a field of the target of a group, nil if
// neither match nor where fixes it.
func (r *Rule) fixed(g Group, path document.Path) []byte {
	if i := r.matched(path); i >= 0 {
		return g.value(i)
	}
	return r.constant(path)
}

// matched returns which pair of match a field of the target belongs to, or -1.
func (r *Rule) matched(path document.Path) int {
	for i := range r.match {
		if equalNames(r.match[i].target, path) {
			return i
		}
	}
	return -1
}

// constant returns the canonical form of what where fixes a field of the target to.
func (r *Rule) constant(path document.Path) []byte {
	for i := range r.constants {
		if equalNames(r.constants[i].path, path) {
			return r.constants[i].form
		}
	}
	return nil
}

func equalNames(a, b document.Path) bool { return len(a) == len(b) && a.Overlaps(b) }
