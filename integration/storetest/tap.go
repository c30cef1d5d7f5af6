package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace/millrace/store"
)

// Tap is a handler before the owners: a test can look at a worker's requests, hold them
// up, refuse them, and lose or alter their answers.
type Tap struct {
	inner *store.Client

	// Guarded by mu.
	mu     sync.Mutex
	before func(*store.Request)
	refuse func(*store.Request) *store.Error
	after  func(*store.Request, *store.Response) *store.Response
	holds  []chan struct{}
}

// Handle passes a request on, with the hooks around it. It takes each hook when its turn
// comes, not all at the beginning: a test that holds a request sets what looks at the
// answer while the request waits.
func (t *Tap) Handle(ctx context.Context, r *store.Request) *store.Response {
	if before, _, _ := t.hooks(); before != nil {
		before(r)
	}
	if _, refuse, _ := t.hooks(); refuse != nil {
		if refusal := refuse(r); refusal != nil {
			return &store.Response{Err: refusal}
		}
	}
	resp, err := t.inner.Do(context.WithoutCancel(ctx), r)
	if err != nil {
		var refusal *store.Error
		if !errors.As(err, &refusal) {
			refusal = &store.Error{Status: store.StatusUnavailable, Message: err.Error()}
		}
		resp = &store.Response{Err: refusal}
	}
	if _, _, after := t.hooks(); after != nil {
		return after(r, resp)
	}
	return resp
}

func (t *Tap) hooks() (before func(*store.Request), refuse func(*store.Request) *store.Error, after func(*store.Request, *store.Response) *store.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.before, t.refuse, t.after
}

// OnRequest sets what looks at requests before anything is done with them.
func (t *Tap) OnRequest(f func(*store.Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before = f
}

// Refuse sets what decides which requests are refused in the owners' place.
func (t *Tap) Refuse(f func(*store.Request) *store.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = f
}

// OnResponse sets what looks at answers that are no refusals.
func (t *Tap) OnResponse(f func(*store.Request, *store.Response)) {
	t.Answer(func(r *store.Request, resp *store.Response) *store.Response {
		if resp.Err == nil {
			f(r, resp)
		}
		return resp
	})
}

// Answer sets what answers in the owners' place, knowing their answer.
func (t *Tap) Answer(f func(*store.Request, *store.Response) *store.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = f
}

// Hold holds up the first request that f selects, before the owner sees it. The
// channel is closed when the request is there; let lets it go on. It takes the place
// of OnRequest.
func (t *Tap) Hold(f func(*store.Request) bool) (there <-chan struct{}, let func()) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds = append(t.holds, goOn)
	t.before = func(r *store.Request) {
		if !f(r) {
			return
		}
		once.Do(func() {
			close(arrived)
			<-goOn
		})
	}
	return arrived, func() { t.let(goOn) }
}

// let opens a hold, unless it is open.
func (t *Tap) let(hold chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.holds {
		if h == hold {
			t.holds = append(t.holds[:i], t.holds[i+1:]...)
			close(h)
			return
		}
	}
}

// Release lets all held requests go on.
func (t *Tap) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		close(h)
	}
	t.holds = nil
}
