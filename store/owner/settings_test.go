package owner_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// indexesReady waits until all indexes of all partitions are built. Nobody
// writes meanwhile.
func (c *cluster) indexesReady(ct *store.Container, n int) {
	c.t.Helper()
	for _, p := range ct.Partitions() {
		poll.Until(c.t, func() error {
			status, err := ct.Status(c.t.Context(), p)
			if err != nil {
				c.t.Fatal(err)
			}
			ready := 0
			for _, i := range status.Indexes {
				if i.Ready {
					ready++
				}
			}
			return poll.Unless(ready == n, fmt.Sprintf("partition %s has %d of %d indexes", p, ready, n))
		})
	}
}

// An index is built in a partition that nobody writes to, too.
func TestIndexOfAnIdlePartitionIsBuilt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.process("one", t.TempDir())
	if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 8}); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if err := c.catalog.WantIndex(t.Context(), "default", "things", fmt.Sprintf("/f%d", n)); err != nil {
			t.Fatal(err)
		}
		c.indexesReady(c.container(p.client, "things"), n+1)
	}
}

// What the catalog wishes while a partition is on its way to an owner is put in
// force by whoever opens it.
func TestWishesOfAnOpeningPartitionAreNotLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		p := c.process(fmt.Sprint("p", n), t.TempDir())
		for range 2 {
			ct := c.container(p.client, "things")
			paths := len(ct.Info().IndexesWanted)
			if err := c.catalog.WantIndex(t.Context(), "default", "things", fmt.Sprintf("/f%d", paths)); err != nil {
				t.Fatal(err)
			}
		}
		c.indexesReady(c.container(p.client, "things"), 2*(n+1))
		p.stop()
	}
}
