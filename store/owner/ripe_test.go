package owner

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// With a fast log, an idle committer gets what is decided while others wait to be decided; with a slow
// one all that wait leave in one commit, for each costs a sync.
func TestDraft_WhatIsRipeLeavesWhileOthersWait(t *testing.T) {
	const writes = 64
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	// commits returns how many commits hold the writes that wait together while an append takes so long.
	next := 0
	commits := func(appendTook time.Duration) int {
		t.Helper()
		hangs, release := make(chan struct{}), make(chan struct{})
		go n.onDecider(context.Background(), func(*decider) { close(hangs); <-release })
		<-hangs
		var answered sync.WaitGroup
		for range writes {
			next++
			body := fmt.Sprintf(`{"id":"%d","a":"x"}`, next)
			answered.Go(func() {
				if _, err := n.one(pk(t, "x"), create(body)); err != nil {
					t.Error(err)
				}
			})
		}
		for len(n.queue) < writes { // they are queued in a moment
			runtime.Gosched()
		}
		before := n.state.Load().lsn
		n.appendTook.Store(int64(appendTook))
		close(release)
		answered.Wait()
		return int(n.state.Load().lsn - before)
	}
	if got := commits(time.Hour); got != 1 {
		t.Errorf("%d writes that wait left in %d commits; an append that takes an hour is worth waiting for all", writes, got)
	}
	// On a busy machine the committer may be slow to wait for a draft, so one round proves nothing.
	for range 100 {
		if commits(0) > 1 {
			return
		}
	}
	t.Error("nothing left before all that waited were decided, though an append takes no time")
}
