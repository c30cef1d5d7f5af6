package document

import (
	"fmt"
	"slices"
)

// Splice undoes one step of a patch, exact to the byte: it replaces the Len bytes at Offset
// of the item by Old.
type Splice struct {
	// Path is the JSON pointer of what the patch changed.
	Path string
	// Offset and Len, in bytes, are where Old is written and how many bytes it replaces.
	Offset, Len uint32
	// Old are the bytes that stood there before the patch; may be empty.
	Old []byte
}

// Undo returns the item as it was before the change that made after and undo: the
// splices are applied in order. The result shares no memory with after unless
// there are no splices. The error says that they do not fit after.
func Undo(after []byte, undo []Splice) ([]byte, error) {
	if len(undo) == 0 {
		return after, nil
	}
	// One pass finds the size of the result, the largest size on the way, and whether each
	// splice lies before the one before it, as those of setters do.
	size, peak, descending := len(after), len(after), true
	end := uint64(len(after))
	for i := range undo {
		s := &undo[i]
		size += len(s.Old) - int(s.Len)
		peak = max(peak, size)
		if uint64(s.Offset)+uint64(s.Len) > end {
			descending = false
		}
		end = uint64(s.Offset)
	}
	if descending {
		return undoDescending(after, undo, size), nil
	}
	// An offset counts bytes that an earlier splice has moved, so the splices must be
	// applied one after the other: in place, in a copy that never has to grow.
	//
	//	after  {"b":2,"c":3}
	//	undo   1, 0 -> "a":1,       {"a":1,"b":2,"c":3}
	//	undo   17, 1 -> 4           {"a":1,"b":2,"c":4}
	body := append(make([]byte, 0, peak), after...)
	for i := range undo {
		s := &undo[i]
		from, to := int(s.Offset), int(s.Offset)+int(s.Len)
		if to > len(body) {
			return nil, fmt.Errorf("undo splice %d (%s) replaces bytes %d to %d of %d", i, s.Path, from, to, len(body))
		}
		body = slices.Replace(body, from, to, s.Old...)
	}
	return body, nil
}

// undoDescending undoes splices of which each lies before the one before it. No splice moves
// bytes that a later one names, so all offsets are those of after, and one copy serves all.
// With 16 splices on 4 KiB that took a tenth of the time of one copy a splice.
func undoDescending(after []byte, undo []Splice, size int) []byte {
	body := make([]byte, 0, size)
	from := 0
	for i := len(undo) - 1; i >= 0; i-- {
		s := &undo[i]
		body = append(append(body, after[from:s.Offset]...), s.Old...)
		from = int(s.Offset) + int(s.Len)
	}
	return append(body, after[from:]...)
}

// edit replaces body[start:end] by text. It belongs to the change at path.
type edit struct {
	start, end int
	text       []byte
	path       string
}

// edits are the edits of one item, in the order of their places in it; they do not overlap.
// The first four live on the caller's stack.
type edits struct {
	few  [4]edit
	n    int // of few
	more []edit
}

func (e *edits) add(start, end int, text []byte, path string) {
	if e.n < len(e.few) {
		e.few[e.n] = edit{start, end, text, path}
		e.n++
		return
	}
	e.more = append(e.more, edit{start, end, text, path})
}

func (e *edits) len() int { return e.n + len(e.more) }

func (e *edits) at(i int) *edit {
	if i < e.n {
		return &e.few[i]
	}
	return &e.more[i-e.n]
}

// apply appends the edited body to dst and its splices to undo.
func (e *edits) apply(dst []byte, undo []Splice, body []byte) ([]byte, []Splice, bool, error) {
	if e.len() == 0 {
		return dst, undo, false, nil
	}
	size := len(body)
	for i := range e.len() {
		size += len(e.at(i).text) - (e.at(i).end - e.at(i).start)
	}
	if size > SizeMax {
		return dst, undo, false, &SizeError{Size: size}
	}
	dst = slices.Grow(dst, size)
	undo = slices.Grow(undo, e.len())
	base, from, first := len(dst), 0, len(undo)
	// Offsets of the undo are those of the result, up to each edit: the undo runs backwards,
	// so that nothing before an edit has moved when its splice is undone.
	for i := range e.len() {
		ed := e.at(i)
		dst = append(dst, body[from:ed.start]...)
		undo = append(undo, Splice{
			Path:   ed.path,
			Offset: uint32(len(dst) - base),
			Len:    uint32(len(ed.text)),
			Old:    body[ed.start:ed.end:ed.end],
		})
		dst = append(dst, ed.text...)
		from = ed.end
	}
	dst = append(dst, body[from:]...)
	slices.Reverse(undo[first:])
	return dst, undo, true, nil
}
