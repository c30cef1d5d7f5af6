package gateway_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

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

// A gateway whose view of the catalog lags asks for partitions that have gone. By a link each request says that its container
// is not there, whether another was made under its name or not.
func TestByRID_OfAContainerThatHasGoneUnseen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	key := []string{keyHeader, `["a"]`}
	w.container("things", byPK)
	container := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	item := selfOf(t, w.ask("POST", docs, `{"id":"1","pk":"a"}`, key...).is(201).body)
	infos, err := w.catalog.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Nobody answers for what has gone, so each request takes all of its time.
	w.serve(gateway.Config{RequestTimeout: 300 * time.Millisecond}).Believe(infos)
	all := func(t *testing.T) {
		t.Helper()
		w := *w
		w.t = t
		w.follow("GET", item, "", key...).is(404, "1003")
		w.follow("PUT", item, `{"id":"1","pk":"a","n":5}`, key...).is(404, "1003")
		w.follow("PATCH", item, `[{"op":"incr","path":"/n","value":1}]`, key...).is(404, "1003")
		w.follow("DELETE", item, "", key...).is(404, "1003")
		w.follow("POST", container.in("docs"), `{"id":"2","pk":"a"}`, key...).is(404, "1003")
		w.follow("GET", container.in("docs"), "").is(404, "1003")
	}
	if err := w.catalog.Delete(t.Context(), "shop", "things"); err != nil {
		t.Fatal(err)
	}
	for w.ask("GET", docs+"/1", "", key...).status == http.StatusOK {
		// The store serves the partition until it learns that it has gone.
		continue
	}
	t.Run("deleted", all)
	if _, err := w.catalog.Create(t.Context(), "shop", "things", infos[0].Spec); err != nil {
		t.Fatal(err)
	}
	t.Run("made anew", all)
	w.ask("GET", docs+"/1", "", key...).is(410, "1000") // by its name
}
