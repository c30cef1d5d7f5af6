package cascade

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// version is a state of a source item, as far as its copies are concerned.
type version struct {
	position feed.Position
	gone     bool
	left     bool          // it has left a tombstone, which says what its copies have to be
	time     int64         // of the commit by which it went, in unix milliseconds; zero if that is not known
	set      []store.Field // of the target; nil if gone
	digest   uint64
}

// relevance says what a change of a source means to its copies.
type relevance uint8

const (
	irrelevant    relevance = iota
	sourceChanged           // copies must take new values
	sourceDeleted           // the source is there no more
)

// relevance decides whether a change of a source matters: a copied field has
// another value, or the item came to be, or ceased to be, one that the source's
// where selects. With Keep a source that goes means nothing.
func (c *Cascade) relevance(ch *feed.Change) (relevance, error) {
	if ch.Op == feed.OpReplace && !ch.Touches(c.touchesSource) {
		return irrelevant, nil
	}
	before, err := ch.BeforeBody()
	if err != nil {
		return irrelevant, err
	}
	// What counts is whether the item is a source before and after, not whether it is
	// there: a change of type from 'category' to 'draft' deletes a source.
	//
	//	was  is    values     means
	//	yes  yes   the same   nothing
	//	-    yes              new values
	//	yes  no               deleted, which with keep means nothing
	was, is := c.selects(before), c.selects(ch.After)
	switch {
	case is && was && c.sameValues(before, ch.After):
		return irrelevant, nil
	case is:
		return sourceChanged, nil
	case was && c.action() != store.CopySet:
		return sourceDeleted, nil
	}
	return irrelevant, nil
}

func (c *Cascade) touchesSource(pointer string) bool {
	for _, p := range c.sourcePaths {
		if p.Touched(pointer) {
			return true
		}
	}
	return false
}

// selects says whether body, nil for none, is a source.
func (c *Cascade) selects(body []byte) bool {
	return body != nil && (c.sourceWhere == nil || c.sourceWhere.True(body))
}

// action is what becomes of the copies of a source that is gone; CopySet stands
// for nothing.
func (c *Cascade) action() store.CopyAction {
	switch c.cfg.OnSourceDelete {
	case Clear:
		return store.CopyClear
	case Delete:
		return store.CopyDelete
	default:
		return store.CopySet
	}
}

func (c *Cascade) sameValues(a, b []byte) bool {
	for i := range c.set {
		x, _ := document.Get(a, c.set[i].source)
		y, _ := document.Get(b, c.set[i].source)
		if !sameValue(x, y) {
			return false
		}
	}
	return true
}

// sameValue compares two values, nil standing for none.
func sameValue(a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return document.Equal(a, b)
}

// version returns the state of the source that body is at position. It keeps
// nothing of body.
func (c *Cascade) version(position feed.Position, body []byte) version {
	if !c.selects(body) {
		return version{position: position, gone: true, digest: c.digest(nil)}
	}
	set := make([]store.Field, len(c.set))
	for i := range c.set {
		set[i].Path = c.set[i].Target
		if raw, ok := document.Get(body, c.set[i].source); ok {
			set[i].Value = append([]byte{}, raw...)
		}
	}
	return version{position: position, set: set, digest: c.digest(set)}
}

// digest identifies values: equal digests mean equal bytes. Those of a source
// that is gone have one too, and none is zero.
func (c *Cascade) digest(set []store.Field) uint64 {
	// Lengths come before texts, so that ["ab", "c"] and ["a", "bc"] differ, and an absent
	// value is told from an empty one by its length of 0 against 1.
	buf := make([]byte, 0, 128)
	if set == nil {
		buf = append(buf, byte(c.action()))
	}
	for _, f := range set {
		buf = binary.AppendUvarint(buf, uint64(len(f.Path)))
		buf = append(buf, f.Path...)
		if f.Value == nil {
			buf = append(buf, 0)
			continue
		}
		buf = binary.AppendUvarint(buf, uint64(len(f.Value))+1)
		buf = append(buf, f.Value...)
	}
	return max(xxhash.Sum64(buf), 1)
}

// copy returns what a fan-out of v does to the copies at p.
func (c *Cascade) copy(p *targets, v *version) store.Copy {
	cp := store.Copy{Where: c.cfg.TargetWhere, Each: c.cfg.Each, Match: p.match, Set: v.set, Action: store.CopySet}
	if v.gone {
		cp.Action = c.action()
		cp.Set = make([]store.Field, len(c.set))
		for i := range c.set {
			cp.Set[i].Path = c.set[i].Target
		}
	}
	return cp
}
