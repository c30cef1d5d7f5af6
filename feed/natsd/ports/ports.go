// Package ports gives tests ports for servers that must be told theirs before they listen,
// because others are told it too or because they come back to it.
//
// This package is no API for other programs.
package ports

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// The ports lie beneath those that systems give to whoever asks for any port, which begin
// at 32768 or later: a connection that somebody makes meanwhile takes none of them.
const first, many = 10_000, 20_000

// Tests of several packages run at once, so each process begins elsewhere.
var (
	begin = rand.Int64N(many)
	given atomic.Int64
)

// Free returns a port of the loopback on which nobody listens, and gives it to nobody else
// in this process.
func Free(tb testing.TB) int {
	tb.Helper()
	var listen net.ListenConfig
	for range many {
		port := first + int((begin+given.Add(1))%many)
		l, err := listen.Listen(context.WithoutCancel(tb.Context()), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("no port is free")
	return 0
}
