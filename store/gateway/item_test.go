package gateway_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

const docs = "/dbs/shop/colls/things/docs"

// An item lives: it is created, read, replaced, upserted, patched and deleted, and
// shows what the protocol adds.
func TestItem_Life(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	a := w.ask("POST", docs, `{"id":"1","pk":"a","n":9007199254740993,"_etag":"mine"}`, keyHeader, `["a"]`).is(201)
	item := a.object()
	for _, name := range []string{"_rid", "_self", "_etag", "_ts", "_attachments"} {
		if item[name] == nil {
			t.Errorf("the item has no %s: %s", name, a.body)
		}
	}
	if item["_etag"] != a.header.Get("etag") || strings.Count(string(a.body), `"_etag"`) != 1 {
		t.Errorf("etag %v in the body, %s in the header: %s", item["_etag"], a.header.Get("etag"), a.body)
	}
	if !strings.Contains(string(a.body), "9007199254740993") {
		t.Errorf("a number did not come out as it went in: %s", a.body)
	}
	if token := a.header.Get("x-ms-session-token"); !strings.HasPrefix(token, "0:-1#") {
		t.Errorf("session token %q", token)
	}
	first := a.header.Get("etag")
	read := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200)
	if string(read.body) != string(a.body) {
		t.Errorf("read %s, created %s", read.body, a.body)
	}
	if a := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`, "If-None-Match", first).is(304); len(a.body) > 0 || a.header.Get("etag") != first {
		t.Errorf("304 with body %q and etag %s", a.body, a.header.Get("etag"))
	}
	second := w.ask("PUT", docs+"/1", `{"id":"1","pk":"a","n":2}`, keyHeader, `["a"]`, "If-Match", first).is(200).header.Get("etag")
	w.ask("PUT", docs+"/1", `{"id":"1","pk":"a","n":3}`, keyHeader, `["a"]`, "If-Match", first).is(412)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(409)
	w.ask("POST", docs, `{"id":"1","pk":"a","n":4}`, keyHeader, `["a"]`, upsert, "True", "If-Match", second).is(200)
	w.ask("POST", docs, `{"id":"2","pk":"a"}`, keyHeader, `["a"]`, upsert, "True").is(201)
	a = w.ask("PATCH", docs+"/1", `[{"op":"incr","path":"/n","value":1}]`, keyHeader, `["a"]`).is(200)
	if n := a.object()["n"]; n.(interface{ String() string }).String() != "5" {
		t.Errorf("n is %v after incr, want 5", n)
	}
	w.ask("PATCH", docs+"/1", `{"condition":"from c where c.n > 5","operations":[{"op":"set","path":"/n","value":0}]}`, keyHeader, `["a"]`).is(412, "1110")
	w.ask("PATCH", docs+"/1", `{"condition":"from c where c.n = 5","operations":[{"op":"set","path":"/n","value":0}]}`, keyHeader, `["a"]`).is(200)
	gone := w.ask("DELETE", docs+"/1", "", keyHeader, `["a"]`).is(204)
	if len(gone.body) > 0 {
		t.Errorf("a delete answers %s", gone.body)
	}
	w.ask("DELETE", docs+"/1", "", keyHeader, `["a"]`).is(404)
	// That it is gone is seen too, by this session and by others.
	absent := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(404)
	if token := absent.header.Get("x-ms-session-token"); token == "" || token != gone.header.Get("x-ms-session-token") {
		t.Errorf("an item that is gone has the session token %q, its delete had %q", token, gone.header.Get("x-ms-session-token"))
	}
}
