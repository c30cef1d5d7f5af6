package owner

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// TestAged compares an aged with a plain map: what it has is what was put last, it
// never holds more than twice its bound, and what is asked for again and again stays.
func TestAged(t *testing.T) {
	const most = 4_000
	a := newAged(func() int { return most }, func(v string) int { return len(v) })
	all := map[string]string{}
	random := rand.New(rand.NewPCG(1, 2))
	a.put("hot", "stays")
	for i := range 20_000 {
		key := fmt.Sprint("key ", random.IntN(200))
		switch random.IntN(5) {
		case 0, 1:
			all[key] = fmt.Sprint(i)
			a.put(key, all[key])
		case 2:
			_, known := a.get(key)
			all[key] = fmt.Sprint(i)
			if a.update(key, all[key]); !known {
				if v, ok := a.get(key); ok {
					t.Fatalf("%s was not there and is %s", key, v)
				}
			}
		case 3:
			delete(all, key)
			a.remove(key)
		default:
			if v, ok := a.get(key); ok && v != all[key] {
				t.Fatalf("%s is %s, want %s", key, v, all[key])
			}
		}
		if v, ok := a.get("hot"); !ok || v != "stays" {
			t.Fatalf("what is asked for all the time is forgotten after %d steps", i)
		}
		held := 0
		for _, g := range []map[string]string{a.young, a.old} {
			for k, v := range g {
				held += len(k) + len(v) + cachedOverhead
			}
		}
		if held > 2*most+cachedOverhead+32 {
			t.Fatalf("it holds %d bytes, at most twice %d are allowed", held, most)
		}
	}
	a.clear()
	if _, ok := a.get("hot"); ok {
		t.Error("it was cleared")
	}
}

// TestRuleCache_OverlayTellsIt forgets from an overlay what the engine has: what is kept
// takes the newest state, and what nobody has asked for is not kept.
func TestRuleCache_OverlayTellsIt(t *testing.T) {
	c, o := newRuleCache(&cacheBudget{bytes: 1 << 20}), newOverlay()
	item := func(body string) *engine.Item { return &engine.Item{Body: []byte(body)} }
	c.items.put("a", item("1"))
	c.found.put("group", [][]byte{[]byte("a")})
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
	if is, _ := c.items.get("a"); string(is.Body) != "1" || string(o.items["a"].item.Body) != "3" {
		t.Errorf("while a newer state is pending the cache has %s and the overlay %s", is.Body, o.items["a"].item.Body)
	}
	o.prune(2, c)
	if is, _ := c.items.get("a"); string(is.Body) != "3" || len(o.items) != 0 {
		t.Errorf("the cache has %s, and %d are pending", is.Body, len(o.items))
	}
	if _, ok := c.items.get("b"); ok {
		t.Error("an item that no rule has read is kept")
	}
	if keys, _ := c.found.get("group"); len(keys) != 2 || string(keys[1]) != "b" {
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
				c.items.put(key, &engine.Item{ID: key, Body: make([]byte, 100)})
				c.records.put(key, make([]byte, 50))
				c.found.put(key, [][]byte{[]byte(key)})
			}
		}
	}
	held := func() (bytes int) {
		for _, c := range caches {
			for _, generation := range []map[string]*engine.Item{c.items.young, c.items.old} {
				for key, item := range generation {
					bytes += len(key) + len(item.Body) + len(item.ID) + 2*cachedOverhead
				}
			}
			bytes += (len(c.records.young) + len(c.records.old)) * (10 + 50 + cachedOverhead)
			bytes += (len(c.found.young) + len(c.found.old)) * (10 + 34 + cachedOverhead)
		}
		return bytes
	}
	fill()
	if got := held(); got > 2*budget.bytes*5/4 || got < budget.bytes/2 {
		t.Errorf("eight partitions keep %d bytes, about two generations of %d are allowed", got, budget.bytes)
	}
	for _, c := range caches[1:] {
		c.close()
	}
	caches = caches[:1]
	fill()
	if got := held(); got > 2*budget.bytes*5/4 || got < budget.bytes/2 {
		t.Errorf("the partition that is left keeps %d bytes, about two generations of %d are allowed", got, budget.bytes)
	}
}
