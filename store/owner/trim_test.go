package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/snapshot"
)

// trims is a node whose log is trimmed when the test says so.
type trims struct {
	*node
	*trimmer
}

func (n *node) trims(spec store.ChangeFeedSpec) *trims {
	n.cfg.Alone = true
	n.cfg.level.Set(featurelevel.Trims)
	info := n.w.info
	info.Spec.ChangeFeed = spec
	t := newTrimmer(&Server{
		cfg: n.cfg, containers: map[feed.ResourceID]store.ContainerInfo{info.ID: info}, open: map[feed.Partition]*serving{n.id: {p: n.Partition}},
	})
	t.bytesMin, t.restBytesMin, t.wholeBytes, t.closeWithin = 0, 0, 0, time.Hour
	return &trims{n, t}
}

// keeping declares a retention.
func keeping(d time.Duration) store.ChangeFeedSpec {
	return store.ChangeFeedSpec{Retention: new(store.Retention(d))}
}

// snapshot takes one.
func (t *trims) snapshot() *snapshot.Manifest {
	t.w.t.Helper()
	m, err := t.s.writeSnapshot(t.w.t.Context(), t.Partition, func() error { return nil })
	if err != nil {
		t.w.t.Fatal(err)
	}
	t.copied.Store(snapshotState(m))
	return m
}

// sees brings what the loops of a server bring: a sync, and how the log stands.
func (t *trims) sees() {
	t.w.t.Helper()
	shape, err := t.log.Shape(t.w.t.Context())
	if err != nil {
		t.w.t.Fatal(err)
	}
	// The world's clock is ahead of the server's, and what is written now is not old yet.
	shape.Time = time.UnixMilli(t.w.clock.Add(1))
	t.shape.Store(shape)
	if err := t.db.SyncPartitions(t.engine); err != nil {
		t.w.t.Fatal(err)
	}
}

// look lets the trimmer look once, after nobody has written for a time.
func (t *trims) look(rested time.Duration) store.TrimState {
	t.w.t.Helper()
	t.sees()
	return t.goRound(rested)
}

func (t *trims) goRound(rested time.Duration) store.TrimState {
	t.w.t.Helper()
	now := time.Now()
	l := t.logs[t.Partition]
	if l == nil {
		l = &trimming{p: t.Partition, cutOff: map[string]feed.LSN{}, times: map[feed.LSN]time.Time{}}
		t.logs[t.Partition] = l
	}
	// Whatever it waits for has passed.
	l.lastWrite, l.retryAt, t.askedAt = lastWrite{t.state.Load().lsn, now.Add(-rested)}, time.Time{}, time.Time{}
	t.round(t.w.t.Context(), now)
	return *t.trim.Load()
}

const long = time.Hour // longer than any rest

func (w *world) bounds() (first, last feed.LSN) {
	w.t.Helper()
	log, err := feed.OpenLog(w.t.Context(), w.js, w.id, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	if first, last, err = log.Bounds(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return first, last
}

// TestTrim_GoesAsFarAsNobodyNeedsIt shows what holds the trim point, one after the other.
func TestTrim_GoesAsFarAsNobodyNeedsIt(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	holds, notNow, broken := map[feed.Partition][]Hold{}, "", error(nil)
	x.s.cfg.Holds = func(context.Context) (map[feed.Partition][]Hold, string, error) { return holds, notNow, broken }
	spec := func(s store.ChangeFeedSpec) {
		info := w.info
		info.Spec.ChangeFeed = s
		x.s.containers[info.ID] = info
	}
	write := func(count int) {
		for i := range count {
			n.mustOne(pk(t, "x"), upsert(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
		}
	}
	held := func(step string, state store.TrimState, first feed.LSN, by string) {
		t.Helper()
		if got, _ := w.bounds(); got != first || state.First != first || !strings.Contains(state.HeldBy, by) {
			t.Errorf("%s: the log begins at %d, %+v; want %d, held by %q", step, got, state, first, by)
		}
	}
	write(10)
	held("what is there is not known yet", x.look(0), 1, "not known yet")
	x.copied.Store(&store.SnapshotState{})
	held("no snapshot", x.look(0), 1, "no snapshot yet")
	one := x.snapshot()
	held("one snapshot", x.look(0), 1, "two are kept")
	write(10)
	x.snapshot()
	held("under writes the older one counts", x.look(0), one.LSN+1, "older snapshot")

	spec(keeping(time.Duration(store.RetentionForever)))
	held("forever", x.look(long), one.LSN+1, "forever")
	spec(store.ChangeFeedSpec{})
	held("nothing is said", x.look(long), one.LSN+1, "retention keeps 168h")
	spec(keeping(24 * time.Hour))
	held("retention", x.look(long), one.LSN+1, "retention keeps 24h")
	spec(keeping(0))
	holds[w.id] = []Hold{{Reader: "pipeline slow", After: one.LSN + 4}, {Reader: "pipeline fast", After: one.LSN + 9}}
	held("a reader", x.look(long), one.LSN+4, "pipeline slow has not read more")
	holds[w.id][0].After = one.LSN + 3
	held("a reader of all but what is there", x.look(long), one.LSN+4, "pipeline slow has not read more")
	broken = errors.New("the bucket is away")
	held("readers are not known", x.look(long), one.LSN+4, "the bucket is away")
	broken, notNow = nil, "another store runs beside this one"
	held("nothing is trimmed whoever reads", x.look(long), one.LSN+4, notNow)
	if s := x.trim.Load(); s.HeldBy != notNow {
		t.Errorf("what is settled is told as %q", s.HeldBy)
	}
	notNow = ""
	x.s.cfg.Alone, x.s.cfg.Snapshots.Store = false, SnapshotsDirectory
	held("others could become the owner", x.look(long), one.LSN+4, "other stores")
	x.s.cfg.Alone = true
	x.trouble.Store(store.Refuse(store.StatusUnavailable, "a clock is ahead"))
	held("writes are refused", x.look(long), one.LSN+4, "a clock is ahead")
	x.trouble.Store(store.Refuse(store.StatusInsufficientDisk, "the disk is nearly full"))
	holds[w.id] = holds[w.id][1:]
	held("a trim makes room", x.look(long), one.LSN+9, "pipeline fast")
	x.trouble.Store(nil)

	delete(holds, w.id)
	write(5)
	two := x.snapshot()
	write(5)
	held("at rest the newest snapshot counts", x.look(long), two.LSN+1, "newest snapshot")
	_, last := w.bounds()
	x.snapshot()
	held("the end stays", x.look(long), last, "")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestTrim_RetentionMaxCutsReadersOffAndNothingElse: it says so before, and never goes
// beyond a snapshot.
func TestTrim_RetentionMaxCutsReadersOffAndNothingElse(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := keeping(0)
	spec.RetentionMax = 10 * time.Hour
	x := n.trims(spec)
	held := []Hold{{Reader: "pipeline lost"}}
	x.s.cfg.Holds = func(context.Context) (map[feed.Partition][]Hold, string, error) {
		return map[feed.Partition][]Hold{w.id: held}, "", nil
	}
	for i := range 10 {
		n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	m := x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"behind","a":"x"}`))
	wrote := w.clock.Load()
	// The clock of the log's server cannot be moved: what it says at a check can.
	after := func(d time.Duration) store.TrimState {
		x.sees()
		shape := *x.shape.Load()
		shape.Time = time.UnixMilli(wrote).Add(d)
		w.clock.Store(shape.Time.UnixMilli())
		x.shape.Store(&shape)
		return x.goRound(long)
	}
	if s := after(time.Hour); s.First != 1 || len(s.Late) != 0 {
		t.Errorf("after an hour: %+v", s)
	}
	s := after(6 * time.Hour)
	if s.First != 1 || len(s.Late) != 1 || s.Late[0].Reader != "pipeline lost" || s.Late[0].After != 0 ||
		!strings.Contains(s.HeldBy, "pipeline lost") || s.Late[0].CutOff.Before(time.UnixMilli(wrote).Add(8*time.Hour)) {
		t.Errorf("after six hours: %+v", s)
	}
	told := func(step string, want map[string]feed.LSN) {
		t.Helper()
		if got := x.logs[n.Partition].cutOff; !maps.Equal(got, want) {
			t.Errorf("%s: said to be cut off %v, want %v", step, got, want)
		}
	}
	told("it has time left", map[string]feed.LSN{})
	held = append(held, Hold{Reader: "pipeline edge", After: m.LSN})
	copied := x.copied.Swap(nil)
	if s = after(11 * time.Hour); s.First != 1 {
		t.Errorf("without a snapshot: %+v", s)
	}
	told("nothing is trimmed", map[string]feed.LSN{})
	x.copied.Store(copied)
	if s = after(11 * time.Hour); s.Point != m.LSN || s.First != m.LSN+1 {
		t.Errorf("after eleven hours: %+v, the snapshot is of %d", s, m.LSN)
	}
	told("one has read all that goes", map[string]feed.LSN{"pipeline lost": m.LSN})
	// Another process does not tell again what is long gone.
	again := n.trims(spec)
	again.s.cfg.Holds = x.s.cfg.Holds
	x = again
	n.mustOne(pk(t, "x"), create(`{"id":"later","a":"x"}`))
	m = x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"last","a":"x"}`))
	if s = after(30 * time.Hour); s.First != m.LSN+1 {
		t.Errorf("after thirty hours: %+v, the snapshot is of %d", s, m.LSN)
	}
	told("another was cut off before", map[string]feed.LSN{"pipeline edge": m.LSN})
}

// TestI2_CrashesOfATrim ends an owner at each step of a trim: nothing that was acknowledged
// is lost, with its engine and without, and the next owner brings the trim to its end.
func TestI2_CrashesOfATrim(t *testing.T) {
	for _, step := range []string{"before the control commit", "after the control commit", "between two purges", "after the purge"} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, engine lost %t", step, lost), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, byA)
				dir, snapshots := t.TempDir(), t.TempDir()
				n := w.open(dir)
				n.cfg.snapshots = snapshot.Directory(snapshots)
				if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
					t.Fatal(err)
				}
				n.serve()
				x := n.trims(keeping(0))
				for i := range 20 {
					n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
				}
				point := x.snapshot().LSN
				n.mustOne(pk(t, "x"), create(`{"id":"last","a":"x"}`))
				x.sees()
				want := map[string]feed.LSN{"before the control commit": 1, "after the control commit": 1, "between two purges": 8, "after the purge": point + 1}[step]
				if step != "before the control commit" {
					if err := n.commitTrim(t.Context(), point); err != nil {
						t.Fatal(err)
					}
				}
				if want > 1 {
					if _, err := n.log.Trim(t.Context(), want-1); err != nil {
						t.Fatal(err)
					}
				}
				if first, _ := w.bounds(); first != want {
					t.Fatalf("the log begins at %d, want %d", first, want)
				}
				digest := n.digest()
				if err := n.stop(); err != nil {
					t.Fatal(err)
				}
				if lost {
					dir = t.TempDir()
				}
				n = w.open(dir)
				n.cfg.snapshots = snapshot.Directory(snapshots)
				if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
					t.Fatal(err)
				}
				n.serve()
				for _, id := range []string{"0", "19", "last"} {
					if n.read(pk(t, "x"), id) == "" {
						t.Errorf("item %s is lost", id)
					}
				}
				if got := n.digest(); got != digest {
					t.Errorf("digest %016x, want %016x", got, digest)
				}
				x = n.trims(keeping(0))
				x.copied.Store(&store.SnapshotState{LSN: point})
				if state := x.look(long); state.First != point+1 || state.Point != point {
					t.Errorf("the next owner left %+v, the snapshot is of %d", state, point)
				}
			})
		}
	}
}

// TestI2_ATrimmedPartitionWithoutASnapshotStaysClosed, keeps what its engine has, and opens
// when a snapshot is there.
func TestI2_ATrimmedPartitionWithoutASnapshotStaysClosed(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	behind := t.TempDir()
	n := w.start(behind)
	n.mustOne(pk(t, "x"), create(`{"id":"early","a":"x"}`))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n, err := w.openFrom(dir)
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	for i := range 20 {
		n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	for i := range 6 { // of less nobody asks for room
		n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"large%d","a":"x","text":"%0900000d"}`, i, i)))
	}
	m := x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"last","a":"x"}`))
	x.look(long)
	digest := n.digest()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	hidden := filepath.Join(t.TempDir(), "hidden")
	place := filepath.Join(dir, string(w.id.Container))
	if err := os.Rename(place, hidden); err != nil {
		t.Fatal(err)
	}
	closed := func(engineDir, snapshots string) *DamagedError {
		t.Helper()
		n := w.open(engineDir)
		if snapshots != "" {
			n.cfg.snapshots = snapshot.Directory(snapshots)
		}
		said := n.says()
		err := n.open(t.Context(), w.info.Partitions[0].Log)
		if strings.Contains(said.String(), "thrown away") {
			t.Errorf("nothing is thrown away, and it is said: %s", said)
		}
		damage, ok := errors.AsType[*DamagedError](err)
		if !ok || !damage.Unreadable || !strings.Contains(damage.Reason, fmt.Sprintf("begins at LSN %d", m.LSN+1)) {
			t.Fatalf("it opens: %v", err)
		}
		if damage.healed(t.Context(), n.log) {
			t.Error("it is said to be healed")
		}
		if err := n.db.Close(); err != nil {
			t.Fatal(err)
		}
		return damage
	}
	_ = closed(t.TempDir(), "")
	_ = closed(t.TempDir(), dir)
	damage := closed(behind, dir)
	old, err := engine.Open(behind, engine.Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	part, err := old.Partition(w.id)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := part.State(); err != nil || s.Applied == 0 {
		t.Errorf("the engine that was behind was emptied: %+v, %v", s, err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, place); err != nil {
		t.Fatal(err)
	}
	log, err := feed.OpenLog(t.Context(), w.js, w.id, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if !damage.healed(t.Context(), log) {
		t.Error("it is not seen to be healed")
	}
	// An engine that is behind the log is made anew from the snapshot. That is read through before
	// what is there is thrown away, and only then.
	for _, x := range []struct {
		dir   string
		reads int
	}{{behind, 2}, {t.TempDir(), 1}} {
		n = w.open(x.dir)
		from := &countingStore{Store: snapshot.Directory(dir), part: m.ID() + "/000001"}
		n.cfg.snapshots = from
		said, room := n.says(), n.cfg.loadReserve
		n.cfg.loadReserve = func() int64 { return 1 << 60 }
		err := n.open(t.Context(), w.info.Partitions[0].Log)
		if _, full := errors.AsType[*engine.NoRoomError](err); !full || from.reads > 0 || strings.Contains(said.String(), "thrown away") {
			t.Errorf("without room: %v; the snapshot was read %d times; it is said: %s", err, from.reads, said)
		}
		n.cfg.loadReserve = room
		if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
			t.Fatal(err)
		}
		// Of an engine that holds nothing, nothing is thrown away.
		if got := strings.Count(said.String(), "thrown away"); got != x.reads-1 {
			t.Errorf("it is said %d times that the engine's copy is thrown away, want %d: %s", got, x.reads-1, said)
		}
		n.Partition.log = slog.New(slog.DiscardHandler)
		n.serve()
		if got := n.digest(); got != digest || from.reads != x.reads {
			t.Errorf("digest %016x, want %016x; the snapshot was read %d times, want %d", got, digest, from.reads, x.reads)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// says returns what the partition logs from now on, until it is served.
func (n *node) says() *strings.Builder {
	said := &strings.Builder{}
	n.Partition.log = slog.New(slog.NewTextHandler(said, nil))
	return said
}

// countingStore counts how often a part is read.
type countingStore struct {
	snapshot.Store
	part  string
	reads int
}

func (s *countingStore) Get(ctx context.Context, name string) ([]byte, error) {
	if strings.HasSuffix(name, s.part) {
		s.reads++
	}
	return s.Store.Get(ctx, name)
}

// replacingStore does something before a part is read first.
type replacingStore struct {
	snapshot.Store
	before func()
}

func (s *replacingStore) Get(ctx context.Context, name string) ([]byte, error) {
	if f := s.before; f != nil && strings.HasSuffix(name, "/000001") {
		s.before = nil
		f()
	}
	return s.Store.Get(ctx, name)
}

// TestTrim_ASnapshotThatGoesWhileItIsReadIsNotDamaged: the trimmer reads a snapshot in a share of its time, and newer ones take
// the place of all that it knew.
func TestTrim_ASnapshotThatGoesWhileItIsReadIsNotDamaged(t *testing.T) {
	w := newWorld(t, byA)
	n := w.open(t.TempDir())
	replacing := &replacingStore{Store: snapshot.Directory(t.TempDir())}
	n.cfg.snapshots = replacing
	said := n.says()
	if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	n.serve()
	x := n.trims(keeping(0))
	written := 0
	both := func() {
		for range 2 {
			written++
			n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, written)))
			x.snapshot()
		}
	}
	both()
	n.mustOne(pk(t, "x"), create(`{"id":"more","a":"x"}`))
	n.readWhole.Clear()
	replacing.before = both
	x.look(long)
	if replacing.before != nil {
		t.Fatal("no snapshot was read")
	}
	doubted := n.doubted.Load() != 0
	if state := x.look(long); state.First < 3 {
		t.Errorf("the log begins at %d", state.First)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if doubted || strings.Contains(said.String(), "cannot be used") {
		t.Errorf("doubted %t, said %s", doubted, said)
	}
}

// TestTrim_ASnapshotAtTheTrimPointIsHeldAgainstWhatFollows: the commit that it is of is gone,
// but the next one names its checksum.
func TestTrim_ASnapshotAtTheTrimPointIsHeldAgainstWhatFollows(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	m := x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"2","a":"x"}`))
	x.look(long)
	shape, err := n.log.Shape(t.Context())
	if err != nil || shape.First != m.LSN+1 {
		t.Fatalf("%+v, %v", shape, err)
	}
	state := m.State()
	if reason, err := n.diverges(t.Context(), shape, state); reason != "" || err != nil {
		t.Errorf("its own: %q, %v", reason, err)
	}
	state.Sum ^= 1
	if reason, err := n.diverges(t.Context(), shape, state); reason == "" || err != nil {
		t.Errorf("of another history: %q, %v", reason, err)
	}
}

// TestI2_NothingIsTrimmedByADamagedSnapshot opens a partition whose newest snapshot was damaged
// since it was read back: of the older one and of the log. Until another one is there, which is
// taken soon, the log is not trimmed by it: both would be needed again.
func TestI2_NothingIsTrimmedByADamagedSnapshot(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n, err := w.openFrom(dir)
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	older := x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"2","a":"x"}`))
	newest := x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"3","a":"x"}`))
	digest := n.digest()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, n.id.String(), newest.ID(), "000001")
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(part, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // nothing that is needed has gone meanwhile
		if n, err = w.openFrom(dir); err != nil {
			t.Fatal(err)
		}
		x = n.trims(keeping(0))
		n.copied.Store(snapshotState(newest))
		if state := x.look(long); state.First > older.LSN+1 {
			t.Errorf("the log begins at %d, and the snapshot that is whole is of %d", state.First, older.LSN)
		}
		if got := n.digest(); got != digest {
			t.Errorf("digest %016x, want %016x", got, digest)
		}
		if !x.s.snapshotDue(t.Context(), n.Partition, lastWrite{n.state.Load().lsn, time.Now()}) {
			t.Error("no snapshot is taken in the place of the damaged one")
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err = w.openFrom(dir); err != nil {
		t.Fatal(err)
	}
	// Whoever opens next has an engine, so he reads no snapshot.
	n.unusable.Clear()
	n.readWhole.Clear()
	n.doubted.Store(0)
	x = n.trims(keeping(0))
	n.copied.Store(snapshotState(newest))
	if state := x.look(long); state.First > older.LSN+1 || n.doubted.Load() == 0 {
		t.Errorf("with an engine: the log begins at %d, and the snapshot that is whole is of %d; doubted %t", state.First, older.LSN, n.doubted.Load() != 0)
	}
	x = n.trims(keeping(0))
	if m, state := x.snapshot(), x.look(long); state.First < m.LSN {
		t.Errorf("the log begins at %d, and a snapshot is of %d", state.First, m.LSN)
	}
}

// TestI3_TrimmedIsAsUntrimmed writes, takes snapshots, trims, dies in trims, loses engines and
// opens anew, at random: the state is that of a model, and has the digest of all commits that
// ever were, applied to an empty engine.
func TestI3_TrimmedIsAsUntrimmed(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runTrimModel(t, rand.New(rand.NewPCG(seed, 7)), 120, false)
		})
	}
}

// runTrimModel runs it; with moves it begins with a log that denies purges.
func runTrimModel(t *testing.T, dice *rand.Rand, steps int, moves bool) {
	t.Helper()
	w := newWorld(t, byA)
	if moves {
		w.deny()
	}
	dir, snapshots := t.TempDir(), t.TempDir()
	var all []*feed.Commit // that ever were
	collect := func(n *node) {
		log, err := feed.OpenLog(t.Context(), w.js, w.id, feed.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		last := n.state.Load().lsn
		if feed.LSN(len(all)) == last {
			return
		}
		tail, err := log.Tail(t.Context(), feed.LSN(len(all))+1, feed.TailOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer tail.Close()
		for feed.LSN(len(all)) < last {
			c, err := tail.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 0 && c.Trimmed < all[len(all)-1].Trimmed {
				t.Fatalf("commit %d has trim point %d, the one before %d", c.LSN, c.Trimmed, all[len(all)-1].Trimmed)
			}
			all = append(all, c)
		}
	}
	open := func() *trims {
		n := w.open(dir)
		n.cfg.snapshots = snapshot.Directory(snapshots)
		if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
			t.Fatal(err)
		}
		n.serve()
		x := n.trims(keeping(0))
		x.stepBytes = uint64(1 + dice.IntN(4000))
		return x
	}
	items := map[string]string{}
	x := open()
	trimmed := 0
	for step := range steps {
		collect(x.node)
		switch dice.IntN(10) {
		case 0:
			x.snapshot()
		case 1, 2:
			if x.copied.Load() == nil {
				all, _, err := snapshot.Newest(t.Context(), x.cfg.snapshots, w.id)
				if err != nil {
					t.Fatal(err)
				}
				state := &store.SnapshotState{}
				if len(all) > 0 {
					state = snapshotState(all[0])
				}
				x.copied.Store(state)
			}
			before, _ := w.bounds()
			x.look([]time.Duration{0, long}[dice.IntN(2)])
			if w.closed() {
				x.endsTerm()
				x = open()
			}
			if first, _ := w.bounds(); first > before {
				trimmed++
			}
		case 3: // dies in a trim that snapshots allow
			if s, _, err := snapshot.Newest(t.Context(), x.cfg.snapshots, w.id); err != nil {
				t.Fatal(err)
			} else if len(s) > 0 && s[0].LSN > x.state.Load().schema.trimmed() {
				if err := x.commitTrim(t.Context(), s[0].LSN); err != nil {
					t.Fatal(err)
				}
				collect(x.node)
				first, last := w.bounds()
				upTo := first - 1 + feed.LSN(dice.IntN(int(s[0].LSN-first+2)))
				if w.denied() {
					x.copySome(s[0].LSN+1, dice.IntN(int(last-s[0].LSN)), dice.IntN(2) == 0)
				} else if upTo >= first {
					if _, err := x.log.Trim(t.Context(), upTo); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := x.stop(); err != nil && !errors.Is(err, errGoesOn) {
				t.Fatal(err)
			}
			x = open()
		case 4: // settings repeat the trim point
			ttl := store.TTL(dice.IntN(2) * -1)
			if _, err := x.putSettings(t.Context(), func(s store.Settings) (store.Settings, bool) { s.TTL = ttl; return s, true }); err != nil {
				t.Fatal(err)
			}
		case 5:
			if err := x.stop(); err != nil {
				t.Fatal(err)
			}
			if dice.IntN(2) == 0 {
				dir = t.TempDir()
			}
			x = open()
		default:
			for range 1 + dice.IntN(20) {
				id := fmt.Sprint(dice.IntN(30))
				body := fmt.Sprintf(`{"id":%q,"a":"x","step":%d}`, id, step)
				x.mustOne(pk(t, "x"), upsert(body))
				items[id] = body
			}
		}
	}
	collect(x.node)
	got := map[string]string{}
	for id := range items {
		got[id] = x.read(pk(t, "x"), id)
	}
	if !maps.Equal(got, items) {
		t.Errorf("items %v, want %v", got, items)
	}
	if want := w.digestOf(all); x.digest() != want {
		t.Errorf("digest %016x, of all commits %016x", x.digest(), want)
	}
	if first, last := w.bounds(); trimmed < 3 || first == 1 {
		t.Errorf("the log begins at %d and ends at %d after %d trims: nothing was tried", first, last, trimmed)
	}
	if err := x.stop(); err != nil {
		t.Fatal(err)
	}
}

// digestOf applies commits to an empty engine.
func (w *world) digestOf(all []*feed.Commit) uint64 {
	w.t.Helper()
	db, err := engine.Open(w.t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	part, err := db.Partition(w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &applier{p: part, log: slog.New(slog.DiscardHandler)}
	for _, c := range all {
		if err := a.apply(c); err != nil {
			w.t.Fatal(err)
		}
	}
	digest, err := part.Digest()
	if err != nil {
		w.t.Fatal(err)
	}
	return digest
}

// TestI4_WhoComesAfterReadersWereAskedForIsNotCutOff: a reader that begins at the end of the
// log between two questions keeps what comes behind that end, whatever snapshots have.
func TestI4_WhoComesAfterReadersWereAskedForIsNotCutOff(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	write := func() {
		for i := range 5 {
			n.mustOne(pk(t, "x"), upsert(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
		}
	}
	write()
	x.snapshot()
	write()
	x.look(long) // asks
	end := x.ends[n.Partition]
	write()
	newest := x.snapshot()
	write()
	x.sees()
	l := x.logs[n.Partition]
	at := x.askedAt.Add(holdsInterval / 2)
	l.lastWrite, l.retryAt = lastWrite{n.state.Load().lsn, at.Add(-long)}, time.Time{}
	x.round(t.Context(), at)
	if first, _ := w.bounds(); first != end+1 {
		t.Errorf("the log begins at %d, readers were asked for at %d: %+v", first, end, x.trim.Load())
	}
	if state := x.look(long); state.First != newest.LSN+1 {
		t.Errorf("after another question: %+v", state)
	}
}

// TestTrim_APartitionThatHasStoppedHoldsNobodyUp: one goroutine trims all logs of a process.
func TestTrim_APartitionThatHasStoppedHoldsNobodyUp(t *testing.T) {
	n := newWorld(t, byA).start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	// Nobody ends this context: it returns because the partition has ended.
	if err := n.commitTrim(context.Background(), 1); !errors.Is(err, errStopped) {
		t.Errorf("%v", err)
	}
}

// TestI4_WhoIsSetBackBeforeThePurgeIsNotCutOff: readers are asked for again between the commit
// that raises the trim point and the purge, and a purge that waited for one goes on behind him.
func TestI4_WhoIsSetBackBeforeThePurgeIsNotCutOff(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	var back []Hold
	x.s.cfg.Holds = func(context.Context) (map[feed.Partition][]Hold, string, error) {
		if n.state.Load().schema.trimmed() == 0 {
			return nil, "", nil // he is registered right after this
		}
		return map[feed.Partition][]Hold{w.id: back}, "", nil
	}
	for i := range 10 {
		n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	m := x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"behind","a":"x"}`))
	for _, step := range []struct {
		back  []Hold
		first feed.LSN
	}{
		{[]Hold{{Reader: "pipeline new"}}, 1}, // begins with the log
		{[]Hold{{Reader: "pipeline back", After: 5}, {Reader: "pipeline slow", After: 8}}, 5},
		{[]Hold{{Reader: "pipeline back", After: 4}}, 5}, // needs 5, which is there
		{nil, m.LSN + 1},
	} {
		back = step.back
		state := x.look(long)
		if first, _ := w.bounds(); first != step.first || state.Point != m.LSN {
			t.Errorf("%+v: the log begins at %d, want %d: %+v", step.back, first, step.first, state)
		}
		if len(back) > 0 && !strings.Contains(state.HeldBy, back[0].Reader) {
			t.Errorf("%+v: held by %q", back, state.HeldBy)
		}
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestTrim_ALookFromBeforeAPurgeDoesNotHideIt: the server's other loop asks how the log stands
// while this one trims it.
func TestTrim_ALookFromBeforeAPurgeDoesNotHideIt(t *testing.T) {
	p := &Partition{}
	first, stale, purged, next := &feed.Shape{First: 1}, &feed.Shape{First: 1}, &feed.Shape{First: 9}, &feed.Shape{First: 9, Last: 12}
	p.noteShape(nil, first)
	p.shape.Store(purged) // while the loop waits for its answer
	p.noteShape(first, stale)
	if got := p.shape.Load(); got != purged {
		t.Errorf("%+v", got)
	}
	p.noteShape(purged, next)
	if got := p.shape.Load(); got != next {
		t.Errorf("%+v", got)
	}
}

// TestI2_NothingIsTrimmedByASnapshotOfAnotherHistory: its bytes are whole, and it would not be loaded. Nor would it count
// where a copy is to be dropped.
func TestI2_NothingIsTrimmedByASnapshotOfAnotherHistory(t *testing.T) {
	w := newWorld(t, byA)
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	n.mustOne(pk(t, "x"), create(`{"id":"2","a":"x"}`))
	state, err := n.engine.State()
	if err != nil {
		t.Fatal(err)
	}
	state.Sum ^= 1
	w.writeForeign(n.cfg.snapshots, state)
	n.copied.Store(&store.SnapshotState{LSN: state.Applied})
	n.mustOne(pk(t, "x"), create(`{"id":"3","a":"x"}`))
	if got := x.look(long); got.First > 1 || n.doubted.Load() == 0 {
		t.Errorf("trimmed: %+v; doubted %t", got, n.doubted.Load() != 0)
	}
	shape, err := n.log.Shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if there, err := n.snapshotThere(t.Context(), shape, func() {}); there || err != nil {
		t.Errorf("it counts: %t, %v", there, err)
	}
	x.snapshot()
	if got := x.look(long); got.First == 1 {
		t.Errorf("not trimmed by its own: %+v", got)
	}
	if there, err := n.snapshotThere(t.Context(), shape, func() {}); !there || err != nil {
		t.Errorf("its own counts: %t, %v", there, err)
	}
}
