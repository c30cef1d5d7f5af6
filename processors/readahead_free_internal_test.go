package processors

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
)

// What was taken is free, though the array that held it is still in use.
func TestReadAhead_LetsGoOfWhatWasTaken(t *testing.T) {
	var freed atomic.Int32
	a := newReadAhead(8<<20, 256)
	for i := range 200 { // a backlog of small commits
		a.putCommit(t.Context(), &feed.Commit{LSN: feed.LSN(i)})
	}
	for range 200 {
		a.takeCommits(1, 8<<20)
	}
	const n = 50
	for i := range n {
		c := &feed.Commit{LSN: feed.LSN(1000 + i), Owner: string(make([]byte, 1<<20))}
		runtime.SetFinalizer(c, func(*feed.Commit) { freed.Add(1) })
		a.putCommit(t.Context(), c)
		a.takeCommits(1000, 8<<20)
	}
	// Finalizers run some time after the collection that found them.
	for deadline := time.Now().Add(time.Minute); freed.Load() < n-8; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("the read-ahead holds %d commits that were taken", n-freed.Load())
		}
	}
	runtime.KeepAlive(a)
}
