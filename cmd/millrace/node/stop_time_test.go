package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A layer that does not end takes its share of the time and not the others', and the
// error names it with what it was at.
func TestStop_HasAnEndWhateverHangs(t *testing.T) { synctest.Test(t, testStopHasAnEnd) }

func testStopHasAnEnd(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	s := newStopping(10*time.Second, slog.New(slog.DiscardHandler))
	if !s.step("gateway", shareWork, func() {}, nil) || !s.clean() || s.err() != nil {
		t.Errorf("what ends at once is left: %v", s.err())
	}
	if s.step("store", shareStore, func() { <-hang }, func() string { return "partitions items/3" }) {
		t.Error("what hangs is said to have ended")
	}
	ran := false
	if !s.step("NATS", shareClose, func() { ran = true }, nil) || !ran {
		t.Error("what stands below is not stopped")
	}
	if took := time.Since(s.began); took != 8*time.Second {
		t.Errorf("the store took %s of the time of those below", took)
	}
	e, ok := errors.AsType[*StopError](s.err())
	if !ok || len(e.Left) != 1 || e.Left[0] != "store (partitions items/3)" || s.clean() {
		t.Fatalf("left is %v", s.err())
	}
	for _, word := range []string{"10s", "drainTimeout", "partitions items/3", "nothing that was acknowledged is lost"} {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("%q does not say %s", e, word)
		}
	}
}
