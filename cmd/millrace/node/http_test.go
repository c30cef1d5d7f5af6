package node

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/store/gateway"
)

// TestReady_TellsReasonsToWhoMayKnow asks a node that is not ready.
func TestReady_TellsReasonsToWhoMayKnow(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	cfg := gateway.Config{Keys: gateway.NewKeys()}
	ring, err := gateway.OpenKeys(&cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const reason = "pipeline secret-orders is stuck"
	for _, c := range []struct {
		name     string
		loopback bool
		host     string
		key      string
		tells    bool
	}{
		{"on the loopback", true, "127.0.0.1:8082", "", true},
		{"on the loopback, by the name of a web page", true, "evil.example:8082", "", false},
		{"on the loopback, by the name that is configured", true, "here.example:8082", "", true},
		{"off it", false, "store-1:8082", "", false},
		{"off it, with a read-only key", false, "store-1:8082", string(cfg.Keys.PrimaryReadOnly), true},
		{"off it, with another", false, "store-1:8082", string(gateway.NewKeys().Primary), false},
	} {
		n := &Node{log: log, watch: &watch{}, listener: &admin{Listener: l, host: "here.example", loopback: c.loopback, keys: ring}}
		n.watch.last.Store(&Readiness{Problems: []string{reason, "another"}})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)
		r.Host = c.host
		r.Header.Set("Authorization", "Bearer "+c.key)
		w := httptest.NewRecorder()
		n.web().Handler.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusServiceUnavailable || strings.Contains(string(body), reason) != c.tells || !c.tells && !strings.Contains(string(body), "2: ") {
			t.Errorf("%s: %d\n%s", c.name, w.Code, body)
		}
	}
}

// TestMetrics_AreNoWebPages asks a node on the loopback as a web page does whose name leads there.
func TestMetrics_AreNoWebPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		admin  admin
		host   string
		status int
	}{
		{admin{loopback: true}, "localhost:8082", http.StatusOK},
		{admin{loopback: true}, "[::1]:8082", http.StatusOK},
		{admin{loopback: true}, "evil.example:8082", http.StatusMisdirectedRequest},
		{admin{loopback: true, host: "here.example"}, "Here.example:8082", http.StatusOK},
		{admin{}, "evil.example:8082", http.StatusUnauthorized},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		r.Host = c.host
		w := httptest.NewRecorder()
		c.admin.guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s, loopback %t: %d, want %d", c.host, c.admin.loopback, w.Code, c.status)
		}
	}
}

// TestEncrypt_WithoutADisk puts TLS on the listener where nothing can be kept: a file has the place
// of the directory, which stops root too.
func TestEncrypt_WithoutADisk(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "http")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	n := &Node{log: slog.New(slog.NewTextHandler(&logged, nil)), listener: &admin{}, cfg: &configs.Config{}}
	n.cfg.HTTP = configs.HTTP{Listen: "127.0.0.1:0", Dir: file}
	if err := n.encrypt(); err != nil {
		t.Fatalf("a certificate that cannot be written keeps the node from starting: %v", err)
	}
	if n.listener.certificate == nil || !strings.Contains(logged.String(), "kept in memory") {
		t.Errorf("no certificate, or no word of it\n%s", logged.String())
	}
	n.cfg.HTTP.Cert, n.cfg.HTTP.Key = file, file
	if err := n.encrypt(); err == nil {
		t.Error("a configured certificate that cannot be read is replaced by another")
	}
}

// TestHTTP_ACrowdDoesNotStopAProbe asks for health while others hold all connections, idle or with
// headers that do not end.
func TestHTTP_ACrowdDoesNotStopAProbe(t *testing.T) {
	t.Parallel()
	n := &Node{log: slog.New(slog.DiscardHandler), watch: &watch{}, cfg: &configs.Config{}}
	n.cfg.HTTP = configs.HTTP{Listen: "127.0.0.1:0", ConnectionsMax: 8}
	if err := n.openHTTP(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := n.web()
	if web.ReadHeaderTimeout != adminHeaderTimeout || web.IdleTimeout != adminIdleTimeout {
		t.Errorf("headers are waited for for %s, requests for %s", web.ReadHeaderTimeout, web.IdleTimeout)
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(n.listener) }()
	t.Cleanup(func() {
		_ = web.Close()
		<-ended
	})
	dial := func() net.Conn {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	probe := func() error {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.listener.url()+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	var held []net.Conn
	for range 5 * n.cfg.HTTP.ConnectionsMax {
		held = append(held, dial())
	}
	if err := probe(); err != nil {
		t.Errorf("idle connections stop a probe: %v", err)
	}
	// The first of them made room: its end says so.
	if _, err := held[0].Read(make([]byte, 1)); err == nil {
		t.Error("the connection that was idle longest goes on")
	}
	// Those that do not end their headers are no idle ones. They are cut off after their time.
	slow := dial()
	if _, err := slow.Write([]byte("GET /healthz HTTP/1.1\r\nX-Slow: ")); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(slow)
	if err != nil || len(answer) > 0 && !strings.Contains(string(answer), " 4") {
		t.Errorf("headers that do not end are answered: %q, %v", answer, err)
	}
	if err := probe(); err != nil {
		t.Errorf("a slow connection stops a probe: %v", err)
	}
}
