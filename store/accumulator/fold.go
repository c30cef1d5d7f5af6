package accumulator

import (
	"bytes"
	"crypto/sha256"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// Fold adds the change of a source item to d: it removes the members of before and adds those of
// after. Both are whole items, or nil if there is none; key and id are the item's. Fold keeps
// neither before nor after.
func (r *Rule) Fold(d *Delta, key feed.PartitionKey, id string, before, after []byte) {
	r.mustOwn(d)
	if bytes.Equal(before, after) {
		return
	}
	f := folder{Rule: r, d: d, key: key, id: id}
	// All members are removed and added. Those that did not change cancel out in d.
	f.item(before, -1)
	f.item(after, 1)
	d.cursor.release()
}

// folder folds the members of one item into d, n times.
type folder struct {
	*Rule
	d   *Delta
	key feed.PartitionKey
	id  string
	n   int64
}

func (f *folder) item(body []byte, n int64) {
	if body == nil || f.sourceWhere != nil && !f.sourceWhere.True(body) {
		return
	}
	f.n = n
	f.d.cursor.start(body)
	f.members(0)
}

// members folds the members that lie in the element at a depth.
func (f *folder) members(depth int) {
	if depth == len(f.levels) {
		f.member(depth)
		return
	}
	f.d.cursor.eachElement(f.levels[depth], depth, func() { f.members(depth + 1) })
}

// eachElement enters the elements of the array at a path from the element at a depth.
func (c *cursor) eachElement(path document.Path, depth int, do func()) {
	arr := c.levels[depth].element
	if len(path) > 0 {
		var ok bool
		if arr, ok = document.Get(arr, path); !ok {
			return
		}
	}
	document.Elements(arr, func(i int, raw []byte) bool {
		c.enter(depth+1, i, raw)
		do()
		return true
	})
}

// member folds the member at a depth.
func (f *folder) member(depth int) {
	roots := f.d.cursor.rootsAt(depth)
	g, ok := f.d.group[:0], true
	for i := 0; ok && i < len(f.match); i++ {
		g, ok = appendScalar(g, f.match[i].source.value(roots))
	}
	f.d.group = g
	if !ok || len(g) > GroupBytesMax {
		return
	}
	share := f.d.share(g)
	share.members += f.n
	for i := range f.fields {
		f.part(&share.parts[i], &f.fields[i], 0, depth)
	}
}

// part folds the element at a depth into the part of a field. in is how many of the field's own
// arrays the element is in.
func (f *folder) part(p *part, to *field, in, depth int) {
	if in == len(to.levels) {
		f.foldValue(p, to, f.d.cursor.rootsAt(depth))
		return
	}
	f.d.cursor.eachElement(to.levels[in], depth, func() { f.part(p, to, in+1, depth+1) })
}

// foldValue folds the value of one member, or of one element of the field's arrays.
func (f *folder) foldValue(p *part, to *field, roots [][]byte) {
	if to.where != nil && !to.where.TrueIn(roots...) {
		return
	}
	switch to.Func {
	case Count:
		p.count += f.n
	case Sum, Avg:
		v := to.expr.EvalIn(roots...)
		if v.Type() != query.Number {
			return
		}
		if number, ok := parseDecimal(v.Raw()); ok {
			if f.n < 0 {
				number = number.neg()
			}
			p.sum = p.sum.add(number)
			if to.Func == Avg {
				p.count += f.n
			}
		}
	case Min, Max:
		if key, ok := f.d.rank(to, to.expr.EvalIn(roots...)); ok {
			f.d.addEntry(p, key, nil, f.n)
		}
	case Latest:
		key, ok := f.d.rank(to, to.expr.EvalIn(roots...))
		if !ok {
			return
		}
		// Key and id order members of equal By. The digest makes a changed copy another key, so
		// that the removal of the old copy and the addition of the new one do not cancel out.
		copied := to.copies.appendObject(f.d.copied[:0], roots)
		key = appendEscaped(key, f.key.Encoded())
		key = appendEscaped(key, f.id)
		digest := sha256.Sum256(copied)
		key = append(key, digest[:digestBytes]...)
		f.d.form, f.d.copied = key, copied
		f.d.addEntry(p, key, copied, f.n)
	}
}
