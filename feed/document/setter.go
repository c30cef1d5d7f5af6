package document

import (
	"fmt"

	"github.com/millrace/millrace/feed/document/scan"
)

// FieldsMax bounds the fields of one setter.
const FieldsMax = 64

// FieldValue is the value of a field, raw JSON. A nil Value stands for absence.
type FieldValue struct {
	Path  Path
	Value []byte
}

// Setter gives the fields of an item their values in one pass.
//
// A field with a nil value is removed if it is there. A field that is Equal to its value
// already stays as it is, byte for byte. Objects that are missing on the way to a field are
// made, also in place of null; new members follow the others. Elements of arrays are
// neither made nor removed.
type Setter struct {
	root node
}

// node is one step on the way to fields. The fields of a setter form a tree, so that an item
// is scanned once for all of them.
type node struct {
	step     Step
	path     string // pointer
	leaf     bool
	value    []byte // of a leaf; nil removes it
	children []node
	// fresh is the text that is written for a missing member, `,"name":value`; its value
	// begins at freshValue. It is nil if nothing is to be written, or if nothing can be,
	// for the reason in obstacle.
	fresh      []byte
	freshValue int
	obstacle   string
}

// NewSetter compiles fields, at most FieldsMax. The error is a *PatchError that
// names the field: one that is no JSON, the item itself, all elements of an array,
// or a field that is or holds another field of the list.
func NewSetter(fields []FieldValue) (*Setter, error) {
	s := &Setter{}
	if err := s.root.compile(fields, "", 0); err != nil {
		return nil, err
	}
	return s, nil
}

// Apply returns the item with its fields set, and the undo. changed is false, and
// after is body, if every field has its value already. undo shares memory with
// body and with the setter. The error is a *PatchError if the way to a field leads
// through something that is no object, or a *SizeError.
func (s *Setter) Apply(body []byte) (after []byte, undo []Splice, changed bool, err error) {
	after, undo, changed, err = s.Append(nil, nil, body)
	if err != nil {
		return nil, nil, false, err
	}
	if !changed {
		after = body
	}
	return after, undo, changed, nil
}

// Append is Apply into memory of the caller: it appends the item after the change
// to dst and the undo to undo, and returns both as they were if nothing changes.
// It allocates only if they must grow.
func (s *Setter) Append(dst []byte, undo []Splice, body []byte) ([]byte, []Splice, bool, error) {
	var e edits
	if err := s.plan(body, &e); err != nil {
		return dst, undo, false, err
	}
	return e.apply(dst, undo, body)
}

// Holds reports whether every field has its value already, so that Apply would
// change nothing. The error is as of Apply.
func (s *Setter) Holds(body []byte) (bool, error) {
	var e edits
	if err := s.plan(body, &e); err != nil {
		return false, err
	}
	return e.len() == 0, nil
}

func (s *Setter) plan(body []byte, e *edits) error {
	i := scan.Space(body, 0)
	if i >= len(body) || body[i] != '{' {
		return &PatchError{Op: -1, Msg: "the item is no object"}
	}
	return setMembers(body, i, s.root.children, e)
}

// compile makes n, which stands depth deep in the item, the root of the tree of
// fields, whose pointers begin with prefix.
func (n *node) compile(fields []FieldValue, prefix string, depth int) error {
	if len(fields) > FieldsMax {
		return &PatchError{Op: -1, Msg: fmt.Sprintf("%d fields, more than %d", len(fields), FieldsMax)}
	}
	n.path = prefix
	n.children = make([]node, 0, countFirst(fields))
	for _, f := range fields {
		refuse := func(msg string) error { return &PatchError{Op: -1, Path: f.Path.Pointer(), Msg: msg} }
		if len(f.Path) == 0 {
			return refuse("an item cannot be set as a whole")
		}
		value := scan.Trim(f.Value)
		if f.Value != nil {
			deep, err := check(value, 1)
			if err != nil {
				return refuse("the value is no JSON: " + err.Error())
			}
			if depth+len(f.Path)+deep > DepthMax {
				return refuse(fmt.Sprintf("nested more than %d deep", DepthMax))
			}
		} else {
			value = nil
		}
		at := n
		for j := range f.Path {
			if f.Path[j].All && f.Path[j].Name == "" {
				return refuse("[*] has no single value to set")
			}
			if at.leaf {
				return refuse("is set together with a field that holds it")
			}
			at = at.child(f.Path[j])
		}
		if at.leaf || len(at.children) > 0 {
			return refuse("is set twice or together with a field that it holds")
		}
		at.leaf, at.value = true, value
	}
	n.prepare()
	return nil
}

// countFirst counts the first steps of fields, those again that do not follow each other.
func countFirst(fields []FieldValue) int {
	n := 0
	for i, f := range fields {
		if len(f.Path) > 0 && (i == 0 || len(fields[i-1].Path) == 0 || fields[i-1].Path[0] != f.Path[0]) {
			n++
		}
	}
	return n
}

// child returns n's child for a step, a new one if there is none.
func (n *node) child(step Step) *node {
	for i := range n.children {
		if n.children[i].step == step {
			return &n.children[i]
		}
	}
	path := string(step.appendToken(append([]byte(n.path), '/')))
	n.children = append(n.children, node{step: step, path: path})
	return &n.children[len(n.children)-1]
}

// prepare computes what n's descendants become where they are missing.
func (n *node) prepare() {
	for i := range n.children {
		c := &n.children[i]
		c.prepare()
		if c.leaf && c.value == nil {
			continue // what is missing needs no removal
		}
		body := c.value
		if !c.leaf {
			body = c.object()
			if c.obstacle != "" || body == nil {
				continue
			}
		}
		if s := c.step; s.IsIndex || s.KeyValue != "" || !s.inObject() {
			c.obstacle = "there is no such element, and a setter makes none"
			continue
		}
		c.fresh = make([]byte, 0, len(`,"":`)+len(c.step.Name)+len(body)) // of a plain name
		c.fresh = append(AppendQuote(append(c.fresh, ','), c.step.Name), ':')
		c.freshValue = len(c.fresh)
		c.fresh = append(c.fresh, body...)
	}
}

// object returns the object that n is if it is missing, nil if it stays missing.
func (n *node) object() []byte {
	var body []byte
	for i := range n.children {
		c := &n.children[i]
		if c.obstacle != "" {
			n.obstacle = c.obstacle
			return nil
		}
		if c.fresh != nil {
			body = append(body, c.fresh...)
		}
	}
	if body == nil {
		return nil
	}
	body[0] = '{' // in place of the first comma
	return append(body, '}')
}

// missingError returns an error if n is not there and cannot be made.
func (n *node) missingError() error {
	if n.obstacle == "" {
		return nil
	}
	return &PatchError{Op: -1, Path: n.path, Msg: n.obstacle}
}

// errBroken says that a scan met bytes that Check would have refused.
var errBroken = &PatchError{Op: -1, Msg: "the item is no valid JSON"}

// setMembers plans the edits for the members of the object at b[i].
func setMembers(b []byte, i int, nodes []node, e *edits) error {
	// seen has a bit for each node, which FieldsMax allows. kept says that a member before
	// this one stays, so that what follows needs a comma.
	seen, unmatched := uint64(0), len(nodes)
	prevEnd, kept, last := -1, false, i+1
	for i = scan.FirstMember(b, i); i >= 0 && unmatched > 0; i = scan.Next(b, i) {
		quote, value := scan.MemberValue(b, i)
		if quote < 0 {
			return errBroken
		}
		n := findNode(nodes, seen, b[i+1:quote])
		end := scan.Value(b, value)
		if end < 0 {
			return errBroken
		}
		removed := false
		if n >= 0 {
			seen |= 1 << n
			unmatched--
			if removed = nodes[n].leaf && nodes[n].value == nil; removed {
				removal{i, end, prevEnd, kept}.plan(b, nodes[n].path, e)
			} else if err := nodes[n].set(b, value, end, e); err != nil {
				return err
			}
		}
		kept = kept || !removed
		i, prevEnd, last = end, end, end
	}
	if unmatched == 0 {
		return nil
	}
	// The loop has come to the end of the object. What was not met is missing, and is added
	// there.
	for n := range nodes {
		if seen&(1<<n) != 0 {
			continue
		}
		if err := nodes[n].missingError(); err != nil {
			return err
		}
		if fresh := nodes[n].fresh; fresh != nil {
			if !kept {
				fresh = fresh[1:] // no comma
			}
			e.add(last, last, fresh, nodes[n].path)
			kept = true
		}
	}
	return nil
}

// findNode returns the index of the node that a member of the raw name is, of
// those whose bit in seen is not set, or -1.
func findNode(nodes []node, seen uint64, name []byte) int {
	for n := range nodes {
		if seen&(1<<n) == 0 && nodes[n].step.inObject() && scan.SameName(name, nodes[n].step.Name) {
			return n
		}
	}
	return -1
}

// removal is a member or element, from its first byte to its end, that is to be removed.
type removal struct {
	start, end int
	prevEnd    int  // end of what stands before it, -1 if nothing does
	kept       bool // something before it stays
}

// plan removes it together with one comma: the one before it if anything before it stays,
// else the one behind it.
//
//	{"a":1,"b":2,"c":3}   without a      {"b":2,"c":3}
//	                      without a, b   {"c":3}
//	                      without c      {"a":1,"b":2}
func (r removal) plan(b []byte, path string, e *edits) {
	if r.kept {
		e.add(r.prevEnd, r.end, nil, path)
		return
	}
	if n := scan.Next(b, r.end); n >= 0 {
		r.end = n
	}
	e.add(r.start, r.end, nil, path)
}

// set plans the edits that give the value in b[start:end] what n and its children ask.
func (n *node) set(b []byte, start, end int, e *edits) error {
	if n.leaf {
		if !Equal(b[start:end], n.value) {
			e.add(start, end, n.value, n.path)
		}
		return nil
	}
	switch b[start] {
	case '{':
		return setMembers(b, start, n.children, e)
	case '[':
		return setElements(b, start, n.children, e)
	}
	if n.fresh == nil && n.obstacle == "" {
		return nil // only removals below, of what is not there
	}
	// Null counts as an object that is missing. Any other scalar is a value that would be
	// lost: an error.
	if b[start] == 'n' && n.fresh != nil {
		e.add(start, end, n.fresh[n.freshValue:], n.path)
		return nil
	}
	return &PatchError{Op: -1, Path: n.path, Msg: fmt.Sprintf("is %s, not an object", KindOf(b[start:end]))}
}

// isElement reports whether the step means the element at b[i], which is the one at
// index.
func (s *Step) isElement(b []byte, i, index int) bool {
	return s.IsIndex && s.Index == index || s.KeyValue != "" && b[i] == '{' && hasKey(b, i, s.KeyName, s.KeyValue)
}

// setElements plans the edits for the elements of the array at b[i].
func setElements(b []byte, i int, nodes []node, e *edits) error {
	seen, unmatched := uint64(0), len(nodes)
	index := 0
	for i = scan.FirstElement(b, i); i >= 0 && unmatched > 0; i = scan.Next(b, i) {
		end := scan.Value(b, i)
		if end < 0 {
			return errBroken
		}
		// Two steps may mean one element, [0] and [id = "x"]. Its fields would then be planned
		// twice, so that is refused.
		found := -1
		for n := range nodes {
			if seen&(1<<n) != 0 || !nodes[n].step.isElement(b[:end], i, index) {
				continue
			}
			if found >= 0 {
				return &PatchError{Op: -1, Path: nodes[n].path, Msg: "is the same element as " + nodes[found].path}
			}
			found = n
		}
		if found >= 0 {
			seen |= 1 << found
			unmatched--
			if nodes[found].leaf && nodes[found].value == nil {
				return &PatchError{Op: -1, Path: nodes[found].path, Msg: "is an element of an array; a setter removes members only"}
			}
			if err := nodes[found].set(b, i, end, e); err != nil {
				return err
			}
		}
		i = end
		index++
	}
	for n := range nodes {
		if seen&(1<<n) == 0 && (nodes[n].fresh != nil || nodes[n].obstacle != "") {
			return &PatchError{Op: -1, Path: nodes[n].path, Msg: "there is no such element, and a setter makes none"}
		}
	}
	return nil
}
