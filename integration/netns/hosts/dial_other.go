//go:build !linux

package hosts

import (
	"context"
	"errors"
	"net"
)

// DialContext is for Linux, as all of the package.
func (h *Host) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
