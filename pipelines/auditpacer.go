package pipelines

import (
	"context"
	"sync"
	"time"
)

const (
	// paceMin is the least work after which there is a rest.
	paceMin = 2 * time.Millisecond
	// restMax bounds one rest: what was taken for work was mostly waiting then.
	restMax = 10 * time.Second
)

// pacer lets somebody work in a share of his time. The zero *pacer lets him work
// all the time.
type pacer struct {
	share  float64
	turned func() // called at least once a second while he rests

	mu    sync.Mutex
	since time.Time // when the work at hand began
}

// pace rests for as long as the work since the last rest asks for.
func (p *pacer) pace(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned()
	worked := time.Since(p.since)
	if worked < paceMin {
		return nil
	}
	err := p.rest(ctx, min(time.Duration(float64(worked)*(1/p.share-1)), restMax))
	p.since = time.Now()
	return err
}

// rest waits.
func (p *pacer) rest(ctx context.Context, d time.Duration) error {
	for d > 0 {
		some := min(d, time.Second)
		if err := pause(ctx, some); err != nil {
			return err
		}
		p.turned()
		d -= some
	}
	return nil
}

// excuse says that some of what was done since the last rest does not count.
func (p *pacer) excuse(d time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned()
	p.since = p.since.Add(d)
}

// resume says that what was done since the last rest was waiting.
func (p *pacer) resume() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned()
	p.since = time.Now()
}
