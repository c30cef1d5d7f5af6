package integration_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/store"
)

// tap is a handler before the owners: a test can look at a worker's requests and
// hold them up.
type tap struct {
	inner *store.Client

	mu     sync.Mutex
	before func(*store.Request)
	after  func(*store.Request, *store.Response)
	refuse func(*store.Request) *store.Error
	holds  []chan struct{}
}

// Handle passes a request on, with the hooks around it.
func (t *tap) Handle(ctx context.Context, r *store.Request) *store.Response {
	if before, _ := t.hooks(); before != nil {
		before(r)
	}
	if refusal := t.refusal(r); refusal != nil {
		return &store.Response{Err: refusal}
	}
	resp, err := t.inner.Do(context.WithoutCancel(ctx), r)
	if err != nil {
		var refusal *store.Error
		if !errors.As(err, &refusal) {
			refusal = &store.Error{Status: store.StatusUnavailable, Message: err.Error()}
		}
		return &store.Response{Err: refusal}
	}
	if _, after := t.hooks(); after != nil {
		after(r, resp)
	}
	return resp
}

func (t *tap) hooks() (before func(*store.Request), after func(*store.Request, *store.Response)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.before, t.after
}

// refusing sets what decides which requests are refused in the owners' place.
func (t *tap) refusing(f func(*store.Request) *store.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = f
}

func (t *tap) refusal(r *store.Request) *store.Error {
	t.mu.Lock()
	f := t.refuse
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(r)
}

// onRequest sets the hook before requests, onResponse the one after them.
func (t *tap) onRequest(f func(*store.Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before = f
}

func (t *tap) onResponse(f func(*store.Request, *store.Response)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = f
}

// hold holds up the first request that f selects, before the owner sees it. The
// channel is closed when the request is there; let lets it go on.
func (t *tap) hold(f func(*store.Request) bool) (there <-chan struct{}, let func()) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.mu.Lock()
	t.holds = append(t.holds, goOn)
	t.mu.Unlock()
	t.onRequest(func(r *store.Request) {
		if !f(r) {
			return
		}
		once.Do(func() {
			close(arrived)
			<-goOn
		})
	})
	return arrived, sync.OnceFunc(func() { t.let(goOn) })
}

// let opens a hold.
func (t *tap) let(hold chan struct{}) {
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

// release lets all held requests go on.
func (t *tap) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		close(h)
	}
	t.holds = nil
}

// gate is the way to a server on which answers can be held back: what the other
// side has done is then done, and known to everybody but who asked.
type gate struct {
	srv *natsd.Server
	mu  sync.Mutex
	way chan struct{} // closed while open
}

func newGate(srv *natsd.Server) *gate {
	g := &gate{srv: srv, way: make(chan struct{})}
	close(g.way)
	return g
}

// InProcessConn makes a connection through the gate.
func (g *gate) InProcessConn() (net.Conn, error) {
	c, err := g.srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	inner, outer := net.Pipe()
	go func() {
		defer func() { _ = c.Close() }()
		_, _ = io.Copy(c, inner) // ends with either side
	}()
	// The server must not notice: what it says is taken in at once.
	said := make(chan []byte, 1<<16)
	go func() {
		defer close(said)
		for {
			buf := make([]byte, 32<<10)
			n, err := c.Read(buf)
			if said <- buf[:n]; err != nil {
				return
			}
		}
	}()
	go func() {
		defer func() { _ = inner.Close() }()
		for buf := range said {
			g.wait()
			if _, err := inner.Write(buf); err != nil {
				_ = c.Close()
			}
		}
	}()
	return outer, nil
}

func (g *gate) wait() {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	<-way
}

// shut holds back what the server answers.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = make(chan struct{})
}

// open lets it through again.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}
