// Package poll lets tests wait for what nobody announces to them: a state behind a
// process or a server, of which they can only ask.
package poll

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Most is how long Until waits. It bounds what hangs, and is no measure of speed: a
// machine that is slow and busy needs a part of it.
const Most = 5 * time.Minute

// Between two questions Until rests three times as long as the first took, so that to ask, such as by
// starting a command, takes a quarter of a processor at most from what is waited for: a dozen tests
// wait at the same time.
const (
	restOf  = 3
	restMin = 10 * time.Millisecond
	restMax = time.Second
)

// Until asks until there is no error, and fails the test with the last one if that
// takes longer than Most.
func Until(tb testing.TB, ask func() error) {
	tb.Helper()
	deadline := time.NewTimer(Most)
	defer deadline.Stop()
	rest := time.NewTimer(Most)
	defer rest.Stop()
	for {
		began := time.Now()
		err := ask()
		if err == nil {
			return
		}
		rest.Reset(min(max(restOf*time.Since(began), restMin), restMax))
		select {
		case <-rest.C:
		case <-deadline.C:
			tb.Fatalf("not within %s: %v", Most, err)
		}
	}
}

// Rest lets a client that works beside a test rest for twice as long as what it began at that moment has taken, so that it
// takes a third of a processor at most from what the test waits for. A copy that is followed by a slower machine
// than its writers are on is never up to date.
func Rest(ctx context.Context, began time.Time) {
	rest := time.NewTimer(min(2*time.Since(began), restMax))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
}

// Unless is why as an error, unless ok.
func Unless(ok bool, why string) error {
	if ok {
		return nil
	}
	return errors.New(why)
}

// Reason is why as an error, unless it is empty.
func Reason(why string) error { return Unless(why == "", why) }
