package cascade

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// Reference is one copy that an item holds.
type Reference struct {
	// Element is the index in the array of each; -1 if the item is the copy.
	Element int
	// Source is the item that it copies. If Possible is false its match fields
	// cannot be a key and id of any item, and the reference dangles.
	Source   store.ItemRef
	Possible bool
	// Match are the values by which the copy is matched.
	Match []store.Field
	// Has are the copied fields as they are; a nil value is an absent field. They
	// alias the item.
	Has []store.Field
}

// Verdict is how a copy compares with its source.
type Verdict uint8

// The verdicts.
const (
	// Equal: the copy is what its source says.
	Equal Verdict = iota + 1
	// Drift: it is not.
	Drift
	// Dangling: there is no source, and there never was as far as is known; or it was
	// deleted before the item was written, which onSourceDelete: delete leaves.
	Dangling
)

func (v Verdict) String() string {
	switch v {
	case Equal:
		return "equal"
	case Drift:
		return "drift"
	case Dangling:
		return "dangling"
	}
	return "none"
}

// Holds says whether an item of the target can hold copies: whether where is true
// of it.
func (c *Cascade) Holds(item []byte) bool { return c.targetWhere == nil || c.targetWhere.True(item) }

// Expected returns the copies that an item of the target holds, each with the
// source that it must equal.
func (c *Cascade) Expected(item []byte) []Reference {
	if !c.Holds(item) {
		return nil
	}
	var refs []Reference
	c.holders(item, func(element int, holder []byte) {
		raws, ok := c.matched(nil, holder)
		if !ok {
			return
		}
		r := Reference{Element: element, Match: make([]store.Field, len(c.match)), Has: make([]store.Field, len(c.set))}
		for i := range c.match {
			r.Match[i] = store.Field{Path: c.match[i].Target, Value: raws[i]}
		}
		r.Source, r.Possible = c.sourceRef(raws)
		for i := range c.set {
			raw, _ := document.Get(holder, c.set[i].target)
			r.Has[i] = store.Field{Path: c.set[i].Target, Value: raw}
		}
		refs = append(refs, r)
	})
	return refs
}

// Compare says how the copy r is, in an item that a client wrote last at modified, given
// its source as it is now.
func (c *Cascade) Compare(r *Reference, source *Origin, modified int64) Verdict {
	if !r.Possible {
		return Dangling
	}
	return c.judge(&source.v, func(i int) []byte { return r.Has[i].Value }, modified)
}

// Wanted returns the fields of the copies of source as they must be; nil values if they
// must not be there.
func (c *Cascade) Wanted(source *Origin) []store.Field { return c.copy(&targets{}, &source.v).Set }

// RepairOf returns the copy by which a repair makes r equal to its source.
func (c *Cascade) RepairOf(r *Reference, source *Origin) store.Copy {
	return c.repairCopy(&source.v, r.Match)
}

// holders calls visit with each object of item that can be a copy: the item, or
// each element of its array.
func (c *Cascade) holders(item []byte, visit func(element int, holder []byte)) {
	if len(c.each) == 0 {
		visit(-1, item)
		return
	}
	array, ok := document.Get(item, c.each)
	if !ok || array[0] != '[' {
		return
	}
	document.Elements(array, func(i int, raw []byte) bool {
		if raw[0] == '{' {
			visit(i, raw)
		}
		return true
	})
}

// matched appends the values of holder's match fields; ok is false if one is
// absent or null: the holder copies nothing.
func (c *Cascade) matched(dst [][]byte, holder []byte) (raws [][]byte, ok bool) {
	for i := range c.match {
		raw, ok := document.Get(holder, c.match[i].target)
		// A null names nothing, as in a join.
		if !ok || raw[0] == 'n' {
			return dst, false
		}
		dst = append(dst, raw)
	}
	return dst, true
}

// sourceRef returns the source that match values name; ok is false if they cannot
// name any.
func (c *Cascade) sourceRef(raws [][]byte) (ref store.ItemRef, ok bool) {
	value := func(p *part) ([]byte, bool) {
		// All fields that name the component have to agree: one that differs names another
		// source, and there is no item that is both.
		raw := p.constant
		for _, i := range p.pairs {
			if raw != nil && !document.Equal(raw, raws[i]) {
				return nil, false
			}
			raw = raws[i]
		}
		return raw, true
	}
	raw, ok := value(&c.sourceID)
	if !ok {
		return ref, false
	}
	id, ok := document.Text(raw)
	if !ok || document.CheckID(id) != nil {
		return ref, false
	}
	var buf [feed.KeyLevelsMax]any
	components := buf[:0]
	for i := range c.sourceKey {
		raw, ok := value(&c.sourceKey[i])
		if !ok {
			return ref, false
		}
		v, err := component(raw)
		if err != nil {
			return ref, false
		}
		components = append(components, v)
	}
	key, err := feed.NewPartitionKey(components...)
	return store.ItemRef{Key: key, ID: id}, err == nil
}

var errNotScalar = errors.New("an array or object cannot be a partition key")

// component returns a JSON scalar as a component of a partition key.
func component(raw []byte) (any, error) {
	switch raw[0] {
	case '"':
		s, ok := document.Text(raw)
		if !ok {
			return nil, errNotScalar
		}
		return s, nil
	case 't', 'f':
		return raw[0] == 't', nil
	case 'n':
		return nil, nil
	case '[', '{':
		return nil, errNotScalar
	}
	// As text: a key refuses what a double does not hold exactly, and as a float64
	// 9007199254740993 would already be its neighbour.
	return json.Number(raw), nil
}

// touchesTarget says whether a change at pointer can change what is right for an
// item of the target.
func (c *Cascade) touchesTarget(pointer string) bool {
	return slices.ContainsFunc(c.targetPaths, func(p document.Path) bool { return p.Touched(pointer) })
}
