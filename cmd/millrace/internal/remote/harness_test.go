package remote_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/owner"
)

var quiet = slog.New(slog.DiscardHandler)

// partitions are those of containers that clients make.
const partitions = 3

// world is a store in this process with a gateway before it, whose answers a test can
// replace.
type world struct {
	t    *testing.T
	keys gateway.Keys
	web  *httptest.Server

	mu      sync.Mutex
	instead func(http.ResponseWriter, *http.Request) bool // true if it has answered
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, keys: gateway.NewKeys()}
	below := storetest.StartWith(t, owner.Config{DiskReserve: -1})
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	must(t, err)
	front, err := gateway.New(below.Client, ring, gateway.Config{Partitions: partitions, Logger: quiet})
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { front.Run(ctx) })
	w.web = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		instead := w.instead
		w.mu.Unlock()
		if instead == nil || !instead(rw, r) {
			front.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(func() {
		w.web.Close()
		cancel()
		running.Wait()
	})
	return w
}

// answer lets instead answer from now on, where it returns true.
func (w *world) answer(instead func(http.ResponseWriter, *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instead = instead
}

// fail answers the next n requests about items with a status, and counts all of them.
func (w *world) fail(n int64, status int) (asked *atomic.Int64) {
	asked = &atomic.Int64{}
	w.answer(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isAboutItems(r) || asked.Add(1) > n {
			return false
		}
		rw.WriteHeader(status)
		return true
	})
	return asked
}

func (w *world) open() *remote.Client { return w.openWith(w.keys.Primary, time.Minute) }

func (w *world) openWith(key gateway.Key, timeout time.Duration) *remote.Client {
	w.t.Helper()
	c, err := remote.Open(w.t.Context(), remote.Config{Endpoint: w.web.URL, Key: string(key), Timeout: timeout})
	must(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// container makes a container.
func (w *world) container(c *remote.Client, paths ...string) *remote.Container {
	w.t.Helper()
	must(w.t, c.Create(w.t.Context(), "default", "things", store.ContainerSpec{PartitionKey: paths}))
	ct, err := c.Container(w.t.Context(), "default", "things")
	must(w.t, err)
	return ct
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
