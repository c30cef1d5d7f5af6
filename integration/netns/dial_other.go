//go:build !linux

package netns

import (
	"errors"
	"net"
)

// Dial is for Linux, as all of the package.
func (h *Host) Dial(_, _ string) (net.Conn, error) { return nil, errors.ErrUnsupported }
