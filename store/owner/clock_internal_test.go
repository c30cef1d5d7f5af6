package owner

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
)

// TestAnOwnersClockThatRunsAheadDoesNotMoveTheLog opens a partition, whose items expire,
// on a machine whose clock is an hour ahead, and sets it right again.
func TestAnOwnersClockThatRunsAheadDoesNotMoveTheLog(t *testing.T) {
	w := newWorld(t, byA)
	w.clock.Store(time.Now().UnixMilli())
	dir := t.TempDir()
	n := w.start(dir)
	k := pk(t, "x")
	n.mustOne(k, create(`{"id":"1","a":"x"}`))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	w.clock.Add(time.Hour.Milliseconds())
	n = w.open(dir)
	n.cfg.ClockAheadMax = time.Minute
	if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	n.serve()
	if n.read(k, "1") == "" {
		t.Error("reads do not go on")
	}
	_, err := n.one(k, create(`{"id":"2","a":"x"}`))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("a write was answered %v", err)
	}
	t.Log(err)
	commits := w.commits()
	if last := commits[len(commits)-1]; time.UnixMilli(last.Time).After(time.Now().Add(time.Minute)) {
		t.Errorf("the log's time is %s", time.UnixMilli(last.Time))
	}
	w.clock.Add(-time.Hour.Milliseconds())
	n.checkClock()
	n.mustOne(k, create(`{"id":"2","a":"x"}`))
	// A clock that steps ahead between two looks moves nothing either.
	w.clock.Add(time.Hour.Milliseconds())
	n.mustOne(k, create(`{"id":"3","a":"x"}`))
	commits = w.commits()
	if last := commits[len(commits)-1]; time.UnixMilli(last.Time).After(time.Now().Add(time.Minute)) {
		t.Errorf("after a step the log's time is %s", time.UnixMilli(last.Time))
	}
}
