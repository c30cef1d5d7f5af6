package accumulator

import "github.com/millrace/millrace/feed/document"

// top are the first members of a field, as many as its value needs.
type top struct {
	list  []ranked
	left  int64 // members that are still to be shown
	bytes int   // of copies
}

func topOf(f *field, room int) top {
	return top{list: make([]ranked, 0, min(int64(room), f.shown+1)), left: f.shown}
}

// full tells whether there are enough. More than an item can hold are enough too:
// the target is refused by its size then, and the accumulator has an end.
func (t *top) full() bool { return t.left <= 0 || t.bytes > document.SizeMax }

// push adds members behind the others, if they are needed.
func (t *top) push(m ranked) {
	if t.full() {
		return
	}
	t.list = append(t.list, m)
	t.left -= min(m.n, t.left)
	t.bytes += len(m.copied)
}
