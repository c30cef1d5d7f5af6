package queryrun

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
)

// dueContext ends between two looks at it: its deadline has passed, and who waits for its end or
// asks for its deadline has it end.
type dueContext struct {
	context.Context //nolint:containedctx // it is one
	done            chan struct{}
	once            sync.Once
}

func (c *dueContext) Done() <-chan struct{} { return c.done }
func (c *dueContext) Deadline() (time.Time, bool) {
	c.once.Do(func() { close(c.done) })
	return time.Unix(0, 0), true
}

func (c *dueContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A query whose time is over is blamed for it only if its request is not over too.
func TestPage_OfARequestThatIsOverIsGivenUp(t *testing.T) {
	limits := Limits{PageTime: 1, Time: 1} // passed at once
	r := &store.Query{Text: `SELECT VALUE REPLICATE("x", 100000)`, RowsMax: 10}
	_, err := Page(t.Context(), &Source{}, limits, r)
	if !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("the query's time is over: %v; want 400", err)
	}
	_, err = Page(&dueContext{Context: t.Context(), done: make(chan struct{})}, &Source{}, limits, r)
	if refused, ok := errors.AsType[*store.Error](err); !ok || refused.Status != store.StatusUnavailable {
		t.Errorf("the request's time is over too: %v; want 503", err)
	}
}
