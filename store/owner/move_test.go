package owner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

// deny makes the stream of the log one of an earlier release.
func (w *world) deny() {
	w.t.Helper()
	cfg := w.config()
	cfg.DenyPurge = true
	if _, err := w.js.UpdateStream(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
}

// config is that of the stream that holds the log.
func (w *world) config() jetstream.StreamConfig {
	w.t.Helper()
	stream, err := feed.StreamOf(w.t.Context(), w.js, w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	return stream.CachedInfo().Config
}

func (w *world) denied() bool { w.t.Helper(); return w.config().DenyPurge }

// closed says whether the log is closed and has not gone on yet.
func (w *world) closed() bool {
	w.t.Helper()
	if !w.denied() {
		return false
	}
	_, last := w.bounds()
	log, err := feed.OpenLog(w.t.Context(), w.js, w.id, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	c, err := log.Read(w.t.Context(), last)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, tx := range c.Transactions {
		if tx.Control != nil && tx.Control.Kind == feed.ControlMove {
			return true
		}
	}
	return false
}

// endsTerm waits for the end of a term whose log was closed.
func (n *node) endsTerm() {
	n.w.t.Helper()
	if err := n.ended(); !errors.Is(err, errGoesOn) || !opensAnew(err) {
		n.w.t.Fatalf("the term ended with %v", err)
	}
	if err := n.db.Close(); err != nil {
		n.w.t.Fatal(err)
	}
}

// copySome begins or goes on with a move, copies some commits, and may close the log.
func (n *node) copySome(first feed.LSN, count int, closes bool) {
	n.w.t.Helper()
	m, err := n.log.Moving(n.w.t.Context())
	if err == nil && m == nil {
		m, err = n.log.BeginMove(n.w.t.Context(), first)
	}
	if err != nil {
		n.w.t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Step(n.w.t.Context(), count); err != nil {
		n.w.t.Fatal(err)
	}
	if closes {
		if err := n.commitMove(n.w.t.Context(), m.Data()); err != nil && !errors.Is(err, errStopped) {
			n.w.t.Fatal(err)
		}
	}
}

// TestI2_ALogOfAnEarlierReleaseGoesOn in a new stream, from whatever step a process dies at,
// with its engine and without: nothing that was acknowledged is lost, and it is trimmed.
func TestI2_ALogOfAnEarlierReleaseGoesOn(t *testing.T) {
	for _, step := range []string{"nothing", "trim point", "begun", "copied in part", "copied", "closed"} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, engine lost %t", step, lost), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, byA)
				w.deny()
				dir, snapshots := t.TempDir(), t.TempDir()
				open := func() *trims {
					n := w.open(dir)
					n.cfg.snapshots = snapshot.Directory(snapshots)
					if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
						t.Fatal(err)
					}
					n.serve()
					return n.trims(keeping(0))
				}
				x := open()
				for i := range 20 {
					x.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
				}
				point := x.snapshot().LSN
				for i := range 5 {
					x.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"behind %d","a":"x"}`, i)))
				}
				x.sees()
				digest, etag := x.digest(), x.mustOne(pk(t, "x"), store.Operation{Kind: store.OpRead, ID: "3"}).ETag
				if step != "nothing" {
					if err := x.commitTrim(t.Context(), point); err != nil {
						t.Fatal(err)
					}
				}
				switch step {
				case "begun":
					x.copySome(point+1, 0, false)
				case "copied in part":
					x.copySome(point+1, 3, false)
				case "copied":
					x.copySome(point+1, 100, false)
				case "closed":
					x.copySome(point+1, 3, true)
				}
				if step == "closed" {
					x.endsTerm()
				} else if err := x.stop(); err != nil {
					t.Fatal(err)
				}
				if lost {
					dir = t.TempDir()
				}
				x = open()
				if got := x.digest(); got != digest {
					t.Errorf("digest %016x, want %016x", got, digest)
				}
				x.copied.Store(&store.SnapshotState{LSN: point})
				for w.denied() {
					s := x.look(long)
					if !w.closed() {
						t.Fatalf("it is not closed: %+v", s)
					}
					x.endsTerm()
					x = open()
					x.copied.Store(&store.SnapshotState{LSN: point})
				}
				if first, _ := w.bounds(); first != point+1 {
					t.Errorf("it begins at %d, want %d", first, point+1)
				}
				if got := x.mustOne(pk(t, "x"), store.Operation{Kind: store.OpRead, ID: "3"}).ETag; got != etag {
					t.Errorf("etag %v, want %v", got, etag)
				}
				for _, id := range []string{"0", "19", "behind 4"} {
					if x.read(pk(t, "x"), id) == "" {
						t.Errorf("item %s is lost", id)
					}
				}
				if got := x.digest(); got != digest {
					t.Errorf("digest %016x, want %016x", got, digest)
				}
				// It is a log like any other from now on.
				x.mustOne(pk(t, "x"), create(`{"id":"later","a":"x"}`))
				point = x.snapshot().LSN
				x.mustOne(pk(t, "x"), create(`{"id":"last","a":"x"}`))
				if s := x.look(long); s.First != point+1 || s.Point != point {
					t.Errorf("the next trim left %+v, the snapshot is of %d", s, point)
				}
			})
		}
	}
}

// TestMove_DamageNamesTheStreamThatHoldsTheLog: an operator who looks for the old one finds none.
func TestMove_DamageNamesTheStreamThatHoldsTheLog(t *testing.T) {
	w := newWorld(t, byA)
	w.deny()
	dir := t.TempDir()
	n := w.start(dir)
	for i := range 5 {
		n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	if err := n.commitTrim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	n.copySome(4, 100, true)
	n.endsTerm()
	n = w.start(dir)
	stream := w.config().Name
	if stream == w.id.Stream() {
		t.Fatalf("the log is in %s still", stream)
	}
	unreadable := n.damaged(&feed.Shape{Replicas: []string{"n2"}}, "its log lacks LSN 5")
	unreadable.unreadable()
	_, read := n.readLog(t.Context(), 4, &applied{lsn: n.state.Load().lsn, sum: 1}, nil)
	for _, err := range []error{
		n.damaged(&feed.Shape{Replicas: []string{"n2"}}, "its log lacks LSN 5"), unreadable, n.lacksStream(), read,
	} {
		if text := fmt.Sprint(err); !strings.Contains(text, stream) || strings.Contains(strings.ReplaceAll(text, stream, ""), w.id.Stream()) {
			t.Errorf("%s; the stream is %s", text, stream)
		}
	}
}

// TestI1_ALateOwnerOfTheOldStreamIsFenced: what it was about to append was not acknowledged,
// and what its successors acknowledged is there.
func TestI1_ALateOwnerOfTheOldStreamIsFenced(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		t.Run(fmt.Sprintf("when the new stream is the log %t", reopened), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byA)
			w.deny()
			late := w.start(t.TempDir())
			for i := range 10 {
				late.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
			}
			arrived, release := late.log.hold()
			answer := make(chan error, 1)
			go func() {
				_, err := late.one(pk(t, "x"), create(`{"id":"late","a":"x"}`))
				answer <- err
			}()
			<-arrived
			dir := t.TempDir()
			n, err := w.openFrom(dir)
			if err != nil {
				t.Fatal(err)
			}
			x := n.trims(keeping(0))
			snapshots := x.cfg.snapshots
			x.mustOne(pk(t, "x"), create(`{"id":"the successor's","a":"x"}`))
			x.snapshot()
			x.mustOne(pk(t, "x"), create(`{"id":"behind","a":"x"}`))
			if s := x.look(long); !w.closed() {
				t.Fatalf("it is not closed: %+v", s)
			}
			x.endsTerm()
			open := func() *node {
				n := w.open(t.TempDir())
				n.cfg.snapshots = snapshots
				if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
					t.Fatal(err)
				}
				n.serve()
				return n
			}
			var next *node
			if reopened {
				next = open()
				next.mustOne(pk(t, "x"), create(`{"id":"after the move","a":"x"}`))
			}
			release()
			if err := <-answer; err == nil {
				t.Error("a late owner acknowledged a write")
			}
			if err := late.ended(); !errors.Is(err, feed.ErrFenced) && !errors.Is(err, feed.ErrUnknown) {
				t.Errorf("it ended with %v", err)
			}
			if next == nil {
				next = open()
			}
			for id, want := range map[string]bool{"9": true, "the successor's": true, "behind": true, "after the move": reopened, "late": false} {
				if got := next.read(pk(t, "x"), id) != ""; got != want {
					t.Errorf("item %s is there: %t, want %t", id, got, want)
				}
			}
		})
	}
}

// TestMove_ASmallLogGoesOnWhole when nobody writes, though none of it may go.
func TestMove_ASmallLogGoesOnWhole(t *testing.T) {
	w := newWorld(t, byA)
	w.deny()
	dir := t.TempDir()
	open := func() *trims {
		n := w.open(dir)
		n.cfg.snapshots = snapshot.Directory(t.TempDir())
		if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
			t.Fatal(err)
		}
		n.serve()
		x := n.trims(keeping(0))
		x.wholeBytes = restBytesMin
		return x
	}
	x := open()
	for i := range 5 {
		x.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	digest := x.digest()
	x.look(0)
	if w.closed() {
		t.Fatal("it is closed under writes")
	}
	x.look(long)
	x.endsTerm()
	x = open()
	if first, _ := w.bounds(); w.denied() || first != 1 {
		t.Errorf("it denies purges: %t, and begins at LSN %d", w.denied(), first)
	}
	if got := x.digest(); got != digest || x.read(pk(t, "x"), "0") == "" {
		t.Errorf("digest %016x, want %016x", got, digest)
	}
	x.look(long) // and that is that
	x.mustOne(pk(t, "x"), create(`{"id":"later","a":"x"}`))
}

// TestMove_WaitsForWhoReads, for its worth and for room on the disk, and says so.
func TestMove_WaitsForWhoReads(t *testing.T) {
	w := newWorld(t, byA)
	w.deny()
	n, err := w.openFrom(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := n.trims(keeping(0))
	holds := map[feed.Partition][]Hold{}
	x.s.cfg.Holds = func(context.Context) (map[feed.Partition][]Hold, string, error) { return holds, "", nil }
	stays := func(step, by string, copied bool) {
		t.Helper()
		s := x.look(long)
		names, err := feed.StreamNames(t.Context(), w.js)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s.HeldBy, by) || w.closed() || strings.Contains(strings.Join(names, " "), w.id.Stream()+"_2") != copied {
			t.Errorf("%s: %+v, streams %v", step, s, names)
		}
	}
	for i := range 10 {
		x.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	x.snapshot()
	for i := range 30 {
		x.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"more %d","a":"x"}`, i)))
	}
	stays("it would copy more than it frees", "when half of it may go", false)
	if x.state.Load().schema.trimmed() != 0 {
		t.Error("and raises the trim point for nothing")
	}
	point := x.snapshot().LSN
	x.mustOne(pk(t, "x"), create(`{"id":"behind","a":"x"}`))
	x.s.cfg.LogDir, x.free = "the disk", func(string) (int64, error) { return x.s.cfg.DiskReserve + 3<<20, nil }
	stays("no room", "needs 8 MiB until the old one goes, and 3 MiB are free below the disk", false)
	x.free = func(string) (int64, error) { return x.s.cfg.DiskReserve + 3<<30, nil }
	// Who begins to read below the trim point, while the log still has that, is waited for.
	holds[w.id] = []Hold{{Reader: "pipeline late", After: 5}}
	x.copySome(point+1, 2, false)
	stays("somebody reads what the copy has not", "pipeline late has not read more", true)
	delete(holds, w.id)
	if s := x.look(long); !w.closed() || !strings.Contains(s.HeldBy, "commits are copied") {
		t.Errorf("%+v", s)
	}
	x.endsTerm()
}

// TestI3_AMovedLogIsAsItWas is TestI3_TrimmedIsAsUntrimmed of a log that goes on in a new
// stream on the way.
func TestI3_AMovedLogIsAsItWas(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runTrimModel(t, rand.New(rand.NewPCG(seed, 11)), 80, true)
		})
	}
}
