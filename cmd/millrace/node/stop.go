package node

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"
)

// StopError says that a node could not stop whole within Config.DrainTimeout. Nothing
// that was acknowledged is lost: what did not end is cut off with the process, as
// kill -9 would, and the next start finds it as after that.
type StopError struct {
	Timeout time.Duration
	// Left is what had not ended, a layer each, with what it was at.
	Left []string
}

func (e *StopError) Error() string {
	return fmt.Sprintf("stopping took longer than %s (drainTimeout) and was cut off; left were: %s; nothing that was acknowledged is lost",
		e.Timeout, strings.Join(e.Left, "; "))
}

// The shares of the drain timeout that are over when a layer must have ended. Those
// below it need what is left: a worker that hangs must not take from a store the time
// to hand its partitions over.
const (
	shareWork   = 0.5  // workers, gateway
	shareStore  = 0.8  // partitions
	shareHTTP   = 0.85 // readiness, metrics
	shareEngine = 0.95
	shareClose  = 1
)

// stopping gives the steps of a stop their time. What exceeds it is left behind with
// its goroutine, since neither a disk that does not answer nor a file system that is
// gone can be asked to hurry.
type stopping struct {
	timeout time.Duration
	began   time.Time
	log     *slog.Logger

	mu   sync.Mutex
	left []string
}

func newStopping(timeout time.Duration, log *slog.Logger) *stopping {
	return &stopping{timeout: timeout, began: time.Now(), log: log}
}

// step runs f and waits for it until a share of the timeout is over. If it takes
// longer, at says what it was at, and step returns false. at may be nil.
func (s *stopping) step(layer string, share float64, f func(), at func() string) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	until := time.Until(s.began.Add(time.Duration(share * float64(s.timeout))))
	timer := time.NewTimer(until)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select {
	case <-done: // at the same time
		return true
	default:
	}
	what := layer
	if at != nil {
		if doing := at(); doing != "" {
			what += " (" + doing + ")"
		}
	}
	s.log.Error("a part of the node does not end; stopping goes on without it", slog.String("part", what),
		slog.Duration("after", time.Since(s.began)), slog.Int("goroutines", runtime.NumGoroutine()))
	s.mu.Lock()
	s.left = append(s.left, what)
	s.mu.Unlock()
	return false
}

// clean tells whether everything has ended so far.
func (s *stopping) clean() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left) == 0
}

// err is a *StopError if something was left.
func (s *stopping) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 {
		return nil
	}
	return &StopError{Timeout: s.timeout, Left: s.left}
}

// stop returns the stop of the node, which begins with the first call.
func (n *Node) stop() *stopping {
	n.stopMu.Lock()
	defer n.stopMu.Unlock()
	if n.stopped == nil {
		n.stopped = newStopping(n.cfg.DrainTimeout, n.log)
	}
	return n.stopped
}

// serving names the partitions that this node still owns.
func (n *Node) serving() string {
	if n.owners == nil {
		return ""
	}
	ids := n.owners.Serving()
	const shown = 8
	var names []string
	for _, id := range ids[:min(len(ids), shown)] {
		names = append(names, id.String())
	}
	if len(ids) > shown {
		names = append(names, fmt.Sprintf("%d more", len(ids)-shown))
	}
	if len(names) == 0 {
		return ""
	}
	return "partitions " + strings.Join(names, ", ")
}
