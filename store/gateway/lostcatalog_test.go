package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// TestGateway_ALostCatalogIsUnavailableAndNotAbsent takes the catalog away while
// applications work.
func TestGateway_ALostCatalogIsUnavailableAndNotAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("orders", `{"id":"orders","partitionKey":{"paths":["/id"],"kind":"Hash"}}`)
	if err := w.js.DeleteKeyValue(t.Context(), store.CatalogBucket); err != nil {
		t.Fatal(err)
	}
	eventuallyIs := func(method, path, body string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			a := w.ask(method, path, body)
			if a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), "the catalog is damaged") {
				return
			}
			if a.status == http.StatusCreated || time.Now().After(deadline) {
				t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	eventuallyIs(http.MethodGet, "/dbs/shop/colls/orders", "") // what was found sound counts for two seconds
	eventuallyIs(http.MethodGet, "/dbs/shop/colls/others", "")
	eventuallyIs(http.MethodGet, "/dbs/shop", "")
	eventuallyIs(http.MethodPost, "/dbs/shop/colls", `{"id":"orders","partitionKey":{"paths":["/id"],"kind":"Hash"}}`)
}
