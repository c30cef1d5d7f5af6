package owner

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner/internal/recent"
)

// TestRuleCache_OverlayTellsIt forgets from an overlay what the engine has: what is kept
// takes the newest state, and what nobody has asked for is not kept.
func TestRuleCache_OverlayTellsIt(t *testing.T) {
	c, o := newRuleCache(&cacheBudget{bytes: 1 << 20}), newOverlay()
	item := func(body string) *engine.Item { return &engine.Item{Body: []byte(body)} }
	c.items.Put("a", item("1"))
	c.found.Put("group", [][]byte{[]byte("a")})
	for lsn, body := range []string{"2", "3"} {
		keys := o.keys(feed.LSN(lsn + 1))
		for _, k := range []string{"a", "b"} {
			o.items[k] = pendingItem{feed.LSN(lsn + 1), item(body)}
			keys.items = append(keys.items, k)
		}
		o.targets["group"] = append(o.targets["group"], pendingTarget{feed.LSN(lsn + 1), "b"})
		keys.targets = append(keys.targets, "group")
	}
	o.prune(1, c)
	if is, _ := c.items.Get("a"); string(is.Body) != "1" || string(o.items["a"].item.Body) != "3" {
		t.Errorf("while a newer state is pending the cache has %s and the overlay %s", is.Body, o.items["a"].item.Body)
	}
	o.prune(2, c)
	if is, _ := c.items.Get("a"); string(is.Body) != "3" || len(o.items) != 0 {
		t.Errorf("the cache has %s, and %d are pending", is.Body, len(o.items))
	}
	if _, ok := c.items.Get("b"); ok {
		t.Error("an item that no rule has read is kept")
	}
	if keys, _ := c.found.Get("group"); len(keys) != 2 || string(keys[1]) != "b" {
		t.Errorf("the group is found at %q, want the new target once", keys)
	}
}

// TestRuleCache_PartitionsShareOneBudget fills the caches of many partitions: together
// they keep no more than one may, and a partition that has gone leaves its part to the
// others.
func TestRuleCache_PartitionsShareOneBudget(t *testing.T) {
	t.Parallel()
	budget := &cacheBudget{bytes: 1 << 20}
	caches := make([]*ruleCache, 8)
	for i := range caches {
		caches[i] = newRuleCache(budget)
	}
	fill := func() {
		for n := range 20_000 {
			for _, c := range caches {
				key := fmt.Sprint("key ", n)
				c.items.Put(key, &engine.Item{ID: key, Body: make([]byte, 100)})
				c.records.Put(key, make([]byte, 50))
				c.found.Put(key, [][]byte{[]byte(key)})
			}
		}
	}
	held := func() (bytes int) {
		for _, c := range caches {
			for key, item := range c.items.All() {
				bytes += len(key) + len(item.Body) + len(item.ID) + itemOverhead + recent.Overhead
			}
			for key, value := range c.records.All() {
				bytes += len(key) + len(value) + recent.Overhead
			}
			for key, keys := range c.found.All() {
				bytes += len(key) + len(keys[0]) + 24 + recent.Overhead
			}
		}
		return bytes
	}
	fill()
	if got := held(); got > budget.bytes || got < budget.bytes*3/4 {
		t.Errorf("eight partitions keep %d bytes, %d are allowed", got, budget.bytes)
	}
	for _, c := range caches[1:] {
		c.close()
	}
	caches = caches[:1]
	fill()
	if got := held(); got > budget.bytes || got < budget.bytes*3/4 {
		t.Errorf("the partition that is left keeps %d bytes, %d are allowed", got, budget.bytes)
	}
}

// TestOverlay_NotesATargetOnce has commit after commit write the target of a group: whoever looks for targets finds it
// once, and until the engine has the last of them.
func TestOverlay_NotesATargetOnce(t *testing.T) {
	o, c := newOverlay(), newRuleCache(&cacheBudget{bytes: 1 << 20})
	for lsn := range feed.LSN(3) {
		for range 2 {
			o.merge(lsn+1, &txn{targets: map[string][]string{"group": {"a"}}})
		}
	}
	for lsn := range feed.LSN(3) {
		if got := o.targets["group"]; len(got) != 1 || got[0].key != "a" {
			t.Errorf("before LSN %d is seen the group has %v, want a once", lsn+1, got)
		}
		o.prune(lsn+1, c)
	}
	if len(o.targets)+len(o.log) != 0 {
		t.Errorf("the engine has all, and %v is noted", o.targets)
	}
}
