package owner

import "github.com/millrace/millrace/store/engine"

// changedItems are the items that a transaction has changed, by their item keys;
// nil stands for one that it removed. Most transactions change one item, for which
// no map is made. The zero value is empty.
type changedItems struct {
	key  string // of the first
	item *engine.Item
	more map[string]*engine.Item
}

// get returns what an item has become; false if it was not changed.
func (c *changedItems) get(itemKey []byte) (*engine.Item, bool) {
	if c.key != "" && c.key == string(itemKey) {
		return c.item, true
	}
	item, ok := c.more[string(itemKey)]
	return item, ok
}

// set notes what an item has become.
func (c *changedItems) set(itemKey []byte, item *engine.Item) {
	switch {
	case c.key == "":
		c.key, c.item = string(itemKey), item
	case c.key == string(itemKey):
		c.item = item
	default:
		if c.more == nil {
			c.more = map[string]*engine.Item{}
		}
		c.more[string(itemKey)] = item
	}
}

// all iterates over the items, in no order.
func (c *changedItems) all(yield func(string, *engine.Item) bool) {
	if c.key == "" || !yield(c.key, c.item) {
		return
	}
	for key, item := range c.more {
		if !yield(key, item) {
			return
		}
	}
}
