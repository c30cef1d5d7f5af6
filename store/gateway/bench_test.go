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
