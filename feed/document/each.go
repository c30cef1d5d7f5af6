package document

import "github.com/millrace/millrace/feed/document/scan"

// EachSetter selects the elements of an array that are objects with given values. It gives
// fields of those elements their values, or removes the elements.
type EachSetter struct {
	array   Path
	pointer string // of the array
	match   []FieldValue
	element node // its children are the fields to set
	remove  bool
}

// NewEachSetter compiles a setter for the elements of the array at the path array,
// in which [*] means every element: all that equal every field of match get the
// fields of set, or are removed if remove is true. A nil value in match stands for
// a field that is absent. Paths of fields begin at the element. The error is as of
// NewSetter.
func NewEachSetter(array Path, match, set []FieldValue, remove bool) (*EachSetter, error) {
	s := &EachSetter{array: array, pointer: array.Pointer(), remove: remove}
	for _, f := range match {
		if len(f.Path) == 0 {
			return nil, &PatchError{Op: -1, Msg: "an element cannot be matched as a whole"}
		}
		if f.Value != nil {
			if err := CheckValue(f.Value); err != nil {
				return nil, &PatchError{Op: -1, Path: f.Path.Pointer(), Msg: "the value is no JSON: " + err.Error()}
			}
			f.Value = scan.Trim(f.Value)
		}
		s.match = append(s.match, f)
	}
	switch {
	case len(array) == 0:
		return nil, &PatchError{Op: -1, Msg: "an item is no array"}
	case remove && len(set) > 0:
		return nil, &PatchError{Op: -1, Path: s.pointer, Msg: "elements are either set or removed"}
	}
	// The fields are checked against DepthMax too, and an element is one deeper than its array.
	if err := s.element.compile(set, s.pointer+"/*", len(array)+1); err != nil {
		return nil, err
	}
	return s, nil
}

// Apply returns the item with its elements set or removed, and the undo, as
// Setter.Apply does. An item without the array is left as it is.
func (s *EachSetter) Apply(body []byte) (after []byte, undo []Splice, changed bool, err error) {
	after, undo, changed, err = s.Append(nil, nil, body)
	if err != nil {
		return nil, nil, false, err
	}
	if !changed {
		after = body
	}
	return after, undo, changed, nil
}

// Append is Apply into memory of the caller, as Setter.Append.
func (s *EachSetter) Append(dst []byte, undo []Splice, body []byte) ([]byte, []Splice, bool, error) {
	var e edits
	if err := s.arrays(body, scan.Space(body, 0), s.array, &e); err != nil {
		return dst, undo, false, err
	}
	return e.apply(dst, undo, body)
}

// Holds reports whether Apply would change nothing. The error is as of Apply.
func (s *EachSetter) Holds(body []byte) (bool, error) {
	var e edits
	if err := s.arrays(body, scan.Space(body, 0), s.array, &e); err != nil {
		return false, err
	}
	return e.len() == 0, nil
}

// arrays plans the edits of every array at p from the value at b[i].
func (s *EachSetter) arrays(b []byte, i int, p Path, e *edits) error {
	// The steps up to the first [*] lead to one value. Each [*] branches once for an element.
	n := 0
	for n < len(p) && !p[n].All {
		n++
	}
	if i = find(b, i, p[:n]); i < 0 {
		return nil
	}
	if n == len(p) {
		return s.elements(b, i, e)
	}
	if b[i] == '{' && p[n].inObject() { // the * of a pointer is a name in an object
		if i = scan.Member(b, i, p[n].Name); i < 0 {
			return nil
		}
		return s.arrays(b, i, p[n+1:], e)
	}
	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, i) {
		if err := s.arrays(b, i, p[n+1:], e); err != nil {
			return err
		}
		if i = scan.Value(b, i); i < 0 {
			return errBroken
		}
	}
	return nil
}

// elements plans the edits of the array at b[i].
func (s *EachSetter) elements(b []byte, i int, e *edits) error {
	prevEnd, kept := -1, false
	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, i) {
		end := scan.Value(b, i)
		if end < 0 {
			return errBroken
		}
		removed := false
		if s.matches(b[:end], i) {
			// The path of the array, because the elements behind a removed one move.
			if removed = s.remove; removed {
				removal{i, end, prevEnd, kept}.plan(b, s.pointer, e)
			} else if err := setMembers(b, i, s.element.children, e); err != nil {
				return err
			}
		}
		kept = kept || !removed
		i, prevEnd = end, end
	}
	return nil
}

// matches reports whether the element at b[i] is an object that holds the values of
// match.
func (s *EachSetter) matches(b []byte, i int) bool {
	if b[i] != '{' {
		return false
	}
	for n := range s.match {
		// Present and wanted: the values are compared. Absent and wanted absent: it matches.
		// One of the two alone: it does not.
		f := &s.match[n]
		v := find(b, i, f.Path)
		if v < 0 || f.Value == nil {
			if v < 0 && f.Value == nil {
				continue
			}
			return false
		}
		end := scan.Value(b, v)
		if end < 0 || !Equal(b[v:end], f.Value) {
			return false
		}
	}
	return true
}
