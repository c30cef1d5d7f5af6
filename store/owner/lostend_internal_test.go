package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/engine"
)

// loseEnd puts a stream in place of the log's that ends at last.
func (w *world) loseEnd(last feed.LSN) {
	w.t.Helper()
	stream, err := feed.StreamOf(w.t.Context(), w.js, w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	var kept [][]byte
	for lsn := uint64(1); lsn <= uint64(last); lsn++ {
		m, err := stream.GetMsg(w.t.Context(), lsn)
		if err != nil {
			w.t.Fatal(err)
		}
		kept = append(kept, m.Data)
	}
	if err := w.js.DeleteStream(w.t.Context(), w.id.Stream()); err != nil {
		w.t.Fatal(err)
	}
	if err := feed.CreateLog(w.t.Context(), w.js, w.id, w.info.Partitions[0].Log, feed.LogConfig{}); err != nil {
		w.t.Fatal(err)
	}
	log := w.openLog()
	for i, data := range kept {
		c, err := feed.DecodeCommit(data)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := log.Append(w.t.Context(), feed.LSN(i), c.ID, data); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) openLog() *feed.Log {
	w.t.Helper()
	log, err := feed.OpenLog(w.t.Context(), w.js, w.id, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(log.Close)
	return log
}

// nextTerm begins the next term of a process on the engine that it has.
func (w *world) nextTerm(part *engine.Partition) (*Partition, *faultyLog) {
	w.t.Helper()
	w.epoch++
	cfg, err := Config{Logger: slog.New(slog.DiscardHandler), now: w.clock.Load, ClockAheadMax: -1}.withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	log := &faultyLog{Log: w.openLog()}
	state, err := part.State()
	if err != nil {
		w.t.Fatal(err)
	}
	held := newLease(w.t, w.epoch)
	held.user, held.since = leases.NodeOf(state.Owner), state.Epoch
	return newPartition(w.id, cfg, log, part, held, state.Owner), log
}

// termOfFive writes five items on an engine that was empty when it was opened, and ends the term.
func (w *world) termOfFive() *node {
	w.t.Helper()
	n := w.start(w.t.TempDir())
	for i := range 5 {
		n.mustOne(pk(w.t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	n.cancel()
	_ = n.ended()
	return n
}

// saysLost fails the test unless err says that commits are lost, and reads can go on.
func saysLost(t *testing.T, p *Partition, err error, reason string) {
	t.Helper()
	damage, ok := errors.AsType[*DamagedError](err)
	if !ok || !strings.Contains(damage.Reason, reason) {
		t.Fatalf("opened on a log that has lost its end: %v", err)
	}
	readable, err := p.openReadOnly(damage)
	if err != nil || !readable {
		t.Errorf("what the engine holds can be read: %v, %v", readable, err)
	}
	if damage.need != 7 {
		t.Errorf("the log is whole when it ends at %d", damage.need)
	}
}

// TestI2_ALostEndBehindAnEngineOfThisProcessIsSaid lets a log lose its end between two terms of one process.
// The engine was empty when the process opened it.
func TestI2_ALostEndBehindAnEngineOfThisProcessIsSaid(t *testing.T) {
	w := newWorld(t, byA)
	n := w.termOfFive()
	w.loseEnd(5)
	p, _ := w.nextTerm(n.engine)
	saysLost(t, p, p.open(t.Context(), w.info.Partitions[0].Log), "LSN 6 to 7 were applied")
	if _, last, err := w.openLog().Bounds(t.Context()); last != 5 || err != nil {
		t.Errorf("the log ends at %d, %v: it has another history", last, err)
	}
}

// TestI2_AnEndLostBeforeTheTakeoverIsSaid lets it lose its end when the partition is opened already, right before
// the takeover commit is appended.
func TestI2_AnEndLostBeforeTheTakeoverIsSaid(t *testing.T) {
	w := newWorld(t, byA)
	n := w.termOfFive()
	p, log := w.nextTerm(n.engine)
	log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		w.loseEnd(5)
		return appendIt()
	})
	saysLost(t, p, p.open(t.Context(), w.info.Partitions[0].Log), "behind LSN 7")
}

// TestI2_ALostEndIsSaidByEveryProcess kills a process of which nothing, or a part, was synced, and
// has two more come upon the log that has lost its end meanwhile: the first has set the engine back
// to what was synced, and the second finds an engine that is no longer than the log.
func TestI2_ALostEndIsSaidByEveryProcess(t *testing.T) {
	for name, synced := range map[string]int{"nothing was synced": 0, "a part was synced": 3} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, byA)
			dir, left := t.TempDir(), t.TempDir()
			n := w.start(dir)
			for i := range 5 {
				n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
				if i+1 == synced {
					if err := n.db.SyncPartitions(n.engine); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.CopyFS(left, os.DirFS(dir)); err != nil { // as a kill leaves it
				t.Fatal(err)
			}
			n.cancel()
			_ = n.ended()
			w.loseEnd(5)
			for process := range 3 {
				db, err := engine.Open(left, engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				part, err := db.Partition(w.id)
				if err != nil {
					t.Fatal(err)
				}
				p, _ := w.nextTerm(part)
				err = p.open(t.Context(), w.info.Partitions[0].Log)
				if damage, ok := errors.AsType[*DamagedError](err); !ok || !strings.Contains(damage.Reason, "LSN 6 to 7 were applied") {
					t.Errorf("process %d opened on a log that has lost its end: %v", process, err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestAttach_AnotherLogIsNotHeldAgainstWhatWasFound rebuilds an engine from another log, which is shorter than
// the one before, and opens it in the same process once more.
func TestAttach_AnotherLogIsNotHeldAgainstWhatWasFound(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	for i := range 5 {
		n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	db, err := engine.Open(dir, engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	part, err := db.Partition(w.id)
	if err != nil {
		t.Fatal(err)
	}
	// The genesis commit of another log.
	genesis := w.commits()[0]
	if err := w.js.DeleteStream(t.Context(), w.id.Stream()); err != nil {
		t.Fatal(err)
	}
	another := feed.NewLogID()
	if err := feed.CreateLog(t.Context(), w.js, w.id, another, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	genesis.Log, genesis.ID = another, feed.NewCommitID()
	if _, err := w.openLog().Append(t.Context(), 0, genesis.ID, feed.AppendCommit(nil, genesis)); err != nil {
		t.Fatal(err)
	}
	for term := range 2 {
		p, _ := w.nextTerm(part)
		if err := p.open(t.Context(), another); err != nil {
			t.Fatalf("term %d: %v", term+1, err)
		}
		if want := feed.LSN(2 + term); p.state.Load().lsn != want {
			t.Errorf("term %d begins at LSN %d, want %d", term+1, p.state.Load().lsn, want)
		}
	}
}
