package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/query"
)

// A query over databases whose groups take long to compute ends with its request and frees its
// place. Without a bound the one below would be answered, after much more work than a second.
func TestResourceQuery_EndsWithItsRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	w.serve(gateway.Config{RequestsMax: 1, RequestTimeout: time.Second})
	text := `SELECT VALUE REGEXMATCH(REPLICATE(c._self, 100000), "` + strings.Repeat(".?", 200) + `!") FROM c GROUP BY c._self`
	w.ask("POST", "/dbs", `{"query":`+quote(t, text)+`}`, isQuery, "true").is(408)
	poll.Until(t, func() error { // the second bounds it too; a place that is not freed stays 429
		a := w.ask("POST", "/dbs", `{"query":"SELECT VALUE REPLICATE(c.id, 2) FROM c GROUP BY c.id"}`, isQuery, "true")
		return poll.Unless(a.status == http.StatusOK, fmt.Sprintf("status %d: %s", a.status, a.body))
	})
}

// Queries over databases and containers beyond those that may run at once are told to come again.
func TestResourceQuery_TooMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	known := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	poll.Until(t, func() error { // the gateway follows the catalog
		return poll.Unless(w.gateway.Knows("shop", "things"), "it does not know the container")
	})
	release := w.gateway.TakeResourceQueries()
	// So it is with searches of the catalog for resource ids.
	for _, path := range []string{known.path[:strings.Index(known.path, "/colls")], known.path[:len(known.path)-3] + "AA="} {
		w.ask("GET", path, "").is(429, "3200")
	}
	w.follow("GET", known, "").is(200)
	for _, path := range []string{"/dbs", "/dbs/shop/colls"} {
		a := w.ask("POST", path, `{"query":"SELECT * FROM c"}`, isQuery, "true").is(429, "3200")
		if a.header.Get("x-ms-retry-after-ms") == "" {
			t.Errorf("%s: no word of when to come again", path)
		}
	}
	release()
	w.ask("POST", "/dbs", `{"query":"SELECT * FROM c"}`, isQuery, "true").is(200)
}

// Queries over databases and containers hold what they do in the room of all queries.
func TestResourceQuery_SharesTheMemoryOfQueries(t *testing.T) {
	t.Parallel()
	room := query.NewRoom(1 << 20)
	w := newWorld(t, gateway.Config{Queries: room})
	w.container("things", byPK)
	const large = `{"query":"SELECT VALUE LENGTH(REPLICATE(c.id, 600000)) FROM c"}`
	w.ask("POST", "/dbs", large, isQuery, "true").is(400)
	w.ask("POST", "/dbs", `{"query":"SELECT VALUE LENGTH(REPLICATE(c.id, 200000)) FROM c"}`, isQuery, "true").is(200)
	// Another query holds the room.
	q, err := query.ParseQuery(`SELECT VALUE LENGTH(REPLICATE("x", 1000000))`)
	if err != nil {
		t.Fatal(err)
	}
	share := room.Share()
	if _, err := q.Run(query.RunConfig{Share: share}); err != nil {
		t.Fatal(err)
	}
	a := w.ask("POST", "/dbs", `{"query":"SELECT VALUE LENGTH(REPLICATE(c.id, 200000)) FROM c"}`, isQuery, "true").is(429, "3200")
	if a.header.Get("x-ms-retry-after-ms") == "" {
		t.Error("no word of when to come again")
	}
	share.Free()
	if taken := room.Taken(); taken != 0 {
		t.Errorf("%d bytes are taken when all have ended", taken)
	}
}
