package document

import (
	"fmt"

	"github.com/millrace/millrace/feed/document/scan"
)

// locate follows p, written as text, to its last step. It fails if the object or array in which
// the last step would be is missing, or is a scalar.
func (a *applier) locate(p Path, text string) (location, *PatchError) {
	pl := location{path: p, text: text}
	b, i := a.body, scan.Space(a.body, 0)
	if i == len(b) {
		return pl, &PatchError{Msg: errBroken.Msg}
	}
	for n := range p {
		pl.step = &p[n]
		switch {
		case b[i] == '{' && pl.step.inObject():
			pl.inArray = false
			pl.member(b, i)
		case b[i] == '[':
			pl.inArray = true
			pl.element(b, i)
			if pl.found && pl.step.KeyValue != "" {
				pl.indices = append(pl.indices, n, pl.index)
			}
		default:
			end := scan.Value(b, i)
			return pl, &PatchError{Msg: fmt.Sprintf("%s is %s, which holds nothing", parentName(p[:n]), KindOf(b[i:max(i, end)]))}
		}
		if pl.broken() {
			return pl, &PatchError{Msg: errBroken.Msg}
		}
		if n == len(p)-1 {
			break
		}
		// Only the last step may lead to nothing: parents are not made.
		if !pl.found {
			err := pl.missingError()
			err.Msg = parentName(p[:n+1]) + ": " + err.Msg
			return pl, err
		}
		i = pl.start
	}
	return pl, nil
}

// parentName returns what errors call the value at p.
func parentName(p Path) string {
	if len(p) == 0 {
		return "the item"
	}
	return p.Pointer()
}

// broken reports whether a scan met bytes that Check would have refused.
func (pl *location) broken() bool { return pl.last < 0 }

// member looks for the member that the step names in the object at b[i].
func (pl *location) member(b []byte, i int) {
	pl.reset(i)
	for i = scan.FirstMember(b, i); i >= 0; i = scan.Next(b, i) {
		quote, value := scan.MemberValue(b, i)
		end := -1
		if quote >= 0 {
			end = scan.Value(b, value)
		}
		if end < 0 {
			pl.last = -1
			return
		}
		if scan.SameName(b[i+1:quote], pl.step.Name) {
			pl.setFound(b, i, value, end)
			return
		}
		pl.skip(end)
		i = end
	}
}

// element looks for the element that the step means in the array at b[i].
func (pl *location) element(b []byte, i int) {
	pl.reset(i)
	s := pl.step
	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, i) {
		end := scan.Value(b, i)
		if end < 0 {
			pl.last = -1
			return
		}
		if s.isElement(b[:end], i, pl.count) {
			pl.setFound(b, i, i, end)
			return
		}
		pl.skip(end)
		i = end
	}
}

// reset prepares pl for the object or array whose bracket is b[i].
func (pl *location) reset(i int) {
	pl.found, pl.count, pl.last = false, 0, i+1
	pl.prevEnd, pl.nextStart = -1, -1
}

// skip records a member or element that is not the one, and ends before end.
func (pl *location) skip(end int) {
	pl.count++
	pl.prevEnd, pl.last = end, end
}

// setFound records the member or element that the step means.
func (pl *location) setFound(b []byte, first, start, end int) {
	pl.found, pl.first, pl.start, pl.end = true, first, start, end
	pl.index = pl.count
	pl.nextStart = scan.Next(b, end)
}

// Depth returns how many objects and arrays a valid raw value has within each
// other, itself counted.
func Depth(raw []byte) int {
	deep, deepest := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"': // brackets in strings do not count
			if i = scan.String(raw, i+1); i < 0 {
				return deepest
			}
			i--
		case '{', '[':
			deep++
			deepest = max(deepest, deep)
		case '}', ']':
			deep--
		}
	}
	return deepest
}
