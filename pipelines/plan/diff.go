package plan

import (
	"bytes"

	"github.com/millrace/millrace/feed/document"
)

// diffJSON returns where two JSON values differ, see document.Diff. path is that of the values. The
// edits share no memory with them.
func diffJSON(path document.Path, old, is []byte) []Edit {
	var edits []Edit
	document.Diff(path, old, is, func(path document.Path, old, is []byte) bool {
		edits = append(edits, Edit{path.String(), bytes.Clone(old), bytes.Clone(is)})
		return true
	})
	return edits
}

// Elements returns the elements of an array, as JSON; none if it is no array.
func Elements(array []byte) [][]byte {
	var all [][]byte
	document.Elements(array, func(_ int, raw []byte) bool {
		all = append(all, raw)
		return true
	})
	return all
}
