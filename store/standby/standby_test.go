package standby_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/standby"
)

var followed = store.ContainerSpec{
	PartitionKey: []string{"/k"}, Indexes: []string{"/n", "/tags/*"}, UniqueKeys: [][]string{{"/u"}}, TTL: 3600, Standbys: 1,
}

const (
	loadSaid = "snapshot loaded"
	keys     = 12 // of partitions
)

// scribble writes n times at random: items, patches and deletions, alone and in batches of some dozens.
func scribble(t testing.TB, ct *store.Container, r *rand.Rand, n int) {
	t.Helper()
	body := func(id int) []byte {
		return fmt.Appendf(nil, `{"id":"%d","k":"k%d","n":%d,"u":"%d","tags":["a","t%d"],"pad":%q}`,
			id, id%keys, r.IntN(100), id, r.IntN(5), strings.Repeat("x", r.IntN(2000)))
	}
	for range n {
		id := r.IntN(60)
		key := pk(t, fmt.Sprintf("k%d", id%keys))
		var err error
		switch r.IntN(6) {
		case 0:
			err = ct.Delete(t.Context(), key, fmt.Sprint(id))
		case 1:
			_, err = ct.Patch(t.Context(), key, fmt.Sprint(id), []document.Op{{Kind: "set", Path: "/n", Value: fmt.Append(nil, r.IntN(100))}})
		case 2:
			var ops []store.Operation
			for i := range 30 {
				ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: body(keys*i + id%keys)})
			}
			_, err = ct.Batch(t.Context(), key, ops, "")
		default:
			_, err = ct.Upsert(t.Context(), body(id))
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

func pk(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	key, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestI3_AFollowerEqualsTheOwner compares by digest, after random writes.
func TestI3_AFollowerEqualsTheOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, a := c.things()
	r := rand.New(rand.NewPCG(1, 1))
	scribble(t, ct, r, 60)
	b := c.start("b", t.TempDir())
	b.ready(id)
	for range 3 {
		scribble(t, ct, r, 60)
		b.ready(id)
		at, sum := digest(t, b.copy(id))
		if want, own := digest(t, a.copy(id)); at != want || sum != own {
			t.Fatalf("the copy at LSN %d has digest %x, the owner's at %d has %x", at, sum, want, own)
		}
	}
	if slices.Contains(b.owners.Serving(), id) {
		t.Error("the standby serves the partition")
	}
}

// TestAKilledOwnersPartitionsOpenWithoutALoad kills a store whose logs are trimmed, so that nothing but a snapshot
// could make their state anew.
func TestAKilledOwnersPartitionsOpenWithoutALoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg, c.ttl = trimming, 5*time.Second
	spec := followed
	spec.Partitions = 2
	spec.ChangeFeed.Retention = new(store.Retention(0))
	ct := c.container("things", spec)
	a := c.start("a", t.TempDir())
	a.owns(ct.Partitions()...)
	r := rand.New(rand.NewPCG(2, 2))
	for _, id := range ct.Partitions() {
		c.trimmed(ct, r, id, 1)
	}
	b := c.start("b", t.TempDir())
	poll.Until(t, func() error { // one of the partitions moves
		return poll.Unless(len(a.owners.Serving()) == 1 && len(b.owners.Serving()) == 1, fmt.Sprint(a.owners.Serving(), b.owners.Serving()))
	})
	scribble(t, ct, r, 30)
	kept := a.owners.Serving()[0]
	b.ready(kept)
	loaded := b.log.count(loadSaid)
	if loaded == 0 {
		t.Fatal("the copies of a trimmed log were made without a snapshot")
	}
	a.kill()
	b.owns(ct.Partitions()...)
	scribble(t, ct, r, 30)
	if now := b.log.count(loadSaid); now != loaded {
		t.Errorf("%d snapshots were loaded when the owner was gone", now-loaded)
	}
	// Whoever owns a partition does not follow it.
	poll.Until(t, func() error {
		return poll.Unless(len(c.warm(kept)) == 0, fmt.Sprint("warm are ", c.warm(kept)))
	})
	end := c.end(kept)
	if at, _ := digest(t, b.copy(kept)); at < end {
		t.Errorf("the new owner is at LSN %d, its log at %d", at, end)
	}
}

// trimming is the configuration of stores that take snapshots and trim logs soon.
var trimming = owner.Config{
	DiskReserve: -1, TrimBytes: 1, CheckInterval: 50 * time.Millisecond, SyncInterval: 50 * time.Millisecond,
	Snapshots: owner.SnapshotConfig{Store: owner.SnapshotsStream, LogBytes: 64 << 10, Rest: 50 * time.Millisecond, SharePercent: 100},
}

// trimmed writes until a partition's log begins behind an LSN.
func (c *cluster) trimmed(ct *store.Container, r *rand.Rand, id feed.Partition, behind feed.LSN) {
	c.t.Helper()
	log, err := feed.OpenLog(c.t.Context(), c.srv.JS, id, feed.LogConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	poll.Until(c.t, func() error {
		scribble(c.t, ct, r, 20)
		shape, err := log.Shape(c.t.Context())
		if err == nil && shape.First <= behind {
			err = fmt.Errorf("the log begins at %d", shape.First)
		}
		return err
	})
}

// TestALogTrimmedBelowAFollowerIsLoadedAnew lets a store come back whose copy ends before its log begins.
func TestALogTrimmedBelowAFollowerIsLoadedAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg = trimming
	spec := followed
	spec.ChangeFeed.Retention = new(store.Retention(0))
	ct := c.container("things", spec)
	id := ct.Partitions()[0]
	a, dir := c.start("a", t.TempDir()), t.TempDir()
	a.owns(id)
	b := c.start("b", dir)
	r := rand.New(rand.NewPCG(3, 3))
	scribble(t, ct, r, 20)
	b.ready(id)
	at, _ := digest(t, b.copy(id))
	b.stop()
	c.trimmed(ct, r, id, at+1)
	b = c.start("b", dir)
	b.ready(id)
	if b.log.count(loadSaid) == 0 {
		t.Error("the copy was brought forward without what was trimmed")
	}
	_, sum := digest(t, b.copy(id))
	if _, own := digest(t, a.copy(id)); sum != own {
		t.Errorf("the copy has digest %x, the owner's %x", sum, own)
	}
}

// TestI2_AYieldLeavesWholeCommits takes a copy away from its follower at random moments of a stream of batches.
func TestI2_AYieldLeavesWholeCommits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, _ := c.things()
	b := c.start("b", t.TempDir())
	b.ready(id)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		r := rand.New(rand.NewPCG(4, 4))
		for ctx.Err() == nil {
			scribble(t, ct, r, 1)
		}
	})
	defer writing.Wait()
	defer cancel()
	for range 5 {
		before, _ := digest(t, b.copy(id))
		poll.Until(t, func() error {
			state, err := b.copy(id).State()
			return errors.Join(err, poll.Unless(state.Applied > before, "nothing is followed"))
		})
		back, err := b.standbys.Yield(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		at, sum := digest(t, b.copy(id))
		if want := c.replayed(id, at); sum != want {
			t.Fatalf("the copy at LSN %d has digest %x, the log makes %x", at, sum, want)
		}
		poll.Until(t, func() error { return poll.Unless(c.end(id) > at, "nothing is written") })
		if now, _ := digest(t, b.copy(id)); now != at {
			t.Fatalf("the copy went on from LSN %d to %d when it had been taken away", at, now)
		}
		back()
	}
}

// TestI3_ADamagedEngineIsMadeAnewUnderAFollower tells the engine of a block that cannot be read.
func TestI3_ADamagedEngineIsMadeAnewUnderAFollower(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, a := c.things()
	b := c.start("b", t.TempDir())
	r := rand.New(rand.NewPCG(5, 5))
	scribble(t, ct, r, 30)
	b.ready(id)
	damaged := b.owners.Engine()
	damaged.Fail(fmt.Errorf("a test says so: %w", engine.ErrCorrupt))
	poll.Until(t, func() error {
		return poll.Unless(b.owners.Engine() != damaged, "the engine was not made anew")
	})
	scribble(t, ct, r, 30)
	b.ready(id)
	at, sum := digest(t, b.copy(id))
	if want, own := digest(t, a.copy(id)); at != want || sum != own {
		t.Errorf("the copy at LSN %d has digest %x, the owner's at %d has %x", at, sum, want, own)
	}
}

// TestWhatIsNotFollowedAnyMoreIsFreed turns the standbys of a container off, and deletes another and makes it again.
func TestWhatIsNotFollowedAnyMoreIsFreed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	off, gone := c.container("off", followed), c.container("gone", followed)
	a := c.start("a", t.TempDir())
	a.owns(off.Partitions()[0], gone.Partitions()[0])
	b := c.start("b", t.TempDir())
	r := rand.New(rand.NewPCG(6, 6))
	// One of the two moves to b, and a follows it.
	all := []feed.Partition{off.Partitions()[0], gone.Partitions()[0]}
	poll.Until(t, func() error {
		return poll.Unless(len(a.owners.Serving()) == 1 && len(b.owners.Serving()) == 1, fmt.Sprint(a.owners.Serving(), b.owners.Serving()))
	})
	scribble(t, off, r, 10)
	scribble(t, gone, r, 10)
	follower := map[feed.Partition]*process{}
	for _, id := range all {
		follower[id] = b
		if slices.Contains(b.owners.Serving(), id) {
			follower[id] = a
		}
		follower[id].ready(id)
	}
	without := followed
	without.Standbys = 0
	if _, err := c.catalog.Update(t.Context(), "default", "off", without); err != nil {
		t.Fatal(err)
	}
	follower[all[0]].freed(all[0])
	scribble(t, off, r, 10) // its owner goes on

	if err := c.catalog.Delete(t.Context(), "default", "gone"); err != nil {
		t.Fatal(err)
	}
	follower[all[1]].freed(all[1])
	again := c.container("gone", followed)
	scribble(t, again, r, 10)
	id := again.Partitions()[0]
	poll.Until(t, func() error {
		warm, end := c.warm(id), c.end(id)
		for _, at := range warm {
			if at >= end {
				return nil
			}
		}
		return fmt.Errorf("ends at %d, warm are %v", end, warm)
	})
}

// TestACopyStaysUntilTheNextIsWarm lets a store join that is to follow a partition in place of another, and that has
// no room at first.
func TestACopyStaysUntilTheNextIsWarm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, a := c.things()
	b := c.start("b", t.TempDir())
	r := rand.New(rand.NewPCG(11, 11))
	scribble(t, ct, r, 20)
	b.ready(id)
	disk := filepath.Join(t.TempDir(), "disk") // its room is not known while it is not there
	c.cfg.DataDir, c.cfg.DiskReserve = disk, 1
	wish := []standby.Wish{{Partition: id, Standbys: 1, Owner: a.node()}}
	next := c.start("c", t.TempDir())
	for len(standby.Choose(next.node(), []string{a.node(), b.node(), next.node()}, wish)) == 0 { // ranks go by names, which are random
		next.stop()
		next = c.start("c", t.TempDir())
	}
	poll.Until(t, func() error {
		group := b.leases.Group()
		return poll.Unless(len(standby.Choose(next.node(), group.Nodes, wish)) > 0, fmt.Sprint("living are ", group.Nodes))
	})
	for range 4 { // more than two seconds for each, and a copy that is dropped is dropped within two
		beat := c.beat(b.node())
		poll.Until(t, func() error { return poll.Unless(c.beat(b.node()) > beat, "no beat") })
		if warm := c.warm(id); warm[b.node()] == 0 {
			t.Fatalf("nobody has taken the place of the copy of %s: warm are %v", b.node(), warm)
		}
	}
	scribble(t, ct, r, 20)
	b.ready(id)
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	next.ready(id)
	b.freed(id)
}

// TestACopyThatStaysIsFollowedAgain lets a store join that is to follow a partition in place of another, and that has no
// room; and the other has none for a while either.
func TestACopyThatStaysIsFollowedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, a := c.things()
	r := rand.New(rand.NewPCG(13, 13))
	scribble(t, ct, r, 20)
	disk := filepath.Join(t.TempDir(), "disk") // its room is not known while it is not there
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	c.cfg.DataDir, c.cfg.DiskReserve = disk, 1
	b := c.start("b", t.TempDir())
	b.ready(id)
	c.cfg.DataDir = filepath.Join(t.TempDir(), "disk")
	wish := []standby.Wish{{Partition: id, Standbys: 1, Owner: a.node()}}
	next := c.start("c", t.TempDir())
	for len(standby.Choose(next.node(), []string{a.node(), b.node(), next.node()}, wish)) == 0 { // ranks go by names, which are random
		next.stop()
		next = c.start("c", t.TempDir())
	}
	poll.Until(t, func() error {
		group := b.leases.Group()
		return poll.Unless(len(standby.Choose(next.node(), group.Nodes, wish)) > 0, fmt.Sprint("living are ", group.Nodes))
	})
	if err := os.Remove(disk); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error { return poll.Unless(len(c.warm(id)) == 0, "the copy is still brought forward") })
	scribble(t, ct, r, 20)
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	b.ready(id)
}

// TestNothingMovesCold lets two stores join one that has all. Each gets its share, and none a partition of which it has
// no copy that is ready: those that are no standby of it by its name make one first.
func TestNothingMovesCold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	spec := followed
	spec.Partitions = 6
	ct := c.container("things", spec)
	a := c.start("a", t.TempDir())
	a.owns(ct.Partitions()...)
	scribble(t, ct, rand.New(rand.NewPCG(17, 17)), 60)
	others := []*process{c.start("b", t.TempDir()), c.start("c", t.TempDir())}
	poll.Until(t, func() error {
		counts := []int{len(a.owners.Serving()), len(others[0].owners.Serving()), len(others[1].owners.Serving())}
		return poll.Unless(slices.Equal(counts, []int{2, 2, 2}), fmt.Sprint("they serve ", counts))
	})
	for _, p := range others {
		for _, id := range p.owners.Serving() {
			_, since, _ := strings.Cut(p.log.String(), "partition is ready\" partition="+id.String()+" ")
			if !regexp.MustCompile(`msg="lease taken".* resource=` + owner.LeaseResource(id) + " ").MatchString(since) {
				t.Errorf("%s took %s cold:\n%s", p.node(), id, p.log)
			}
		}
	}
}
