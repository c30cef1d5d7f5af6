package node

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pair is a wire and its other end, with nothing between them that stores.
func pair(t *testing.T) (w *wire, other net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return newWire(a, 3*time.Second), b
}

// TestWire_EndsWhenNothingComes also frees whoever is stuck in a write.
func TestWire_EndsWhenNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := pair(t)
		stuck := make(chan error, 1)
		go func() {
			_, err := w.Write(make([]byte, 1<<20))
			stuck <- err
		}()
		began := time.Now()
		_, err := w.Read(make([]byte, 1))
		if !errors.Is(err, errSilent) {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("ended after %v, want the silence and a third of it", took)
		}
		if err := <-stuck; err == nil {
			t.Error("the write that was stuck succeeded")
		}
	})
}

// TestWire_ASlowLineIsNotADeadOne carries one large message down, then one up, at a
// pace that leaves no room for anything else for far longer than silence may last.
func TestWire_ASlowLineIsNotADeadOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := pair(t)
		const slowly = 2 * time.Second
		go func() {
			for range 10 {
				time.Sleep(slowly)
				_, _ = other.Write([]byte("x"))
			}
			room := make([]byte, wireChunk)
			for range 10 {
				time.Sleep(slowly)
				_, _ = other.Read(room)
			}
			_, _ = other.Write([]byte("y"))
		}()
		for i := range 10 {
			if _, err := w.Read(make([]byte, 1)); err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		written := make(chan error, 1)
		go func() {
			_, err := w.Write(make([]byte, 10*wireChunk))
			written <- err
		}()
		if _, err := w.Read(make([]byte, 1)); err != nil {
			t.Errorf("while a message goes up slowly: %v", err)
		}
		if err := <-written; err != nil {
			t.Errorf("write: %v", err)
		}
	})
}

// TestWire_WhatCameWhileTheProcessStoodIsRead has a deadline that is long past when
// the process looks: what came meanwhile counts.
func TestWire_WhatCameWhileTheProcessStoodIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := pair(t)
		late := &lateConn{Conn: w.Conn}
		w.Conn = late
		go func() { _, _ = other.Write([]byte("x")) }()
		if _, err := w.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if !late.missed {
			t.Error("the deadline was not missed")
		}
	})
}

// lateConn misses its first deadline, as the connection of a process that was stopped.
type lateConn struct {
	net.Conn
	missed bool
}

func (c *lateConn) Read(b []byte) (int, error) {
	if !c.missed {
		c.missed = true
		time.Sleep(time.Minute)
	}
	return c.Conn.Read(b)
}
