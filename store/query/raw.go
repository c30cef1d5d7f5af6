package query

import (
	"bytes"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/document/scan"
)

// lookup returns the raw value at steps in item, or nil. It counts the bytes that were scanned:
// up to the value's end, or the whole item if there is no value.
func (f *frame) lookup(item []byte, steps []step) []byte {
	i, end := locate(item, steps)
	if end < 0 {
		f.charge(workNode + len(item)/workScan)
		return nil
	}
	f.charge(workNode + end/workScan)
	return item[i:end:end]
}

// locate returns where the raw value at steps in item begins and ends; the end is -1 if
// there is none.
func locate(item []byte, steps []step) (i, end int) {
	i = scan.Space(item, 0)
	for n := range steps {
		if s := &steps[n]; s.isIndex {
			i = scan.Element(item, i, s.index)
		} else {
			i = scan.Member(item, i, s.name)
		}
		if i < 0 {
			return -1, -1
		}
	}
	return i, scan.Value(item, i)
}

// appendQuoted appends text as a JSON string. document.AppendQuote writes a tab and a carriage
// return shorter; this one stays, because its bytes are in sort keys and answers.
func appendQuoted(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// unescape returns the character of the escape at the beginning of s, and its length: 0 if
// there is no escape. In a query \' is one too.
func unescape(s string) (r rune, n int) {
	if len(s) > 1 && s[1] == '\'' {
		return '\'', 2
	}
	const longest = len(`\ud83d\ude00`)
	return scan.Escape([]byte(s[:min(len(s), longest)]))
}

func (f *frame) equalArrays(a, b []byte) bool {
	i, j := scan.FirstElement(a, 0), scan.FirstElement(b, 0)
	for i >= 0 && j >= 0 {
		endA, endB := scan.Value(a, i), scan.Value(b, j)
		if endA < 0 || endB < 0 || !f.charge(workMember+(endA-i+endB-j)/workScan) || !f.same(valueOf(a[i:endA]), valueOf(b[j:endB])) {
			return false
		}
		i, j = scan.Next(a, endA), scan.Next(b, endB)
	}
	return i < 0 && j < 0
}

// equalObjects compares objects by the names of their members, in any order.
func (f *frame) equalObjects(a, b []byte) bool {
	f.chargeScan(min(len(a), len(b)))
	if bytes.Equal(a, b) {
		return true
	}
	values := make(map[string][]byte)
	document.Members(b, func(name, raw []byte) bool {
		values[string(name)] = raw
		return f.charge(workMember + len(raw)/workScan)
	})
	is := true
	n := 0
	document.Members(a, func(name, raw []byte) bool {
		other, ok := values[string(name)]
		n++
		is = ok && f.charge(workMember+len(raw)/workScan) && f.same(valueOf(raw), valueOf(other))
		return is
	})
	return is && n == len(values)
}
