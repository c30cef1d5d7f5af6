package standby_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	replicas "github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/owner"
)

const (
	suspectSaid = "the owner's copy is suspect"
	differsSaid = "differs from what its owner holds, and is made anew"
	equalSaid   = "which differed, holds what its owner holds"
	rebuiltSaid = "the engine's copy of the partition is thrown away"
)

// victim is an item that nobody writes again.
const victim = `{"id":"victim","k":"victim","n":1,"u":"victim","pad":"victim xx"}`

// damage changes the victim behind the back of everybody: a byte of its body, under the right checksums.
func damage(t testing.TB, p *engine.Partition) {
	t.Helper()
	var wrong engine.DumpEntry
	func() {
		snap := p.Snapshot()
		defer snap.Close()
		for e, err := range snap.Dump() {
			if err != nil {
				t.Fatal(err)
			}
			if at := strings.LastIndex(string(e.Value), "victim xx"); e.IsItem() && at > 0 {
				wrong = engine.DumpEntry{Key: []byte(string(e.Key)), Value: []byte(string(e.Value))}
				wrong.Value[at] = 'y'
				return
			}
		}
	}()
	if wrong.Key == nil {
		t.Fatal("there is no item to damage")
	}
	if err := p.LoadMore(func(yield func(engine.DumpEntry, error) bool) { yield(wrong, nil) }); err != nil {
		t.Fatal(err)
	}
}

// remarks returns what stores say of their copies of a partition.
func (c *cluster) remarks(id feed.Partition) map[string]string {
	c.t.Helper()
	processes, err := leases.Processes(c.t.Context(), c.srv.JS, "")
	if err != nil {
		c.t.Fatal(err)
	}
	said := map[string]string{}
	for i := range processes {
		if text := processes[i].Remarks[owner.LeaseResource(id)]; text != "" {
			said[processes[i].Node] = text
		}
	}
	return said
}

// compares is a container of one partition with its owner a and its standby b, which compare their digests all the time.
func compares(t *testing.T, seed uint64) (c *cluster, id feed.Partition, a, b *process, write func()) {
	t.Helper()
	c = newCluster(t)
	c.cfg.DigestInterval = 50 * time.Millisecond
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	ct, id, a := c.things()
	r := rand.New(rand.NewPCG(seed, seed))
	write = func() { scribble(t, ct, r, 40) }
	write()
	if _, err := ct.Upsert(t.Context(), []byte(victim)); err != nil {
		t.Fatal(err)
	}
	b = c.start("b", t.TempDir())
	b.ready(id)
	return c, id, a, b, write
}

// computed is the digest by which replicas are compared, of what an engine holds.
func computed(t testing.TB, p *engine.Partition) replicas.Digest {
	t.Helper()
	view := p.Snapshot()
	defer view.Close()
	d, err := replicas.Compute(view, func(kind byte, value []byte) (string, []byte) { return string(kind), value }, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestI3_ADigestIsTheSameEverywhere computes it of an owner, of a standby that follows, of one that began with a snapshot, and
// of a replay from the log's beginning.
func TestI3_ADigestIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg = trimming
	c.cfg.DigestInterval = -1
	spec := followed
	spec.ChangeFeed.Retention = new(store.RetentionForever)
	ct := c.container("things", spec)
	id := ct.Partitions()[0]
	a := c.start("a", t.TempDir())
	a.owns(id)
	r := rand.New(rand.NewPCG(3, 3))
	scribble(t, ct, r, 60)
	b := c.start("b", t.TempDir())
	b.ready(id)
	scribble(t, ct, r, 60)
	same := func(what string, other func() replicas.Digest) {
		t.Helper()
		poll.Until(t, func() error { // an item may expire meanwhile, and be compared at the next try
			own, theirs := computed(t, a.copy(id)), other()
			if own.LSN != theirs.LSN {
				return fmt.Errorf("%s is at LSN %d, the owner at %d", what, theirs.LSN, own.LSN)
			}
			if differ := theirs.Differ(own); differ != "" {
				t.Fatalf("%s differs in %s", what, differ)
			}
			if len(own.Parts) < 4 {
				t.Fatalf("the digest tells of %+v alone", own.Parts)
			}
			return nil
		})
	}
	same("the standby", func() replicas.Digest { return computed(t, b.copy(id)) })
	same("the replay", func() (d replicas.Digest) {
		c.replay(id, c.end(id), func(p *engine.Partition, _ *owner.Replayer) { d = computed(t, p) })
		return d
	})
	a.says("snapshot taken")
	b.stop()
	scribble(t, ct, r, 20)
	second := c.start("c", t.TempDir())
	second.ready(id)
	if second.log.count(loadSaid) == 0 {
		t.Error("the second standby did not begin with a snapshot")
	}
	same("the standby that began with a snapshot", func() replicas.Digest { return computed(t, second.copy(id)) })
}

func (p *process) says(text string) {
	p.c.t.Helper()
	poll.Until(p.c.t, func() error { return poll.Unless(p.log.count(text) > 0, fmt.Sprintf("%q is not said", text)) })
}

// A standby whose copy is wrong in one byte finds that, says it, makes the copy anew, and has what its owner has then.
func TestACopyThatDiffersIsFoundAndMadeAnew(t *testing.T) {
	t.Parallel()
	c, id, a, b, write := compares(t, 1)
	for range 3 {
		write()
	}
	b.ready(id)
	if b.log.count(differsSaid) > 0 {
		t.Fatal("a copy differs that nobody has damaged")
	}
	damage(t, b.copy(id))
	write()
	b.says(differsSaid)
	if !strings.Contains(b.log.String(), "items (some of") {
		t.Error("it is not said what differs")
	}
	b.says(equalSaid)
	b.ready(id)
	if b.log.count(rebuiltSaid) != 1 || b.log.count(suspectSaid) > 0 || a.log.count(rebuiltSaid) > 0 {
		t.Error("not the copy alone was made anew, once")
	}
	at, sum := digest(t, b.copy(id))
	if want, own := digest(t, a.copy(id)); at == want && sum != own {
		t.Error("the copy differs still")
	}
	poll.Until(t, func() error {
		said := c.remarks(id)
		return poll.Unless(len(said) == 0, fmt.Sprint(said))
	})
}

// Where the owner's engine is wrong, the copy is made anew in vain, and it is said that the owner is suspect: in the log, and to
// the group. When the standby has taken over, the engine that was wrong is a copy, and is made anew.
func TestAnOwnersOwnDamageIsSaid(t *testing.T) {
	t.Parallel()
	c, id, a, b, write := compares(t, 2)
	damage(t, a.copy(id))
	write()
	b.says(differsSaid)
	b.says(suspectSaid)
	poll.Until(t, func() error {
		said := c.remarks(id)
		return poll.Unless(strings.Contains(said[b.node()], "items") && strings.Contains(said[b.node()], suspectSaid), fmt.Sprint(said))
	})
	if n := b.log.count(rebuiltSaid); n != 1 {
		t.Errorf("the copy was made anew %d times", n)
	}
	if _, err := leases.Drain(t.Context(), c.srv.JS, "", a.node(), "test"); err != nil {
		t.Fatal(err)
	}
	b.owns(id)
	if _, err := leases.Undrain(t.Context(), c.srv.JS, "", a.node()); err != nil {
		t.Fatal(err)
	}
	write()
	a.says(equalSaid)
	if b.log.count(rebuiltSaid) != 1 {
		t.Error("the copy that was right was made anew")
	}
	if _, sum := digest(t, b.copy(id)); sum != c.replayed(id, c.end(id)) {
		t.Error("what the log makes is not what the new owner has")
	}
}

// tellings returns the digests that a partition's log tells.
func (c *cluster) tellings(id feed.Partition) (all []replicas.Digest) {
	c.t.Helper()
	log, err := feed.OpenLog(c.t.Context(), c.srv.JS, id, feed.LogConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	first, last, err := log.Bounds(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for lsn := first; lsn <= last; lsn++ {
		commit, err := log.Read(c.t.Context(), lsn)
		if err != nil {
			c.t.Fatal(err)
		}
		if _, told := replicas.Of(commit); told != nil {
			all = append(all, *told)
		}
	}
	return all
}

// told returns how many these are.
func (c *cluster) told(id feed.Partition) int { c.t.Helper(); return len(c.tellings(id)) }

// children waits until the one container has so many partitions, and returns them.
func (c *cluster) children(n int) (all []feed.Partition) {
	c.t.Helper()
	poll.Until(c.t, func() error {
		ct, err := c.client.Container(c.t.Context(), "default", "things")
		if err != nil {
			return err
		}
		all = ct.Partitions()
		return poll.Unless(len(all) == n, fmt.Sprint(all))
	})
	return all
}

// A release that can still be gone back to does not know the records, so none is written before the upgrade is finished.
func TestNoDigestIsOrderedBeforeTheUpgradeIsFinished(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	bucket := store.CatalogBucketConfig(1)
	bucket.Metadata = map[string]string{"millrace.level": fmt.Sprint(featurelevel.Digests - 1)}
	if _, err := srv.JS.CreateKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	c := newClusterOn(t, srv)
	c.cfg.DigestInterval = time.Millisecond
	ct, id, _ := c.things()
	b := c.start("b", t.TempDir())
	r := rand.New(rand.NewPCG(4, 4))
	for range 3 {
		scribble(t, ct, r, 20)
		b.ready(id)
	}
	if n := c.told(id); n > 0 {
		t.Fatalf("%d digests are told below the feature level", n)
	}
	if err := featurelevel.Raise(t.Context(), srv.JS); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error { return poll.Unless(c.told(id) > 0, "no digest is told") })
}

// A partition is split while digests are ordered and told: the children pass over what their parent's log says of them, and are
// compared by themselves.
func TestASplitPassesDigestsOver(t *testing.T) {
	t.Parallel()
	c, id, a, b, write := compares(t, 5)
	poll.Until(t, func() error {
		write()
		return poll.Unless(c.told(id) > 1, "no digest is told")
	})
	ct, err := c.client.Container(t.Context(), "default", "things")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ct.Split(t.Context(), id, store.SplitPartition{}); err != nil {
		t.Fatal(err)
	}
	for _, child := range c.children(2) {
		poll.Until(t, func() error {
			write()
			return poll.Unless(c.told(child) > 2, "no digest is told")
		})
	}
	for _, p := range []*process{a, b} {
		if p.log.count(differsSaid) > 0 {
			t.Error("a child differs")
		}
	}
}
