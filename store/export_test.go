package store

import "time"

// Forget makes a catalog examine what it has examined a moment ago.
func Forget(c *Catalog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.examined = time.Time{}
}
