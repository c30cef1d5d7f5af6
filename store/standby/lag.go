package standby

import (
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
)

const (
	// behindMax is for how long a warm copy may lack something of its log. One commit may take minutes to apply, such
	// as one that declares an index; whoever waits for a warm copy then waits for that.
	behindMax = 10 * time.Second
	// askInterval is the time between two questions for the end of a log that never rests.
	askInterval = 3 * time.Second
	// restMin is after how long without a commit a log rests: its reader has got all that there is. One whose
	// connection is lost has not, until it is made anew.
	restMin = time.Second
)

// lag tells for how long a copy has lacked something of its log. Its follower notes what it does, and asks for the
// log's end where commits come without a rest, because then it may be far from it:
//
//	10:00:00  the log ends at 40, and the copy is at 30
//	10:00:02  the copy is at 40: it has all as of 10:00:00
//	10:00:02  the log ends at 44; the commit at 41 is applied until 10:05:00
//	10:00:10  it lacks something since 10:00:00, for all that is known
//
// It may be used concurrently.
type lag struct {
	mu    sync.Mutex
	whole time.Time // the copy has all that the log had then
	waits time.Time // since when the follower waits for a commit; zero while it applies one
	asked time.Time // when the log was asked for its end
	end   feed.LSN  // which it was; 0 if the copy has come that far, or it is not known
}

// begin notes that a log had an end when it was asked, and that nothing else is known.
func (l *lag) begin(end feed.LSN, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole, l.waits, l.asked, l.end = time.Time{}, time.Time{}, asked, end
}

// ask notes that the log is asked for its end.
func (l *lag) ask(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = now
}

// ends notes what the log has answered.
func (l *lag) ends(end feed.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = end
}

// due says whether the log is to be asked for its end.
func (l *lag) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end == 0 && now.Sub(l.whole) >= askInterval && now.Sub(l.asked) >= askInterval
}

// wait notes that the copy is at an LSN, and that the follower waits for the commit behind it.
func (l *lag) wait(at feed.LSN, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != 0 && at >= l.end {
		l.whole, l.end = l.asked, 0
	}
	l.waits = now
}

// came notes that the commit is there.
func (l *lag) came(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.restsLocked(now) {
		l.whole = now
	}
	l.waits = time.Time{}
}

// behind returns for how long the copy has lacked something, at most.
func (l *lag) behind(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.restsLocked(now) {
		return 0
	}
	return now.Sub(l.whole)
}

// restsLocked says whether the log rests. One that is known to have more does not: it is slow, or silent.
func (l *lag) restsLocked(now time.Time) bool {
	return l.end == 0 && !l.waits.IsZero() && now.Sub(l.waits) >= restMin
}
