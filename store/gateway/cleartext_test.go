package gateway_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// TestListen_SaysThatAllCanBeRead beyond this machine without TLS, and not elsewhere.
func TestListen_SaysThatAllCanBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listen, tls string
		warns       bool
	}{
		{"0.0.0.0:0", gateway.Off, true},
		{":0", gateway.Off, true},
		{"0.0.0.0:0", "", false},
		{"127.0.0.1:0", gateway.Off, false},
		{"localhost:0", gateway.Off, false},
	} {
		var log bytes.Buffer
		server, err := gateway.New(w.client, ring, gateway.Config{Listen: c.listen, TLS: c.tls, Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		l, err := server.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		warned := strings.Count(log.String(), "level=WARN") == 1 && strings.Contains(log.String(), "set gateway.tls: on")
		if warned != c.warns || !c.warns && strings.Contains(log.String(), "level=WARN") {
			t.Errorf("at %s with TLS %q:\n%s", c.listen, c.tls, log.String())
		}
	}
}
