package owner

import (
	"testing"
	"time"
)

// TestSubscription_StopIsBounded: of two subscriptions neither is told to be closed, as where the
// server does not answer. The time is that of both.
func TestSubscription_StopIsBounded(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	o, err := (&Server{nc: w.js.Conn()}).subscribe(t.Context(), n.Partition)
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.closed {
		o.closed[i] = make(chan struct{})
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		o.stop()
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Error("the subscription does not stop")
	}
}
