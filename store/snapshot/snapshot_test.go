package snapshot_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

var update = flag.Bool("update", false, "write testdata/v1 anew")

var part = feed.Partition{Container: "c7k2x4ab", Number: 3}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func always() error { return nil }

// newPartition returns an empty partition of an engine of its own.
func newPartition(t testing.TB) *engine.Partition {
	t.Helper()
	db, err := engine.Open(t.TempDir(), engine.Config{}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	p, err := db.Partition(part)
	must(t, err)
	return p
}

// fill writes n items of size bytes that do not compress, and the state of a commit.
func fill(t testing.TB, p *engine.Partition, n, size int, lsn feed.LSN) {
	t.Helper()
	key, err := feed.NewPartitionKey("a")
	must(t, err)
	dice := rand.NewChaCha8([32]byte{byte(lsn)})
	text := make([]byte, size/2)
	b := p.NewBatch(&engine.Schema{})
	for i := range n {
		_, _ = dice.Read(text) // never fails
		id := fmt.Sprintf("%06d", i)
		must(t, b.Put(&engine.Item{Key: key, ID: id, Body: fmt.Appendf(nil, `{"id":%q,"text":"%x"}`, id, text), Position: feed.Position{LSN: lsn}}, nil))
	}
	b.SetState(engine.State{Log: feed.LogID{9}, Applied: lsn, Sum: feed.Checksum(lsn) * 3, Time: 1_700_000_000_000, Epoch: 4, Owner: "n/1", Settings: []byte(`{"a":1}`)})
	must(t, b.Commit())
}

func write(t testing.TB, s snapshot.Store, p *engine.Partition) *snapshot.Manifest {
	t.Helper()
	m, err := tryWrite(t.Context(), s, p)
	must(t, err)
	return m
}

func tryWrite(ctx context.Context, s snapshot.Store, p *engine.Partition) (*snapshot.Manifest, error) {
	source := p.Snapshot()
	defer source.Close()
	return snapshot.Write(ctx, s, part, source, 1000, always, always)
}

func newest(t testing.TB, s snapshot.Store) []feed.LSN {
	t.Helper()
	all, damage, err := snapshot.Newest(t.Context(), s, part)
	must(t, errors.Join(append(damage, err)...))
	lsns := []feed.LSN{}
	for _, m := range all {
		lsns = append(lsns, m.LSN)
	}
	return lsns
}

func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	}))
	return names
}

// TestI3_WhatIsLoadedIsWhatWasWritten writes a snapshot of several parts and makes another
// engine of it.
func TestI3_WhatIsLoadedIsWhatWasWritten(t *testing.T) {
	from, to, s := newPartition(t), newPartition(t), snapshot.Directory(filepath.Join(t.TempDir(), "a", "b"))
	fill(t, from, 100, 1<<10, 7)
	m := write(t, s, from)
	if len(m.Parts) < 3 {
		t.Fatalf("%d parts are too few for this test", len(m.Parts))
	}
	all, damage, err := snapshot.Newest(t.Context(), s, part)
	must(t, errors.Join(append(damage, err)...))
	must(t, snapshot.Load(t.Context(), s, all[0], to, engine.LoadOptions{}))
	want, err := from.Digest()
	must(t, err)
	if got, err := to.Digest(); err != nil || got != want || uint64(m.Digest) != want {
		t.Errorf("digest %016x, %v, manifest %016x, want %016x", got, err, uint64(m.Digest), want)
	}
	wantState, err := from.State()
	must(t, err)
	if got, err := to.State(); err != nil || cmp.Diff(wantState, got) != "" {
		t.Errorf("state %+v, %v, want %+v", got, err, wantState)
	}
}

// TestWrite_GivesWay writes items that take a part each and counts how often others are let through: between pieces
// of a part too, which is tens of milliseconds of work.
func TestWrite_GivesWay(t *testing.T) {
	const items, size, piece = 4, 512 << 10, 64 << 10
	p, s := newPartition(t), snapshot.Directory(t.TempDir())
	fill(t, p, items, size, 7)
	source := p.Snapshot()
	defer source.Close()
	turns := 0
	pace := func() error {
		turns++
		return nil
	}
	m, err := snapshot.Write(t.Context(), s, part, source, 1000, pace, always)
	must(t, err)
	if len(m.Parts) < items {
		t.Fatalf("%d items stand in %d parts, which are not large enough for this test", items, len(m.Parts))
	}
	// Once it is compressed, and once, when it is read back, decompressed.
	if want := 2 * items * size / piece; turns < want {
		t.Errorf("others were let through %d times, want %d at least", turns, want)
	}
	stop := errors.New("stop")
	turns = 0
	counted := &countedPuts{Store: s}
	again := p.Snapshot()
	defer again.Close()
	_, err = snapshot.Write(t.Context(), counted, part, again, 1000, func() error {
		if turns++; turns == 5 { // in the middle of the first part
			return stop
		}
		return nil
	}, always)
	if !errors.Is(err, stop) {
		t.Errorf("a write that is stopped in a part: %v", err)
	}
	if counted.n > 0 {
		t.Errorf("%d parts were written before the stop, which was to come in the first", counted.n)
	}
	if got := newest(t, s); !slices.Equal(got, []feed.LSN{7}) {
		t.Errorf("named are %v", got)
	}
}

// countedPuts counts what is put.
type countedPuts struct {
	snapshot.Store
	n int
}

func (c *countedPuts) Put(ctx context.Context, name string, data []byte) error {
	c.n++
	return c.Store.Put(ctx, name, data)
}

// TestWrite_TwoAreKept writes three, with the leftovers of a write that did not end.
func TestWrite_TwoAreKept(t *testing.T) {
	dir := t.TempDir()
	p, s := newPartition(t), snapshot.Directory(dir)
	if m := write(t, s, p); m != nil || len(files(t, dir)) != 0 {
		t.Errorf("a partition that was never written has the snapshot %+v", m)
	}
	if got := newest(t, s); len(got) != 0 {
		t.Errorf("snapshots of %v before the first", got)
	}
	for lsn := range feed.LSN(3) {
		fill(t, p, 10, 100, lsn+1)
		must(t, s.Put(t.Context(), "c7k2x4ab/3/leftover/000001", []byte("x")))
		write(t, s, p)
	}
	if got := newest(t, s); !slices.Equal(got, []feed.LSN{3, 2}) {
		t.Errorf("snapshots of LSN %v, want 3 and 2", got)
	}
	if got := files(t, dir); len(got) != 1+2*2 {
		t.Errorf("files %q, want a pointer, and two manifests with a part each", got)
	}
	must(t, snapshot.Remove(t.Context(), s, part))
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("files %q after they were removed", got)
	}
}

// TestWrite_WhatIsOfAnotherLogGoes: a log that was deleted and made again begins with low LSNs,
// and those of the one before it would never be passed.
func TestWrite_WhatIsOfAnotherLogGoes(t *testing.T) {
	dir := t.TempDir()
	s := snapshot.Directory(dir)
	before := newPartition(t)
	for lsn := range feed.LSN(2) {
		fill(t, before, 10, 100, lsn+100)
		write(t, s, before)
	}
	p := newPartition(t)
	for lsn := range feed.LSN(3) {
		fill(t, p, 10, 100, lsn+1)
		b := p.NewBatch(&engine.Schema{})
		b.SetState(engine.State{Log: feed.LogID{7}, Applied: lsn + 1, Sum: 1, Settings: []byte(`{}`)})
		must(t, b.Commit())
		write(t, s, p)
	}
	if got := newest(t, s); !slices.Equal(got, []feed.LSN{3, 2}) {
		t.Errorf("snapshots of LSN %v, want 3 and 2", got)
	}
	if got := files(t, dir); len(got) != 1+2*2 {
		t.Errorf("files %q, want a pointer, and two manifests with a part each", got)
	}
}

// TestSnapshot_EveryFlippedByteIsFound changes one byte of each file, in several places, and
// cuts it: what was damaged is said, nothing of it is in the engine, and the older snapshot
// can be loaded.
func TestSnapshot_EveryFlippedByteIsFound(t *testing.T) {
	dir := t.TempDir()
	p, s := newPartition(t), snapshot.Directory(dir)
	fill(t, p, 60, 1<<10, 1)
	write(t, s, p)
	fill(t, p, 60, 1<<10, 2)
	id := write(t, s, p).ID()
	to := newPartition(t)
	for _, name := range files(t, dir) {
		whole, err := os.ReadFile(name)
		must(t, err)
		damages := map[string][]byte{"cut": whole[:len(whole)-1], "empty": {}, "longer": append(slices.Clone(whole), '{')}
		for _, at := range []int{0, len(whole) / 3, len(whole) / 2, len(whole) - 1} {
			flipped := slices.Clone(whole)
			flipped[at] ^= 1
			damages[fmt.Sprintf("byte %d", at)] = flipped
		}
		for what, data := range damages {
			must(t, os.WriteFile(name, data, 0o600))
			older := !strings.Contains(name, id) // of the pointer, or of the snapshot before
			checkDamaged(t, fmt.Sprintf("%s: %s", strings.TrimPrefix(name, dir), what), s, to, older)
		}
		must(t, os.Remove(name))
		if !strings.HasSuffix(name, "newest.json") { // without it there are none, which is no damage
			checkDamaged(t, strings.TrimPrefix(name, dir)+": gone", s, to, !strings.Contains(name, id))
		}
		must(t, os.WriteFile(name, whole, 0o600))
	}
	if got := newest(t, s); !slices.Equal(got, []feed.LSN{2, 1}) {
		t.Fatalf("snapshots of LSN %v, want 2 and 1", got)
	}
}

// checkDamaged loads all snapshots that are there. One of them is damaged: the older one, or
// the newer.
func checkDamaged(t *testing.T, what string, s snapshot.Store, to *engine.Partition, older bool) {
	t.Helper()
	all, damage, err := snapshot.Newest(t.Context(), s, part)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	whole := []feed.LSN{}
	for _, m := range all {
		err := snapshot.Load(t.Context(), s, m, to, engine.LoadOptions{})
		if err == nil {
			whole = append(whole, m.LSN)
			continue
		}
		if state, stateErr := to.State(); stateErr != nil || state.Applied != 0 {
			t.Errorf("%s: the engine holds LSN %d, %v", what, state.Applied, stateErr)
		}
		damage = append(damage, err)
	}
	want := []feed.LSN{1}
	if older {
		want = []feed.LSN{2}
	}
	if strings.Contains(what, "newest.json") { // all may be lost with it, or what one of its entries names
		want = whole
	}
	if len(damage) == 0 || len(whole) == 2 || !slices.Equal(whole, want) {
		t.Errorf("%s: LSN %v can be loaded, want %v; damage: %v", what, whole, want, damage)
	}
	for _, d := range damage {
		if _, ok := errors.AsType[*snapshot.DamagedError](d); !ok {
			t.Errorf("%s: %v is no *DamagedError", what, d)
		}
	}
}

// faulty fails the nth call that changes something, and all after it, as a crash does.
// blindStore is one that cannot be asked for some objects at the second time and after:
// the older ones that stay named are read before.
type blindStore struct {
	snapshot.Store
	part string
}

func (b blindStore) Get(ctx context.Context, name string) ([]byte, error) {
	if strings.Contains(name, b.part) {
		return nil, errCrash
	}
	return b.Store.Get(ctx, name)
}

type faulty struct {
	snapshot.Store
	calls, fail int
}

var errCrash = errors.New("crash")

func (f *faulty) step() error {
	if f.calls++; f.fail > 0 && f.calls >= f.fail {
		return errCrash
	}
	return nil
}

func (f *faulty) Put(ctx context.Context, name string, data []byte) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.Store.Put(ctx, name, data)
}

func (f *faulty) Replace(ctx context.Context, name string, data []byte, revision snapshot.Revision) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.Store.Replace(ctx, name, data, revision)
}

func (f *faulty) Remove(ctx context.Context, name string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.Store.Remove(ctx, name)
}

// TestWrite_AnEndAtAnyStepLeavesAWholeSnapshot ends the third write of a partition before each
// of its changes to the store: the newest snapshot that is named can be loaded, and the next
// write succeeds and leaves nothing behind.
func TestWrite_AnEndAtAnyStepLeavesAWholeSnapshot(t *testing.T) {
	p, to := newPartition(t), newPartition(t)
	for fail := 1; ; fail++ {
		dir := t.TempDir()
		s := &faulty{Store: snapshot.Directory(dir)}
		fill(t, p, 60, 1<<10, 1)
		write(t, s, p)
		fill(t, p, 60, 1<<10, 2)
		write(t, s, p)
		fill(t, p, 60, 1<<10, 3)
		s.calls, s.fail = 0, fail
		_, err := tryWrite(t.Context(), s, p)
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		s.fail = 0
		all, damage, newestErr := snapshot.Newest(t.Context(), s, part)
		must(t, errors.Join(append(damage, newestErr)...))
		if len(all) != 2 || err == nil && all[0].LSN != 3 {
			t.Fatalf("end %d: %d snapshots, the newest of LSN %d; %v", fail, len(all), all[0].LSN, err)
		}
		for _, m := range all {
			if m.LSN > 1 { // what the pointer names as the older one may be swept already only if a newer is there
				must(t, snapshot.Load(t.Context(), s, m, to, engine.LoadOptions{}))
			}
		}
		fill(t, p, 60, 1<<10, 4)
		write(t, s, p)
		stored := 0
		for _, name := range files(t, dir) {
			if !strings.HasSuffix(name, ".json") {
				stored++
			}
		}
		all, _, newestErr = snapshot.Newest(t.Context(), s, part)
		must(t, newestErr)
		if want := len(all[0].Parts) + len(all[1].Parts); len(all) != 2 || stored != want {
			t.Errorf("end %d: %d parts are stored, want %d", fail, stored, want)
		}
		if err == nil {
			if fail < 5 {
				t.Fatalf("a write has %d steps: that tests little", fail-1)
			}
			return
		}
	}
}

// lying is a store that loses bytes without a word.
type lying struct{ snapshot.Store }

func (l lying) Put(ctx context.Context, name string, data []byte) error {
	if strings.HasSuffix(name, "000002") {
		data = slices.Clone(data)
		data[len(data)/2] ^= 4
	}
	return l.Store.Put(ctx, name, data)
}

// TestWrite_WhatCannotBeReadBackIsNotNamed writes to a store that changes bytes, and from an
// engine that turns out to be damaged.
func TestWrite_WhatCannotBeReadBackIsNotNamed(t *testing.T) {
	p, dir := newPartition(t), t.TempDir()
	s := snapshot.Directory(dir)
	fill(t, p, 60, 1<<10, 1)
	write(t, s, p)
	fill(t, p, 60, 1<<10, 2)
	before := files(t, dir)
	_, err := tryWrite(t.Context(), lying{s}, p)
	if _, ok := errors.AsType[*snapshot.DamagedError](err); !ok {
		t.Errorf("error %v, want a *DamagedError", err)
	}
	source := p.Snapshot()
	defer source.Close()
	unsound := errors.New("a block is damaged")
	if _, err := snapshot.Write(t.Context(), s, part, source, 0, always, func() error { return unsound }); !errors.Is(err, unsound) {
		t.Errorf("error %v, want %v", err, unsound)
	}
	if got := newest(t, s); !slices.Equal(got, []feed.LSN{1}) {
		t.Errorf("snapshots of LSN %v, want 1", got)
	}
	if after := files(t, dir); !slices.Equal(before, after) {
		t.Errorf("what could not be used is left: %q, before it were %q", after, before)
	}
}

// TestWrite_ADamagedNewestDoesNotCostTheOlder writes a third snapshot where the second is
// damaged: the first stays.
func TestWrite_ADamagedNewestDoesNotCostTheOlder(t *testing.T) {
	p, dir := newPartition(t), t.TempDir()
	s := snapshot.Directory(dir)
	fill(t, p, 10, 100, 1)
	write(t, s, p)
	fill(t, p, 10, 100, 2)
	must(t, os.Truncate(filepath.Join(dir, "c7k2x4ab", "3", write(t, s, p).ID(), "000001"), 5))
	fill(t, p, 10, 100, 3)
	write(t, s, p)
	if got := newest(t, s); !slices.Equal(got, []feed.LSN{3, 1}) {
		t.Errorf("snapshots of LSN %v, want 3 and 1", got)
	}
}

// unsynced is a store that replaces the pointer and then fails, as a directory does whose
// sync failed.
type unsynced struct{ snapshot.Store }

func (u unsynced) Replace(ctx context.Context, name string, data []byte, revision snapshot.Revision) error {
	return errors.Join(u.Store.Replace(ctx, name, data, revision), errCrash)
}

func TestWrite_WhatMayBeNamedStays(t *testing.T) {
	p, s := newPartition(t), snapshot.Directory(t.TempDir())
	fill(t, p, 10, 100, 1)
	if _, err := tryWrite(t.Context(), unsynced{s}, p); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	all, damage, err := snapshot.Newest(t.Context(), s, part)
	must(t, errors.Join(append(damage, err)...))
	if len(all) != 1 {
		t.Fatalf("%d snapshots, want 1", len(all))
	}
	must(t, snapshot.Load(t.Context(), s, all[0], newPartition(t), engine.LoadOptions{}))
}

// TestWrite_LeavesALaterFormatAlone has a pointer that a later release wrote.
func TestWrite_LeavesALaterFormatAlone(t *testing.T) {
	p, dir := newPartition(t), t.TempDir()
	s := snapshot.Directory(dir)
	fill(t, p, 10, 100, 1)
	write(t, s, p)
	must(t, s.Replace(t.Context(), "c7k2x4ab/3/newest.json", []byte(`{"format":3,"stores":[]}`), ""))
	before := files(t, dir)
	if m, err := tryWrite(t.Context(), s, p); err == nil || !strings.Contains(err.Error(), "format 3") {
		t.Errorf("written: %+v, %v", m, err)
	}
	if _, _, err := snapshot.Newest(t.Context(), s, part); err == nil {
		t.Error("a later format is read")
	}
	if after := files(t, dir); !slices.Equal(before, after) {
		t.Errorf("files %q, before %q", after, before)
	}
}

// TestFormat_V1 reads what an earlier release wrote.
func TestFormat_V1(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	s, from := snapshot.Directory(dir), newPartition(t)
	fill(t, from, 3, 100, 5)
	if *update {
		must(t, os.RemoveAll(dir))
		write(t, s, from)
	}
	all, damage, err := snapshot.Newest(t.Context(), s, part)
	must(t, errors.Join(append(damage, err)...))
	if len(all) != 1 {
		t.Fatalf("%d snapshots in %s, want 1", len(all), dir)
	}
	to := newPartition(t)
	must(t, snapshot.Load(t.Context(), s, all[0], to, engine.LoadOptions{}))
	want, err := from.Digest()
	must(t, err)
	if got, err := to.Digest(); err != nil || got != want {
		t.Errorf("digest %016x, %v, want %016x", got, err, want)
	}
	wantState, err := from.State()
	must(t, err)
	if diff := cmp.Diff(wantState, all[0].State()); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}
