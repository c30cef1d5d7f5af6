package owner_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

const splitForSize = "the partition is split for its size"

// Partitions are split until none holds as much as SplitBytes, one after the other, and children only by snapshots of
// their own.
func TestSplit_BySize(t *testing.T) {
	t.Parallel()
	const size = 100 << 10
	c, said := newCluster(t), &owner.Journal{}
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream, LogBytes: 1, SharePercent: 100}
	c.cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	p := c.process("a", t.TempDir())
	ct := splitContainer(t, c, p.client)
	const items = 1000
	for n := range items {
		if _, err := ct.Create(t.Context(), splitItem(n)); err != nil {
			t.Fatal(err)
		}
	}
	p.stop() // with SplitBytes 0
	if info := reopen(t, p.client).Info(); len(info.Partitions) != 1 || len(info.Splits) > 0 || strings.Contains(said.String(), splitForSize) {
		t.Fatalf("nobody asked, and the catalog has %+v", info)
	}
	owner.SplitAt(&c.cfg, size)
	p = c.process("a", t.TempDir())
	poll.Until(t, func() error {
		ct = reopen(t, p.client)
		// The first snapshot may be of few of the items: nothing is split yet, and all looks well.
		if info := ct.Info(); len(info.Splits) > 0 || len(info.Partitions) < 3 {
			return fmt.Errorf("partitions %+v, splits %+v", info.Partitions, info.Splits)
		}
		for _, part := range ct.Partitions() {
			switch status, err := ct.Status(t.Context(), part); {
			case err != nil:
				return err
			case status.Snapshot == nil || status.Snapshot.Bytes >= size:
				return fmt.Errorf("partition %s has the snapshot %+v", part, status.Snapshot)
			}
		}
		return nil
	})
	total := 0
	for _, part := range ct.Partitions() {
		n, err := ct.Count(t.Context(), part, store.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		if n < items/10 {
			t.Errorf("partition %s has %d items: it was split though it held little", part, n)
		}
		total += n
	}
	info := reopen(t, p.client).Info()
	if len(info.Partitions) < 3 {
		t.Errorf("there are partitions %+v", info.Partitions)
	}
	if made, splits := len(info.Partitions)-1, strings.Count(said.String(), splitForSize); total != items || made != splits {
		t.Errorf("%d items, %d partitions more than there were after %d splits", total, made, splits)
	}
}

// A partition of which one partition key has nearly all is not split by its size, which is said once. By hand it can be.
func TestSplit_BySizeLeavesWhatOneKeyHas(t *testing.T) {
	t.Parallel()
	c, said := newCluster(t), &owner.Journal{}
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream, LogBytes: 1, SharePercent: 100}
	c.cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	owner.SplitAt(&c.cfg, 20<<10)
	p := c.process("a", t.TempDir())
	ct := splitContainer(t, c, p.client)
	write := func(n int, key string) {
		t.Helper()
		if _, err := ct.Create(t.Context(), fmt.Appendf(nil, `{"id":"i%d","pk":%q,"u":%d,"text":"%0200d"}`, n, key, n, n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 200 { // the others have less than a tenth whenever it holds so much
		if n%20 == 0 {
			write(n, fmt.Sprint("other", n))
		} else {
			write(n, "one")
		}
	}
	const refused = "one partition key has nearly all of its items"
	poll.Until(t, func() error {
		if !strings.Contains(said.String(), refused) {
			return errors.New("it is not said that it is not split")
		}
		return nil
	})
	part := ct.Partitions()[0]
	newest := func() (at feed.LSN) {
		poll.Until(t, func() error {
			status, err := ct.Status(t.Context(), part)
			if err == nil && status.Snapshot == nil {
				err = errors.New("no snapshot")
			}
			if err == nil {
				at = status.Snapshot.LSN
			}
			return err
		})
		return at
	}
	before := newest()
	for n := range 300 { // it grows by half, and more: it is looked at again
		write(1000+n, "one")
	}
	poll.Until(t, func() error {
		if newest() == before {
			return errors.New("no newer snapshot")
		}
		return nil
	})
	if info := reopen(t, p.client).Info(); len(info.Partitions) != 1 || len(info.Splits) > 0 || strings.Count(said.String(), refused) != 1 {
		t.Errorf("the catalog has %+v, said was:\n%s", info, said)
	}
	if _, err := ct.Split(t.Context(), part, store.SplitPartition{}); err != nil {
		t.Errorf("by hand: %v", err)
	}
	awaitSplit(t, p.client, 0)
}
