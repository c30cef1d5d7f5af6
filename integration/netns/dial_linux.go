package netns

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rooms    = "/run/netns" // where ip names namespaces
	dialTime = 2 * time.Second
)

// Dial connects this process to an address of the network, given in digits, as if it ran on
// the host. It may be called concurrently.
func (h *Host) Dial(network, address string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		// A socket stays where it was made. The thread does not come back: it ends with the
		// goroutine that has locked it.
		runtime.LockOSThread()
		if err := h.enter(); err != nil {
			done <- dialed{err: err}
			return
		}
		conn, err := (&net.Dialer{Timeout: dialTime}).Dial(network, address)
		done <- dialed{conn, err}
	}()
	d := <-done
	return d.conn, d.err
}

// enter moves the thread to the host.
func (h *Host) enter() error {
	room, err := os.Open(filepath.Join(rooms, h.n.room(h.Name)))
	if err != nil {
		return fmt.Errorf("go to host %s: %w", h.Name, err)
	}
	defer func() { _ = room.Close() }() // it was only read
	if err := unix.Setns(int(room.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("go to host %s: %w", h.Name, err)
	}
	return nil
}
