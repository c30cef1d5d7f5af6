package owner_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// pinnedItems reads a pinned snapshot from an item on.
func pinnedItems(t testing.TB, ct *store.Container, p feed.Partition, holder string, pin *store.PinResult, from uint64) (all []string) {
	t.Helper()
	for {
		page, err := ct.ReadPinned(t.Context(), p, store.ReadPinned{Holder: holder, ID: pin.ID, From: from + uint64(len(all))})
		if err != nil {
			t.Fatal(err)
		}
		if page.LSN != pin.LSN {
			t.Fatalf("a page of LSN %d of a pin of LSN %d", page.LSN, pin.LSN)
		}
		if len(page.Items) == 0 {
			return all
		}
		for i := range page.Items {
			it := &page.Items[i]
			all = append(all, fmt.Sprint(it.ID, " ", it.ETag, " ", it.Written, " ", string(it.Body)))
		}
	}
}

func upsertItems(t testing.TB, ct *store.Container, n, round int) {
	t.Helper()
	for i := range n {
		if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","a":"%d","round":%d,"text":"%01000d"}`, i, i%3, round, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func newThings(t testing.TB, c *cluster) feed.Partition {
	t.Helper()
	info, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}})
	if err != nil {
		t.Fatal(err)
	}
	return feed.Partition{Container: info.ID}
}

// TestI4_PinnedItemsAreTheSameForEveryReader: from each place, after more writes and newer
// snapshots, and from the next owner. They are the items as of the pin's LSN, each with the
// place of its last write. Once released they are read no more.
func TestI4_PinnedItemsAreTheSameForEveryReader(t *testing.T) {
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Directory: t.TempDir(), LogBytes: 1, Rest: time.Hour}
	p := newThings(t, c)
	first := c.process("a", t.TempDir())
	ct := c.container(first.client, "things")
	upsertItems(t, ct, 20, 1)
	ask := store.PinSnapshot{Holder: "h"}
	pin, err := ct.PinSnapshot(t.Context(), p, ask)
	if err != nil || pin.State != store.PinReady || pin.Items != 20 {
		t.Fatalf("pinned %+v, %v", pin, err)
	}
	want := pinnedItems(t, ct, p, "h", pin, 0)
	if len(want) != 20 {
		t.Fatalf("items %q", want)
	}
	upsertItems(t, ct, 20, 2)
	other, err := ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: "other"})
	if err != nil || other.LSN < pin.LSN {
		t.Fatalf("another holder has pinned %+v, %v", other, err)
	}
	if again, err := ct.PinSnapshot(t.Context(), p, ask); err != nil || again.ID != pin.ID || again.LSN != pin.LSN || again.Items != pin.Items {
		t.Errorf("asked twice: %+v, %v, want %+v", again, err, pin)
	}
	first.stop()
	ct = c.container(c.process("b", t.TempDir()).client, "things")
	upsertItems(t, ct, 10, 3)
	for from := uint64(0); from <= 20; from += 5 {
		if diff := cmp.Diff(want[from:], pinnedItems(t, ct, p, "h", pin, from), cmp.Transformer("none", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
			t.Errorf("from %d, at the next owner (-want +got):\n%s", from, diff)
		}
	}
	status, err := ct.Status(t.Context(), p)
	if err != nil || len(status.Pins) != 2 {
		t.Errorf("status tells of pins %+v, %v", status.Pins, err)
	}
	if _, err := ct.ReadPinned(t.Context(), p, store.ReadPinned{Holder: "stranger", ID: pin.ID}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("who has pinned nothing reads: %v", err)
	}
	if r, err := ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: "h", Release: true}); err != nil || r.State != store.PinNone {
		t.Errorf("released: %+v, %v", r, err)
	}
	if _, err := ct.ReadPinned(t.Context(), p, store.ReadPinned{Holder: "h", ID: pin.ID}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what was released is read: %v", err)
	}
}

// TestPin_ThatNobodyReadsFromLapsesSoon: who asked for it may have died before he told anybody.
// To ask again makes it no shorter than reading from it did.
func TestPin_ThatNobodyReadsFromLapsesSoon(t *testing.T) {
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Directory: t.TempDir(), LogBytes: 1, Rest: time.Hour}
	p := newThings(t, c)
	ct := c.container(c.process("a", t.TempDir()).client, "things")
	upsertItems(t, ct, 5, 1)
	until := func() (left time.Duration) {
		t.Helper()
		poll.Until(t, func() error {
			status, err := ct.Status(t.Context(), p)
			if err != nil {
				return err
			}
			if len(status.Pins) != 1 {
				return fmt.Errorf("pins %+v", status.Pins)
			}
			left = time.Until(status.Pins[0].Until)
			return nil
		})
		return left
	}
	var pin *store.PinResult
	ask := func() {
		t.Helper()
		var err error
		if pin, err = ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: "h"}); err != nil || pin.State != store.PinReady {
			t.Fatalf("pinned %+v, %v", pin, err)
		}
	}
	for range 2 {
		ask()
		if left := until(); left <= 0 || left > store.PinAsked {
			t.Errorf("asked for: it lasts for another %s", left)
		}
	}
	pinnedItems(t, ct, p, "h", pin, pin.Items)
	ask()
	if left := until(); left <= store.PinFor/2 {
		t.Errorf("read from: it lasts for another %s", left)
	}
}

// TestPin_NothingWhereTheLogIsCheaper: who could read the log is told to.
func TestPin_NothingWhereTheLogIsCheaper(t *testing.T) {
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Directory: t.TempDir()}
	p := newThings(t, c)
	ct := c.container(c.process("a", t.TempDir()).client, "things")
	upsertItems(t, ct, 30, 1)
	for _, x := range []struct {
		name   string
		rounds int
		logMax uint64
		want   store.PinState
	}{
		{"a small log", 0, 1 << 20, store.PinLog},
		{"a log of what lives", 0, 1, store.PinLog},
		{"a log of much that is over", 8, 1, store.PinReady},
	} {
		for round := range x.rounds {
			upsertItems(t, ct, 30, round)
		}
		if r, err := ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: x.name, LogMax: x.logMax}); err != nil || r.State != x.want {
			t.Errorf("%s: %+v, %v, want state %d", x.name, r, err, x.want)
		}
	}
}

// TestPin_WithoutSnapshots says that there are none.
func TestPin_WithoutSnapshots(t *testing.T) {
	c := newCluster(t)
	p := newThings(t, c)
	ct := c.container(c.process("a", t.TempDir()).client, "things")
	if r, err := ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: "h"}); err != nil || r.State != store.PinOff {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestI4_AnOutageIsNotALoss: the next owner, which cannot read what is pinned, says that
// it may pass.
func TestI4_AnOutageIsNotALoss(t *testing.T) {
	dir := t.TempDir()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Directory: dir, LogBytes: 1, Rest: time.Hour}
	p := newThings(t, c)
	first := c.process("a", t.TempDir())
	ct := c.container(first.client, "things")
	upsertItems(t, ct, 20, 1)
	pin, err := ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: "h"})
	if err != nil || pin.State != store.PinReady {
		t.Fatalf("pinned %+v, %v", pin, err)
	}
	first.stop()
	files := map[string]string{} // by their base name
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[d.Name()] = path
		}
		return err
	})
	pointer := files["newest.json"]
	if err != nil || pointer == "" {
		t.Fatalf("%q, %v", files, err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Rename(pointer, pointer+".away"))
	must(os.Mkdir(pointer, 0o700)) // a read of it fails
	ct = c.container(c.process("b", t.TempDir()).client, "things")
	ask := store.ReadPinned{Holder: "h", ID: pin.ID}
	if _, err := ct.ReadPinned(t.Context(), p, ask); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("while it cannot be known what is pinned: %v", err)
	}
	must(os.Remove(pointer))
	must(os.Rename(pointer+".away", pointer))
	if page, err := ct.ReadPinned(t.Context(), p, ask); err != nil || len(page.Items) != 20 {
		t.Errorf("afterwards: %+v, %v", page, err)
	}
}

// TestPin_OfWhatWasDamagedSinceIsFollowedByAnother: a snapshot that this process has read whole when it was taken is pinned
// without being read again. Where it was damaged since a page says so, and the next holder gets another one.
func TestPin_OfWhatWasDamagedSinceIsFollowedByAnother(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	c.cfg.Snapshots = owner.SnapshotConfig{Directory: dir, LogBytes: 1, Rest: time.Hour}
	p := newThings(t, c)
	ct := c.container(c.process("a", t.TempDir()).client, "things")
	upsertItems(t, ct, 20, 1)
	pin := func(holder string) *store.PinResult {
		t.Helper()
		is, err := ct.PinSnapshot(t.Context(), p, store.PinSnapshot{Holder: holder})
		if err != nil || is.State != store.PinReady || is.Items != 20 {
			t.Fatalf("pinned %+v, %v", is, err)
		}
		return is
	}
	first := pin("first")
	if again := pin("second"); again.ID != first.ID {
		t.Fatalf("another snapshot is taken of what stands still: %s behind %s", again.ID, first.ID)
	}
	var largest string
	var size int64
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".json" { // a part, and not the manifest, which is as large
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(largest)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(largest, content, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := pin("third")
	_, err = ct.ReadPinned(t.Context(), p, store.ReadPinned{Holder: "third", ID: damaged.ID})
	if refusal, ok := errors.AsType[*store.Error](err); !ok || refusal.Status != store.StatusDamaged {
		t.Fatalf("a damaged snapshot is read: %v", err)
	}
	whole := pin("fourth")
	if whole.ID == damaged.ID {
		t.Fatalf("%s is pinned again though it is known to be damaged", whole.ID)
	}
	if items := pinnedItems(t, ct, p, "fourth", whole, 0); len(items) != 20 {
		t.Errorf("items %q", items)
	}
}
