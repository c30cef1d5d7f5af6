package owner

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// shortLog is a log that has lost its end.
type shortLog struct {
	Log
	end feed.LSN
}

func (l shortLog) Bounds(ctx context.Context) (first, last feed.LSN, err error) {
	first, _, err = l.Log.Bounds(ctx)
	return first, l.end, err
}

func (l shortLog) Shape(ctx context.Context) (*feed.Shape, error) {
	shape, err := l.Log.Shape(ctx)
	if err == nil {
		shape.Last, shape.Commits = l.end, uint64(l.end)
	}
	return shape, err
}

func TestI2_ALogThatLostItsEndIsSaidAndReadOnly(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	fill(t, n, k, 5)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.open(dir)
	n.owner, n.lease.user, n.lease.since = "node-1/1", "node-1", 1 // it is the process that owned the partition last
	n.feed = shortLog{n.log, 3}
	err := n.open(t.Context(), w.info.Partitions[0].Log)
	var damage *DamagedError
	if !errors.As(err, &damage) {
		t.Fatalf("open: %v", err)
	}
	if readable, err := n.openReadOnly(damage); err != nil || !readable {
		t.Fatal(readable, err)
	}
	n.serve()
	if n.read(k, "004") == "" {
		t.Error("reads do not go on")
	}
	if _, err := n.one(k, create(`{"id":"new","a":"x"}`)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write was answered %v", err)
	}
}

func TestI3_AnEngineOfAnotherHistoryIsRebuilt(t *testing.T) {
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	fill(t, n, k, 2)
	// The engine goes a way of its own: a commit that is not in the log.
	s := n.state.Load()
	a := &applier{p: n.engine, schema: s.schema, last: *s}
	d := &draft{lsn: s.lsn + 1, time: s.time, txns: []feed.Transaction{{Changes: []feed.Change{
		{Op: feed.OpCreate, Key: k, ID: "ghost", After: []byte(`{"id":"ghost","a":"x"}`), Modified: 1, Written: 1},
	}}}}
	c := d.commit(n.log.ID(), s, 1, "ghost")
	feed.AppendCommit(nil, c)
	if err := a.apply(c); err != nil {
		t.Fatal(err)
	}
	if n.read(k, "ghost") == "" {
		t.Fatal("the ghost was not applied")
	}
	n.lease.valid.Store(false)
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	other := w.start(t.TempDir()) // appends at the ghost's LSN
	fill2 := create(`{"id":"other","a":"x"}`)
	other.mustOne(k, fill2)
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	n = w.start(dir)
	if n.read(k, "ghost") != "" || n.read(k, "other") == "" || n.read(k, "001") == "" {
		t.Error("the engine was not rebuilt from the log")
	}
}
