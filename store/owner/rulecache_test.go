package owner

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner/internal/recent"
)

// TestRuleCache_OverlayTellsIt forgets from an overlay what the engine has: what is kept
// takes the newest state, and what nobody has asked for is not kept.
func TestRuleCache_OverlayTellsIt(t *testing.T) {
	c, o := newRuleCache(&cacheBudget{bytes: 1 << 20}), newOverlay()
	item := func(body string) *engine.Item { return &engine.Item{Body: []byte(body)} }
	c.items.Put("a", item("1"))
	c.keepTargets("group", []string{"a"})
	c.keepRecord("group", []byte("1 order"))
	for lsn, body := range []string{"2", "3"} {
		keys := o.keys(feed.LSN(lsn + 1))
		for _, k := range []string{"a", "b"} {
			o.items[k] = pendingItem{feed.LSN(lsn + 1), item(body)}
			keys.items = append(keys.items, k)
		}
		for _, k := range []string{"group", "another"} {
			o.records[k] = pendingRecord{feed.LSN(lsn + 1), []byte(body + " orders")}
			keys.records = append(keys.records, k)
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
	if g, _ := c.groups.Get("group"); len(g.targets) != 2 || g.targets[1] != "b" || string(g.record) != "3 orders" {
		t.Errorf("the group is found at %q with %q, want the new target once and its record", g.targets, g.record)
	}
	if _, ok := c.groups.Get("another"); ok {
		t.Error("a record that no rule has read is kept")
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
				c.keepRecord(key, make([]byte, 50))
				c.keepTargets(key, []string{key})
			}
		}
	}
	held := func() (bytes int) {
		for _, c := range caches {
			for key, item := range c.items.All() {
				bytes += len(key) + len(item.Body) + itemOverhead + recent.Overhead
			}
			for key, g := range c.groups.All() {
				bytes += len(key) + len(g.record) + groupOverhead + len(g.targets)*targetOverhead + recent.Overhead
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

// TestRuleCache_KeepsWhatIsKnownOfAGroup has the index and the record of a group be asked for at different times: neither
// takes the other for known, and a group with more targets than are kept goes to the index again.
func TestRuleCache_KeepsWhatIsKnownOfAGroup(t *testing.T) {
	c := newRuleCache(&cacheBudget{bytes: 1 << 20})
	c.keepTargets("group", nil)
	if g, _ := c.groups.Get("group"); g.knowsRecord || !g.knowsTargets {
		t.Errorf("of a group whose targets were looked for is known: %+v", g)
	}
	c.keepRecord("group", nil)
	c.keepRecord("record", []byte("r"))
	if g, _ := c.groups.Get("group"); !g.knowsRecord || !g.knowsTargets {
		t.Errorf("of a group that has no record and no targets is known: %+v", g)
	}
	if g, _ := c.groups.Get("record"); !g.knowsRecord || g.knowsTargets {
		t.Errorf("of a record is known: %+v", g)
	}
	c.target("record", "a")
	if g, _ := c.groups.Get("record"); len(g.targets) > 0 {
		t.Errorf("a group whose targets nobody has looked for is found at %q", g.targets)
	}
	for i := range targetsMax + 1 {
		c.target("group", fmt.Sprint("target ", i))
	}
	if g, _ := c.groups.Get("group"); g.knowsTargets || !g.knowsRecord || len(g.targets) > 0 {
		t.Errorf("of a group with one target more than are kept %d are known", len(g.targets))
	}
}

// TestRuleCache_HoldsTheCustomersOfAShop gives the cache of the default size 20,000 customers of 1 KiB with a count each, as
// deciding their first orders and applying these does: it has all of them.
func TestRuleCache_HoldsTheCustomersOfAShop(t *testing.T) {
	const customers = 20_000
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := accumulator.Compile(accumulator.Spec{
		SourceWhere: `type = "salesOrder"`, TargetWhere: `type = "customer"`,
		Match: []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
		Set:   []accumulator.Field{{Path: "salesOrderCount", Func: accumulator.Count}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newRuleCache(cfg.caches)
	r := &rule{Rule: compiled, recordPrefix: string(recordAccumulator) + rulePrefix("order-count", 1)}
	name := func(i int) (string, string) {
		id := fmt.Sprintf("%08X-C9A4-4B27-8F3C-0123456789AB", i)
		g, ok := r.TargetGroup(fmt.Appendf(nil, `{"id":%[1]q,"type":"customer","customerId":%[1]q}`, id))
		if !ok {
			t.Fatalf("%s is no customer", id)
		}
		return string(appendGroupName(nil, r, g)), string(engine.ItemKey(pk(t, id), id))
	}
	for i := range customers {
		group, itemKey := name(i)
		c.keepRecord(group, []byte{1, 2, 3})
		c.keepTargets(group, []string{itemKey})
		c.items.Put(itemKey, &engine.Item{Body: make([]byte, 1024+len(`,"salesOrderCount":12`))})
	}
	kept := 0
	for i := range customers {
		group, itemKey := name(i)
		g, _ := c.groups.Get(group)
		if _, ok := c.items.Get(itemKey); ok && g.knowsRecord && g.knowsTargets {
			kept++
		}
	}
	if kept != customers {
		t.Errorf("%d of %d customers are kept", kept, customers)
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
