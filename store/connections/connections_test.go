package connections_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/millrace/millrace/store/connections"
)

// pipes is a listener whose connections buffer nothing: what one side writes waits until the other reads.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// dial opens a connection and sends text. The error is that of a connection that is refused.
func (p *pipes) dial(t *testing.T, text string) (net.Conn, error) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	if err := here.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	p.dialed <- there
	_, err := here.Write([]byte(text))
	return here, err
}

// served puts a handler behind a bound of so many connections. told gets each state that a connection takes.
func served(t *testing.T, most int, handler http.HandlerFunc) (p *pipes, told <-chan http.ConnState) {
	t.Helper()
	p, _, told = servedBy(t, most, handler)
	return p, told
}

// servedBy is served, and returns the bound too.
func servedBy(t *testing.T, most int, handler http.HandlerFunc) (p *pipes, bound *connections.Bound, told <-chan http.ConnState) {
	t.Helper()
	p = &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	bound = connections.New(most, connections.Counters{Open: noop.Int64UpDownCounter{}, Evicted: noop.Int64Counter{}})
	states := make(chan http.ConnState, 1000)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Hour}
	bound.Follow(server)
	follow := server.ConnState
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		follow(conn, state)
		states <- state
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(bound.Listener(p)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p, bound, states
}

const (
	good    = "GET / HTTP/1.1\r\nHost: x\r\nX-Known: yes\r\n\r\n"
	unknown = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	broken  = "GET / HTTP/1.1\r\nHost x\r\n\r\n"
)

// A connection whose client does not take the answer makes room for another, unless a handler holds it: also where the
// server has answered by itself.
func TestBound_WhoIsNotHeldMakesRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent   string
		yields bool
		room   bool
	}{
		"a stranger":                   {unknown, false, true},
		"no request":                   {broken, false, true},
		"one that is held":             {good, false, false},
		"one that was held and yields": {good, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 3
			done := make(chan struct{}, 1000)
			p, told := served(t, most, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Known") != "" && !connections.Hold(r.Context()) {
					return
				}
				if c.yields {
					connections.Yield(r.Context())
				}
				w.WriteHeader(http.StatusNoContent) // it is sent when the handler has returned
				done <- struct{}{}
			})
			for range most {
				if _, err := p.dial(t, c.sent); err != nil {
					t.Fatal(err)
				}
				if c.sent != broken {
					<-done
					continue
				}
				for <-told != http.StateActive { // it has been read
				}
			}
			conn, err := p.dial(t, unknown)
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			if (err == nil) != c.room {
				t.Errorf("a connection more: %v; there is room: %t", err, c.room)
			}
		})
	}
}

// A request whose connection has made room is told so before anything is done for it. One without a bound is held.
func TestHold(t *testing.T) {
	t.Parallel()
	if !connections.Hold(context.Background()) {
		t.Error("without a bound nothing is held")
	}
	connections.Yield(context.Background())
	arrived, goOn, held := make(chan struct{}), make(chan struct{}), make(chan bool, 2)
	p, _ := served(t, 1, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-goOn
		held <- connections.Hold(r.Context())
	})
	for range 2 {
		if _, err := p.dial(t, unknown); err != nil {
			t.Fatal(err)
		}
		<-arrived
	}
	goOn <- struct{}{}
	goOn <- struct{}{}
	if first, second := <-held, <-held; first == second {
		t.Errorf("two requests hold the one connection that there may be: %t, %t", first, second)
	}
}

// A request whose connection is closed because it is idle, as at the end of the process, before it is held is told so: nothing is
// done for a client that sees no answer.
func TestCloseIdle_NothingIsDoneForWhatItCloses(t *testing.T) {
	t.Parallel()
	arrived, goOn, held := make(chan struct{}), make(chan struct{}), make(chan bool)
	p, bound, _ := servedBy(t, 2, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Known") != "" {
			_ = connections.Hold(r.Context())
		}
		arrived <- struct{}{}
		<-goOn
		held <- connections.Hold(r.Context())
	})
	for _, text := range []string{good, unknown} {
		if _, err := p.dial(t, text); err != nil {
			t.Fatal(err)
		}
		<-arrived
		bound.CloseIdle()
		goOn <- struct{}{}
		if got, want := <-held, text == good; got != want {
			t.Errorf("held before: %t, held after it: %t", want, got)
		}
	}
}
