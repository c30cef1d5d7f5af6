package gateway_test

import (
	"context"
	"sync"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// meanwhile has a gateway do something once between the looks at a container and its deletion.
func (w *world) meanwhile(act func()) {
	w.t.Helper()
	var once sync.Once
	w.serve(gateway.Config{Users: func(context.Context, string, string) ([]string, error) {
		once.Do(act)
		return nil, nil
	}})
}

// What is made anew under the name of what a request deletes, between the look at it and its deletion, stays.
func TestDelete_LeavesWhatIsMadeAnewMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	anew := func(database bool) func() {
		return func() {
			info, err := w.catalog.Get(t.Context(), "shop", "things")
			must(err)
			if database {
				must(w.catalog.DeleteDatabase(t.Context(), "shop"))
				_, err = w.catalog.CreateDatabase(t.Context(), "shop")
				must(err)
			} else {
				must(w.catalog.Delete(t.Context(), "shop", "things"))
			}
			_, err = w.catalog.Create(t.Context(), "shop", "things", info.Spec)
			must(err)
		}
	}
	w.meanwhile(anew(false))
	w.follow("DELETE", selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body), "").is(404)
	w.ask("GET", "/dbs/shop/colls/things", "").is(200)
	w.meanwhile(anew(true))
	w.follow("DELETE", selfOf(t, w.ask("GET", "/dbs/shop", "").is(200).body), "").is(404)
	w.ask("GET", "/dbs/shop/colls/things", "").is(200)
	w.ask("GET", "/dbs/shop", "").is(200)
}
