// Package binaryjson reads the binary form of JSON in which some SDKs of Cosmos DB send items. The one for Rust does unless it is told not to. A body
// in it begins with 0x80, with which no text in UTF-8 begins. Each value begins with a byte that says its kind, and integers are
// little-endian. Which byte says what is known from the source of those SDKs.
//
// What SDKs write is read: numbers, strings that are written out, arrays and objects. A value in another form, which only the
// service writes (strings by their number in a dictionary or by a place before, packed strings, arrays of plain numbers), is an error that names its byte.
//
// This package is no API for other programs.
package binaryjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document"
)

// start is the byte with which a body in this form begins.
const start = 0x80

// The bytes that say of which kind a value is. Of two that are not beside each other all between them are meant.
const (
	literalMax = 0x1f // from 0, the number itself

	stringMin = 0x80 // with the length in the byte
	stringMax = 0xbf
	string8   = 0xc0 // with a length of one byte, of two, of four
	string16  = 0xc1
	string32  = 0xc2

	uint64Number  = 0xc7
	uint8Number   = 0xc8
	int16Number   = 0xc9
	int32Number   = 0xca
	int64Number   = 0xcb
	float64Number = 0xcc

	null    = 0xd0
	falsity = 0xd1
	truth   = 0xd2

	// Of arrays and of objects there are: the empty one, one of one, and then with the bytes that it has in one byte, in
	// two, in four, and with these and the number of its members.
	array  = 0xe0
	object = 0xe8
	last   = 0xef
)

// ErrTooLarge says that the text has more bytes than are allowed.
var ErrTooLarge = errors.New("the text is too large")

// Is reports whether a body is in this form.
func Is(body []byte) bool { return len(body) > 0 && body[0] == start }

// Text returns the text of a body in this form, of at most sizeMax bytes. It is JSON if each of its objects has
// each name once, which is not looked at. The error is ErrTooLarge, or says what is wrong and at which byte.
func Text(body []byte, sizeMax int) ([]byte, error) {
	r := reader{in: body, at: 1, out: make([]byte, 0, min(2*len(body), sizeMax)), sizeMax: sizeMax}
	if err := r.value(len(body), 0); err != nil {
		return nil, err
	}
	if r.at != len(body) {
		return nil, fmt.Errorf("byte %d: there is more behind the value", r.at)
	}
	return r.out, nil
}

type reader struct {
	in      []byte
	at      int // of the byte that is read next
	out     []byte
	sizeMax int
}

// take returns the next n bytes, which end before end.
func (r *reader) take(n, end int) ([]byte, error) {
	if n > end-r.at {
		return nil, fmt.Errorf("byte %d: %d bytes are expected, and %d are there", r.at, n, end-r.at)
	}
	r.at += n
	return r.in[r.at-n : r.at], nil
}

// number returns the next bytes as an unsigned number.
func (r *reader) number(bytes, end int) (uint64, error) {
	b, err := r.take(bytes, end)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// value reads one value that ends before end, at some depth of arrays and objects.
func (r *reader) value(end, depth int) error {
	if len(r.out) > r.sizeMax {
		return ErrTooLarge
	}
	began := r.at
	marker, err := r.number(1, end)
	if err != nil {
		return err
	}
	switch {
	case marker <= literalMax:
		r.out = strconv.AppendUint(r.out, marker, 10)
	case marker >= stringMin && marker <= string32:
		return r.text(marker, end)
	case marker >= uint64Number && marker <= float64Number:
		return r.numeral(marker, end)
	case marker == null:
		r.out = append(r.out, "null"...)
	case marker == falsity:
		r.out = append(r.out, "false"...)
	case marker == truth:
		r.out = append(r.out, "true"...)
	case marker >= array && marker <= last:
		if depth++; depth > document.DepthMax {
			return fmt.Errorf("byte %d: nested more than %d deep", began, document.DepthMax)
		}
		return r.list(marker, end, depth)
	default:
		return fmt.Errorf("byte %d: a value of the form %#x is not read", began, marker)
	}
	return r.fits()
}

// fits checks the size of the text so far.
func (r *reader) fits() error {
	if len(r.out) > r.sizeMax {
		return ErrTooLarge
	}
	return nil
}

// text reads a string behind its marker.
func (r *reader) text(marker uint64, end int) error {
	size := marker - stringMin
	if marker > stringMax {
		var err error
		if size, err = r.number(1<<(marker-string8), end); err != nil {
			return err
		}
	}
	began := r.at
	b, err := r.take(int(size), end)
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return fmt.Errorf("byte %d: the string is not UTF-8", began)
	}
	if len(r.out)+len(b) > r.sizeMax { // before it is copied
		return ErrTooLarge
	}
	r.out = document.AppendQuote(r.out, string(b))
	return r.fits()
}

// numeral reads a number behind its marker.
func (r *reader) numeral(marker uint64, end int) error {
	began := r.at
	widths := [...]int{8, 1, 2, 4, 8, 8} // from uint64Number on
	n, err := r.number(widths[marker-uint64Number], end)
	if err != nil {
		return err
	}
	switch marker {
	case uint64Number, uint8Number:
		r.out = strconv.AppendUint(r.out, n, 10)
	case int16Number:
		r.out = strconv.AppendInt(r.out, int64(int16(n)), 10)
	case int32Number:
		r.out = strconv.AppendInt(r.out, int64(int32(n)), 10)
	case int64Number:
		r.out = strconv.AppendInt(r.out, int64(n), 10)
	default:
		f := math.Float64frombits(n)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Errorf("byte %d: %v is no number of JSON", began, f)
		}
		form := byte('f')
		if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
			form = 'e'
		}
		r.out = strconv.AppendFloat(r.out, f, form, -1, 64)
	}
	return r.fits()
}

// list reads an array or an object behind its marker.
func (r *reader) list(marker uint64, end, depth int) error {
	named, open, closing := marker >= object, byte('['), byte(']')
	if named {
		open, closing = '{', '}'
	}
	members := -1 // as many as there are
	began := r.at
	switch form := int(marker & 7); form {
	case 0, 1:
		members = form
	default:
		width := 1 << ((form - 2) % 3)
		size, err := r.number(width, end)
		if err != nil {
			return err
		}
		if form >= 5 {
			n, err := r.number(width, end)
			if err != nil {
				return err
			}
			members = int(n)
		}
		began = r.at
		if size > uint64(end-r.at) {
			return fmt.Errorf("byte %d: %d bytes are expected, and %d are there", r.at, size, end-r.at)
		}
		end = r.at + int(size)
	}
	sized := marker&7 > 1
	r.out = append(r.out, open)
	n := 0
	for ; n != members && (members >= 0 || r.at < end); n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		if named {
			if err := r.name(end); err != nil {
				return err
			}
		}
		if err := r.value(end, depth); err != nil {
			return err
		}
	}
	if sized && r.at != end {
		return fmt.Errorf("byte %d: %d values are not the %d bytes that are told", began, n, end-began)
	}
	r.out = append(r.out, closing)
	return r.fits()
}

// name reads the name of a member, and writes it with its colon.
func (r *reader) name(end int) error {
	began := r.at
	marker, err := r.number(1, end)
	if err != nil {
		return err
	}
	if marker < stringMin || marker > string32 {
		return fmt.Errorf("byte %d: a name of the form %#x is not read", began, marker)
	}
	if err := r.text(marker, end); err != nil {
		return err
	}
	r.out = append(r.out, ':')
	return nil
}
