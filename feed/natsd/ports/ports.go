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
	"sync"
	"testing"
)

// The ports lie beneath those that systems give to whoever asks for any port, which begin
// at 32768 or later: a connection that somebody makes meanwhile takes none of them.
const first, many = 10_000, 20_000

// Tests of several packages run at once, and a port is free between its gift and the start of its server. So each
// process has blocks of ports for itself: it listens at the first of a block as long as it runs.
const blockPorts = 100

var (
	mu     sync.Mutex
	next   int            // port of the block at hand
	end    int            // of that block
	blocks []net.Listener // that this process has
)

// Free returns a port of the loopback on which nobody listens, and gives it to nobody else.
func Free(tb testing.TB) int {
	tb.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range many {
		if next == end && !takeBlock(tb.Context()) {
			continue
		}
		port := next
		next++
		if l := listen(tb.Context(), port); l != nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("no port is free")
	return 0
}

// takeBlock tries to take a block, drawn at random.
func takeBlock(ctx context.Context) bool {
	begin := first + blockPorts*rand.IntN(many/blockPorts)
	l := listen(ctx, begin)
	if l == nil {
		return false
	}
	blocks = append(blocks, l) // or it would be closed when nobody refers to it
	next, end = begin+1, begin+blockPorts
	return true
}

// listen returns nil if another listens at the port.
func listen(ctx context.Context, port int) net.Listener {
	var config net.ListenConfig
	l, err := config.Listen(context.WithoutCancel(ctx), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil
	}
	return l
}
