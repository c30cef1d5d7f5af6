package queryplan

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/engine"
)

// findItems sets the ranges of item keys in which the items of the query can be.
func (c *chooser) findItems() {
	levels := len(c.Paths)
	base := engine.PrefixSpan([]byte{byte(levels)})
	c.what = "scan of all items"
	if c.Hashes != (feed.Range{}) {
		base = base.From(engine.HashPrefix(levels, c.Hashes.Min)).Until(engine.HashPrefix(levels, c.Hashes.Max))
		c.what = "scan of the items of a range of partition keys"
	}
	// An item key is the number of levels, the hash of the partition key, the key, the id.
	// A key with fewer levels shares the first bytes of the hash with all keys that begin
	// with it, and by chance with others: the reader of the range tests the key itself.
	switch {
	case c.Key.IsZero():
	case c.Key.Levels() < levels:
		prefix := engine.PrefixSpan(engine.HashPrefix(levels, c.Key.Hash()))
		base = base.From(prefix.Min).Until(prefix.Max)
		c.what = fmt.Sprintf("scan of the logical partitions that begin with %s", c.Key)
	default:
		whole := engine.PrefixSpan(engine.LogicalPrefix(c.Key))
		base = base.From(whole.Min).Until(whole.Max)
		c.what = fmt.Sprintf("logical partition %s", c.Key)
	}
	c.narrow = !c.Key.IsZero() || c.Hashes != (feed.Range{})
	if base.Empty() {
		return
	}
	c.items = []engine.Span{base}
	if !c.pointReads(base) {
		c.logicalPartitions(base)
	}
}

// pointReads narrows the items to single ids, if the condition names all keys and ids. It
// reports whether it did.
func (c *chooser) pointReads(base engine.Span) bool {
	id := []string{"id"}
	paths, at := append(slices.Clone(c.Paths), id), len(c.Paths)
	if of := slices.IndexFunc(c.Paths, func(p []string) bool { return slices.Equal(p, id) }); of >= 0 {
		paths, at = c.Paths, of // the id is part of the key
	}
	whole := !c.Key.IsZero() && c.Key.Levels() == len(c.Paths)
	if whole {
		paths, at = [][]string{id}, 0
	}
	tuples, ok := c.q.Tuples(paths...)
	if !ok {
		return false
	}
	var spans []engine.Span
	for _, t := range tuples {
		key := c.Key
		if !whole {
			if key, ok = c.Keys(t[:len(c.Paths)]); !ok {
				continue
			}
		}
		text, ok := document.Text(t[at])
		if !ok || text == "" {
			continue // no item has such an id
		}
		itemKey := engine.ItemKey(key, text)
		spans = append(spans, engine.Span{Min: itemKey, Max: append(slices.Clip(itemKey), 0)})
	}
	c.items = inside(spans, base)
	c.exact = true
	c.what = "point read of " + plural(len(c.items), "one item", "items")
	return true
}

// logicalPartitions narrows the items to some logical partitions, if the condition names them
// all.
func (c *chooser) logicalPartitions(base engine.Span) {
	if !c.Key.IsZero() && c.Key.Levels() == len(c.Paths) {
		return
	}
	tuples, ok := c.q.Tuples(c.Paths...)
	if !ok {
		return
	}
	var spans []engine.Span
	keys := map[string]feed.PartitionKey{}
	for _, t := range tuples {
		if key, ok := c.Keys(t); ok {
			prefix := engine.LogicalPrefix(key)
			keys[string(prefix)] = key
			spans = append(spans, engine.PrefixSpan(prefix))
		}
	}
	c.items, c.narrow = inside(spans, base), true
	c.what = fmt.Sprintf("%d logical partitions", len(c.items))
	if len(c.items) == 1 {
		c.what = fmt.Sprintf("logical partition %s", keys[string(c.items[0].Min)])
	}
}

// inside returns the spans in order, each once, cut to base.
func inside(spans []engine.Span, base engine.Span) []engine.Span {
	slices.SortFunc(spans, compareSpans)
	var all []engine.Span
	for _, s := range spans {
		if len(all) > 0 && compareSpans(all[len(all)-1], s) == 0 {
			continue
		}
		if s = s.From(base.Min).Until(base.Max); !s.Empty() {
			all = append(all, s)
		}
	}
	return all
}
