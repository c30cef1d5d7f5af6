package node

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/integration/poll"
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

// TestHTTP_ACrowdDoesNotStopAProbe asks for health while others hold all connections: without a word, with
// headers that do not end, and with a body that does not come. The last are active, so a probe is refused
// until their time is over.
func TestHTTP_ACrowdDoesNotStopAProbe(t *testing.T) {
	t.Parallel()
	const (
		header = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
		body   = header + "Content-Length: 10\r\n\r\n"
		long   = time.Hour // nothing ends during the test
	)
	for _, c := range []struct {
		name, sent string
		timeout    time.Duration
		crowd      int // connections, of 8
		refused    bool
	}{
		{"without a word", "", long, 40, false},
		{"headers that do not end", header, long, 40, false},
		{"bodies that do not come, within their time", body, long, 8, true},
		{"bodies that do not come, after their time", body, 2 * time.Second, 8, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			web, active := crowded(t, c.timeout)
			for range c.crowd {
				conn := web.dial(t)
				if _, err := conn.Write([]byte(c.sent)); err != nil {
					t.Fatal(err)
				}
			}
			if c.sent == body {
				for range c.crowd {
					select {
					case <-active:
					case <-time.After(poll.Most):
						t.Fatal("a request was not served")
					}
				}
			}
			err := web.probe(t)
			if c.refused {
				if err == nil {
					t.Error("all connections are active, and there is one more")
				}
				return
			}
			// Bodies have their time yet. The bound is less than adminTimeout: an answer may take that long, a
			// body may not.
			for end := time.Now().Add(adminTimeout / 2); err != nil && c.sent == body && time.Now().Before(end); {
				<-time.After(10 * time.Millisecond)
				err = web.probe(t)
			}
			if err != nil {
				t.Errorf("a probe is refused: %v", err)
			}
		})
	}
}

// TestHTTP_SaysThatKeysCanBeRead beyond this machine without TLS, and not elsewhere.
func TestHTTP_SaysThatKeysCanBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listen, tls string
		warns       bool
	}{
		{"0.0.0.0:0", configs.Off, true},
		{"0.0.0.0:0", "", false},
		{"127.0.0.1:0", "", false},
		{"127.0.0.1:0", configs.Off, false},
	} {
		var logged strings.Builder
		n := &Node{log: slog.New(slog.NewTextHandler(&logged, nil)), cfg: &configs.Config{}}
		n.cfg.HTTP = configs.HTTP{Listen: c.listen, TLS: c.tls, Dir: t.TempDir()}
		n.cfg.Gateway.Keys = gateway.NewKeys()
		if err := n.openHTTP(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.listener.Close(); err != nil {
			t.Error(err)
		}
		if warned := strings.Contains(logged.String(), "set http.tls: on"); warned != c.warns {
			t.Errorf("at %s with TLS %q:\n%s", c.listen, c.tls, logged.String())
		}
	}
}

// crowd is a listener of eight connections at most.
type crowd struct{ node *Node }

// crowded serves health where headers, and bodies that nobody asked for, have so much time. active tells of
// each request that was served.
func crowded(t *testing.T, timeout time.Duration) (c crowd, active <-chan struct{}) {
	t.Helper()
	n := &Node{log: slog.New(slog.DiscardHandler), watch: &watch{}, cfg: &configs.Config{}}
	n.cfg.HTTP = configs.HTTP{Listen: "127.0.0.1:0", ConnectionsMax: 8}
	if err := n.openHTTP(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := n.web()
	if web.ReadHeaderTimeout != adminHeaderTimeout || web.IdleTimeout != adminIdleTimeout {
		t.Errorf("headers are waited for for %s, requests for %s", web.ReadHeaderTimeout, web.IdleTimeout)
	}
	web.ReadHeaderTimeout, web.IdleTimeout = timeout, time.Hour
	told, serve := make(chan struct{}, 1000), web.Handler
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve.ServeHTTP(w, r) // the body is waited for behind it
		select {
		case told <- struct{}{}:
		default: // nobody counts so many
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(n.listener) }()
	t.Cleanup(func() {
		_ = web.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return crowd{n}, told
}

func (c crowd) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.node.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// probe asks for health on a connection of its own.
func (c crowd) probe(t *testing.T) error {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.node.listener.url()+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
