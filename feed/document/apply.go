package document

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// Apply carries out the operations in order and returns the item after the last
// and the undo. If any fails, nothing has happened. The error is a *PatchError, or
// a *SizeError if the item would become too large. undo may share memory with
// body; body itself is not written to.
func (p *Patch) Apply(body []byte) (after []byte, undo []Splice, err error) {
	a := applier{orig: body, body: body, undo: make([]Splice, 0, len(p.ops)+1)}
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
	if len(a.body) > SizeMax {
		return nil, nil, &SizeError{Size: len(a.body)}
	}
	slices.Reverse(a.undo)
	return a.body, a.undo, nil
}

// applier carries out a patch. Its body is the caller's until the first change
// and its own, with room for all operations, from then on.
type applier struct {
	orig []byte
	body []byte
	own  bool
	room int
	undo []Splice
}

// splice replaces body[start:end] by text, which must not share memory with body,
// and notes the undo of the change at path.
func (a *applier) splice(start, end int, text []byte, path string) {
	s := Splice{Path: path, Offset: uint32(start), Len: uint32(len(text))}
	if a.own {
		s.Old = bytes.Clone(a.body[start:end])
		a.body = slices.Replace(a.body, start, end, text...)
	} else {
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
		return pl.missing()
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
func (a *applier) add(pl *place, member []byte, valueAt int) *PatchError {
	if !pl.inArray || !pl.found {
		return a.set(pl, member, valueAt)
	}
	if pl.step.KeyValue != "" {
		return &PatchError{Msg: "an element is inserted at an index or at -, not at a key"}
	}
	text := append(bytes.Clone(member[valueAt:]), ',')
	a.splice(pl.start, pl.start, text, pl.holder())
	return nil
}

// set replaces what is at the place or, if nothing is, adds a member or appends
// an element.
func (a *applier) set(pl *place, member []byte, valueAt int) *PatchError {
	if pl.found {
		a.splice(pl.start, pl.end, member[valueAt:], pl.pointer())
		return nil
	}
	text, path := member, pl.pointer()
	if pl.inArray {
		if !pl.isEnd() {
			return pl.missing()
		}
		text, path = member[valueAt-1:], pl.holder()
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

func (a *applier) incr(pl *place, o *patchOp) *PatchError {
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

func (a *applier) remove(pl *place) {
	path := pl.pointer()
	if pl.inArray {
		path = pl.holder()
	}
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
		err = pl.missing()
	}
	if err != nil {
		err.Path = o.From
		return err
	}
	if o.From == o.Path {
		return nil
	}
	value := a.body[pl.start:pl.end]
	if deep := depth(value); len(o.path)+deep > DepthMax {
		return &PatchError{Msg: fmt.Sprintf("the item would be nested more than %d deep", DepthMax)}
	}
	member := append(AppendQuote([]byte{','}, o.path[len(o.path)-1].Name), ':')
	valueAt := len(member)
	member = append(member, value...)
	a.remove(&pl)
	if pl, err = a.locate(o.path, o.Path); err != nil {
		return err
	}
	return a.add(&pl, member, valueAt)
}

// place is where the last step of a path leads: to a value that is there, or to
// where one could be.
type place struct {
	path    Path
	text    string // path as it was given
	step    *Step
	indices []int // what steps by key came to, in order
	inArray bool
	found   bool
	start   int // of the value
	end     int
	first   int // of the member: its name's quote
	index   int // of the element

	prevEnd   int // end of the member or element before, -1 if there is none
	nextStart int // start of the one after, -1
	count     int // of members or elements if nothing was found
	last      int // end of the last of them, or the index behind the bracket
}

// isEnd tells whether a place in an array at which nothing was found is the one
// after the last element.
func (pl *place) isEnd() bool {
	return pl.step.isEnd() || pl.step.IsIndex && pl.step.Index == pl.count
}

// missing is the refusal to do something with what is not there.
func (pl *place) missing() *PatchError {
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

// pointer returns the concrete pointer of the place.
func (pl *place) pointer() string {
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

// holder returns the concrete pointer of the array or object of the place.
func (pl *place) holder() string { return parentPointer(pl.pointer()) }
