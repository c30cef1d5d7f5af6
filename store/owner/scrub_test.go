package owner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// TestScrub_LeavesAloneWhatHasNotChanged has two containers, of which one is written to. Passes
// read the log of that one again, and of the other one only when it is written to.
func TestScrub_LeavesAloneWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// What has not changed would be left alone for a minute.
	c.cfg.Scrub = owner.ScrubConfig{Interval: 2 * time.Second, SharePercent: 100}
	p := c.process("a", t.TempDir())
	open := func(name string) *store.Container {
		if _, err := c.catalog.Create(t.Context(), "default", name, store.ContainerSpec{PartitionKey: []string{"/id"}}); err != nil {
			t.Fatal(err)
		}
		return c.container(p.client, name)
	}
	busy, still := open("busy"), open("still")
	n := 0
	write := func(ct *store.Container) {
		n++
		if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d"}`, n)); err != nil {
			t.Fatal(err)
		}
	}
	look := func(ct *store.Container) *store.PartitionStatus {
		status, err := ct.Status(t.Context(), ct.Partitions()[0])
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	// read waits for a pass that has read a log to its end.
	read := func(ct *store.Container) (status *store.PartitionStatus) {
		poll.Until(t, func() error {
			status = look(ct)
			return poll.Unless(status.Scrub != nil && status.Scrub.Commits == uint64(status.Applied), "the log was not read to its end")
		})
		return status
	}
	write(still)
	before := read(still)
	began := time.Now()
	for range 3 { // passes
		write(busy)
		read(busy)
	}
	after := look(still)
	// Whoever loses the lease on a busy machine reads the log anew.
	if took := time.Since(began); took < 30*time.Second && after.Epoch == before.Epoch && after.Scrub.Ended != before.Scrub.Ended {
		t.Errorf("a log that has not changed was read again within %s", took)
	}
	write(still)
	read(still)
}
