//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// iproto is a connection to Tarantool with many requests under way. It speaks as much of the protocol as a call of a stored
// function needs: see "Binary protocol" in Tarantool's reference. A call has numbers and strings of MessagePack alone.
type iproto struct {
	conn    net.Conn
	wake    chan struct{}
	mu      sync.Mutex
	out     []byte // what waits to be written
	next    uint64
	waiting map[uint64]chan reply
	err     error // why the connection has ended
}

type reply struct {
	body []byte
	err  error
}

const (
	greeting   = 128 // bytes that the server sends first
	readBuffer = 64 << 10

	keyCode, keySync        = 0x00, 0x01
	keyTuple, keyFunction   = 0x21, 0x22
	keyData, requestCall    = 0x30, 0x0a
	msgMap2, msgMap1        = 0x82, 0x81
	msgUint32, msgUint64    = 0xce, 0xcf
	msgString16, msgArray32 = 0xda, 0xdd
)

func dialIproto(ctx context.Context, address string) (*iproto, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &iproto{conn: conn, wake: make(chan struct{}, 1), waiting: map[uint64]chan reply{}}
	r := bufio.NewReaderSize(conn, readBuffer)
	if _, err := r.Discard(greeting); err != nil {
		_ = conn.Close()
		return nil, err
	}
	go c.write()
	go c.read(r)
	return c, nil
}

// call calls a stored function and returns what it returned, as MessagePack.
func (c *iproto) call(function string, args ...string) ([]byte, error) {
	ch := make(chan reply, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.next++
	c.waiting[c.next] = ch
	c.out = appendCall(c.out, c.next, function, args...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	r := <-ch
	return r.body, r.err
}

// write writes what waits, together. Whoever reads notices that the connection is lost, and ends it.
func (c *iproto) write() {
	var spare []byte
	for range c.wake {
		c.mu.Lock()
		out := c.out
		c.out = spare[:0]
		c.mu.Unlock()
		if _, err := c.conn.Write(out); err != nil {
			return
		}
		spare = out
	}
}

// read gives replies to who waits for them, until the connection ends.
func (c *iproto) read(r *bufio.Reader) {
	for {
		frame, err := readFrame(r, nil)
		if err != nil {
			c.mu.Lock()
			c.err = err
			for _, ch := range c.waiting {
				ch <- reply{err: err}
			}
			clear(c.waiting)
			c.mu.Unlock()
			close(c.wake)
			return
		}
		sync, body, err := parseReply(frame)
		c.mu.Lock()
		ch := c.waiting[sync]
		delete(c.waiting, sync)
		c.mu.Unlock()
		if ch != nil {
			ch <- reply{body, err}
		}
	}
}

func appendString(dst []byte, s string) []byte {
	dst = append(dst, msgString16, byte(len(s)>>8), byte(len(s)))
	return append(dst, s...)
}

// appendCall appends a request that calls a function.
func appendCall(dst []byte, sync uint64, function string, args ...string) []byte {
	from := len(dst)
	dst = append(dst, msgUint32, 0, 0, 0, 0, msgMap2, keyCode, requestCall, keySync, msgUint64)
	dst = binary.BigEndian.AppendUint64(dst, sync)
	dst = append(dst, msgMap2, keyFunction)
	dst = appendString(dst, function)
	dst = append(dst, keyTuple, 0x90|byte(len(args)))
	for _, a := range args {
		dst = appendString(dst, a)
	}
	binary.BigEndian.PutUint32(dst[from+1:], uint32(len(dst)-from-5))
	return dst
}

// readFrame reads a reply into the memory of another.
func readFrame(r *bufio.Reader, into []byte) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head[0] != msgUint32 {
		return nil, fmt.Errorf("tarantool: the length of a reply is %x", head)
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if cap(into) < n {
		into = make([]byte, n)
	}
	_, err := io.ReadFull(r, into[:n])
	return into[:n], err
}

// parseReply reads the header, a map of numbers, and returns the body.
func parseReply(b []byte) (sync uint64, body []byte, err error) {
	if len(b) == 0 || b[0]&0xf0 != 0x80 {
		return 0, nil, fmt.Errorf("tarantool: the header of a reply is %x", b)
	}
	pairs, code := int(b[0]&0x0f), uint64(0)
	b = b[1:]
	for range pairs {
		var k, v uint64
		if k, b, err = parseUint(b); err == nil {
			v, b, err = parseUint(b)
		}
		if err != nil {
			return 0, nil, err
		}
		switch k {
		case keyCode:
			code = v
		case keySync:
			sync = v
		}
	}
	if code != 0 {
		return sync, nil, fmt.Errorf("tarantool: error %#x: %s", code, strings.ToValidUTF8(string(b), "."))
	}
	return sync, b, nil
}

// parseCounts reads a body {data: [orders, counted]}.
func parseCounts(body []byte) (v [2]int64, err error) {
	if len(body) < 3 || body[0] != msgMap1 || body[1] != keyData {
		return v, fmt.Errorf("tarantool: a reply is %x", body)
	}
	switch body = body[2:]; {
	case body[0] == 0x92:
		body = body[1:]
	case body[0] == msgArray32 && len(body) > 5:
		body = body[5:]
	}
	for i := range v {
		var n uint64
		if n, body, err = parseUint(body); err != nil {
			return v, err
		}
		v[i] = int64(n) //nolint:gosec // a number of orders
	}
	return v, nil
}

func parseUint(b []byte) (uint64, []byte, error) {
	if len(b) == 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	if b[0] < 0x80 {
		return uint64(b[0]), b[1:], nil
	}
	if b[0] < 0xcc || b[0] > msgUint64 {
		return 0, nil, fmt.Errorf("tarantool: %#x is no number", b[0])
	}
	size := 1 << (b[0] - 0xcc)
	if len(b) <= size {
		return 0, nil, io.ErrUnexpectedEOF
	}
	v := uint64(0)
	for _, x := range b[1 : 1+size] {
		v = v<<8 | uint64(x)
	}
	return v, b[1+size:], nil
}
