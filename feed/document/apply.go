package document

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// Apply carries out the operations in order. It returns the item after the last one, and the
// undo. If an operation fails there is no result. The error is a *PatchError, or a
// *SizeError if the item would become larger than SizeMax. undo may share memory with body;
// body itself is not written to.
func (p *Patch) Apply(body []byte) (after []byte, undo []Splice, err error) {
	a := applier{orig: body, body: body, undo: make([]Splice, 0, len(p.ops)+1)}
	// Nearly all operations add at most their member, so the copy rarely has to grow: a sum
	// may have more digits than its parts, and a move adds what it moves.
	grow := 0
	for i := range p.ops {
		grow += len(p.ops[i].member)
	}
	a.room = len(body) + grow
	for i := range p.ops {
		if err := a.apply(&p.ops[i]); err != nil {
			err.Op = i
			if err.Path == "" {
				err.Path = p.ops[i].Path
			}
			return nil, nil, err
		}
	}
	// Only the result counts: an operation may make room for an earlier one.
	if len(a.body) > SizeMax {
		return nil, nil, &SizeError{Size: len(a.body)}
	}
	slices.Reverse(a.undo) // what was done last is undone first
	return a.body, a.undo, nil
}

// applier carries out one call of Apply. Its body is the caller's until the first change. From
// then on it is a copy with room for all operations, which is changed in place.
type applier struct {
	orig []byte
	body []byte
	own  bool // body is the copy
	room int  // bytes that the copy has room for
	undo []Splice
}

// splice replaces body[start:end] by text, which must not share memory with body, and records
// the undo of the change at path.
func (a *applier) splice(start, end int, text []byte, path string) {
	s := Splice{Path: path, Offset: uint32(start), Len: uint32(len(text))}
	if a.own {
		// The copy is changed in place, so the old bytes must be saved from it.
		s.Old = bytes.Clone(a.body[start:end])
		a.body = slices.Replace(a.body, start, end, text...)
	} else {
		// The caller's body never changes, so the undo may point into it.
		s.Old = a.orig[start:end:end]
		after := make([]byte, 0, a.room)
		after = append(append(after, a.body[:start]...), text...)
		a.body, a.own = append(after, a.body[end:]...), true
	}
	a.undo = append(a.undo, s)
}

func (a *applier) apply(o *patchOp) *PatchError {
	if o.Kind == OpMove {
		return a.move(o)
	}
	pl, err := a.locate(o.path, o.Path)
	if err != nil {
		return err
	}
	switch o.Kind {
	case OpAdd:
		return a.add(&pl, o.member, o.valueAt)
	case OpSet:
		return a.set(&pl, o.member, o.valueAt)
	case OpIncr:
		return a.incr(&pl, o)
	}
	if !pl.found {
		return pl.missingError()
	}
	if o.Kind == OpRemove {
		a.remove(&pl)
		return nil
	}
	a.splice(pl.start, pl.end, o.value, pl.pointer())
	return nil
}

// add sets a member or inserts an element: member is `,"name":value`, where the
// value begins at valueAt.
func (a *applier) add(pl *location, member []byte, valueAt int) *PatchError {
	if !pl.inArray || !pl.found {
		return a.set(pl, member, valueAt)
	}
	if pl.step.KeyValue != "" {
		return &PatchError{Msg: "an element is inserted at an index or at -, not at a key"}
	}
	// The elements behind the new one move, so the change is one of the whole array.
	text := append(bytes.Clone(member[valueAt:]), ',')
	a.splice(pl.start, pl.start, text, pl.containerPointer())
	return nil
}

// set replaces the value at the location. If there is none, it adds a member or appends an
// element.
func (a *applier) set(pl *location, member []byte, valueAt int) *PatchError {
	if pl.found {
		a.splice(pl.start, pl.end, member[valueAt:], pl.pointer())
		return nil
	}
	// member is `,"name":value`, and text what of it is written:
	//
	//	object with members   ,"name":value
	//	empty object          "name":value
	//	array with elements   ,value
	//	empty array           value
	text, path := member, pl.pointer()
	if pl.inArray {
		if !pl.isEnd() {
			return pl.missingError()
		}
		text, path = member[valueAt-1:], pl.containerPointer() // the byte before is dropped below
		if pl.count > 0 {
			text = append([]byte{','}, member[valueAt:]...)
		}
	}
	if pl.count == 0 {
		text = text[1:]
	}
	a.splice(pl.last, pl.last, text, path)
	return nil
}

func (a *applier) incr(pl *location, o *patchOp) *PatchError {
	if !pl.found {
		return a.set(pl, o.member, o.valueAt)
	}
	old := a.body[pl.start:pl.end]
	if !isNumber(old) {
		return &PatchError{Msg: fmt.Sprintf("is %s, not a number", KindOf(old))}
	}
	sum, err := addNumbers(old, o.value)
	if err != nil {
		return &PatchError{Msg: err.Error()}
	}
	a.splice(pl.start, pl.end, sum, pl.pointer())
	return nil
}

func (a *applier) remove(pl *location) {
	path := pl.pointer()
	if pl.inArray {
		path = pl.containerPointer()
	}
	// One comma goes too: the one before it, or, of the first, the one behind.
	//
	//	{"a":1,"b":2}  without b  {"a":1}
	//	{"a":1,"b":2}  without a  {"b":2}
	start, end := pl.first, pl.end
	switch {
	case pl.prevEnd >= 0:
		start = pl.prevEnd
	case pl.nextStart >= 0:
		end = pl.nextStart
	}
	a.splice(start, end, nil, path)
}

func (a *applier) move(o *patchOp) *PatchError {
	pl, err := a.locate(o.from, o.From)
	if err == nil && !pl.found {
		err = pl.missingError()
	}
	if err != nil {
		err.Path = o.From
		return err
	}
	if o.From == o.Path {
		return nil
	}
	value := a.body[pl.start:pl.end]
	if deep := Depth(value); len(o.path)+deep > DepthMax {
		return &PatchError{Msg: fmt.Sprintf("the item would be nested more than %d deep", DepthMax)}
	}
	// The value is copied before it is removed, because removing may overwrite it in place.
	// The target is looked for after that: RFC 6902 defines a move as a remove and an add,
	// so an index behind the removed element has changed by then.
	member := append(AppendQuote([]byte{','}, o.path[len(o.path)-1].Name), ':')
	valueAt := len(member)
	member = append(member, value...)
	a.remove(&pl)
	if pl, err = a.locate(o.path, o.Path); err != nil {
		return err
	}
	return a.add(&pl, member, valueAt)
}

// location is where the last step of a path leads: to a value that is there, or to where one
// could be added. One call of locate sets all of it; the fields from inArray on are those of
// the last step. Numbers are indexes into the item.
type location struct {
	path    Path
	text    string // path as it was given
	step    *Step
	indices []int // of each step by key: its number in path, and the element's index
	inArray bool
	found   bool
	start   int // of the value
	end     int
	first   int // of the member: the opening quote of its name; of an element: start
	index   int // number of the element in its array

	prevEnd   int // end of the member or element before, -1 if there is none
	nextStart int // start of the one after, -1 if there is none
	count     int // how many members or elements came before, all of them if nothing was found
	last      int // end of the last of those, or the index behind the bracket; -1: the JSON is broken
}

// isEnd reports whether a location in an array, at which nothing was found, is the one after
// the last element.
func (pl *location) isEnd() bool {
	return pl.step.isEnd() || pl.step.IsIndex && pl.step.Index == pl.count
}

// missingError returns the error of an operation on a value that is not there.
func (pl *location) missingError() *PatchError {
	switch {
	case !pl.inArray:
		return &PatchError{Msg: "does not exist"}
	case pl.step.IsIndex:
		return &PatchError{Msg: fmt.Sprintf("the index is out of bounds of an array of %d", pl.count)}
	case pl.step.isEnd():
		return &PatchError{Msg: "- is the place after the last element, where nothing is"}
	case pl.step.KeyValue != "":
		return &PatchError{Msg: fmt.Sprintf("no element of the array has %s = %s", pl.step.KeyName, pl.step.KeyValue)}
	}
	return &PatchError{Msg: fmt.Sprintf("%q is no index of an array", pl.step.Name)}
}

// pointer returns the location as a pointer with indexes in place of keys:
// /tags/[id="x"]/name is /tags/3/name.
func (pl *location) pointer() string {
	if len(pl.indices) == 0 {
		return pl.text
	}
	var b []byte
	indices := pl.indices
	for i := range pl.path {
		b = append(b, '/')
		if len(indices) > 0 && indices[0] == i {
			b = strconv.AppendInt(b, int64(indices[1]), 10)
			indices = indices[2:]
			continue
		}
		b = pl.path[i].appendToken(b)
	}
	return string(b)
}

// containerPointer returns the pointer of the array or object in which the location is, with
// indexes in place of keys.
func (pl *location) containerPointer() string { return parentPointer(pl.pointer()) }
