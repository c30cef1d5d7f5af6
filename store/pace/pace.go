// Package pace lets background work take a small share of one goroutine's time: it
// works, and rests for as long as the share asks. Verification of copies and the
// scrub of logs and engines work so.
//
// This package is no API for other programs.
package pace

import (
	"context"
	"runtime"
	"sync"
	"time"
)

const (
	// WorkMin is the least work after which there is a rest.
	WorkMin = 2 * time.Millisecond
	// restMax bounds one rest: what was taken for work was mostly waiting then.
	restMax = 10 * time.Second
)

// Pacer lets somebody work in a share of his time. A nil *Pacer lets him work all
// the time. It may be used by several goroutines; they share the share.
type Pacer struct {
	share  float64
	turned func()

	mu    sync.Mutex
	since time.Time // when the work at hand began
}

// New returns a pacer for work that begins now. share is above 0 and at most 1;
// turned is called at least once a second while he rests.
func New(share float64, turned func()) *Pacer {
	return &Pacer{share: share, turned: turned, since: time.Now()}
}

// Pace rests for as long as the work since the last rest asks for. Where it does not rest yet, those who wait for a
// processor come first: Go lets a goroutine that is at work have one for 10 ms, for which a commit waited ten times as long
// as it takes. So Pace is to be called every few tenths of a millisecond.
func (p *Pacer) Pace(ctx context.Context) error {
	if p == nil {
		return nil
	}
	rested, err := p.restIfDue(ctx)
	if !rested {
		began := time.Now()
		runtime.Gosched()
		p.Excuse(time.Since(began)) // to wait for a processor is no work
	}
	return err
}

// restIfDue rests if there was enough work since the last rest.
func (p *Pacer) restIfDue(ctx context.Context) (rested bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned()
	worked := time.Since(p.since)
	if worked < WorkMin {
		return false, nil
	}
	err = p.Rest(ctx, min(time.Duration(float64(worked)*(1/p.share-1)), restMax))
	p.since = time.Now()
	return true, err
}

// Rest waits.
func (p *Pacer) Rest(ctx context.Context, d time.Duration) error {
	for d > 0 {
		some := min(d, time.Second)
		if err := Pause(ctx, some); err != nil {
			return err
		}
		p.turned()
		d -= some
	}
	return nil
}

// Excuse says that some of what was done since the last rest does not count.
func (p *Pacer) Excuse(d time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned()
	if p.since = p.since.Add(d); p.since.After(time.Now()) { // several waited at a time
		p.since = time.Now()
	}
}

// Resume says that what was done since the last rest was waiting.
func (p *Pacer) Resume() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned()
	p.since = time.Now()
}

// Pause waits for d. If ctx ends before, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
