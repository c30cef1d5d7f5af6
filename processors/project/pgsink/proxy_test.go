package pgsink_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// answerMax bounds the wait for an answer that is then withheld.
const answerMax = time.Second

// proxy stands between a sink and its server and counts what is sent to the server.
// At one message, before or after it, it does harm.
type proxy struct {
	listener net.Listener
	server   string
	delay    time.Duration // of each message to the server; set before the first connection

	mu    sync.Mutex
	conns []net.Conn
	count int
	at    int           // the message at which harm is done; 0 for never
	after bool          // when the server has answered it, of which the client hears nothing
	harm  func()        // nil from when it begins
	done  chan struct{} // closed when it has ended
}

// newProxy returns a proxy and the connection string that leads through it.
func newProxy(t testing.TB, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: u.Host}
	var running sync.WaitGroup
	running.Go(func() { p.serve(&running) })
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		running.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

// plan does harm at the nth message from now on.
func (p *proxy) plan(n int, after bool, harm func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.at, p.after, p.harm, p.done = 0, n, after, harm, make(chan struct{})
}

// finish ends the plan: it says whether harm was done, of which it awaits the end,
// and how many messages there were.
func (p *proxy) finish() (harmed bool, messages int) {
	p.mu.Lock()
	harmed, messages = p.harm == nil, p.count
	done := p.done
	p.at = 0
	p.mu.Unlock()
	if harmed {
		<-done
	}
	return harmed, messages
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) serve(running *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		silent := make(chan struct{}) // closed: the client hears nothing any more
		answered := make(chan struct{}, 1)
		running.Go(func() { p.toServer(client, server, silent, answered) })
		running.Go(func() { p.toClient(client, server, silent, answered) })
	}
}

func (p *proxy) toServer(client, server net.Conn, silent, answered chan struct{}) {
	defer closeBoth(client, server)
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		time.Sleep(p.delay) //nolint:forbidigo // a slow line
		harm, after := p.next()
		if harm != nil && after {
			close(silent)
			if _, err := server.Write(buf[:n]); err == nil {
				select {
				case <-answered:
				case <-time.After(answerMax): // to half a message there is no answer
				}
			}
		}
		if harm != nil {
			harm()
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func closeBoth(client, server net.Conn) {
	_ = client.Close()
	_ = server.Close()
}

// next counts a message and returns the harm to be done at it.
func (p *proxy) next() (harm func(), after bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	if p.harm == nil || p.at == 0 || p.count != p.at {
		return nil, false
	}
	do, done := p.harm, p.done
	p.harm = nil
	return func() {
		defer close(done)
		do()
	}, p.after
}

func (p *proxy) toClient(client, server net.Conn, silent, answered chan struct{}) {
	defer closeBoth(client, server)
	defer close(answered)
	buf := make([]byte, 1<<20)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-silent:
			select {
			case answered <- struct{}{}:
			default:
			}
			continue
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
