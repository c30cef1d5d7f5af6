package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

const docs = "/dbs/shop/colls/things/docs"

// Items have the ids that the service takes. Where a client encodes them, as a URL must, each is an item like others.
func TestItem_WideIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for _, id := range []string{"a?b", "a#b", "a/b", "/", "a b%20?", `"]/x`, "ü/é", `a\b`, `\u0041`} {
		quoted, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		path := docs + "/" + url.PathEscape(id)
		body := func(n int) string { return fmt.Sprintf(`{"id":%s,"pk":"a","n":%d}`, quoted, n) }
		made := w.ask("POST", docs, body(1), keyHeader, `["a"]`).is(201)
		if got := w.ask("GET", path, "", keyHeader, `["a"]`).is(200); !strings.Contains(string(got.body), string(quoted)) {
			t.Errorf("%q: %s", id, got.body)
		}
		var item struct {
			Self string `json:"_self"`
		}
		made.into(&item)
		w.ask("GET", "/"+strings.Trim(item.Self, "/"), "", keyHeader, `["a"]`).is(200)
		w.ask("PUT", path, body(2), keyHeader, `["a"]`).is(200)
		w.ask("PATCH", path, `{"operations":[{"op":"incr","path":"/n","value":1}]}`, keyHeader, `["a"]`).is(200)
		w.ask("POST", docs, fmt.Sprintf(`[{"operationType":"Read","id":%s},{"operationType":"Upsert","resourceBody":%s}]`, quoted, body(3)),
			keyHeader, `["a"]`, isBatch, "True", atomic, "true").is(200).outcomes(200, 200)
		if got := w.query(fmt.Sprintf(`SELECT VALUE c.n FROM c WHERE c.id = %s AND c.pk = "a"`, quoted)); len(got) != 1 || got[0] != "3" {
			t.Errorf("%q: a query gives %v", id, got)
		}
		w.ask("DELETE", path, "", keyHeader, `["a"]`).is(204)
		w.ask("GET", path, "", keyHeader, `["a"]`).is(404)
	}
	// Not encoded, it is another path, as there.
	w.ask("POST", docs, `{"id":"a/b","pk":"a"}`, keyHeader, `["a"]`).is(201)
	w.ask("GET", docs+"/a/b", "", keyHeader, `["a"]`).is(404)
}

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

// An upsert asks an etag of an item that is there, and creates what is not there, by itself and in a batch. Spring Data saves so what has no
// version yet: with If-Match: null.
func TestItem_UpsertWithAnEtagCreates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	one := []string{keyHeader, `["a"]`, upsert, "true", "If-Match", "null"}
	first := w.ask("POST", docs, `{"id":"1","pk":"a"}`, one...).is(201).header.Get("etag")
	w.ask("POST", docs, `{"id":"1","pk":"a","n":1}`, one...).is(412)
	w.ask("DELETE", docs+"/1", "", keyHeader, `["a"]`).is(204)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`, upsert, "true", "If-Match", first).is(201)
	for id, all := range map[string]string{"2": "true", "3": "false"} {
		ops := fmt.Sprintf(`[{"operationType":"Upsert","ifMatch":"null","resourceBody":{"id":%q,"pk":"a"}}]`, id)
		with := []string{keyHeader, `["a"]`, isBatch, "True", atomic, all}
		w.ask("POST", docs, ops, with...).outcomes(201)
		w.ask("POST", docs, ops, with...).outcomes(412)
	}
}

// A session that was refused a write has seen why: its token says so, also where others wrote what it saw.
func TestItem_RefusedWritesTellWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	key := []string{keyHeader, `["a"]`}
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, key...).is(201)
	want := w.ask("POST", docs, `{"id":"2","pk":"b"}`, keyHeader, `["b"]`).is(201).header.Get("x-ms-session-token")
	other := append([]string{"If-Match", `"0000000000000001-7"`}, key...)
	for name, c := range map[string]struct {
		method, path, body string
		with               []string
		status             int
		substatus          []string
		token              string
	}{
		"an id that is taken":        {"POST", docs, `{"id":"1","pk":"a"}`, key, 409, nil, want},
		"another version":            {"PUT", docs + "/1", `{"id":"1","pk":"a"}`, other, 412, nil, want},
		"a condition that is false":  {"PATCH", docs + "/1", `{"condition":"from c where c.n = 1","operations":[{"op":"add","path":"/n","value":1}]}`, key, 412, []string{"1110"}, want},
		"a member that is not there": {"PATCH", docs + "/1", `[{"op":"remove","path":"/none"}]`, key, 400, nil, want},
		"replace nothing":            {"PUT", docs + "/9", `{"id":"9","pk":"a"}`, key, 404, nil, want},
		"patch nothing":              {"PATCH", docs + "/9", `[{"op":"add","path":"/n","value":1}]`, key, 404, nil, want},
		"delete nothing":             {"DELETE", docs + "/9", "", key, 404, nil, want},
		"upsert only to replace":     {"POST", docs, `{"id":"9","pk":"a"}`, append([]string{upsert, "true", "If-Match", `*`}, key...), 412, nil, want},
		"no item":                    {"POST", docs, `{"pk":"a"}`, key, 400, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.ask(c.method, c.path, c.body, c.with...).is(c.status, c.substatus...)
			if got := a.header.Get("x-ms-session-token"); got != c.token {
				t.Errorf("session token %q, want %q", got, c.token)
			}
			if a.header.Get("x-ms-retry-after-ms") != "" {
				t.Errorf("it is to be asked again: %v", a.header)
			}
		})
	}
}

const wholeKey = "/dbs/shop/colls/things/operations/partitionkeydelete"

// All items of a partition key are deleted, in more transactions than one, beside somebody who deletes some of them himself.
func TestItem_DeletionOfAPartitionKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	const n = 350
	for at := 0; at < n; at += 50 {
		var ops []string
		for i := range 50 {
			ops = append(ops, fmt.Sprintf(`{"operationType":"Create","resourceBody":{"id":"%d/\\","pk":"a"}}`, at+i))
		}
		w.ask("POST", docs, "["+strings.Join(ops, ",")+"]", keyHeader, `["a"]`, isBatch, "True", atomic, "true").is(200)
	}
	for _, pk := range []string{`"b"`, "null", "1"} {
		w.ask("POST", docs, `{"id":"1","pk":`+pk+`}`, keyHeader, "["+pk+"]").is(201)
	}
	w.ask("POST", wholeKey, "").is(400) // no key
	w.ask("POST", wholeKey, "", keyHeader, `["a","b"]`).is(400, "1001")
	w.ask("POST", strings.Replace(wholeKey, "things", "none", 1), "", keyHeader, `["a"]`).is(404, "1003")
	var wg sync.WaitGroup
	for i := range n / 2 {
		wg.Go(func() {
			path := docs + "/" + url.PathEscape(fmt.Sprintf(`%d/\`, n-1-2*i))
			if a := w.ask("DELETE", path, "", keyHeader, `["a"]`); a.status != 204 && a.status != 404 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	a := w.ask("POST", wholeKey, "", keyHeader, `["a"]`).is(200)
	wg.Wait()
	if len(a.body) != 0 || a.header.Get("x-ms-request-charge") == "" {
		t.Errorf("answered %q and %v", a.body, a.header)
	}
	if got := w.query("SELECT VALUE c.pk FROM c"); len(got) != 3 {
		t.Errorf("there are %v, want an item of each other key", got)
	}
	w.ask("POST", wholeKey, "", keyHeader, `["a"]`).is(200) // nothing
	w.ask("POST", wholeKey, "", keyHeader, `[null]`).is(200)
	if got := w.query("SELECT VALUE c.pk FROM c ORDER BY c.pk"); strings.Join(got, " ") != `1 "b"` {
		t.Errorf("there are %v, want 1 and b", got)
	}
}

// An object or array where the partition key is makes an item without a key, as SDKs take it.
func TestItem_ObjectWhereTheKeyIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"object","pk":{"a":1}}`, keyHeader, `[{}]`).is(201)
	w.ask("POST", docs, `{"id":"array","pk":[1]}`).is(201) // without a header the key is the item's
	w.ask("POST", docs, `{"id":"none"}`, keyHeader, `[{}]`).is(201)
	w.ask("POST", docs, `{"id":"other","pk":{"a":1}}`, keyHeader, `["a"]`).is(400, "1001")
	if got := w.ask("GET", docs+"/object", "", keyHeader, `[{}]`).is(200).object()["pk"]; fmt.Sprint(got) != "map[a:1]" {
		t.Errorf("the item is read with %v where its key is", got)
	}
	w.ask("PUT", docs+"/array", `{"id":"array","pk":[2]}`, keyHeader, `[{}]`).is(200)
	for text, want := range map[string]string{
		`SELECT VALUE c.id FROM c WHERE c.pk = {"a":1}`:                    `"object"`,
		`SELECT VALUE c.id FROM c WHERE c.pk IN ([2], {"a":2})`:            `"array"`,
		`SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.pk) ORDER BY c.id`:    `"array" "object"`,
		`SELECT VALUE COUNT(1) FROM c WHERE NOT IS_DEFINED(c.pk)`:          `1`,
		`SELECT VALUE c.id FROM c WHERE c.pk = {"a":1} AND c.id = "array"`: ``,
	} {
		for _, with := range [][]string{{}, {keyHeader, `[{}]`}} {
			if got := strings.Join(w.query(text, with...), " "); got != want {
				t.Errorf("%s with %v gives %s, want %s", text, with, got, want)
			}
		}
	}
	w.ask("DELETE", docs+"/object", "", keyHeader, `[{}]`).is(204)
}
