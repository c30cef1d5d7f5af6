package owner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

var kindA = tombstone.Wish{Where: `kind = "a"`, Fields: []string{"name", "sub.x"}}

// gone tells what is left of an item: its fields, - if nothing is, or "there".
func (n *node) gone(wish tombstone.Wish, id string) string {
	n.w.t.Helper()
	resp := n.ask(&store.Request{Sources: &store.ReadSources{Refs: []store.ItemRef{{Key: pk(n.w.t, "x"), ID: id}}, Wish: wish}})
	if resp.Err != nil {
		n.w.t.Fatal(resp.Err)
	}
	switch s := resp.Sources.Sources[0]; {
	case !resp.Sources.InForce:
		return "not in force"
	case s.Gone != nil && s.Expiring:
		return fmt.Sprintf("expiring %q", s.Gone.Values)
	case s.Gone != nil:
		return fmt.Sprintf("%q at %d", s.Gone.Values, s.Gone.Time-n.w.clock.Load())
	case s.ETag != (store.ETag{}):
		return "there"
	}
	return "-"
}

func (n *node) wants(info *store.ContainerInfo, wishes ...tombstone.Wish) {
	n.w.t.Helper()
	info.Tombstones = wishes
	if err := n.reconcileSettings(n.w.t.Context(), info); err != nil {
		n.w.t.Fatal(err)
	}
}

// Items that are deleted, or cease to be selected, leave tombstones; ones made again
// have none. What went before the setting is brought from the log. All of it is a
// function of the log, and is forgotten by the log's time.
func TestI3_TombstonesAreAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	item := func(id, kind, name string) store.Operation {
		return upsert(fmt.Sprintf(`{"id":%q,"a":"x","kind":%q,"name":%q}`, id, kind, name))
	}
	for i := range 400 { // several steps are needed to bring what is left of them
		id := fmt.Sprintf("many-%d-%0300d", i, i)
		n.mustOne(k, item(id, "a", "x"))
		n.mustOne(k, remove(id))
	}
	for _, op := range []store.Operation{
		item("past", "a", "one"), item("past", "a", "two"), remove("past"), item("again", "a", "one"), remove("again"), item("again", "a", "two"),
		item("other", "b", "one"), remove("other"), item("turned", "a", "one"), item("turned", "b", "two"), item("stays", "a", "one"),
	} {
		n.mustOne(k, op)
	}
	if got := n.gone(kindA, "past"); got != "not in force" {
		t.Errorf("before the setting: %s", got)
	}
	info := w.info
	n.wants(&info, kindA)
	check := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for id := range want {
			got[id] = n.gone(kindA, id)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("brought from the log", map[string]string{
		"past": `["\"two\"" ""] at 0`, "again": "there", "other": "-", "turned": `["\"one\"" ""] at 0`, "stays": "there", "never": "-",
		fmt.Sprintf("many-%d-%0300d", 7, 7): `["\"x\"" ""] at 0`,
	})
	if _, err := n.batch(k, remove("stays"), item("stays", "a", "new"), remove("stays"), item("turned", "a", "three")); err != nil {
		t.Fatal(err)
	}
	n.mustOne(k, patch("again", set("/kind", `"c"`)))
	n.mustOne(k, patch("again", set("/name", `"c"`)))
	check("live", map[string]string{"stays": `["\"new\"" ""] at 0`, "turned": "there", "again": `["\"two\"" ""] at 0`})

	same := func(when string) {
		t.Helper()
		want, err := n.engine.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if got := w.openAt(t.TempDir(), n.state.Load().lsn); got != want {
			t.Errorf("%s: digest of a rebuilt engine is %x, of the other %x", when, got, want)
		}
	}
	same("at first")
	// One goes once more shortly before the others are old.
	w.clock.Add(time.Hour.Milliseconds())
	n.mustOne(k, item("past", "a", "three"))
	n.mustOne(k, remove("past"))
	info.Spec.ChangeFeed.Tombstones = 90 * time.Minute
	n.wants(&info, kindA)
	w.clock.Add(time.Hour.Milliseconds())
	n.mustOne(k, item("later", "b", ""))
	hour := -time.Hour.Milliseconds()
	check("later", map[string]string{"past": fmt.Sprintf(`["\"three\"" ""] at %d`, hour), "turned": "there", "again": "there", "stays": "-"})
	same("later")

	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.start(dir)
	check("opened again", map[string]string{"past": fmt.Sprintf(`["\"three\"" ""] at %d`, hour), "again": "there"})
	n.wants(&info)
	if got := n.gone(kindA, "past"); got != "not in force" {
		t.Errorf("after the setting: %s", got)
	}
	snap := n.engine.Snapshot()
	for r, err := range snap.Records(recordTombstone, nil) {
		t.Errorf("a tombstone is left: %q, %v", r.Key, err)
	}
	snap.Close()
	same("dropped")
}

// The log does not take a step in which tombstones of the past are brought: the setting
// is not in force until all of them are there.
func TestTombstonesThatTheLogDidNotTake(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	n.mustOne(k, upsert(`{"id":"1","a":"x","kind":"a","name":"n"}`))
	n.mustOne(k, remove("1"))
	info := w.info
	info.Tombstones = []tombstone.Wish{kindA}
	steps := 0
	n.log.each(func() bool { steps++; return steps == 2 })
	if err := n.reconcileSettings(t.Context(), &info); err == nil {
		t.Fatal("the append failed, and want does not say so")
	}
	if got := n.gone(kindA, "1"); got != "not in force" {
		t.Errorf("half-way: %s", got)
	}
	n.log.each(nil)
	n.wants(&info, kindA)
	if got := n.gone(kindA, "1"); got != `["\"n\"" ""] at 0` {
		t.Errorf("in force: %s", got)
	}
}

// An item whose time has passed is told with its values until it expires.
func TestSourceThatWillExpire(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, TTL: -1})
	n := w.start(t.TempDir())
	k := pk(t, "x")
	info := w.info
	n.wants(&info, kindA)
	n.mustOne(k, upsert(`{"id":"1","a":"x","kind":"a","name":"n","ttl":60}`))
	arrived, release := n.log.hold()
	w.clock.Add(2 * time.Minute.Milliseconds())
	<-arrived // the expiry, not yet in the log
	snap := n.engine.Snapshot()
	defer snap.Close()
	source, err := sourceOf(snap, n.state.Load().schema.stones[0], store.ItemRef{Key: k, ID: "1"}, w.clock.Load())
	if err != nil || source.Gone == nil || !source.Expiring || source.ETag != (store.ETag{}) || string(source.Gone.Values[0]) != `"n"` {
		t.Errorf("while it is to expire: %+v, %v", source, err)
	}
	release()
	if got := n.gone(kindA, "1"); got != `["\"n\"" ""] at 0` {
		t.Errorf("expired: %s", got)
	}
}

// A source is read by the time by which everything of a partition is decided, that of the
// log's server. The owner's clock is half an hour ahead here, and the item has ten minutes.
func TestSourcesGoByTheTimeOfThePartition(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, TTL: -1})
	w.clock.Store(time.Now().Add(30 * time.Minute).UnixMilli())
	n := w.open(t.TempDir())
	n.cfg.ClockAheadMax = time.Hour
	if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	n.serve()
	k := pk(t, "x")
	info := w.info
	n.wants(&info, kindA)
	n.mustOne(k, upsert(`{"id":"1","a":"x","kind":"a","name":"n","ttl":600}`))
	if n.read(k, "1") == "" {
		t.Fatal("the item is not read")
	}
	if got := n.gone(kindA, "1"); got != "there" {
		t.Errorf("the item is read, and as a source it is %s", got)
	}
}
