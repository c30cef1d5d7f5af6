//go:build unix

package certificate

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestConfigured_ASlowDiskStopsOneHandshake reads a certificate from a pipe, which nobody has written
// yet.
func TestConfigured_ASlowDiskStopsOneHandshake(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := t.TempDir()
	cfg := Config{
		Section: "http", Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
	}
	pairFor(t, &cfg, now, 24*time.Hour)
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	first := c.pair.Load()
	cert, _ := pairFor(t, &cfg, now, 24*time.Hour)
	if err := os.Remove(cfg.Cert); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(cfg.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookAgain)
	handshake := func() <-chan *tls.Certificate {
		shown := make(chan *tls.Certificate, 1)
		go func() {
			pair, _ := c.get(nil) // it has no error
			shown <- pair
		}()
		return shown
	}
	slow := handshake()
	pipe, err := os.OpenFile(cfg.Cert, os.O_WRONLY, 0) // it waits for who reads
	if err != nil {
		t.Fatal(err)
	}
	select {
	case pair := <-handshake():
		if pair != first {
			t.Error("a handshake meanwhile is shown another certificate than the one before")
		}
	case <-time.After(time.Minute):
		t.Error("a handshake waits for the reading of another")
	}
	if _, err := pipe.Write(cert); err != nil {
		t.Error(err)
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	if pair := <-slow; pair.Leaf.Equal(first.Leaf) {
		t.Error("the handshake that reads is shown the certificate before")
	}
}
