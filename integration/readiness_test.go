package integration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/store"
)

// readyz asks whether a process is ready.
func readyz(ctx context.Context, address string) (status int, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// TestReadiness_WithoutProgressAStoreIsNotReady takes the quorum away from a store, while
// it is written to and while nobody asks it for anything. How long it takes is logged.
func TestReadiness_WithoutProgressAStoreIsNotReady(t *testing.T) {
	t.Parallel()
	for _, writing := range []bool{true, false} {
		t.Run(fmt.Sprintf("writing %t", writing), func(t *testing.T) {
			t.Parallel()
			three := clustertest.Start(t)
			js := three.JetStream(three.Servers[0])
			address := "127.0.0.1:" + strconv.Itoa(freePort(t))
			spawn(t, "store", "--server", three.Servers[0].ClientURL(), "--dir", t.TempDir(), "--listen", address, "--durability", "replicas")
			var info store.ContainerInfo
			var catalog *store.Catalog
			three.Wait(func(ctx context.Context) (err error) {
				if catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3, Log: feed.LogConfig{Replicas: 3}}); err != nil {
					return err
				}
				info, err = catalog.Create(ctx, "default", "things", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2})
				return err
			})
			things, err := store.NewClient(js.Conn(), catalog, store.ClientConfig{}).Open(info)
			if err != nil {
				t.Fatal(err)
			}
			three.Wait(func(ctx context.Context) error {
				_, err := things.Upsert(ctx, []byte(`{"id":"first"}`))
				return err
			})
			three.Wait(func(ctx context.Context) error {
				if status, body := readyz(ctx, address); status != http.StatusOK {
					return fmt.Errorf("%d: %s", status, body)
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; writing && ctx.Err() == nil; i++ {
					_, _ = things.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d"}`, i)) // it fails without a quorum
				}
			}()
			began := time.Now()
			three.Stop(three.Servers[1:]...)
			stopped := time.Now()
			three.Wait(func(ctx context.Context) error {
				status, body := readyz(ctx, address)
				if status == http.StatusServiceUnavailable {
					t.Logf("503 after %s, %s after the servers had ended: %s", time.Since(began).Round(time.Millisecond), time.Since(stopped).Round(time.Millisecond), body)
					return nil
				}
				return fmt.Errorf("%d: %s", status, body)
			})
			cancel()
			<-done
		})
	}
}
