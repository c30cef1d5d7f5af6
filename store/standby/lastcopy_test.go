package standby_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
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
			kept, err := b.owners.Unfollow(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
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
