package processors

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
)

// HaltedError says that a processor stopped at a change that cannot be processed,
// because its Task asks for that. Everything before the change is done; what
// follows waits until the change can be processed.
type HaltedError struct {
	Resource Resource
	// Item is the changed item, as store.ItemRef prints; Position is that of the
	// change.
	Item     string
	Position feed.Position
	Cause    error
}

func (e *HaltedError) Error() string {
	return fmt.Sprintf("halted at the change %s of %s, which cannot be processed: %v", e.Position, e.Item, e.Cause)
}

func (e *HaltedError) Unwrap() error { return e.Cause }

// noteHalt returns why a term halted whose work has ended; nil if it did not halt. It notes
// the reason in the checkpoint, with so many attempts that the next term does not begin to
// count anew, and that status calls the processor stuck.
func (r *run) noteHalt(work context.Context) error {
	halted, ok := errors.AsType[*HaltedError](context.Cause(work))
	if !ok {
		return nil
	}
	r.mu.Lock()
	r.cp.noteFailure(failures{all: max(r.cp.Attempts, AttemptsMax, StuckAttempts), transient: AttemptsMax}, Clip(halted))
	r.cp.Halted = true
	r.mu.Unlock()
	r.markDirty()
	return halted
}

// rewind sets the checkpoint back to where an operator wished, once for each wish.
// Never forward: what lies between would be left out.
func (c *Checkpoint) rewind(t *Task) {
	if c.Rewinds >= t.Rewinds {
		return
	}
	c.Rewinds = t.Rewinds
	c.forgetFailure()
	if t.Start.Before(c.Position) {
		c.Position, c.Time = t.Start, 0
		c.Log, c.Sum = feed.LogID{}, 0
		c.Recorded = feed.Position{} // a sink that is found before it is to be written again
	}
}
