package console

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/status"
)

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(inspect.New(&inspect.Config{}))
		put := func(err error) {
			s.put(&sample{Status: &status.Status{Time: time.Now()}}, &inspect.Around{}, time.Now(), err)
		}
		get := func() (*sample, time.Duration) {
			began := time.Now()
			got, err := s.newest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return got, time.Since(began)
		}
		time.AfterFunc(3*time.Second, func() { put(nil) })
		if _, waited := get(); waited != 3*time.Second {
			t.Errorf("the first sample came after %s", waited)
		}
		if _, waited := get(); waited != 0 {
			t.Errorf("a fresh sample came after %s", waited)
		}
		<-time.After(time.Second)
		s.change()
		time.AfterFunc(freshPatience/2, func() { put(nil) })
		if got, waited := get(); waited != freshPatience/2 || !got.began.After(s.changed) {
			t.Errorf("after a change: a sample of %s came after %s", got.began, waited)
		}
		<-time.After(freshFor)
		if _, waited := get(); waited != freshPatience {
			t.Errorf("an old sample was shown after %s", waited)
		}
		put(errors.New("away"))
		if got, _ := get(); got.Failed != "away" {
			t.Errorf("a failed reading says %q", got.Failed)
		}
		put(nil)
		if got, _ := get(); got.Failed != "" {
			t.Errorf("a reading after it says %q", got.Failed)
		}
		for _, c := range []struct {
			viewers     int
			least, rest time.Duration
		}{
			{0, sampleBusy, sampleIdle}, {1, sampleBusy, sampleBusy}, {1, 2 * time.Second, 2 * time.Second}, {1, sampleIdle, sampleIdle}, {0, sampleIdle, sampleIdle},
		} {
			select {
			case <-s.wake: // get asked for one
			default:
			}
			s.viewers = c.viewers
			began := time.Now()
			s.rest(t.Context(), c.least)
			if rest := time.Since(began); rest != c.rest {
				t.Errorf("for %s at least, with %d who look, it rests %s, want %s", c.least, c.viewers, rest, c.rest)
			}
		}
	})
}

// slowInspector reads pipelines, and asks owners and streams, for as long as it says. It waits for logs before it reads
// pipelines.
type slowInspector struct {
	owners, streams time.Duration
	logs, pipelines time.Duration
	// takes returns for how long pipelines are read the nth time, from 1 on; nil: it is the same each time.
	takes func(n int64) time.Duration
	read  atomic.Int64 // how often it has read pipelines
}

func (i *slowInspector) Pipelines(ctx context.Context) (*status.Status, error) {
	s := &status.Status{Time: time.Now(), Waited: i.logs}
	n, takes := i.read.Add(1), i.pipelines
	if i.takes != nil {
		takes = i.takes(n)
	}
	return s, passed(ctx, i.logs+takes)
}

func (i *slowInspector) Storage(ctx context.Context) (*status.Storage, error) {
	return &status.Storage{Partitions: 3, Answered: 2}, passed(ctx, i.owners)
}

func (i *slowInspector) Replicas(ctx context.Context) []string {
	if err := passed(ctx, i.streams); err != nil {
		return []string{err.Error()}
	}
	return []string{"looked at"}
}

func (i *slowInspector) Close() {}

func passed(ctx context.Context, d time.Duration) error {
	if !wait(ctx, d, nil) {
		return ctx.Err()
	}
	return nil
}

// begun is a sampler that takes samples, for somebody who looks, until end is called.
func begun(t *testing.T, i *slowInspector) (s *sampler, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s = newSampler(i)
	if err := s.join(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.run(ctx)
	}()
	return s, func() {
		cancel()
		<-over
	}
}

// Owners and streams that are silent hold up no sample but the first, and what the others say is in the samples.
func TestSampler_SomeAreSilent(t *testing.T) {
	for name, i := range map[string]*slowInspector{
		"nobody":           {},
		"an owner":         {owners: 2 * time.Second},
		"owners and a log": {owners: 2 * time.Second, streams: lookoutTimeout},
		"all":              {owners: time.Hour, streams: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, end := begun(t, i)
				defer end()
				first, err := s.newest(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if first.Storage == nil || first.Storage.Answered != 2 || len(first.Warnings) != 1 || (i.owners > lookoutTimeout) != (len(first.Problems) == 1) {
					t.Errorf("the first sample lacks what the others say: %+v %+v", first.Status, first.Storage)
				}
				before := i.read.Load()
				<-time.After(time.Minute)
				// One in sampleBusy, and the patience with those that are silent.
				if n, want := i.read.Load()-before, int64(time.Minute/(sampleBusy+inspect.LookoutPatience)); n < want {
					t.Errorf("%d samples in a minute, want %d at least", n, want)
				}
			})
		})
	}
}

// To wait for a log that is silent takes nothing from others, so a sample comes when that is over. What was done besides
// counts.
func TestSampler_ALogIsSilent(t *testing.T) {
	for name, c := range map[string]struct {
		logs, pipelines time.Duration
		every           time.Duration // sample
	}{
		"and the others are read at once":    {logs: 2 * time.Second, every: 2*time.Second + sampleBusy},
		"and the others take their time":     {logs: 2 * time.Second, pipelines: 100 * time.Millisecond, every: 2*time.Second + 21*100*time.Millisecond},
		"no log is, and all take their time": {pipelines: 100 * time.Millisecond, every: 21 * 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &slowInspector{logs: c.logs, pipelines: c.pipelines}
				_, end := begun(t, i)
				defer end()
				const samples = 100
				<-time.After(samples*c.every - time.Millisecond)
				if n := i.read.Load(); n != samples {
					t.Errorf("it has begun %d samples, want %d", n, samples)
				}
			})
		})
	}
}

// While nothing can be read, and where a log did not answer, the plots have points that are not known.
func TestSampler_PlotsHaveGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(&slowInspector{})
		put := func(lag status.Lag, err error) {
			s.put(&sample{Status: &status.Status{Time: time.Now(), Pipelines: []status.Pipeline{{ID: "p", Lag: lag}}}}, &inspect.Around{}, time.Now(), err)
			<-time.After(plotEvery)
		}
		put(status.Lag{Seconds: 1}, nil)
		put(status.Lag{}, errors.New("away"))
		put(status.Lag{Seconds: 2}, nil)
		put(status.Lag{Unknown: true}, nil)
		put(status.Lag{Seconds: 3}, nil)
		var got []float64
		for _, p := range s.plots("p") {
			if p.unknown {
				p.lag = -1
			}
			got = append(got, p.lag)
		}
		if want := []float64{1, -1, 2, -1, 3}; !slices.Equal(got, want) {
			t.Errorf("the lags are %v, want %v; -1 is not known", got, want)
		}
		<-time.After(plotSpan - 2*plotEvery)
		put(status.Lag{Seconds: 4}, nil)
		if points := s.plots("p"); len(points) != 3 || !points[0].unknown {
			t.Errorf("after an hour there are %+v", points)
		}
	})
}

// Slow readings among quick ones, as beside writes, delay the next ones by what they took, and by no rest in proportion to
// that, also where several come in a row.
func TestSampler_ReadingsAreSlow(t *testing.T) {
	for _, slows := range []int64{1, 2, 5, costsKept - 1} {
		t.Run(strconv.FormatInt(slows, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const quick, slow = 20 * time.Millisecond, 160 * time.Millisecond
				i := &slowInspector{takes: func(n int64) time.Duration {
					if (n-1)%costsKept < costsKept-slows {
						return quick
					}
					return slow
				}}
				_, end := begun(t, i)
				defer end()
				const times = 10
				took := (costsKept-time.Duration(slows))*quick + time.Duration(slows)*slow
				<-time.After(times*(took+costsKept*20*quick) - time.Millisecond)
				if n := i.read.Load(); n != times*costsKept {
					t.Errorf("it has begun %d samples, want %d", n, times*costsKept)
				}
			})
		})
	}
}

// A reading that costs more than before has half of the time at most, and its twentieth when that is known.
func TestSampler_ReadingsCostMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quick, slow = 20 * time.Millisecond, 500 * time.Millisecond
		const quicks = 100
		i := &slowInspector{takes: func(n int64) time.Duration {
			if n <= quicks {
				return quick
			}
			return slow
		}}
		_, end := begun(t, i)
		defer end()
		// The last quick one is forgotten when costsKept slow ones have ended.
		<-time.After(quicks*21*quick + (costsKept-1)*(slow+slow) + slow + 20*slow - time.Millisecond)
		if n := i.read.Load(); n != quicks+costsKept {
			t.Errorf("it has begun %d samples, want %d", n, quicks+costsKept)
		}
		<-time.After(2 * time.Millisecond)
		if n := i.read.Load(); n != quicks+costsKept+1 {
			t.Errorf("after its rest it has begun %d samples, want %d", n, quicks+costsKept+1)
		}
	})
}
