package pace_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/store/pace"
)

// TestPace_ToWaitForAProcessorIsNoWork: one who gives way to somebody who is at work for ten times as long as he may work
// without a rest does not rest for it.
func TestPace_ToWaitForAProcessorIsNoWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// With a context that has ended a rest is an error.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// A busy machine may take the processor from the one who paces too, and that is work; but not each time. If waiting counted,
	// he would rest each time, as he waits for longer than WorkMin.
	var rested error
	for range 20 {
		p := pace.New(0.5, func() {})
		var other sync.WaitGroup
		var done atomic.Bool
		other.Go(func() {
			for began := time.Now(); !done.Load(); {
				done.Store(time.Since(began) >= 10*pace.WorkMin)
			}
		})
		for rested = nil; rested == nil && !done.Load(); {
			rested = p.Pace(ended)
		}
		if rested == nil {
			rested = p.Pace(ended)
		}
		other.Wait()
		if rested == nil {
			return
		}
	}
	t.Errorf("who waits for a processor rests for it: %v", rested)
}
