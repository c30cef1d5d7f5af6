package standby_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// TestI2_ACopyThatIsBehindIsNotServedInPlaceOfALostLog takes a partition's stream away while its standby lacks what was
// written last. The standby gets the lease and answers nothing, not even that an item is not there; it leaves the
// partition to the store that owned it last when that is there again, which answers all, also when it has started
// once more.
func TestI2_ACopyThatIsBehindIsNotServedInPlaceOfALostLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.locked = true
	c.cfg.CheckInterval = 50 * time.Millisecond
	ct := c.container("things", followed)
	id := ct.Partitions()[0]
	dir := t.TempDir()
	a := c.start("a", dir)
	a.owns(id)
	write := func(item string) {
		t.Helper()
		if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"k":"x","u":%q}`, item, item)); err != nil {
			t.Fatal(err)
		}
	}
	write("early")
	b := c.start("b", t.TempDir())
	b.ready(id)
	back, err := b.standbys.Yield(t.Context(), id) // as a follower that is slow
	if err != nil {
		t.Fatal(err)
	}
	defer back()
	write("late")
	stream, err := feed.StreamOf(t.Context(), c.srv.JS, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.srv.JS.DeleteStream(t.Context(), stream.CachedInfo().Config.Name); err != nil {
		t.Fatal(err)
	}
	a.stop()
	for _, item := range []string{"late", "early"} {
		poll.Until(t, func() error {
			_, err := ct.Read(t.Context(), pk(t, "x"), item)
			if err == nil || errors.Is(err, store.ErrNotFound) {
				t.Fatalf("item %s, which was acknowledged, is answered %v by a copy that is behind", item, err)
			}
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "node a that owned the partition last") {
				return fmt.Errorf("the answer is %w, want 503 with the node that owned the partition last", err)
			}
			return nil
		})
	}
	for range 2 {
		a = c.start("a", dir)
		for _, item := range []string{"late", "early"} {
			poll.Until(t, func() error {
				_, err := ct.Read(t.Context(), pk(t, "x"), item)
				if errors.Is(err, store.ErrNotFound) {
					t.Fatalf("item %s, which was acknowledged, is answered %v", item, err)
				}
				return err
			})
		}
		if _, err := ct.Upsert(t.Context(), []byte(`{"id":"new","k":"x","u":"new"}`)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a write is answered %v", err)
		}
		a.stop()
	}
}
