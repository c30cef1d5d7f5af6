package owner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/snapshot"
)

// A restored log has all of its state in itself. A distrusted copy of its partition is trusted when it was made anew
// from that, without a snapshot.
func TestDistrusted_ACopyMadeAnewFromALogThatGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	state, err := n.engine.State()
	if err != nil {
		t.Fatal(err)
	}
	id, is := feed.Partition{Container: w.id.Container, Number: 1}, feed.NewLogID()
	if err := feed.CreateLog(t.Context(), w.js, id, is, feed.LogConfig{After: state.Applied}); err != nil {
		t.Fatal(err)
	}
	log, err := feed.OpenLog(t.Context(), w.js, id, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	first, err := Continue(is, &state, &store.Parent{Partition: w.id.String(), Log: state.Log, LSN: state.Applied, Checksum: state.Sum.String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), state.Applied, first.ID, feed.AppendCommit(nil, first)); err != nil {
		t.Fatal(err)
	}
	part, err := n.db.Partition(id)
	if err != nil {
		t.Fatal(err)
	}
	attach := func() *Partition {
		t.Helper()
		p := newPartition(id, n.cfg, log, part, noRight{}, "node-1/1")
		a, err := p.attach(t.Context(), is)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.replay(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := attach()
	if before, err := part.State(); err != nil || before.Applied != state.Applied+1 {
		t.Fatalf("the copy is at %+v, %v", before, err)
	}
	if p.cfg.distrusted.Add(id, "it differs"); p.cfg.distrusted.Why(id) == "" {
		t.Fatal("it is trusted")
	}
	p = attach()
	if why := p.cfg.distrusted.Why(id); why != "" {
		t.Errorf("it was made anew, and is distrusted still: %s", why)
	}
}

// The one seed of a child is damaged. What this process has of the child stays, though nothing goes on from it.
func TestHeir_ADamagedSeedTakesNothingAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "a"), create(`{"id":"i","pk":"a"}`))
	end, id, dir := n.state.Load(), feed.Partition{Container: w.id.Container, Number: 1}, t.TempDir()
	cfg := n.cfg
	cfg.snapshots = snapshot.Directory(dir)
	source := n.engine.Snapshot()
	m, err := snapshot.Write(t.Context(), cfg.snapshots, id, source, 0, t.Context().Err, n.engine.Sound)
	source.Close()
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, id.String(), m.ID(), "000001")
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(part, data, 0o600); err != nil {
		t.Fatal(err)
	}
	child, err := n.db.Partition(id)
	if err != nil {
		t.Fatal(err)
	}
	b := child.NewBatch(nil)
	b.SetState(engine.State{Log: feed.NewLogID(), Applied: 7})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	p := newPartition(id, cfg, n.log, child, noRight{}, "node-1/1")
	if _, err := p.inherit(t.Context(), n.log, w.id, feed.Range{Max: feed.EPKMax}, end.lsn); !errors.Is(err, errSeedLost) {
		t.Fatalf("from a damaged seed: %v", err)
	}
	if state, err := child.State(); err != nil || state.Applied != 7 {
		t.Errorf("the copy is at %+v, %v", state, err)
	}
}

// A log that does not answer keeps the digests of other partitions waiting for a while, and not for as long as it lasts.
func TestDigest_IsNotOrderedWhereTheLogDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	answers := make(chan struct{})
	n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		<-answers
		return appendIt()
	})
	if view, err := n.orderDigest(t.Context()); !errors.Is(err, errStopped) || view != nil {
		t.Errorf("ordered in a log that does not answer: %v", err)
	}
	close(answers)
	view, err := n.orderDigest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	view.Close()
}
