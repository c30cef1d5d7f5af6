package console

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/status"
)

const (
	// sampleBusy is the time between two samples while somebody looks, sampleIdle while nobody
	// does.
	sampleBusy = 300 * time.Millisecond
	sampleIdle = 10 * time.Second
	// costsKept is the number of readings the quickest of which tells what one costs.
	costsKept = 10
	// sampleTimeout bounds one reading: what does not answer is named in it.
	sampleTimeout = 10 * time.Second
	// lookoutTimeout bounds the questions to all owners and about all streams.
	lookoutTimeout = 10 * time.Second
	// A page shows a sample that is younger than freshFor, or waits freshPatience for a new one.
	freshFor      = 2 * time.Second
	freshPatience = time.Second
)

// sample is where everything stood at one time. It is not changed once it is there.
type sample struct {
	*status.Status
	// Failed says why the last reading failed; what stands here is then older. "" if it did not.
	Failed string

	began, at time.Time // when its reading began, and when it was there
}

// pipeline returns the status of a pipeline; nil if there is none.
func (s *sample) pipeline(id string) *status.Pipeline {
	i := slices.IndexFunc(s.Pipelines, func(p status.Pipeline) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Pipelines[i]
}

// inspector is what a sampler asks. *inspect.Inspector is one.
type inspector interface {
	inspect.Surroundings
	Pipelines(ctx context.Context) (*status.Status, error)
	Close()
}

// sampler reads where everything stands for all who look.
type sampler struct {
	// Of run's goroutine.
	inspector inspector
	lookout   *inspect.Lookout

	mu      sync.Mutex
	last    *sample
	came    chan struct{} // closed when the next sample is there
	history history
	changed time.Time // what was sampled before is old: somebody changed something here
	viewers int
	wake    chan struct{} // somebody wants a sample now
}

// newSampler returns a sampler, which closes the inspector when it ends.
func newSampler(inspector inspector) *sampler {
	return &sampler{
		inspector: inspector, lookout: inspect.NewLookout(inspector, lookoutTimeout), came: make(chan struct{}), history: newHistory(), wake: make(chan struct{}, 1),
	}
}

// run takes samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	defer s.inspector.Close()
	defer s.lookout.Wait()
	for last := (costs{}); ; {
		// Taken before the reading: a change that comes meanwhile may be in the sample or not, so
		// newest takes it for old.
		began := time.Now()
		s.lookout.Begin(ctx, began)
		next, err := s.read(ctx)
		took := time.Since(began) // to wait for others takes nothing from them
		var seen *inspect.Around
		if err == nil {
			took -= next.Waited // nor does to wait for logs that do not answer, as the sample does that finds them silent
			seen = s.lookout.Newest(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		s.put(next, seen, began, err)
		if !s.rest(ctx, last.add(took)) {
			return
		}
	}
}

// costs is how long the last readings took, the newest last.
type costs []time.Duration

// add takes in how long a reading took, and returns how long to rest after it at least. A sampler that shares two
// processors with a store takes no more than a twentieth of one; but it is never slower than while nobody looks.
//
// The quickest of the last readings tells what one costs: the others have waited besides, for the processors or for a
// disk. Beside writes several in a row do so; and if a wait of 160 ms counted twenty times, nothing would be on the
// screens for three seconds. A cost that has grown is known when costsKept readings have had it. Until then the readings
// take half of the time at most.
//
//	readings took   30  20  25 160 200 450  30      ms
//	rest after     600 400 400 400 400 450 400
func (c *costs) add(took time.Duration) (rest time.Duration) {
	*c = append((*c)[max(0, len(*c)-costsKept+1):], took)
	return min(max(sampleBusy, 20*slices.Min(*c), took), sampleIdle)
}

// rest waits until the next sample is due, for so long at least; false if ctx ends.
func (s *sampler) rest(ctx context.Context, least time.Duration) bool {
	// Without wake: nobody cuts this time short, whoever asks for a sample meanwhile.
	if !wait(ctx, least, nil) {
		return false
	}
	s.mu.Lock()
	viewers := s.viewers
	s.mu.Unlock()
	return viewers > 0 || wait(ctx, sampleIdle-least, s.wake)
}

// wait waits for a time, or until it is woken; false if ctx ends.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return true
}

func (s *sampler) read(ctx context.Context) (*sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	st, err := s.inspector.Pipelines(ctx)
	if err != nil {
		return nil, err
	}
	return &sample{Status: st}, nil
}

// put makes a sample the newest, of a reading that began at a time. Of a reading that failed the one
// before stays, with the reason.
func (s *sampler) put(next *sample, seen *inspect.Around, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.history.miss(began)
		next = &sample{Status: &status.Status{Time: began}}
		if s.last != nil {
			// A copy, since others hold the one before. It gets the times of this try, so that a page does
			// not wait for a reading which would fail again.
			older := *s.last
			next = &older
		}
		next.Failed = err.Error()
	} else {
		seen.AddTo(next.Status)
		s.history.add(next)
	}
	next.began, next.at = began, time.Now()
	s.last = next
	close(s.came)
	// Closing wakes all that wait at once; who comes now waits at the next one.
	s.came = make(chan struct{})
}

// newest returns the newest sample, waiting for the first. While nobody looks samples are seldom,
// so who comes after a while waits for a fresh one, if it comes soon.
func (s *sampler) newest(ctx context.Context) (*sample, error) {
	patience := time.NewTimer(freshPatience)
	defer patience.Stop()
	for {
		s.mu.Lock()
		// Both under one lock: a sample that came between the two would be waited for in vain.
		last, came := s.last, s.came
		fresh := last != nil && time.Since(last.at) < freshFor && last.began.After(s.changed)
		s.mu.Unlock()
		if fresh {
			return last, nil
		}
		s.look()
		soon := patience.C
		if last == nil {
			soon = nil // there is nothing else to show
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-came:
		case <-soon:
			return last, nil
		}
	}
}

// change makes the samples so far old, because somebody has changed something through the console,
// and is to see it.
func (s *sampler) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = time.Now()
}

// look makes run take a sample now.
func (s *sampler) look() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to
	}
}

// plots returns the points of a pipeline's last hour.
func (s *sampler) plots(id string) []point {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history.points[id])
}

// viewersMax bounds those who listen for samples at a time: each has a connection, and fetches its page
// again at every sample.
const viewersMax = 100

// join counts one more who looks. While somebody does, samples come often. Who joined leaves.
func (s *sampler) join() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers >= viewersMax {
		return fmt.Errorf("%d browsers follow the console, which is the most at a time; pages are whole without following", viewersMax)
	}
	s.viewers++
	return nil
}

func (s *sampler) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
}

// watch calls f, of somebody who has joined, for each sample that comes, until it fails or ctx ends.
func (s *sampler) watch(ctx context.Context, f func() error) {
	s.mu.Lock()
	came := s.came
	s.mu.Unlock()
	// came was taken first: the sample that look asks for is then not missed, however soon it is
	// there.
	s.look()
	for {
		select {
		case <-ctx.Done():
			return
		case <-came:
		}
		s.mu.Lock()
		// Before f, which may take long: it is told of a sample that comes meanwhile too.
		came = s.came
		s.mu.Unlock()
		if f() != nil {
			return
		}
	}
}
