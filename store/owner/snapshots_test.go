package owner

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/s3"
	"github.com/millrace/millrace/store/snapshot"
)

func TestSnapshotConfig_Due(t *testing.T) {
	var c SnapshotConfig
	c.setDefaults()
	const mib = 1 << 20
	for _, x := range []struct {
		name       string
		held, then uint64 // at the last snapshot, of LSN 5; none if both are 0
		at, first  feed.LSN
		now        uint64
		rested     time.Duration
		want       bool
	}{
		{"the first, of little", 0, 0, 9, 1, mib / 2, time.Hour, false},
		{"the first, at rest", 0, 0, 9, 1, 2 * mib, time.Minute, true},
		{"the first, under writes", 0, 0, 9, 1, 2 * mib, time.Second, false},
		{"the first, of much", 0, 0, 9, 1, 64 * mib, 0, true},
		{"nothing new", 10 * mib, 100 * mib, 5, 1, 900 * mib, time.Hour, false},
		{"grown by less than it holds, at rest", 10 * mib, 100 * mib, 9, 1, 109 * mib, time.Hour, false},
		{"grown by more, at rest", 10 * mib, 100 * mib, 9, 1, 111 * mib, time.Minute, true},
		{"grown by more, under writes", 10 * mib, 100 * mib, 9, 1, 111 * mib, time.Second, false},
		{"grown by 64 MiB under writes", 10 * mib, 100 * mib, 9, 1, 164 * mib, 0, true},
		{"it holds much", 1000 * mib, 100 * mib, 9, 1, 164 * mib, 0, false},
		{"it holds much and grew by half of it", 1000 * mib, 100 * mib, 9, 1, 600 * mib, 0, true},
		{"trimmed to the snapshot before, and hardly grown", 10 * mib, 100 * mib, 6, 4, 64 * mib, 0, false},
		{"trimmed to the snapshot before, and grown by as much as a snapshot is worth", 10 * mib, 100 * mib, 9, 5, 90 * mib, 0, true},
		{"trimmed up to the snapshot, and grown beyond what it was", 10 * mib, 100 * mib, 9, 6, 101 * mib, 0, true},
		{"trimmed up to the snapshot, and grown by little", 10 * mib, 100 * mib, 9, 6, 5 * mib, time.Minute, false},
		{"trimmed up to the commit before the snapshot's", 10 * mib, 100 * mib, 9, 5, 101 * mib, 0, false},
	} {
		var last *store.SnapshotState
		if x.then > 0 {
			last = &store.SnapshotState{LSN: 5, Bytes: x.held, LogBytes: x.then}
		}
		if got := c.due(last, x.at, x.first, x.now, &compression{}, x.rested); got != x.want {
			t.Errorf("%s: due %t, want %t", x.name, got, x.want)
		}
	}
}

// TestSnapshotConfig_CountsACompressedLogAsItIsReplayed: a snapshot is due when as much is to be
// replayed as without compression.
func TestSnapshotConfig_CountsACompressedLogAsItIsReplayed(t *testing.T) {
	var c SnapshotConfig
	c.setDefaults()
	const mib = 1 << 20
	var packed compression
	packed.plain.Store(160 * mib)
	packed.stored.Store(10 * mib)
	last := &store.SnapshotState{LSN: 5, Bytes: 1000 * mib, LogBytes: 100 * mib}
	for grown, want := range map[uint64]bool{31 * mib: false, 32 * mib: true} {
		if got := c.due(last, 9, 1, 100*mib+grown, &packed, 0); got != want {
			t.Errorf("grown by %d MiB of 16 times as much: due %t, want %t", grown/mib, got, want)
		}
	}
}

// TestSnapshotConfig_YoungAfterATrim: a log that was trimmed to the older of two snapshots is
// shorter than it was at the newer one, which is no reason to take another for a pin.
func TestSnapshotConfig_YoungAfterATrim(t *testing.T) {
	var c SnapshotConfig
	c.setDefaults()
	const mib = 1 << 20
	m := &snapshot.Manifest{LSN: 500, LogBytes: 100 * mib, Bytes: 8 * mib}
	for _, x := range []struct {
		name      string
		at, first feed.LSN
		now       uint64
		want      bool
	}{
		{"nothing was written", 500, 400, 20 * mib, true},
		{"little was written", 501, 400, 20 * mib, true},
		{"much was written", 600, 400, 40 * mib, false},
		{"little was written, nothing went", 501, 1, 101 * mib, true},
		{"all that it had has gone", 600, 501, 20 * mib, false},
	} {
		if got := c.young(m, x.at, &feed.Shape{First: x.first, Last: x.at, Bytes: x.now}, &compression{}); got != x.want {
			t.Errorf("%s: young %t, want %t", x.name, got, x.want)
		}
	}
}

func TestSnapshotConfig_RefusesWhatItCannotDo(t *testing.T) {
	for _, c := range []SnapshotConfig{
		{Directory: "here"},
		{Directory: "off"},
		{Store: "tape"},
		{Store: "stream", Directory: "/a"},
		{Store: "s3"},
		{Store: "s3", Directory: "/a", S3: s3.Config{Bucket: "b"}},
		{S3: s3.Config{Bucket: "b"}},
		{Store: "s3", S3: s3.Config{Bucket: "b", Endpoint: "http://h:9000"}},
		{Store: "s3", S3: s3.Config{Bucket: "b", AccessKeyEnv: "A"}},
		{LogBytes: -1},
		{Rest: -1},
		{SharePercent: 101},
	} {
		if _, err := (Config{Snapshots: c}).withDefaults(); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// Whoever may become the owner of a partition must find its snapshots, so the default
// depends on who may.
func TestSnapshotConfig_Where(t *testing.T) {
	for _, x := range []struct {
		cfg    Config
		where  string // "" is nowhere
		shared bool
	}{
		{Config{DataDir: "/data", Alone: true}, "/data/snapshots", false},
		{Config{DataDir: "/data"}, "the stream " + snapshot.StreamName, true},
		{Config{}, "", true},
		{Config{DataDir: "/data", Snapshots: SnapshotConfig{Directory: "/nfs"}}, "/nfs", false},
		{Config{DataDir: "/data", Alone: true, Snapshots: SnapshotConfig{Store: SnapshotsS3, S3: s3.Config{Bucket: "b", Prefix: "p"}}}, "s3://b/p/", true},
		{Config{DataDir: "/data", Snapshots: SnapshotConfig{Store: SnapshotsDirectory}}, "/data/snapshots", false},
		{Config{DataDir: "/data", Alone: true, Snapshots: SnapshotConfig{Store: SnapshotsStream}}, "the stream " + snapshot.StreamName, true},
		{Config{DataDir: "/data", Snapshots: SnapshotConfig{Store: SnapshotsOff}}, "", false},
	} {
		where := ""
		s, err := x.cfg.openSnapshots(nil)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			where = s.String()
		}
		if shared := x.cfg.Snapshots.Shared(x.cfg.Alone); where != x.where || shared != x.shared {
			t.Errorf("%+v: in %q, shared %t; want %q, %t", x.cfg.Snapshots, where, shared, x.where, x.shared)
		}
	}
}

// openFrom opens the partition on an empty engine, with snapshots in dir; "" is none.
func (w *world) openFrom(dir string) (*node, error) {
	n := w.open(w.t.TempDir())
	if dir != "" {
		n.cfg.snapshots = snapshot.Directory(dir)
	}
	if err := n.open(w.t.Context(), w.info.Partitions[0].Log); err != nil {
		return n, errors.Join(err, n.db.Close())
	}
	n.serve()
	return n, nil
}

func (n *node) digest() uint64 {
	n.w.t.Helper()
	d, err := n.engine.Digest()
	if err != nil {
		n.w.t.Fatal(err)
	}
	return d
}

// writeAny writes items, some of them anew, and deletes some.
func (n *node) writeAny(dice *rand.Rand, count int) {
	for range count {
		k, id := pk(n.w.t, fmt.Sprint("k", dice.IntN(5))), fmt.Sprint(dice.IntN(40))
		if dice.IntN(4) == 0 {
			_, _ = n.one(k, store.Operation{Kind: store.OpDelete, ID: id}) // it may not be there
			continue
		}
		n.mustOne(k, upsert(fmt.Sprintf(`{"id":%q,"a":%q,"n":%d}`, id, k.String()[2:4], dice.IntN(1000))))
	}
}

// TestI3_OpenedFromASnapshotIsAsReplayed opens a partition without an engine from its newest
// snapshot, from the older one, and from the log alone, where snapshots are damaged or are
// of another history: the state is always the same.
func TestI3_OpenedFromASnapshotIsAsReplayed(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n, err := w.openFrom(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{cfg: n.cfg}
	dice := rand.New(rand.NewPCG(1, 2))
	var taken []*snapshot.Manifest // the newest first
	for range 2 {
		n.writeAny(dice, 60)
		m, err := server.writeSnapshot(t.Context(), n.Partition, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		taken = append([]*snapshot.Manifest{m}, taken...)
	}
	n.writeAny(dice, 30)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	replayed, err := w.openFrom("")
	if err != nil {
		t.Fatal(err)
	}
	parts := func(m *snapshot.Manifest) string {
		return filepath.Join(dir, string(w.id.Container), "0", m.ID(), "000001")
	}
	for _, step := range []struct {
		name   string
		damage func() error
	}{
		{"the newest", func() error { return nil }},
		{"the older", func() error { return os.Truncate(parts(taken[0]), 10) }},
		{"the log", func() error { return os.Remove(parts(taken[1])) }},
	} {
		if err := step.damage(); err != nil {
			t.Fatal(err)
		}
		if err := replayed.stop(); err != nil {
			t.Fatal(err)
		}
		from, err := w.openFrom(dir)
		if err != nil {
			t.Fatal(err)
		}
		state := *from.state.Load()
		got := from.digest()
		if err := from.stop(); err != nil {
			t.Fatal(err)
		}
		if replayed, err = w.openFrom(""); err != nil {
			t.Fatal(err)
		}
		if want := replayed.digest(); got != want {
			t.Errorf("%s: digest %016x, want %016x", step.name, got, want)
		}
		if next := replayed.state.Load(); state.lsn+1 != next.lsn { // a takeover stands between
			t.Errorf("%s: LSN %d before %d", step.name, state.lsn, next.lsn)
		}
	}
}

// writeForeign writes a snapshot of an engine that holds a record, under a state that is not its own.
func (w *world) writeForeign(to snapshot.Store, state engine.State) {
	w.t.Helper()
	db, err := engine.Open(w.t.TempDir(), engine.Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	foreign, err := db.Partition(w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	b := foreign.NewBatch(&engine.Schema{})
	if err := b.PutRecord('q', []byte("of another history"), nil); err != nil {
		w.t.Fatal(err)
	}
	b.SetState(state)
	if err := b.Commit(); err != nil {
		w.t.Fatal(err)
	}
	source := foreign.Snapshot()
	nothing := func() error { return nil }
	if _, err := snapshot.Write(w.t.Context(), to, w.id, source, 0, nothing, nothing); err != nil {
		w.t.Fatal(err)
	}
	source.Close()
	if err := db.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// TestSnapshot_OfAnotherHistoryIsNotLoaded has snapshots that do not fit the log: of another
// log, of a commit with another checksum, of what the log has lost.
func TestSnapshot_OfAnotherHistoryIsNotLoaded(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	state, err := n.engine.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(s *engine.State){
		"another log":      func(s *engine.State) { s.Log[0] ^= 1 },
		"another checksum": func(s *engine.State) { s.Sum ^= 1 },
		"what is lost":     func(s *engine.State) { s.Applied += 5 },
	} {
		other := state
		change(&other)
		dir := t.TempDir()
		w.writeForeign(snapshot.Directory(dir), other)
		from, err := w.openFrom(dir)
		if name == "what is lost" {
			if damage, ok := errors.AsType[*DamagedError](err); !ok || damage.need != other.Applied {
				t.Errorf("%s: %v, want a *DamagedError that needs LSN %d", name, err, other.Applied)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		shown := from.engine.Snapshot()
		_, found, err := shown.Record('q', []byte("of another history"))
		shown.Close()
		if found || err != nil || from.read(pk(t, "x"), "1") == "" {
			t.Errorf("%s was loaded; %v", name, err)
		}
		if err := from.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestI2_ASnapshotOfTheOwnerBeforeIsNoDamage: it appends, and names a snapshot, after the next
// owner has asked for the log and before it reads which snapshots there are.
func TestI2_ASnapshotOfTheOwnerBeforeIsNoDamage(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n, err := w.openFrom(dir)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := n.feed.Shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	m, err := (&Server{cfg: n.cfg}).writeSnapshot(t.Context(), n.Partition, func() error { return nil })
	if err != nil || m.LSN <= earlier.Last {
		t.Fatalf("a snapshot of %+v, %v", m, err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	next := w.open(t.TempDir())
	next.cfg.snapshots, next.log.asked = snapshot.Directory(dir), []*feed.Shape{earlier}
	if err := next.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(errors.Join(err, next.db.Close()))
	}
	next.serve()
	if got := next.read(pk(t, "x"), "1"); got == "" {
		t.Error("an item is lost")
	}
}

// A store whose snapshots are in a stream was the owner for a while, and trimmed the log; the
// one after it keeps its own in a directory, and begins with those of the other.
func TestI2_SnapshotsOfAnotherKindOfStoreAreFound(t *testing.T) {
	w := newWorld(t, byA)
	stream := snapshot.Stream(w.js, 1)
	begin := func(own snapshot.Store, others ...snapshot.Store) (*node, error) {
		n := w.open(t.TempDir())
		n.cfg.snapshots, n.cfg.others = own, others
		if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
			return n, errors.Join(err, n.db.Close())
		}
		n.serve()
		return n, nil
	}
	n, err := begin(stream)
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	n.writeAny(rand.New(rand.NewPCG(3, 4)), 40)
	x.snapshot()
	n.mustOne(pk(t, "x"), create(`{"id":"last","a":"x"}`))
	x.look(long)
	digest := n.digest()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	empty := snapshot.Directory(t.TempDir())
	if _, err := begin(empty); err == nil || !strings.Contains(err.Error(), "no usable snapshot") {
		t.Fatalf("the log was not trimmed: %v", err)
	}
	other := snapshot.Directory(t.TempDir())
	if _, err := begin(empty, other); err == nil || !strings.Contains(err.Error(), empty.String()+" or in "+other.String()) {
		t.Fatalf("two stores were looked in: %v", err)
	}
	n, err = begin(empty, stream)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.digest(); got != digest {
		t.Errorf("digest %016x, want %016x", got, digest)
	}
	// One that writes little needs a snapshot in its own store too: the other may go.
	x = n.trims(keeping(0))
	if !x.s.snapshotDue(t.Context(), n.Partition, lastWrite{n.state.Load().lsn, time.Now()}) {
		t.Error("no snapshot is due, though the log was trimmed and there is none")
	}
	x.snapshot()
	n.doubt()
	if x.s.snapshotDue(t.Context(), n.Partition, lastWrite{n.state.Load().lsn, time.Now()}) {
		t.Error("another snapshot is due")
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if n, err = begin(empty); err != nil {
		t.Fatal(err)
	}
	if got := n.digest(); got != digest {
		t.Errorf("of its own store: digest %016x, want %016x", got, digest)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
}
