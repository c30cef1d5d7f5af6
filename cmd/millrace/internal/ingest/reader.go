// Package ingest reads JSON items from a file and writes them by many writers,
// in a way that can be stopped and gone on with.
//
//	file ── gunzip? ── array or lines ──▶ records, each with its line
//	records ──▶ writers, one for each item id ──▶ Write
//	                     └─▶ what was rejected: line and reason
//	all records up to n are finished ──▶ state file: go on behind n
//
// A record that is broken is rejected and the others go on: one line of lines of
// JSON, one element of an array. Writes are upserts, so writing one again, which
// happens to the few behind the mark after a stop, does no harm. Records with the
// same id are written in their order.
package ingest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/store"
)

// Format is how items stand in a file.
type Format string

// The formats, which are told apart by content.
const (
	FormatArray Format = "array" // one JSON array
	FormatLines Format = "lines" // a JSON object in each line
)

// recordBytesMax bounds what is kept of one record: an item, with white space.
const recordBytesMax = 2 * store.ItemBytesMax

// Record is one item as it stands in the file.
type Record struct {
	// Number counts from 1.
	Number int64
	// Line is that of its first byte.
	Line int
	// Body is the item's JSON. It is not checked, except that it is not empty.
	Body []byte
	// Err says why there is no Body.
	Err error
}

// Reader reads records. Not safe for concurrent use.
type Reader struct {
	in     *bufio.Reader
	format Format
	number int64
	line   int
	column int // of the next byte, from zero
	ended  bool
	after  bool // of an array: an element came before
}

// NewReader looks at the beginning of in and returns a reader of its records.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 256<<10), line: 1}
	if head, err := r.in.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		zip, err := gzip.NewReader(r.in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		r.in = bufio.NewReaderSize(zip, 256<<10)
	}
	// Behind the gunzip: the mark is part of the text.
	if head, err := r.in.Peek(3); err == nil && bytes.Equal(head, []byte("\xef\xbb\xbf")) {
		_, _ = r.in.Discard(3) // a byte-order mark, which was peeked at
	}
	c, err := r.skipSpace()
	switch {
	case errors.Is(err, io.EOF):
		r.format, r.ended = FormatLines, true // empty, which is nothing wrong
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", r.line, err)
	case c == '[':
		r.format = FormatArray
	case c == '{':
		r.format = FormatLines
		if err := r.in.UnreadByte(); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("line %d: begins with %q; a JSON array of items, or an item in each line, is expected", r.line, c)
	}
	return r, nil
}

// Format returns how the items stand in the file.
func (r *Reader) Format() Format { return r.format }

// Next returns the next record, or io.EOF. Another error ends the reading: the
// file cannot be read on.
func (r *Reader) Next() (Record, error) {
	if r.ended {
		return Record{}, io.EOF
	}
	var rec Record
	var err error
	if r.format == FormatLines {
		rec, err = r.nextLine()
	} else {
		rec, err = r.nextElement()
	}
	if err != nil {
		r.ended = true
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("line %d: %w", r.line, err)
		}
		return Record{}, err
	}
	r.number++
	rec.Number = r.number
	return rec, nil
}

// nextLine reads a line that is not blank.
func (r *Reader) nextLine() (Record, error) {
	for {
		rec := Record{Line: r.line}
		full := false
		for {
			// A line is read to its end even if it is too long, and then nothing more of it is kept: what
			// follows is a record of its own. part is the reader's buffer, so it is copied.
			part, err := r.in.ReadSlice('\n')
			if full = full || len(rec.Body)+len(part) > recordBytesMax; !full {
				rec.Body = append(rec.Body, part...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			// The last line may end without a line break.
			if err != nil && (!errors.Is(err, io.EOF) || len(rec.Body) == 0 && !full) {
				return rec, err
			}
			break
		}
		r.line++
		if full {
			return tooLarge(rec), nil
		}
		if rec.Body = bytes.TrimSpace(rec.Body); len(rec.Body) > 0 {
			return rec, nil
		}
	}
}

func tooLarge(rec Record) Record {
	rec.Body, rec.Err = nil, fmt.Errorf("larger than %d bytes; an item has at most %d", recordBytesMax, store.ItemBytesMax)
	return rec
}

// nextElement reads one element of the array.
func (r *Reader) nextElement() (Record, error) {
	c, err := r.skipSpace()
	if err != nil {
		return r.cutOff(err)
	}
	// There is no comma behind an element that was given up: passBroken stops where the next one
	// begins. A first comma with nothing before it is left to element, which rejects it.
	if r.after && c == ',' {
		if c, err = r.skipSpace(); err != nil {
			return r.cutOff(err)
		}
	}
	if c == ']' {
		return Record{}, r.trailing()
	}
	r.after = true
	if err := r.unread(); err != nil {
		return Record{}, err
	}
	return r.element()
}

// element reads up to the comma or bracket behind the element. Inside, only
// strings and brackets are looked at: whether it is JSON is checked by who takes
// it. A string that goes over the end of its line is none in JSON; the element is
// given up there, so that a missing quote does not spoil all that follows.
func (r *Reader) element() (Record, error) {
	rec, begun := Record{Line: r.line}, r.column
	depth, inString, escaped, full := 0, false, false, false
	for {
		c, err := r.next()
		if err != nil {
			return r.cutOff(err)
		}
		switch {
		case c == '\n':
			if inString {
				rec.Body, rec.Err = nil, errors.New("a string does not end in its line")
				return rec, r.passBroken(begun)
			}
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			depth++
		// Before brackets are counted down: at depth 0 this ] is the array's.
		case depth == 0 && (c == ',' || c == ']'):
			if err := r.unread(); err != nil {
				return rec, err
			}
			if full {
				return tooLarge(rec), nil
			}
			if rec.Body = bytes.TrimSpace(rec.Body); len(rec.Body) == 0 {
				rec.Err = errors.New("an item is expected before the comma")
			}
			return rec, nil
		// A bracket too many makes the element no JSON, which its taker finds. Below 0 the comma
		// behind it would not end it.
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
		}
		if full = full || len(rec.Body) >= recordBytesMax; !full {
			rec.Body = append(rec.Body, c)
		}
	}
}

// passBroken goes on to the line on which the next element begins, behind one that was given up and had begun in a
// column. What is left of that one may hold objects, which are no items:
//
//	{"id":"o1","lines":[{"id":"l1","note":"two
//	lines"},                                        not an object
//	   {"id":"p7"}]},                               further in than o1
//	{"id":"o2"}                                     the next one
//
// Where there is none, the reading ends at the end of the file, with an error.
func (r *Reader) passBroken(begun int) error {
	for {
		c, err := r.skipSpace()
		if errors.Is(err, io.EOF) {
			return nil // whoever reads on says so
		}
		if err != nil {
			return err
		}
		if (c == '{' || c == ']') && r.column-1 <= begun {
			return r.unread()
		}
		for c != '\n' {
			if c, err = r.next(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

// next returns the next byte, and counts lines and columns.
func (r *Reader) next() (byte, error) {
	c, err := r.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if r.column++; c == '\n' {
		r.line++
		r.column = 0
	}
	return c, nil
}

// unread gives back the byte that next returned last, which is no end of a line.
func (r *Reader) unread() error {
	r.column--
	return r.in.UnreadByte()
}

// cutOff says that the array has no end.
func (r *Reader) cutOff(err error) (Record, error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the file ends inside the array; what stands before was read")
	}
	return Record{}, err
}

// trailing checks that nothing stands behind the array.
func (r *Reader) trailing() error {
	c, err := r.skipSpace()
	if err == nil {
		return fmt.Errorf("%q behind the end of the array; the array was read", c)
	}
	return err
}

// skipSpace returns the next byte that is not white space.
func (r *Reader) skipSpace() (byte, error) {
	for {
		c, err := r.next()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c, nil
		}
	}
}
