package owner

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
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

// TestOwnersWithSkewedClocksAgreeOnTheOrder lets two owners write one after the other whose
// clocks are 16 seconds apart, the later one behind: their commits tell the order as it was.
func TestOwnersWithSkewedClocksAgreeOnTheOrder(t *testing.T) {
	const skew = 8 * time.Second
	var times []int64
	for _, offset := range []time.Duration{skew, -skew} {
		w := newWorld(t, byA) // of its own log: time never goes back in one
		w.clock.Store(time.Now().Add(offset).UnixMilli())
		n := w.open(t.TempDir())
		n.cfg.ClockAheadMax = time.Minute // the own clock stands, and to open may take seconds
		if err := n.open(t.Context(), w.info.Partitions[0].Log); err != nil {
			t.Fatal(err)
		}
		n.serve()
		n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
		commits := w.commits()
		times = append(times, commits[len(commits)-1].Time)
	}
	if times[1] <= times[0] {
		t.Errorf("the first write is of %s, the one after it of %s", time.UnixMilli(times[0]).UTC(), time.UnixMilli(times[1]).UTC())
	}
}

// TestAServersClockThatIsFarAheadDoesNotMoveTheLog has an owner and a server whose clocks
// are further apart than they may be: the earlier one counts.
func TestAServersClockThatIsFarAheadDoesNotMoveTheLog(t *testing.T) {
	own := time.Now()
	p := &Partition{cfg: Config{ClockAheadMax: 10 * time.Second, now: own.UnixMilli}}
	for _, c := range []struct{ ahead, want time.Duration }{
		{0, 0}, {5 * time.Second, 5 * time.Second}, {-5 * time.Second, -5 * time.Second}, {time.Hour, 0}, {-time.Hour, -time.Hour},
	} {
		p.noteClock(time.Now(), &feed.Shape{Time: own.Add(c.ahead)})
		got := time.UnixMilli(p.now()).Sub(own)
		if diff := got - c.want; diff < -time.Second || diff > time.Minute {
			t.Errorf("a server %s ahead: the time is %s ahead, want %s", c.ahead, got, c.want)
		}
	}
}

// TestOwnersOfOneMachineHaveOneClock gives a partition answers of the log's server that took long,
// with the server's look at its clock at either end of the way: the time of commits stays this
// machine's, so that two owners of it never tell the order wrong.
func TestOwnersOfOneMachineHaveOneClock(t *testing.T) {
	w := newWorld(t, byA)
	own := time.Now().UnixMilli()
	w.clock.Store(own)
	n := w.open(t.TempDir())
	n.cfg.ClockAheadMax = time.Minute
	const took = 200 * time.Millisecond
	// look returns what time it is when the server's clock was so far from the own one. The own one
	// stands, so it is right only where nothing has held the test up meanwhile.
	look := func(off time.Duration) int64 {
		for {
			began := time.Now()
			n.noteClock(began.Add(-took), &feed.Shape{Time: time.UnixMilli(own).Add(off)})
			if now := n.now(); time.Since(began) < 2*time.Millisecond {
				return now
			}
		}
	}
	for _, looked := range []time.Duration{0, took / 2, took} { // after it was asked
		if now := look(looked - took); now != own {
			t.Errorf("the server looked after %s of %s: it is %d ms after the own clock", looked, took, now-own)
		}
	}
	if now := look(-time.Second); now > own-800 {
		t.Errorf("the server is a second behind, and it is %d ms after the own clock", now-own)
	}
}
