package inspect

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/pipelines/status"
)

const (
	// lookoutEvery is the time between two questions of a Lookout.
	lookoutEvery = 5 * time.Second
	// LookoutPatience is how long Newest waits for answers, which are there at once where all is well.
	LookoutPatience = 200 * time.Millisecond
)

// Around is what is told beside the pipelines, of owners and streams. A large store has many of them, so an answer
// that is some seconds old will do for the next looks too.
type Around struct {
	Storage  *status.Storage
	Problems []string // why Storage is not known
	Warnings []string // of streams that lack replicas
}

// AddTo adds what is told to a Status.
func (a *Around) AddTo(s *status.Status) {
	s.Storage = a.Storage
	s.Problems, s.Warnings = append(s.Problems, a.Problems...), append(s.Warnings, a.Warnings...)
	if a.Storage == nil {
		return
	}
	for _, advice := range Advise(a.Storage.Asked) {
		s.Advice = append(s.Advice, advice.Text)
	}
}

// Surroundings is what a Lookout asks. *Inspector is one.
type Surroundings interface {
	Storage(ctx context.Context) (*status.Storage, error)
	Replicas(ctx context.Context) []string
}

// Lookout asks the owners and about the streams beside the looks at pipelines, because one that is silent takes seconds,
// and where the pipelines stand is known without it. It is of the one goroutine that looks.
//
//	owner silent   |-- asked, 2 s --|        |-- asked, 2 s --|
//	looks          l l l l l l l l l L L L L L L L L L L L L L L   L: with the answers of the others
type Lookout struct {
	of      Surroundings
	timeout time.Duration

	asking sync.WaitGroup
	coming chan Around // has the answers when they are there; nil: nobody is asked
	asked  time.Time
	seen   *Around // the newest answers; nil before the first
}

// NewLookout returns a Lookout whose questions may take so long.
func NewLookout(of Surroundings, timeout time.Duration) *Lookout {
	return &Lookout{of: of, timeout: timeout}
}

// Begin asks all, unless that is under way, or was begun less than lookoutEvery before.
func (l *Lookout) Begin(ctx context.Context, now time.Time) {
	if l.coming != nil || now.Sub(l.asked) < lookoutEvery {
		return
	}
	coming := make(chan Around, 1) // so that nobody has to take it
	l.asked, l.coming = now, coming
	l.asking.Go(func() { coming <- l.ask(ctx) })
}

// ask asks the owners how logs and engines are, and for the replicas of all streams.
func (l *Lookout) ask(ctx context.Context) Around {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var seen Around
	var streams sync.WaitGroup
	streams.Go(func() { seen.Warnings = l.of.Replicas(ctx) })
	var err error
	if seen.Storage, err = l.of.Storage(ctx); err != nil {
		seen.Problems = []string{"storage: " + err.Error()}
	}
	streams.Wait()
	return seen
}

// Newest returns the newest answers, for which it waits a moment. For the first ones it waits until they are there: a
// look without any would tell of a store without partitions. It is nil if ctx ended before those came.
func (l *Lookout) Newest(ctx context.Context) *Around {
	if l.coming == nil {
		return l.seen
	}
	patience := time.NewTimer(LookoutPatience)
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

// Wait waits for the end of what is under way.
func (l *Lookout) Wait() { l.asking.Wait() }

// Read reads where pipelines stand, with what a Lookout sees beside them.
func Read(ctx context.Context, i *Inspector, beside *Lookout) (*status.Status, error) {
	beside.Begin(ctx, time.Now())
	st, err := i.Pipelines(ctx)
	if err != nil {
		return nil, err
	}
	seen := beside.Newest(ctx)
	if seen == nil {
		return nil, context.Cause(ctx)
	}
	seen.AddTo(st)
	return st, nil
}
