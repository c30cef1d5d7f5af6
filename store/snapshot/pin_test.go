package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

// itemsOf reads all items of a snapshot in pages.
func itemsOf(t testing.TB, items *snapshot.Items, from uint64, itemsMax, bytesMax int) (all []engine.Item) {
	t.Helper()
	for {
		page, err := items.Page(t.Context(), from+uint64(len(all)), itemsMax, bytesMax)
		must(t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

// engineItems are the items of an engine in the order of their keys.
func engineItems(t testing.TB, p *engine.Partition) (all []engine.Item) {
	t.Helper()
	snap := p.Snapshot()
	defer snap.Close()
	for v, err := range snap.Items(nil, nil) {
		must(t, err)
		all = append(all, v.Item())
	}
	return all
}

func itemNames(items []engine.Item) (names []string) {
	for i := range items {
		names = append(names, fmt.Sprint(items[i].ID, items[i].Position, items[i].Written, len(items[i].Body)))
	}
	return names
}

// TestItems_AreThoseOfTheEngineInOrder, from each place on, in pages of any size, for who
// has read what lies before and for who has not; large items too, which stand in chunks.
func TestItems_AreThoseOfTheEngineInOrder(t *testing.T) {
	from, s := newPartition(t), snapshot.Directory(t.TempDir())
	fill(t, from, 60, 1<<10, 7)
	key, err := feed.NewPartitionKey("big")
	must(t, err)
	b := from.NewBatch(&engine.Schema{})
	for i := range 3 {
		id := fmt.Sprint("big", i)
		body := make([]byte, 1<<20+i*700_000)
		for j := range body {
			body[j] = byte(i + j%7)
		}
		must(t, b.Put(&engine.Item{Key: key, ID: id, Body: body, Position: feed.Position{LSN: 7, Index: uint32(i)}, Written: 3, Modified: 5}, nil))
	}
	must(t, b.Commit())
	m := write(t, s, from)
	want := engineItems(t, from)
	if m.Items() != 63 || len(want) != 63 {
		t.Fatalf("%d items were counted, %d are there", m.Items(), len(want))
	}
	whole := snapshot.OpenItems(s, m)
	if n, err := whole.Count(t.Context(), func(int) {}); err != nil || n != 63 {
		t.Errorf("%d items, %v", n, err)
	}
	for start := uint64(0); start <= 63; start += 7 {
		for _, items := range []*snapshot.Items{whole, snapshot.OpenItems(s, m)} {
			for _, x := range []struct{ items, bytes int }{{1, 1}, {5, 1 << 30}, {1000, 2000}, {1000, 1 << 30}} {
				got := itemsOf(t, items, start, x.items, x.bytes)
				if diff := cmp.Diff(itemNames(want[start:]), itemNames(got)); diff != "" {
					t.Fatalf("from %d in pages of %+v (-want +got):\n%s", start, x, diff)
				}
				for i := range got {
					if string(got[i].Body) != string(want[start+uint64(i)].Body) {
						t.Fatalf("item %d has another body", start+uint64(i))
					}
				}
			}
		}
	}
}

// TestPin_KeepsItsSnapshotAlone through any number of newer ones; without it, it goes, and
// the pointer is one that a release without pins reads.
func TestPin_KeepsItsSnapshotAlone(t *testing.T) {
	dir := t.TempDir()
	p, s := newPartition(t), snapshot.Directory(dir)
	fill(t, p, 10, 100, 1)
	first := write(t, s, p)
	later := time.Now().Add(time.Hour)
	for _, holder := range []string{"a", "b"} {
		pin, err := snapshot.PinSnapshot(t.Context(), s, first, holder, first.Items(), later)
		must(t, err)
		if pin.LSN != 1 || pin.Items != 10 || pin.ID != first.ID() {
			t.Errorf("pinned %+v", pin)
		}
	}
	for lsn := range feed.LSN(4) {
		fill(t, p, 10, 100, lsn+2)
		write(t, s, p)
	}
	if got := newest(t, s); fmt.Sprint(got) != "[5 4]" {
		t.Errorf("the newest are %v", got)
	}
	m, pin, err := snapshot.Pinned(t.Context(), s, part, "b")
	must(t, err)
	if got := itemsOf(t, snapshot.OpenItems(s, m), 0, 100, 1<<20); len(got) != 10 || pin.LSN != 1 || got[0].Position.LSN != 1 {
		t.Errorf("the pinned one has %d items as of %+v", len(got), pin)
	}
	_, err = snapshot.PinSnapshot(t.Context(), s, first, "c", 10, later)
	if !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("one that is only pinned is pinned once more: %v", err)
	}
	there := func() bool {
		_, err := os.Stat(filepath.Join(dir, "c7k2x4ab", "3", first.ID()))
		return err == nil
	}
	must(t, snapshot.ReleasePins(t.Context(), s, part, func(h string) bool { return h == "a" }))
	if pins, err := snapshot.Pins(t.Context(), s, part); err != nil || len(pins) != 1 || !there() {
		t.Errorf("pins %v, %v, kept %t", pins, err, there())
	}
	must(t, snapshot.ReleasePins(t.Context(), s, part, func(string) bool { return true }))
	if there() {
		t.Error("a snapshot that nobody pins any more is kept")
	}
	data, err := s.Get(t.Context(), "c7k2x4ab/3/newest.json")
	must(t, err)
	if want := `{"format":1,"snapshots":[`; string(data[:len(want)]) != want {
		t.Errorf("without pins the pointer is %s", data)
	}
}

// TestPin_Lapses: what is not extended keeps nothing, and cannot be extended any more.
func TestPin_Lapses(t *testing.T) {
	p, s := newPartition(t), snapshot.Directory(t.TempDir())
	fill(t, p, 3, 100, 1)
	m := write(t, s, p)
	_, err := snapshot.PinSnapshot(t.Context(), s, m, "late", 3, time.Now().Add(-time.Second))
	must(t, err)
	_, err = snapshot.PinSnapshot(t.Context(), s, m, "lasts", 3, time.Now().Add(time.Hour))
	must(t, err)
	if _, err := snapshot.ExtendPin(t.Context(), s, part, "late", time.Now().Add(time.Hour)); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("a pin that has lapsed is extended: %v", err)
	}
	until := time.Now().Add(2 * time.Hour)
	if pin, err := snapshot.ExtendPin(t.Context(), s, part, "lasts", until); err != nil || until.Sub(pin.Until) > time.Second {
		t.Errorf("%+v, %v", pin, err)
	}
	if _, _, err := snapshot.Pinned(t.Context(), s, part, "late"); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("a pin that has lapsed pins: %v", err)
	}
}

// TestPin_ADamagedOneIsTold when its items are read: nothing of the damaged part is shown.
func TestPin_ADamagedOneIsTold(t *testing.T) {
	dir := t.TempDir()
	p, s := newPartition(t), snapshot.Directory(dir)
	fill(t, p, 60, 1<<10, 1)
	m := write(t, s, p)
	_, err := snapshot.PinSnapshot(t.Context(), s, m, "a", 60, time.Now().Add(time.Hour))
	must(t, err)
	name := filepath.Join(dir, "c7k2x4ab", "3", m.ID(), "000002")
	data, err := os.ReadFile(name)
	must(t, err)
	data[len(data)/2] ^= 1
	must(t, os.WriteFile(name, data, 0o600))
	items := snapshot.OpenItems(s, m)
	read := uint64(0)
	for {
		page, err := items.Page(t.Context(), read, 1000, 1<<30)
		if damaged, ok := errors.AsType[*snapshot.DamagedError](err); ok {
			if damaged.Name != "c7k2x4ab/3/"+m.ID()+"/000002" || read == 0 {
				t.Errorf("after %d items: %v", read, err)
			}
			break
		}
		must(t, err)
		if len(page) == 0 {
			t.Fatal("the damaged part was passed over")
		}
		read += uint64(len(page))
	}
	must(t, os.RemoveAll(filepath.Join(dir, "c7k2x4ab", "3", m.ID())))
	if _, _, err := snapshot.Pinned(t.Context(), s, part, "a"); err == nil || errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("a pinned snapshot that is gone: %v", err)
	}
}

// TestPin_ALateOwnerDoesNotMoveIt: an owner that was asked before another, and comes to it after, leaves the
// pin of which the holder has been told, also if it lapses sooner.
func TestPin_ALateOwnerDoesNotMoveIt(t *testing.T) {
	p, s := newPartition(t), snapshot.Directory(t.TempDir())
	now := time.Now()
	fill(t, p, 10, 100, 1)
	former := write(t, s, p)
	fill(t, p, 10, 100, 2)
	told := write(t, s, p)
	_, err := snapshot.PinSnapshot(t.Context(), s, told, "a", told.Items(), now.Add(time.Hour))
	must(t, err)
	late, err := snapshot.PinSnapshot(t.Context(), s, former, "a", former.Items(), now.Add(2*time.Hour))
	must(t, err)
	if late.ID != told.ID() || late.Until.Before(now.Add(2*time.Hour-time.Second)) {
		t.Errorf("the late owner pins %s until %s, the holder was told %s", late.ID, late.Until, told.ID())
	}
	var last *snapshot.Manifest
	for lsn := range feed.LSN(3) {
		fill(t, p, 10, 100, lsn+3)
		last = write(t, s, p)
	}
	m, _, err := snapshot.Pinned(t.Context(), s, told.Partition, "a")
	must(t, err)
	if m.ID() != told.ID() {
		t.Errorf("%s is pinned, the holder was told %s", m.ID(), told.ID())
	}
	must(t, snapshot.ReleasePins(t.Context(), s, told.Partition, func(string) bool { return true }))
	again, err := snapshot.PinSnapshot(t.Context(), s, last, "a", last.Items(), now.Add(time.Hour))
	must(t, err)
	if again.ID != last.ID() {
		t.Error("a pin that was released is kept")
	}
}
