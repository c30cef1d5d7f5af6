package tombstone

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// Wish asks a container for the tombstones of some of its items.
type Wish struct {
	// Where selects the items, an expression of the SQL dialect; "" is all.
	Where string `json:"where,omitempty"`
	// Expressions is the query.Meaning of Where, 0 for query.MeaningTyped.
	Expressions query.Meaning `json:"expressions,omitempty"`
	// Fields are what is kept of them, such as name or address.city, in order.
	Fields []string `json:"fields"`
}

// Equal says whether two wishes are the same.
func (w Wish) Equal(o Wish) bool {
	return w.Where == o.Where && w.Expressions == o.Expressions && slices.Equal(w.Fields, o.Fields)
}

// Rule is a compiled Wish.
type Rule struct {
	where  *query.Expr // nil for all
	reads  []document.Path
	fields []document.Path
}

// Compile returns the rule of a wish.
func Compile(w Wish) (*Rule, error) {
	r := &Rule{}
	if w.Expressions > query.MeaningNow {
		return nil, fmt.Errorf("tombstones of %s: expressions have the meaning %d; this release knows up to %d", w.Where, w.Expressions, query.MeaningNow)
	}
	if w.Where != "" {
		e, err := max(w.Expressions, query.MeaningTyped).ParseExpr(w.Where)
		if err != nil {
			return nil, fmt.Errorf("tombstones of %s: %w", w.Where, err)
		}
		r.where = e
		for _, names := range e.Paths() {
			path := make(document.Path, len(names))
			for i, name := range names {
				path[i] = document.Step{Name: name}
			}
			r.reads = append(r.reads, path)
		}
	}
	for _, f := range w.Fields {
		path, err := document.ParseField(f)
		if err != nil {
			return nil, fmt.Errorf("tombstones: %w", err)
		}
		r.fields = append(r.fields, path)
	}
	return r, nil
}

// Selects says whether body, nil for none, is an item that is followed.
func (r *Rule) Selects(body []byte) bool {
	return body != nil && (r.where == nil || r.where.True(body))
}

// Outcome is what a change means to an item's tombstone.
type Outcome uint8

// The outcomes.
const (
	Nothing Outcome = iota // it stays as it is, or there is none
	Made                   // the item has gone: it gets one
	Removed                // the item is there: it has none any more
)

// Of says what a change means, and returns the item as it was before one that makes a
// tombstone.
func (r *Rule) Of(c *feed.Change) (Outcome, []byte, error) {
	switch c.Op {
	case feed.OpCreate:
		// One that is not selected leaves the tombstone of the last going as it is: the item that was followed is
		// still gone.
		if r.Selects(c.After) {
			return Removed, nil, nil
		}
		return Nothing, nil, nil
	case feed.OpReplace:
		// Before the body that was is made, which takes time: most replacements touch nothing that where reads,
		// and cannot have changed what it says.
		if r.where == nil || !c.Touches(r.touches) {
			return Nothing, nil, nil
		}
	case feed.OpDelete, feed.OpExpire:
	}
	before, err := c.BeforeBody()
	if err != nil {
		return Nothing, nil, err
	}
	switch was, is := r.Selects(before), r.Selects(c.After); {
	case was && !is:
		return Made, before, nil
	case is && !was:
		return Removed, nil, nil
	}
	return Nothing, nil, nil
}

func (r *Rule) touches(pointer string) bool {
	return slices.ContainsFunc(r.reads, func(p document.Path) bool { return p.Touched(pointer) })
}

// Stone is what is left of an item.
type Stone struct {
	// Position is the change by which it went, Time that commit's, in unix
	// milliseconds.
	Position feed.Position
	Time     int64
	// Values are the rule's fields as they were, raw JSON; nil for an absent one.
	Values [][]byte
}

// Stone returns the tombstone of an item that was body until the change at position.
// It keeps nothing of body.
func (r *Rule) Stone(body []byte, position feed.Position, time int64) *Stone {
	s := &Stone{Position: position, Time: time, Values: make([][]byte, len(r.fields))}
	for i, f := range r.fields {
		if raw, ok := document.Get(body, f); ok {
			s.Values[i] = append([]byte{}, raw...)
		}
	}
	return s
}

const version = 1

// Append appends the tombstone as it is stored; Decode reads it.
func (s *Stone) Append(dst []byte) []byte {
	dst = append(dst, version)
	dst = binary.AppendUvarint(dst, uint64(s.Position.LSN))
	dst = binary.AppendUvarint(dst, uint64(s.Position.Index))
	dst = binary.AppendVarint(dst, s.Time)
	dst = binary.AppendUvarint(dst, uint64(len(s.Values)))
	for _, v := range s.Values {
		if v == nil {
			// Zero stands for an absent field, which null is not. Other lengths are stored plus one.
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(v))+1)
		dst = append(dst, v...)
	}
	return dst
}

var errShort = errors.New("tombstone ends early")

// Decode reads what Append wrote. The values alias data.
func Decode(data []byte) (*Stone, error) {
	if len(data) == 0 || data[0] != version {
		return nil, fmt.Errorf("a tombstone of %d bytes is not of version %d", len(data), version)
	}
	data = data[1:]
	var bad bool
	number := func() uint64 {
		v, n := binary.Uvarint(data)
		bad = bad || n <= 0
		data = data[max(n, 0):]
		return v
	}
	s := &Stone{}
	s.Position.LSN = feed.LSN(number())
	s.Position.Index = uint32(number())
	time, n := binary.Varint(data)
	s.Time, bad = time, bad || n <= 0
	data = data[max(n, 0):]
	count := number()
	// A field takes a byte at least. A number that is damaged must not ask for memory without end.
	if bad || count > uint64(len(data)) {
		return nil, errShort
	}
	s.Values = make([][]byte, count)
	for i := range s.Values {
		size := number()
		switch {
		// Not size-1 > len: of an absent field size is 0, and less than that is a very large number.
		case bad || size > uint64(len(data))+1:
			return nil, errShort
		case size > 0:
			s.Values[i], data = data[:size-1:size-1], data[size-1:]
		}
	}
	if bad || len(data) > 0 {
		return nil, errShort
	}
	return s, nil
}
