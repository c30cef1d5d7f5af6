package console

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/pipelines/status"
)

const (
	// lookoutEvery is the time between two questions to all owners and about all streams, lookoutTimeout how long
	// they may take.
	lookoutEvery   = 5 * time.Second
	lookoutTimeout = 10 * time.Second
	// lookoutPatience is how long a sample waits for their answers, which are there at once where all is well.
	lookoutPatience = 200 * time.Millisecond
)

// around is what samples tell of owners and streams. A large store has many of them, so an answer that is some
// seconds old will do for the next samples too.
type around struct {
	storage  *status.Storage
	problems []string // why storage is not known
	warnings []string // of streams that lack replicas
}

// inspector is what a sampler asks. *inspect.Inspector is one.
type inspector interface {
	Pipelines(ctx context.Context) (*status.Status, error)
	Storage(ctx context.Context) (*status.Storage, error)
	Replicas(ctx context.Context) []string
	Close()
}

// lookout asks the owners and about the streams beside the samples, because one that is silent takes seconds, and
// where the pipelines stand is known without it. It is the sampler's, of its one goroutine.
//
//	owner silent   |-- asked, 2 s --|        |-- asked, 2 s --|
//	samples        s s s s s s s s s S S S S S S S S S S S S S S   S: with the answers of the others
type lookout struct {
	inspector inspector
	asking    sync.WaitGroup
	coming    chan around // has the answers when they are there; nil: nobody is asked
	asked     time.Time
	seen      *around // the newest answers; nil before the first
}

// begin asks all, unless that is under way, or was begun less than lookoutEvery before.
func (l *lookout) begin(ctx context.Context, now time.Time) {
	if l.coming != nil || now.Sub(l.asked) < lookoutEvery {
		return
	}
	coming := make(chan around, 1) // so that nobody has to take it
	l.asked, l.coming = now, coming
	l.asking.Go(func() { coming <- l.ask(ctx) })
}

// ask asks the owners how logs and engines are, and for the replicas of all streams.
func (l *lookout) ask(ctx context.Context) around {
	ctx, cancel := context.WithTimeout(ctx, lookoutTimeout)
	defer cancel()
	var seen around
	var streams sync.WaitGroup
	streams.Go(func() { seen.warnings = l.inspector.Replicas(ctx) })
	var err error
	if seen.storage, err = l.inspector.Storage(ctx); err != nil {
		seen.problems = []string{"storage: " + err.Error()}
	}
	streams.Wait()
	return seen
}

// newest returns the newest answers, for which it waits a moment. For the first ones it waits until they are there: a
// sample without any would tell of a store without partitions.
func (l *lookout) newest(ctx context.Context) *around {
	if l.coming == nil {
		return l.seen
	}
	patience := time.NewTimer(lookoutPatience)
	defer patience.Stop()
	soon := patience.C
	if l.seen == nil {
		soon = nil
	}
	select {
	case seen := <-l.coming:
		l.seen, l.coming = &seen, nil
	case <-soon:
	case <-ctx.Done():
	}
	return l.seen
}

// wait waits for the end of what is under way.
func (l *lookout) wait() { l.asking.Wait() }
