package owner_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// held returns the partitions that the engine of a process holds.
func (p *process) held(t testing.TB) string {
	t.Helper()
	all, err := p.server.Engine().Partitions()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(all)
}

// TestI2_ADirectoryAtAnotherNATSKeepsWhatItHolds starts a store with the directory and the snapshots of another one, as
// an address that was mistaken does, or a volume of NATS that is not mounted. Its catalog lists nothing of what
// the engine holds, and there are no logs of it, but nobody has deleted it. A container that is deleted there goes.
func TestI2_ADirectoryAtAnotherNATSKeepsWhatItHolds(t *testing.T) {
	t.Parallel()
	dir, snapshots := t.TempDir(), owner.SnapshotConfig{Directory: t.TempDir(), LogBytes: 1, Rest: time.Hour}
	right := newCluster(t)
	right.cfg.Snapshots = snapshots
	first := newThings(t, right)
	p := right.process("a", dir)
	ct := right.container(p.client, "things")
	upsertItems(t, ct, 5, 1)
	if _, err := ct.PinSnapshot(t.Context(), first, store.PinSnapshot{Holder: "h"}); err != nil {
		t.Fatal(err)
	}
	p.stop()

	wrong := newCluster(t)
	said := &owner.Journal{}
	wrong.cfg.Snapshots, wrong.cfg.Logger = snapshots, slog.New(slog.NewTextHandler(said, nil))
	second := newThings(t, wrong)
	p = wrong.process("a", dir)
	upsertItems(t, wrong.container(p.client, "things"), 5, 1)
	if got := p.held(t); !strings.Contains(got, second.String()) {
		t.Fatalf("it holds %s", got)
	}
	poll.Until(t, func() error { // it looks at one after the other, and at which one first is chance
		return poll.Unless(strings.Contains(said.String(), "is kept"), "it has not looked at the other one")
	})
	if err := wrong.catalog.Delete(t.Context(), "default", "things"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		got := p.held(t)
		return poll.Unless(!strings.Contains(got, second.String()), "it holds "+got)
	})
	p.stop()
	if kept := said.String(); strings.Count(kept, "is kept") != 1 || !strings.Contains(kept, "partition="+first.String()) {
		t.Errorf("it said\n%s", kept)
	}

	p = right.process("a", dir)
	if got := p.held(t); !strings.Contains(got, first.String()) {
		t.Errorf("the engine holds %s", got)
	}
	if all, damage, err := snapshot.Newest(t.Context(), snapshot.Directory(snapshots.Directory), first); err != nil || len(all) == 0 || len(damage) > 0 {
		t.Errorf("its snapshots are %v, %v, %v", all, damage, err)
	}
}
