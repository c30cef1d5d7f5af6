package document

import (
	"fmt"
	"unicode/utf8"
)

// SyntaxError says where and why bytes are not an item.
type SyntaxError struct {
	Offset int // in bytes, from 0
	Line   int // from 1
	Column int // in characters, from 1
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Msg)
}

// SizeError says that an item is, or would become, larger than SizeMax.
type SizeError struct {
	Size int // in bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the item has %d bytes, more than %d", e.Size, SizeMax)
}

// PatchError says which operation of a patch, or which field of a setter, cannot
// be carried out, and why.
type PatchError struct {
	Op   int    // index of the operation, from 0; -1 for a field, or for the patch as a whole
	Path string // as the operation gave it; the pointer of a field
	Msg  string
}

func (e *PatchError) Error() string {
	switch {
	case e.Op < 0 && e.Path == "":
		return e.Msg
	case e.Op < 0:
		return fmt.Sprintf("%s: %s", e.Path, e.Msg)
	}
	return fmt.Sprintf("operation %d: %q: %s", e.Op, e.Path, e.Msg)
}

// PathError says where and why a text is not a path.
type PathError struct {
	Text   string
	Offset int // in bytes, from 0
	Msg    string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %q, column %d: %s", e.Text, utf8.RuneCountInString(e.Text[:e.Offset])+1, e.Msg)
}

// syntaxError returns a SyntaxError for body[offset].
func syntaxError(body []byte, offset int, format string, args ...any) *SyntaxError {
	e := &SyntaxError{Offset: offset, Line: 1, Column: 1, Msg: fmt.Sprintf(format, args...)}
	for i := 0; i < offset && i < len(body); {
		_, n := utf8.DecodeRune(body[i:])
		e.Column++
		if body[i] == '\n' {
			e.Line, e.Column = e.Line+1, 1
		}
		i += n
	}
	return e
}
