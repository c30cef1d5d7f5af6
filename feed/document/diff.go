package document

import "slices"

// Diff calls f for each place where two raw values differ, with its path and what stands there;
// nil stands for a value that is not there. Members of objects and elements of arrays are compared
// one by one, elements by their index: those of old in their order, then those that are new. It ends
// when f returns false. The path is the caller's to keep; the values share memory with old and is.
//
//	{"a":1,"b":[1,2]}   {"b":[1,3],"c":true}   a: 1 -> absent   b[1]: 2 -> 3   c: absent -> true
func Diff(path Path, old, is []byte, f func(path Path, old, is []byte) bool) {
	diff(path, old, is, f)
}

// diff is Diff; it returns false if f did.
func diff(path Path, old, is []byte, f func(path Path, old, is []byte) bool) bool {
	switch {
	case old == nil && is == nil:
		return true
	case old == nil || is == nil:
		return f(path, old, is)
	case KindOf(old) == Object && KindOf(is) == Object:
		return diffObjects(path, old, is, f)
	case KindOf(old) == Array && KindOf(is) == Array:
		return diffArrays(path, old, is, f)
	case Equal(old, is):
		return true
	}
	return f(path, old, is)
}

func diffObjects(path Path, old, is []byte, f func(path Path, old, is []byte) bool) bool {
	// To look for each member in the other object would take the square of their number.
	others := map[string][]byte{}
	Members(is, func(name, raw []byte) bool {
		others[string(name)] = raw
		return true
	})
	child := func(name []byte) Path { return append(slices.Clip(path), Step{Name: string(name)}) }
	goOn := true
	had := make(map[string]bool, len(others))
	Members(old, func(name, raw []byte) bool {
		had[string(name)] = true
		goOn = diff(child(name), raw, others[string(name)], f)
		return goOn
	})
	if !goOn {
		return false
	}
	Members(is, func(name, raw []byte) bool {
		if !had[string(name)] {
			goOn = diff(child(name), nil, raw, f)
		}
		return goOn
	})
	return goOn
}

func diffArrays(path Path, old, is []byte, f func(path Path, old, is []byte) bool) bool {
	a, b := elements(old), elements(is)
	for i := range max(len(a), len(b)) {
		var x, y []byte
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if !diff(append(slices.Clip(path), Step{Index: i, IsIndex: true}), x, y, f) {
			return false
		}
	}
	return true
}

func elements(array []byte) [][]byte {
	var all [][]byte
	Elements(array, func(_ int, raw []byte) bool {
		all = append(all, raw)
		return true
	})
	return all
}
