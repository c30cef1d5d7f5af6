package digest

import (
	"sync"

	"github.com/millrace/millrace/feed"
)

// Distrusted are the copies of partitions in an engine that nobody goes on from, because their digests differed: whoever
// opens one makes it anew before. It lasts as long as the process. A later one finds by the next digest what this one
// has left. The zero value has none, and so has nil. It may be used by several goroutines.
type Distrusted struct {
	mu  sync.Mutex
	why map[feed.Partition]string
}

// Add adds a copy, and why it is distrusted.
func (d *Distrusted) Add(id feed.Partition, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why == nil {
		d.why = map[feed.Partition]string{}
	}
	d.why[id] = why
}

// Why returns why a copy is distrusted; "" if it is not.
func (d *Distrusted) Why(id feed.Partition) string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why[id]
}

// MadeAnew says that a copy was made anew.
func (d *Distrusted) MadeAnew(id feed.Partition) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.why, id)
}
