package main

import (
	"io"
	"net/http"
)

// bareName is the system that is nothing but Go's HTTP server: what a server on it takes before it does anything. It answers
// with as many headers as Millrace and nearly as many bytes, and looks at nothing.
const bareName = "net/http"

// barePort is the environment variable that has this program be that system.
const barePort = "MILLRACE_BENCH_BARE_PORT"

// serveBare serves until it cannot, or the process is killed.
func serveBare(port string) error {
	item := readBody(0)
	return http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // no stranger reaches it
		h := w.Header()
		h["X-Ms-Activity-Id"] = []string{"4c2f2a26-6f2f-4a60-b4a5-8e6f6f0c1f4b"}
		h["X-Ms-Gatewayversion"] = []string{"version=2.0.0"}
		h["X-Ms-Schemaversion"] = []string{"1.16"}
		h["Cache-Control"] = []string{"no-store, no-cache"}
		h["X-Ms-Content-Path"] = []string{"AAAAAIAAAAA="}
		h["X-Ms-Alt-Content-Path"] = []string{"dbs/bench/colls/items"}
		h["X-Ms-Session-Token"] = []string{"0:-1#1000"}
		h["X-Ms-Request-Charge"] = []string{"1"}
		h["Etag"] = []string{`"00000000-0000-0000-0000-000000000000"`}
		if r.Method == http.MethodGet {
			h["Content-Type"] = []string{"application/json"}
			_, _ = w.Write(item) // a client that has gone is told of by the client
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	}))
}
