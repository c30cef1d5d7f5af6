package processors

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/millrace/millrace/feed"
)

// readAhead keeps commits that are read and not yet processed, bounded by memory and count,
// so that reading and processing overlap. run puts, the loop of a term takes, measureLoop looks.
//
// A channel of commits would do but for the bytes: 1,000 commits of 100 bytes may wait, and
// 1,000 of 1 MiB may not.
type readAhead struct {
	bytesMax, commitsMax int

	ready chan struct{} // holds a token while commits wait
	space chan struct{} // holds a token while there may be room

	mu      sync.Mutex
	commits []*feed.Commit
	sizes   []int
	bytes   int
	end     *feed.SplitError // behind the commits, if the log ends there; nil while it goes on
}

func newReadAhead(bytesMax, commitsMax int) *readAhead {
	return &readAhead{
		bytesMax: bytesMax, commitsMax: commitsMax,
		ready: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
}

// commitReader is what a feed.Reader does.
type commitReader interface {
	Next(ctx context.Context) (*feed.Commit, error)
}

// run reads until ctx ends, or up to the end of a log whose partition was split.
func (a *readAhead) run(ctx context.Context, r commitReader) error {
	for {
		c, err := r.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it was asked to end
			}
			if end, split := errors.AsType[*feed.SplitError](err); split {
				a.mu.Lock()
				a.end = end
				a.mu.Unlock()
				signal(a.ready)
				return nil
			}
			return err
		}
		if !a.putCommit(ctx, c) {
			return nil
		}
	}
}

// putCommit waits for room and adds c; false if ctx ended first. One commit always
// fits, however large.
func (a *readAhead) putCommit(ctx context.Context, c *feed.Commit) bool {
	size := c.Memory()
	for {
		a.mu.Lock()
		// A commit larger than bytesMax waits until it is alone. Without the first condition
		// it would wait for ever.
		if len(a.commits) == 0 || a.bytes+size <= a.bytesMax && len(a.commits) < a.commitsMax {
			a.commits = append(a.commits, c)
			a.sizes = append(a.sizes, size)
			a.bytes += size
			a.mu.Unlock()
			signal(a.ready)
			return true
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return false
		case <-a.space:
		}
	}
}

// takeCommits returns commits up to the bounds, at least one if there is one, and leaves
// a token in ready if more wait.
func (a *readAhead) takeCommits(changesMax, bytesMax int) []*feed.Commit {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, changes, bytes := 0, 0, 0
	for n < len(a.commits) {
		changes += a.commits[n].ChangeCount()
		bytes += a.sizes[n]
		// Whole commits, so that a transaction is never seen in parts: the first one is taken
		// whatever its size.
		if n > 0 && (changes > changesMax || bytes > bytesMax) {
			break
		}
		a.bytes -= a.sizes[n]
		n++
	}
	// Copied and cleared: the array lives on under what still waits, and would keep what was taken.
	taken := slices.Clone(a.commits[:n])
	clear(a.commits[:n])
	a.commits, a.sizes = a.commits[n:], a.sizes[n:]
	if len(a.commits) > 0 {
		signal(a.ready)
	}
	signal(a.space)
	return taken
}

// atEnd returns where the log has ended, if all before it was taken; else nil.
func (a *readAhead) atEnd() *feed.SplitError {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.commits) > 0 {
		return nil
	}
	return a.end
}

// oldestTime returns the time of the oldest commit that waits, 0 if none does.
func (a *readAhead) oldestTime() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.commits) == 0 {
		return 0
	}
	return a.commits[0].Time
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
