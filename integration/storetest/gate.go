package storetest

import (
	"io"
	"net"
	"sync"

	"github.com/millrace/millrace/feed/natsd"
)

// Gate is the way to a server on which answers can be held back: what the other
// side has done is then done, and known to everybody but who asked.
type Gate struct {
	srv *natsd.Server
	mu  sync.Mutex
	way chan struct{} // closed while open
}

func newGate(srv *natsd.Server) *Gate {
	g := &Gate{srv: srv, way: make(chan struct{})}
	close(g.way)
	return g
}

// InProcessConn makes a connection through the gate.
func (g *Gate) InProcessConn() (net.Conn, error) {
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

func (g *Gate) wait() {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	<-way
}

// Shut holds back what the server answers.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = make(chan struct{})
}

// Open lets it through again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}
