package document

import "github.com/millrace/millrace/feed/document/scan"

// findKey returns the index of the first element of the array that begins at b[i]
// which is an object whose member name equals value, a raw scalar.
func findKey(b []byte, i int, name, value string) int {
	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, i) {
		end := scan.Value(b, i)
		if end < 0 {
			return -1
		}
		if hasKey(b[:end], i, name, value) {
			return i
		}
		i = end
	}
	return -1
}

// hasKey reports whether the value that begins at b[i] is an object whose member
// name equals value.
func hasKey(b []byte, i int, name, value string) bool {
	v := scan.Member(b, i, name)
	if v < 0 {
		return false
	}
	end := scan.Value(b, v)
	return end >= 0 && equalScalarText(b[v:end], value)
}
