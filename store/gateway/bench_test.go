package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	counter "sync/atomic"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// BenchmarkItem asks over HTTP from 64 connections, the client in the same process.
func BenchmarkItem(b *testing.B) {
	w := newWorld(b, gateway.Config{})
	w.container("things", byPK)
	pad := strings.Repeat("x", 900)
	w.ask("POST", docs, `{"id":"1","pk":"a","x":"`+pad+`"}`, keyHeader, `["a"]`).is(201)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var n counter.Int64
	ask := func(b *testing.B, method, path, body, key string, status int) {
		b.Helper()
		r, err := http.NewRequestWithContext(b.Context(), method, w.web.URL+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set(keyHeader, key)
		sign(b, r, w.key)
		resp, err := client.Do(r)
		if err != nil {
			b.Error(err)
			return
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != status {
			b.Errorf("%s: status %d, %v", method, resp.StatusCode, err)
		}
	}
	for name, one := range map[string]func(*testing.B){
		"read": func(b *testing.B) {
			b.Helper()
			ask(b, "GET", docs+"/1", "", `["a"]`, 200)
		},
		"create": func(b *testing.B) {
			b.Helper()
			id := n.Add(1)
			key := fmt.Sprintf("k%d", id)
			ask(b, "POST", docs, fmt.Sprintf(`{"id":"%d","pk":%q,"x":%q}`, id, key, pad), fmt.Sprintf("[%q]", key), 201)
		},
	} {
		b.Run(name+"/connections=64", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					one(b)
				}
			})
		})
	}
}

// taken is a client that takes an answer and keeps nothing of it.
type taken struct {
	header http.Header
	status int
}

func (w *taken) Header() http.Header            { return w.header }
func (w *taken) Write(body []byte) (int, error) { return len(body), nil }
func (w *taken) WriteHeader(status int)         { w.status = status }

// BenchmarkServeHTTP is what the gateway and the store take of a request, without HTTP: one goroutine, nothing on a network.
func BenchmarkServeHTTP(b *testing.B) {
	w := newWorld(b, gateway.Config{})
	w.container("things", byPK)
	item := `{"id":"1","pk":"a","x":"` + strings.Repeat("x", 900) + `"}`
	w.ask("POST", docs, item, keyHeader, `["a"]`).is(201)
	for name, request := range map[string]struct{ method, path, body string }{
		"read":   {http.MethodGet, docs + "/1", ""},
		"upsert": {http.MethodPost, docs, item},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			body := strings.NewReader(request.body)
			r, err := http.NewRequestWithContext(b.Context(), request.method, w.web.URL+request.path, body)
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set(keyHeader, `["a"]`)
			r.Header.Set(upsert, "true")
			sign(b, r, w.key)
			answer := &taken{header: http.Header{}}
			for b.Loop() {
				clear(answer.header)
				body.Reset(request.body)
				w.gateway.ServeHTTP(answer, r)
			}
			if answer.status != http.StatusOK {
				b.Errorf("status %d", answer.status)
			}
		})
	}
}
