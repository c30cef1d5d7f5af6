package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// rooms is where ip keeps the namespaces.
const rooms = "/var/run/netns"

// DialContext connects this process from the host to an address, which is one of numbers. It may be called concurrently.
func (h *Host) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	// A socket stays in the namespace of the thread that made it, and a thread may change its own.
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the namespace of this process: %w", err)
	}
	defer func() { _ = here.Close() }()
	there, err := os.Open(filepath.Join(rooms, h.n.full(h.Name)))
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the namespace of %s: %w", h.Name, err)
	}
	defer func() { _ = there.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter the namespace of %s: %w", h.Name, err)
	}
	defer func() {
		if failed := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); failed != nil {
			// The thread stays locked: nobody else may work in there, and it ends with the goroutine.
			err = errors.Join(err, fmt.Errorf("leave the namespace of %s: %w", h.Name, failed))
			return
		}
		runtime.UnlockOSThread()
	}()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
