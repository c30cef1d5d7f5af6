package queryplan

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
)

// The first bytes of the forms that values have in an index: document.AppendCanonical
// and engine/KEYS.md. longMark is set in those of values that were cut.
const (
	formNull   = 0x01
	formFalse  = 0x02
	formNumber = 0x05
	formString = 0x08
	formArray  = 0x10
	formObject = 0x11
	longMark   = 0x80

	// formPlainMax lies above the forms of scalars that were not cut.
	formPlainMax = 0x09
)

// PlainMax is the end of the values in an ordered index whose order the index has. Behind it
// are arrays, objects and values that were cut.
func PlainMax() []byte { return []byte{formPlainMax} }

// bound is what the condition says of the values at an index's path.
type bound struct {
	spans  []engine.Span // in order, without overlaps
	equal  bool          // each span is that of one value
	values [][]byte      // these, if equal
}

// boundOf returns b as ranges of the entries of an index at its path; ok is false if the index
// cannot serve b.
func boundOf(b *query.Bound, x *Index) (_ bound, ok bool) {
	switch {
	case b.Values != nil:
		return valuesOf(b.Values, x)
	case b.Low == nil && b.High == nil && b.Prefix == "":
		return bound{}, false
	}
	spans := rangeOf(b)
	return bound{spans: spans}, spans != nil
}

// valuesOf returns the ranges of entries with one of some values.
func valuesOf(values [][]byte, x *Index) (_ bound, ok bool) {
	type entry struct {
		span  engine.Span
		value []byte
	}
	all := make([]entry, 0, len(values))
	for _, raw := range values {
		form := engine.AppendIndexValue(nil, raw)
		if len(form) == 0 {
			// An array or object. An ordered index has all arrays under one form and all
			// objects under another; any other index lacks them.
			if !x.Ordered || x.eachElement() {
				return bound{}, false
			}
			form = markOf(raw)
		}
		all = append(all, entry{engine.PrefixSpan(form), raw})
	}
	// Sorted, so that equal values are neighbours: comparing each with all took 30 s for two
	// lists of 16,000 values, this 0.3 s.
	slices.SortStableFunc(all, func(a, b entry) int { return compareSpans(a.span, b.span) })
	b := bound{equal: true}
	for i, x := range all {
		if i == 0 || compareSpans(all[i-1].span, x.span) != 0 {
			b.spans, b.values = append(b.spans, x.span), append(b.values, x.value)
		}
	}
	return b, true
}

// markOf returns the form of an array or object.
func markOf(raw []byte) []byte {
	if document.KindOf(raw) == document.Array {
		return []byte{formArray}
	}
	return []byte{formObject}
}

// rangeOf returns the ranges of entries with values between two values, or with a prefix; nil
// if neither bound has a form in the index.
func rangeOf(b *query.Bound) []engine.Span {
	low, high := engine.AppendIndexValue(nil, b.Low), engine.AppendIndexValue(nil, b.High)
	first := append(slices.Clone(low), high...)
	if len(first) == 0 {
		return nil
	}
	// A comparison holds among values of one type, so the type of either end bounds the
	// stretch. An end that was cut is left open: what it was cut from is not known.
	//
	//	c.price > 3           (3, end of numbers)
	//	STARTSWITH(c.n, "a")  ["a, next after "a)       strings without the bytes of their end
	all := typeSpan(first[0] &^ longMark)
	span := all
	if len(low) > 0 && low[0]&longMark == 0 {
		if b.LowOpen {
			low = engine.PrefixEnd(low)
		}
		span = span.From(low)
	}
	if len(high) > 0 && high[0]&longMark == 0 {
		if !b.HighOpen {
			high = engine.PrefixEnd(high)
		}
		span = span.Until(high)
	}
	if b.Prefix != "" && len(b.Prefix) < engine.IndexValueMax/2 {
		form := engine.AppendIndexValue(nil, document.AppendQuote(nil, b.Prefix))
		const end = 2 // bytes that end a string
		span = span.From(form[:len(form)-end]).Until(engine.PrefixEnd(form[:len(form)-end]))
	}
	spans := []engine.Span{span}
	// What was cut may be anywhere between others of its type.
	if t := all.Min[0]; t == formNumber || t == formString {
		spans = append(spans, engine.PrefixSpan([]byte{t | longMark}))
	}
	return spans
}

// typeSpan returns the range of all values of a form's type.
func typeSpan(first byte) engine.Span {
	switch {
	case first == formNull:
		return engine.Span{Min: []byte{formNull}, Max: []byte{formFalse}}
	case first < formNumber:
		return engine.Span{Min: []byte{formFalse}, Max: []byte{formNumber}}
	case first < formString:
		return engine.Span{Min: []byte{formNumber}, Max: []byte{formNumber + 1}}
	}
	return engine.Span{Min: []byte{formString}, Max: []byte{formString + 1}}
}

// intersect returns the bound of values that satisfy both.
func (b bound) intersect(o bound) bound {
	if o.equal && !b.equal {
		b, o = o, b
	}
	both := bound{equal: b.equal}
	// Both are in order and apart: go along both and leave the one that ends first.
	for i, j := 0, 0; i < len(b.spans) && j < len(o.spans); {
		s, t := b.spans[i], o.spans[j]
		if u := s.From(t.Min).Until(t.Max); !u.Empty() {
			both.spans = append(both.spans, u)
			if b.equal {
				both.values = append(both.values, b.values[i])
			}
		}
		if t.Max == nil || s.Max != nil && bytes.Compare(s.Max, t.Max) <= 0 {
			i++
		} else {
			j++
		}
	}
	return both
}

func compareSpans(a, b engine.Span) int { return bytes.Compare(a.Min, b.Min) }
