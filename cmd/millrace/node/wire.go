package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// dialTimeout bounds one try to reach one server, its greeting included.
	dialTimeout = 3 * time.Second
	// wireChunk is how much is written at a time, so that a large message shows
	// its progress.
	wireChunk = 64 << 10
	// wireBlocked tells a write that waited for room from one that did not.
	wireBlocked = 20 * time.Millisecond
	// wireBuffer bounds what the system holds of what was written. What lies there
	// shows no progress, so it has to be small beside what a slow line carries
	// within the silence.
	wireBuffer = 512 << 10
)

// errSilent is the cause of the end of a connection whose other side said nothing.
var errSilent error = silentError{}

// silentError is what the NATS client calls a stale connection. Whoever waits for a server takes it
// for that: it passes.
type silentError struct{}

func (silentError) Error() string {
	return "nothing came from the NATS server, though it was asked; the connection is given up"
}

func (silentError) Is(target error) bool { return target == nats.ErrStaleConnection }

// dialer dials connections that notice when the other side has gone without a
// word: a server that was cut off, or whose process was stopped. It is there for
// nats.SetCustomDialer.
type dialer struct {
	// silenceMax is how long nothing may come.
	silenceMax time.Duration
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetWriteBuffer(wireBuffer); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return newWire(conn, d.silenceMax), nil
}

// wire is a connection that ends when the other side is silent for too long. The
// client asks for a sign of life several times within that (nats.PingInterval).
//
// Counting pings that are not answered, as the client can do itself, would not
// do: the answer to a ping stands in line behind all that the server is sending,
// and the ping behind all that the client is, so a slow line would look like a
// dead one. Here any byte that comes counts, and so does a write that had to wait
// for room and got it. A write that found room tells nothing, since the system
// takes it whether or not anybody is there.
type wire struct {
	net.Conn
	silenceMax time.Duration
	began      time.Time
	alive      atomic.Int64 // time since began of the last sign of life
}

func newWire(conn net.Conn, silenceMax time.Duration) *wire {
	return &wire{Conn: conn, silenceMax: silenceMax, began: time.Now()}
}

func (w *wire) living() { w.alive.Store(int64(time.Since(w.began))) }

// Read reads, for as long as there are signs of life.
func (w *wire) Read(b []byte) (int, error) {
	// A process that was stopped or starved wakes up behind its deadline, with what
	// came meanwhile unread: so silence is believed when it is seen a second time.
	late := false
	wait := w.silenceMax
	for {
		if err := w.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		n, err := w.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			w.living()
			return n, err
		}
		switch rest := w.silenceMax - (time.Since(w.began) - time.Duration(w.alive.Load())); {
		case rest > 0:
			late, wait = false, rest
		case !late:
			late, wait = true, w.silenceMax/3
		default:
			// Closed here, since whoever is stuck in a write holds the client's lock,
			// without which it could not act on this error.
			return 0, errors.Join(fmt.Errorf("%w after %v", errSilent, w.silenceMax), w.Close())
		}
	}
}

// Write writes, and takes note where it had to wait and did not wait in vain.
func (w *wire) Write(b []byte) (written int, err error) {
	for {
		chunk := b[:min(len(b), wireChunk)]
		begun := time.Now()
		n, err := w.Conn.Write(chunk)
		written += n
		if err != nil {
			return written, err
		}
		if time.Since(begun) >= wireBlocked {
			w.living()
		}
		if b = b[len(chunk):]; len(b) == 0 {
			return written, nil
		}
	}
}
