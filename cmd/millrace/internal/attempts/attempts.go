// Package attempts counts what was refused to people without a right, so that one line of the log
// tells of many: whoever tries many keys must not fill it.
package attempts

import (
	"sync"
	"time"
)

// every is the least time between two lines of the log.
const every = 10 * time.Second

// Counter counts what was refused. Its zero value is ready. Safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	told   time.Time
	untold int
}

// Count counts one more; it returns how many are to be told of now, 0 if it is too early.
func (c *Counter) Count(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untold++
	if now.Sub(c.told) < every {
		return 0
	}
	n := c.untold
	c.told, c.untold = now, 0
	return n
}
