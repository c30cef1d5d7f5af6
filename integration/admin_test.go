package integration_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/gateway"
)

// asked is what a listener answered.
type asked struct {
	status int
	header http.Header
	body   string
}

// askWith sends a GET with a key, if there is one.
func askWith(t *testing.T, client *http.Client, url, key string) (asked, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return asked{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return asked{resp.StatusCode, resp.Header, string(body)}, nil
}

// trusts returns a client that trusts the authority of a file alone.
func trusts(t *testing.T, file string) *http.Client {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s has no certificate", file)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestAdmin_OffTheLoopbackHasTLSAndKeys starts a node that listens at all addresses, as one does
// whose probes and Prometheus are elsewhere.
func TestAdmin_OffTheLoopbackHasTLSAndKeys(t *testing.T) {
	t.Parallel()
	dir, port, at := t.TempDir(), strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	up := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "0.0.0.0:"+at, "--set", "http.names=millrace.example")
	keys, err := gateway.ReadKeys(filepath.Join(dir, "gateway", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	authority := filepath.Join(dir, "http", "ca.pem")
	client, secure := trusts(t, authority), "https://localhost:"+at

	if a, err := askWith(t, http.DefaultClient, "http://localhost:"+at+"/metrics", ""); err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.body, "HTTPS server") {
		t.Errorf("a plain request is answered %+v, %v", a, err)
	}
	if _, err := askWith(t, http.DefaultClient, secure+"/healthz", ""); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("without the authority: %v", err)
	}
	for _, c := range []struct {
		name, path, key string
		status          int
		says            string
	}{
		{"a probe of life", "/healthz", "", 200, `"alive"`},
		{"a probe of progress", "/readyz", "", 200, `"ready": true`},
		{"Prometheus without a key", "/metrics", "", 401, "millrace keys show"},
		{"a key that is not in force", "/metrics", string(gateway.NewKeys().PrimaryReadOnly), 401, "millrace keys show"},
		{"a read-only key", "/metrics", string(keys.PrimaryReadOnly), 200, "millrace_lease_held"},
		{"a key that writes", "/metrics", string(keys.Primary), 200, "millrace_lease_held"},
		{"the console", "/", "", 200, "<h1>Sign in</h1>"},
	} {
		var a asked
		var err error
		poll.Until(t, func() error { // a busy node may make no progress for a moment
			a, err = askWith(t, client, secure+c.path, c.key)
			return poll.Unless(a.status != http.StatusServiceUnavailable, a.body)
		})
		if err != nil || a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d, %v\n%.300s", c.name, a.status, err, a.body)
		}
		if c.status == 401 && !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: the answer does not say how to show a key: %v", c.name, a.header)
		}
	}
	b := newBrowser(t, secure)
	b.http.Transport = client.Transport
	b.signIn(keys.PrimaryReadOnly)
	b.sees("/containers", "Containers")
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := b.http.Do(b.request(http.MethodPost, "/sign-in", url.Values{"key": {string(keys.PrimaryReadOnly)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if c := answer.Cookies(); len(c) != 1 || !c[0].Secure {
		t.Errorf("a browser would send the session without TLS too: %v", c)
	}
	for _, args := range [][]string{{"health"}, {"health", "--ready"}} {
		poll.Until(t, func() error {
			out, errs, exit := command(t, "", nil, append(args, "--listen", "0.0.0.0:"+at)...)
			return poll.Unless(exit == 0, fmt.Sprintf("%v: exit %d\n%s%s", args, exit, out, errs))
		})
	}
	poll.Until(t, func() error {
		out := up.output()
		return poll.Unless(strings.Contains(out, "https://localhost:"+at) && strings.Contains(out, authority), "up does not tell the address and the authority:\n"+out)
	})
	before, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	up.stop()
	up.start()
	if after, err := os.ReadFile(authority); err != nil || string(after) != string(before) {
		t.Errorf("another start has another authority, or %v", err)
	}
	if a, err := askWith(t, client, secure+"/healthz", ""); err != nil || a.status != http.StatusOK {
		t.Errorf("after another start: %+v, %v", a, err)
	}
}

// TestAdmin_OnTheLoopbackIsOpen holds what Prometheus on the same machine rests on, and how to have
// it otherwise.
func TestAdmin_OnTheLoopbackIsOpen(t *testing.T) {
	t.Parallel()
	dir, port, at := t.TempDir(), strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	spawn(t, "up", "--dir", dir, "--port", port, "--listen", "127.0.0.1:"+at)
	if a, err := askWith(t, http.DefaultClient, "http://127.0.0.1:"+at+"/metrics", ""); err != nil || a.status != http.StatusOK {
		t.Errorf("/metrics: %d, %v", a.status, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "http")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a certificate was made that nobody needs, or %v", err)
	}
	// A worker that keeps nothing, with TLS and a key of everybody's.
	key, at := string(gateway.NewKeys().PrimaryReadOnly), strconv.Itoa(freePort(t))
	spawn(t, "worker", "--server", "nats://127.0.0.1:"+port, "--creds", filepath.Join(dir, "credentials", "admin.json"),
		"--listen", "127.0.0.1:"+at, "--set", "http.tls=on", "--set", "gateway.keys.primaryReadOnly="+key)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // nothing tells its authority
	t.Cleanup(client.CloseIdleConnections)
	for shown, want := range map[string]int{"": 401, "a2V5": 401, key: 200} {
		if a, err := askWith(t, client, "https://127.0.0.1:"+at+"/metrics", shown); err != nil || a.status != want {
			t.Errorf("with key %q: %d, %v, want %d", shown, a.status, err, want)
		}
	}
	if out, errs, exit := command(t, "", nil, "health", "--listen", "127.0.0.1:"+at, "--set", "http.tls=on"); exit != 0 {
		t.Errorf("health: exit %d\n%s%s", exit, out, errs)
	}
}
