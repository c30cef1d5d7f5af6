package owner

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

// askedLog counts what is asked of a log before the takeover commit is in it.
type askedLog struct {
	Log
	mu    sync.Mutex
	asked map[string]int
}

func (l *askedLog) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[what]++
}

func (l *askedLog) Shape(ctx context.Context) (*feed.Shape, error) {
	l.note("shape")
	return l.Log.Shape(ctx)
}

func (l *askedLog) Read(ctx context.Context, lsn feed.LSN) (*feed.Commit, error) {
	l.note("read")
	return l.Log.Read(ctx, lsn)
}

func (l *askedLog) Bounds(ctx context.Context) (first, last feed.LSN, err error) {
	l.note("bounds")
	return l.Log.Bounds(ctx)
}

func (l *askedLog) FinishMove(ctx context.Context) (bool, error) {
	l.note("finish")
	return l.Log.FinishMove(ctx)
}

// atEnd stops a node on dir, so that its engine has all that is in the log, and opens another on it.
func (w *world) atEnd(dir string) (*node, *askedLog) {
	w.t.Helper()
	first := w.start(dir)
	first.mustOne(pk(w.t, "x"), create(`{"id":"1","a":"x"}`))
	first.cancel()
	_ = first.ended()
	if err := first.db.Close(); err != nil {
		w.t.Fatal(err)
	}
	next := w.open(dir)
	asked := &askedLog{Log: next.log.Log, asked: map[string]int{}}
	next.log.Log = asked
	return next, asked
}

// TestOpen_ACopyAtTheEndOfItsLogAsksTwice opens a partition whose engine has all of its log. Writers wait meanwhile, so nothing
// is asked that is known.
func TestOpen_ACopyAtTheEndOfItsLogAsksTwice(t *testing.T) {
	w := newWorld(t, byA)
	n, asked := w.atEnd(t.TempDir())
	t.Cleanup(func() { _ = n.db.Close() })
	if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	// How it stands, and whether the last commit is the engine's.
	if diff := cmp.Diff(map[string]int{"shape": 1, "read": 1}, asked.asked); diff != "" {
		t.Error(diff)
	}
}

// TestI1_WhatIsAppendedWhileACopyIsOpenedIsApplied has the owner before append its takeover commit when the next one has
// seen the end of the log.
func TestI1_WhatIsAppendedWhileACopyIsOpenedIsApplied(t *testing.T) {
	w := newWorld(t, byA)
	dir, copied := t.TempDir(), t.TempDir()
	late, _ := w.atEnd(dir)
	t.Cleanup(func() { _ = late.db.Close() })
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	id := w.info.Partitions[0].Log
	arrived, release := late.log.hold()
	opened := make(chan error, 1)
	go func() { opened <- late.open(context.WithoutCancel(t.Context()), id) }()
	<-arrived

	n := w.open(copied)
	t.Cleanup(func() { _ = n.db.Close() })
	n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		release()
		if err := <-opened; err != nil {
			t.Errorf("the owner before: %v", err)
		}
		return appendIt()
	})
	if err := n.open(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if before, now := late.state.Load().lsn, n.state.Load().lsn; now != before+1 {
		t.Errorf("the owner before has LSN %d, this one %d", before, now)
	}
	n.serve()
	if got := n.read(pk(t, "x"), "1"); got == "" {
		t.Error("the item is gone")
	}
}
