package accumulator

import "github.com/millrace/millrace/feed/document"

// top collects the first members of a field, as many as its value needs.
type top struct {
	list   []ranked
	wanted int64 // members that are still to be shown
	bytes  int   // of copies
}

func topOf(f *field, room int) top {
	return top{list: make([]ranked, 0, min(int64(room), f.shown+1)), wanted: f.shown}
}

// full reports whether there are enough members. More copies than an item can hold are enough
// too: the target is refused for its size then, and the accumulator stays bounded.
func (t *top) full() bool { return t.wanted <= 0 || t.bytes > document.SizeMax }

// push adds members behind the others, if they are needed.
func (t *top) push(m ranked) {
	if t.full() {
		return
	}
	t.list = append(t.list, m)
	t.wanted -= min(m.n, t.wanted)
	t.bytes += len(m.copied)
}
