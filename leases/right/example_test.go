package right_test

import (
	"context"
	"time"

	"github.com/millrace/millrace/leases/right"
)

// A node answers what rests on what it remembers while it holds its right. When it was deposed it drops all, and goes on as
// a new incarnation.
func ExampleRight() {
	var r *right.Right // from Open
	part := r.Part()   // the right to one partition
	write := func(send func() error) error {
		since := r.Now() // before the first try
		if err := send(); err != nil {
			return err
		}
		part.Extend(since)
		return nil
	}
	answer := func(snapshot func() []byte) ([]byte, bool) {
		if !part.Holds() {
			return nil, false // 503: nobody may answer just now
		}
		return snapshot(), true
	}
	context.AfterFunc(r.Deposed(), func() {
		_ = context.Cause(r.Deposed()) // by whom, and why
	})
	_, _ = write, answer
}

// A successor deposes the last owner, fences it off, and waits.
func ExampleSight_Depose() {
	var (
		r                         *right.Right // this process's
		s                         *right.Sight // from NewSight(r), and its Run runs
		lastOwner, itsIncarnation string       // as the end of the log says
		appendTakeoverCommit      func(ctx context.Context) error
	)
	takeOver := func(ctx context.Context) error {
		if s.Still(lastOwner) < 300*time.Millisecond {
			return nil // it lives, as far as this process sees
		}
		if err := s.Depose(ctx, lastOwner, itsIncarnation, r.Holder(), "nothing answers, and its key stands still"); err != nil {
			return err
		}
		if err := appendTakeoverCommit(ctx); err != nil {
			return err
		}
		// Only now: what the last owner had sent could arrive until here.
		select {
		case <-time.After(s.Wait()):
			return nil // serve
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	_ = takeOver
}
