package accumulator

import "github.com/millrace/millrace/feed/document"

// copies are the fields that latest copies from a member. They form a tree like the object that
// is made of them.
type copies []copied

// copied is a member of the object: a value, or an object of others.
type copied struct {
	name   string
	quoted []byte // ,"name":
	at     ref
	inner  copies
}

// add adds the value at a reference under a path of names. It returns false if the path equals
// one that is there, or one is a parent of the other.
func (c *copies) add(path document.Path, at ref) bool {
	for i := range *c {
		m := &(*c)[i]
		if m.name == path[0].Name {
			return len(m.inner) > 0 && len(path) > 1 && m.inner.add(path[1:], at)
		}
	}
	m := copied{name: path[0].Name, at: at}
	m.quoted = append(document.AppendQuote([]byte{','}, m.name), ':')
	if len(path) > 1 {
		m.inner.add(path[1:], at)
	}
	*c = append(*c, m)
	return true
}

// refs returns the references.
func (c copies) refs() []ref {
	var list []ref
	for i := range c {
		if m := &c[i]; len(m.inner) > 0 {
			list = append(list, m.inner.refs()...)
		} else {
			list = append(list, m.at)
		}
	}
	return list
}

// appendObject appends the object, without absent values and without inner objects that would
// be empty.
func (c copies) appendObject(dst []byte, roots [][]byte) []byte {
	start := len(dst)
	dst = c.appendMembers(append(dst, '{'), roots)
	if len(dst) > start+1 {
		// In place of the first comma.
		dst = append(dst[:start+1], dst[start+2:]...)
	}
	return append(dst, '}')
}

func (c copies) appendMembers(dst []byte, roots [][]byte) []byte {
	for i := range c {
		m := &c[i]
		// The name is written first, and taken back if there is no value: finding out before
		// would need the value twice.
		before := len(dst)
		dst = append(dst, m.quoted...)
		if len(m.inner) == 0 {
			raw := m.at.value(roots)
			if raw == nil {
				dst = dst[:before]
				continue
			}
			dst = append(dst, raw...)
			continue
		}
		object := len(dst)
		if dst = m.inner.appendObject(dst, roots); len(dst) == object+len("{}") {
			dst = dst[:before]
		}
	}
	return dst
}
