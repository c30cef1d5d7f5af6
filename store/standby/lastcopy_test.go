package standby_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// TestACopyIsFreedOnlyIfItsLogMakesItAnew takes a warm copy's log away, or a part of it, before the copy is dropped.
func TestACopyIsFreedOnlyIfItsLogMakesItAnew(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		trim bool
		harm func(c *cluster, stream jetstream.Stream, id feed.Partition)
		kept string // a part of the reason; "" where the copy is freed
	}{
		{name: "a whole log", harm: func(*cluster, jetstream.Stream, feed.Partition) {}},
		{name: "a trimmed log with a snapshot", trim: true, harm: func(*cluster, jetstream.Stream, feed.Partition) {}},
		{name: "a trimmed log with half a snapshot", trim: true, kept: "no snapshot", harm: func(c *cluster, _ jetstream.Stream, _ feed.Partition) {
			stream, err := c.srv.JS.Stream(c.t.Context(), snapshot.StreamName)
			if err != nil {
				c.t.Fatal(err)
			}
			full := stream.CachedInfo().Config
			full.Subjects = []string{"taken.no.more"} // else the owner may take another
			if _, err := c.srv.JS.UpdateStream(c.t.Context(), full); err != nil {
				c.t.Fatal(err)
			}
			if err := stream.Purge(c.t.Context(), jetstream.WithPurgeSubject("millrace.snapshots.*.*.*.000001")); err != nil {
				c.t.Fatal(err)
			}
		}},
		{name: "no log", kept: "is not there", harm: func(c *cluster, stream jetstream.Stream, _ feed.Partition) {
			if err := c.srv.JS.DeleteStream(c.t.Context(), stream.CachedInfo().Config.Name); err != nil {
				c.t.Fatal(err)
			}
		}},
		{name: "commits are missing that were applied", kept: "lacks LSN 1", harm: func(c *cluster, stream jetstream.Stream, _ feed.Partition) {
			if err := stream.Purge(c.t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
				c.t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			spec := followed
			if test.trim {
				c.cfg = trimming
				spec.ChangeFeed.Retention = new(store.Retention(0))
			}
			ct := c.container("things", spec)
			id := ct.Partitions()[0]
			a := c.start("a", t.TempDir())
			a.owns(id)
			r := rand.New(rand.NewPCG(7, 7))
			scribble(t, ct, r, 30)
			if test.trim {
				c.trimmed(ct, r, id, 1)
			}
			b := c.start("b", t.TempDir())
			b.ready(id)
			back, err := b.standbys.Yield(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			defer back()
			stream, err := feed.StreamOf(t.Context(), c.srv.JS, id)
			if err != nil {
				t.Fatal(err)
			}
			test.harm(c, stream, id)
			var kept string
			poll.Until(t, func() (err error) { // the owner may trim the log between two looks at it
				kept, err = b.owners.Unfollow(t.Context(), id, func() {})
				return err
			})
			if (kept == "") != (test.kept == "") || !strings.Contains(kept, test.kept) {
				t.Errorf("kept because %q, want %q", kept, test.kept)
			}
			there, err := b.owners.Engine().Partitions()
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(there, id) != (test.kept != "") {
				t.Errorf("the copy is there: %t", slices.Contains(there, id))
			}
		})
	}
}

// unwish turns the standbys of a container off.
func (c *cluster) unwish(name string) {
	c.t.Helper()
	without := followed
	without.Standbys = 0
	if _, err := c.catalog.Update(c.t.Context(), "default", name, without); err != nil {
		c.t.Fatal(err)
	}
}

// TestACopyThatMetAFullDiskIsFreed takes the room away from a store that follows a partition. Its copy goes on when
// there is room, and is freed when nobody wants it any more.
func TestACopyThatMetAFullDiskIsFreed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, _ := c.things()
	r := rand.New(rand.NewPCG(8, 8))
	scribble(t, ct, r, 20)
	disk := filepath.Join(t.TempDir(), "disk")
	there := func() {
		t.Helper()
		if err := os.Mkdir(disk, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	full := func() { // the room of a directory that is not there is not known
		t.Helper()
		if err := os.Remove(disk); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, func() error { return poll.Unless(len(c.warm(id)) == 0, "the copy is still brought forward") })
	}
	there()
	c.cfg.DataDir, c.cfg.DiskReserve = disk, 1
	b := c.start("b", t.TempDir())
	b.ready(id)
	full()
	scribble(t, ct, r, 20)
	there()
	b.ready(id)
	full()
	c.unwish("things")
	b.freed(id)
}

// TestWhatAnEarlierProcessFollowedIsFreed turns the standbys off while the store is down that has the copy.
func TestWhatAnEarlierProcessFollowedIsFreed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct := c.container("things", followed)
	id := ct.Partitions()[0]
	a, dir := c.start("a", t.TempDir()), t.TempDir()
	a.owns(id)
	b := c.start("b", dir)
	scribble(t, ct, rand.New(rand.NewPCG(9, 9)), 20)
	b.ready(id)
	b.stop()
	c.unwish("things")
	b = c.start("b", dir)
	b.freed(id)
	// And no later process has anything to free.
	namesNothing(t, dir)
}

// TestWhatAnOwnerHasOpenedIsNotNamedAnyMore starts a store that owns what its file names, and whose container wants no
// standbys any more. A later process that does not own it would free it.
func TestWhatAnOwnerHasOpenedIsNotNamedAnyMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	spec := followed
	spec.Standbys = 0
	ct := c.container("things", spec)
	id := ct.Partitions()[0]
	dir := t.TempDir()
	if err := os.WriteFile(dir+".standbys", []byte(`{"v":1,"partitions":["`+id.String()+`"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	a := c.start("a", dir)
	a.owns(id)
	scribble(t, ct, rand.New(rand.NewPCG(12, 12)), 10)
	namesNothing(t, dir)
	there, err := a.owners.Engine().Partitions()
	if err != nil || !slices.Contains(there, id) {
		t.Errorf("the owner's engine has %v, %v", there, err)
	}
}

// namesNothing waits until the file of a store's copies is empty.
func namesNothing(t *testing.T, dir string) {
	t.Helper()
	poll.Until(t, func() error {
		named, err := os.ReadFile(dir + ".standbys")
		return errors.Join(err, poll.Unless(string(named) == `{"v":1,"partitions":[]}`+"\n", string(named)))
	})
}

// TestWhatThisProcessOwnsIsNotFreed asks the owner of a partition to free it, as a follower would that comes late.
func TestWhatThisProcessOwnsIsNotFreed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ct, id, a := c.things()
	scribble(t, ct, rand.New(rand.NewPCG(10, 10)), 10)
	if kept, err := a.owners.Unfollow(t.Context(), id, func() {}); !errors.Is(err, owner.ErrNotFollowed) {
		t.Errorf("kept because %q with %v, want %v", kept, err, owner.ErrNotFollowed)
	}
	there, err := a.owners.Engine().Partitions()
	if err != nil || !slices.Contains(there, id) {
		t.Errorf("the owner's engine has %v, %v", there, err)
	}
}
