package owner_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// What a child without a snapshot of its own needs of its parent is lost: whoever asks the child is told so.
func TestSplit_AChildWhoseParentIsLostSaysSo(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(c *cluster, parent feed.Partition, children []feed.Partition) error{
		"its stream is gone": func(c *cluster, parent feed.Partition, _ []feed.Partition) error {
			return c.js.DeleteStream(t.Context(), parent.Stream())
		},
		"there is no snapshot of its share": func(c *cluster, _ feed.Partition, children []feed.Partition) error {
			var errs []error
			for _, p := range children {
				errs = append(errs, snapshot.Remove(t.Context(), snapshot.Directory(filepath.Join(c.cfg.DataDir, "snapshots")), p))
			}
			return errors.Join(errs...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			var said bytes.Buffer
			c.cfg = owner.Config{
				Alone: true, DataDir: t.TempDir(), DiskReserve: -1, Snapshots: owner.SnapshotConfig{Store: owner.SnapshotsDirectory},
				Logger: slog.New(slog.NewTextHandler(&said, nil)),
			}
			a := c.process("a", t.TempDir())
			ct := splitContainer(t, c, a.client)
			for n := range 50 {
				if _, err := ct.Create(t.Context(), splitItem(n)); err != nil {
					t.Fatal(err)
				}
			}
			parent := ct.Partitions()[0]
			if _, err := ct.Split(t.Context(), parent, store.SplitPartition{}); err != nil {
				t.Fatal(err)
			}
			children := awaitSplit(t, a.client, 0).Partitions()
			a.stop() // before children have snapshots of their own
			if strings.Contains(said.String(), "a snapshot of its own is taken") {
				t.Skip("the machine was too slow: they have")
			}
			if err := lose(c, parent, children); err != nil {
				t.Fatal(err)
			}
			b := c.process("b", t.TempDir())
			client := store.NewClient(c.conn(), c.catalog, store.ClientConfig{Timeout: time.Second, HandoverWait: time.Second})
			ct = reopen(t, client)
			poll.Until(t, func() error {
				_, err := ct.Count(t.Context(), ct.Partitions()[0], store.Scope{})
				refused, ok := errors.AsType[*store.Error](err)
				says := fmt.Sprintf("made by a split of partition %s", parent)
				if !ok || refused.Status != store.StatusUnavailable || !strings.Contains(refused.Message, says) || !strings.Contains(refused.Message, name) {
					return fmt.Errorf("a child answers %w; want %q and %q", err, says, name)
				}
				return nil
			})
			b.stop()
		})
	}
}
