package owner

import (
	"strings"
	"sync"
)

// LoadReserve makes c ask f how much of the disk the load of a snapshot leaves free.
func LoadReserve(c *Config, f func() int64) { c.loadReserve = f }

// SplitAt makes owners with c split partitions of a size that no configuration may have.
func SplitAt(c *Config, bytes int64) { c.SplitBytes, c.splitBytesMin = bytes, 1 }

// FreeBytes is the space below a directory that an unprivileged process may still use.
var FreeBytes = freeBytes

// Journal keeps what is logged. Tests may read it while it is written.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *Journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
