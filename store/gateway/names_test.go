package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/gateway"
)

// wideNames are names that earlier releases refused, and that the service takes.
var wideNames = []string{
	"日本 ü.*>=%20:\"'", strings.Repeat("é", 255), strings.Repeat("🙂", 255), strings.Repeat("x", 255), " leading", "...", "a.b", "a.b.c", "=YS5i", "-a", "_",
	"UPPER.lower", "upper.lower", "e\u0301", "é", "$1", "`;DROP TABLE c--", "<b>&amp;", "a+b c", "%2F", "dbs", "colls", "{}", "|~^", "\u202egnp",
}

func listed(t *testing.T, a *answer, feed string) (ids []string) {
	t.Helper()
	var body map[string]json.RawMessage
	a.into(&body)
	var all []struct{ ID string }
	if err := json.Unmarshal(body[feed], &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	return ids
}

// TestWideNames has databases and containers under each name, side by side: made, found by name and by _rid, written, queried,
// fed and deleted, and no two of them are one.
func TestWideNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	for i, name := range wideNames {
		db, coll := "/dbs/"+url.PathEscape(name), "/colls/"+url.PathEscape(wideNames[len(wideNames)-1-i])
		w.ask("POST", "/dbs", `{"id":`+quote(t, name)+`}`).is(201)
		w.ask("POST", "/dbs", `{"id":`+quote(t, name)+`}`).is(409)
		created := w.ask("POST", db+"/colls", strings.Replace(byPK, "{", `{"id":`+quote(t, wideNames[len(wideNames)-1-i])+`,`, 1)).is(201)
		item := w.ask("POST", db+coll+"/docs", fmt.Sprintf(`{"id":"%d","pk":"a"}`, i), keyHeader, `["a"]`).is(201)
		// The path is that of what holds the resource: the SDK for Java makes links by it.
		for of, answer := range map[string]*answer{db: created, db + coll: item} {
			if got := answer.header.Get("x-ms-alt-content-path"); "/"+got != of {
				t.Errorf("%q: x-ms-alt-content-path is %s, want %s", name, got, of)
			}
		}
	}
	// Everything is read behind everything that was made, so that what took another's place would show.
	if got := listed(t, w.ask("GET", "/dbs", "").is(200), "Databases"); !slices.Equal(got, slices.Sorted(slices.Values(wideNames))) {
		t.Errorf("databases %q", got)
	}
	for i, name := range wideNames {
		other := wideNames[len(wideNames)-1-i]
		db, coll := "/dbs/"+url.PathEscape(name), "/colls/"+url.PathEscape(other)
		if got := listed(t, w.ask("GET", db+"/colls", "").is(200), "DocumentCollections"); !slices.Equal(got, []string{other}) {
			t.Errorf("%q holds %q", name, got)
		}
		info := w.ask("GET", db+coll, "").is(200).object()
		if info["id"] != other {
			t.Errorf("%q is %q", other, info["id"])
		}
		w.ask("GET", "/"+strings.Trim(info["_self"].(string), "/"), "").is(200)
		item := fmt.Sprintf("%s%s/docs/%d", db, coll, i)
		w.ask("GET", item, "", keyHeader, `["a"]`).is(200)
		w.ask("PUT", item, fmt.Sprintf(`{"id":"%d","pk":"a","n":%d}`, i, i), keyHeader, `["a"]`).is(200)
		rows := listed(t, w.ask("POST", db+coll+"/docs", `{"query":"SELECT * FROM c"}`, isQuery, "true", acrossKeys, "true",
			"Content-Type", "application/query+json").is(200), "Documents")
		if !slices.Equal(rows, []string{fmt.Sprint(i)}) {
			t.Errorf("%q/%q: a query finds %q", name, other, rows)
		}
		changes := listed(t, w.ask("GET", db+coll+"/docs", "", "A-IM", "Incremental feed", rangeHeader, "0").is(200), "Documents")
		if !slices.Equal(changes, []string{fmt.Sprint(i)}) {
			t.Errorf("%q/%q: the change feed has %q", name, other, changes)
		}
		w.ask("GET", db+coll+"/pkranges", "").is(200)
		w.ask("DELETE", item, "", keyHeader, `["a"]`).is(204)
	}
	for i, name := range wideNames {
		db, coll := "/dbs/"+url.PathEscape(name), "/colls/"+url.PathEscape(wideNames[len(wideNames)-1-i])
		before := w.ask("GET", db+coll, "").is(200).object()["_rid"]
		w.ask("DELETE", db+coll, "").is(204)
		w.ask("GET", db+coll, "").is(404)
		w.ask("POST", db+"/colls", strings.Replace(byPK, "{", `{"id":`+quote(t, wideNames[len(wideNames)-1-i])+`,`, 1)).is(201)
		if after := w.ask("GET", db+coll, "").is(200).object()["_rid"]; after == before {
			t.Errorf("%q made again is the one before", name)
		}
		w.ask("DELETE", db, "").is(204)
		w.ask("GET", db, "").is(404)
	}
	if got := listed(t, w.ask("GET", "/dbs", "").is(200), "Databases"); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	if err := w.catalog.Sound(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWideNames_Refused are those that the service refuses, that no client could address, or that would be taken for others.
func TestWideNames_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	refused := []string{
		"", ".", "..", "trailing ", " ", "a/b", `a\b`, "a#b", "a?b", "a\nb", "a\x00", "\x1b[2J", "\u0085", strings.Repeat("é", 256), strings.Repeat("🙂", 256),
	}
	for _, name := range refused {
		w.ask("POST", "/dbs", `{"id":`+quote(t, name)+`}`).is(400)
		w.ask("POST", "/dbs/shop/colls", strings.Replace(byPK, "{", `{"id":`+quote(t, name)+`,`, 1)).is(400)
	}
	// A path of this database would be one of resource ids.
	rid := w.ask("GET", "/dbs/shop", "").is(200).object()["_rid"].(string)
	w.ask("POST", "/dbs", `{"id":`+quote(t, rid)+`}`).is(400)
	w.ask("POST", "/dbs", `{"id":"AQAAAA=="}`).is(400)
	w.ask("POST", "/dbs/shop/colls", strings.Replace(byPK, "{", `{"id":"AQAAAA==",`, 1)).is(201)
	w.ask("GET", "/dbs/shop/colls/AQAAAA==", "").is(200)
	// Names that are near to one that is there.
	for _, path := range []string{"/dbs/Shop", "/dbs/shop%20", "/dbs/sh%6Fp%00", "/dbs/=c2hvcA", "/dbs/shop/colls/THINGS", "/dbs/shop.things", "/dbs/%FF", "/dbs/*", "/dbs/%3E"} {
		w.ask("GET", path, "").is(404)
	}
	if got := listed(t, w.ask("GET", "/dbs", "").is(200), "Databases"); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("databases %q", got)
	}
}

// TestWideNames_OverARestart has containers served by a gateway and a store that were started behind their making.
func TestWideNames_OverARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	name := wideNames[0]
	docs := "/dbs/" + url.PathEscape(name) + "/colls/" + url.PathEscape(name) + "/docs"
	w.ask("POST", "/dbs", `{"id":`+quote(t, name)+`}`).is(201)
	w.ask("POST", "/dbs/"+url.PathEscape(name)+"/colls", strings.Replace(byPK, "{", `{"id":`+quote(t, name)+`,`, 1)).is(201)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
	w.stopOwners()
	w.startOwners()
	deadline := time.Now().Add(time.Minute)
	for {
		a := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`)
		if a.status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
}
