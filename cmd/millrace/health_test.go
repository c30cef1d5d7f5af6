package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHealth_TellsProbes asks nodes in every state.
func TestHealth_TellsProbes(t *testing.T) {
	ready := http.StatusOK
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(ready)
		if ready == http.StatusOK {
			_, _ = w.Write([]byte(`{"ready": true}`))
			return
		}
		_, _ = w.Write([]byte(`{"ready": false, "problems": ["pipeline names is stuck", "the disk is full"]}`))
	})
	alive := httptest.NewServer(mux)
	defer alive.Close()
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	gone := httptest.NewServer(mux)
	gone.Close()
	at := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	for _, c := range []struct {
		name   string
		args   []string
		status int // of /readyz
		code   int
		want   []string // in what it prints, and on standard error
	}{
		{"alive", []string{"--listen", at(alive)}, 503, codeOK, []string{"alive: " + at(alive)}},
		{"ready", []string{"--listen", at(alive), "--ready"}, 200, codeOK, []string{"ready: "}},
		{"not ready", []string{"--listen", at(alive), "--ready"}, 503, codeBad, []string{"pipeline names is stuck\nthe disk is full\n", "is not ready"}},
		{"as JSON", []string{"--listen", at(alive), "--ready", "-o", "json"}, 503, codeBad, []string{`"ready": false`, `"the disk is full"`}},
		{"another server", []string{"--listen", at(foreign)}, 200, codeBad, []string{"answers 404"}},
		{"another server, ready", []string{"--listen", at(foreign), "--ready"}, 200, codeBad, []string{"no node answers like that"}},
		{"nobody", []string{"--listen", at(gone)}, 200, codeBad, []string{"no node answers at " + at(gone)}},
		{"off", []string{"--listen", "off"}, 200, codeNotAsked, []string{"http.listen is off", "MILLRACE_HTTP_LISTEN"}},
		{"no address", []string{"--listen", "nowhere"}, 200, codeNotAsked, []string{"host:port"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ready = c.status
			out, errs, code := command(t, "", append([]string{"health"}, c.args...)...)
			for _, want := range c.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if code != c.code || t.Failed() {
				t.Errorf("exit %d, want %d\n%s%s", code, c.code, out, errs)
			}
		})
	}
}

// TestHealth_FindsTheListener asks where a listener of all addresses is reached.
func TestHealth_FindsTheListener(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8082": "127.0.0.1:8082", "0.0.0.0:8082": "127.0.0.1:8082", ":8082": "127.0.0.1:8082",
		"[::]:8082": "[::1]:8082", "10.0.0.7:80": "10.0.0.7:80", "host.example:1": "host.example:1",
	} {
		if got := dialed(listen); got != want {
			t.Errorf("%s is reached at %s, want %s", listen, got, want)
		}
	}
}
