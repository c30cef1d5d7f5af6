//go:build linux

package crowd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm wakes one goroutine after times far below a millisecond. A timer of the runtime would not do: it rounds a wait of an
// idle process up to a millisecond. Nor would a sleep in the kernel: until the runtime takes it away, tens of microseconds
// later, the sleeper keeps a processor that those who are measured wait for. Nor would spinning, for the same reason.
type Alarm struct{ timer *os.File }

// NewAlarm returns an alarm, for the caller to close.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("alarm: %w", err)
	}
	// The runtime polls what does not block, so who reads it is parked like one who reads from a network.
	return &Alarm{os.NewFile(uintptr(fd), "alarm")}, nil
}

// Wait waits for d, which is above 0: none would not ring.
func (a *Alarm) Wait(d time.Duration) error {
	raw, err := a.timer.SyscallConn()
	if err != nil {
		return fmt.Errorf("alarm: %w", err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	})
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("alarm: %w", err)
	}
	var rings [8]byte // how often it rang
	if _, err := a.timer.Read(rings[:]); err != nil {
		return fmt.Errorf("alarm: %w", err)
	}
	return nil
}

// Close frees the alarm.
func (a *Alarm) Close() error { return a.timer.Close() }
