package gateway_test

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/store/gateway"
)

// What is refused changes nothing, and says why in the protocol's form.
func TestItem_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", `{"partitionKey":{"paths":["/pk"]},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/sku"]}]}}`)
	w.ask("POST", docs, `{"id":"1","pk":"a","sku":"s1"}`, keyHeader, `["a"]`).is(201)
	before := w.ask("GET", docs, "").is(200)
	large := `{"id":"9","pk":"a","text":"` + strings.Repeat("x", 2<<20) + `"}`
	deep := `{"id":"9","pk":"a","x":` + strings.Repeat("[", 130) + strings.Repeat("]", 130) + `}`
	key := []string{keyHeader, `["a"]`}
	for _, c := range []struct {
		name, method, path, body string
		with                     []string
		status                   int
		substatus                string
	}{
		{"no JSON", "POST", docs, `{"id":"9"`, key, 400, ""},
		{"nothing", "POST", docs, ``, key, 400, ""},
		{"a list", "POST", docs, `[]`, key, 400, ""},
		{"a text", "POST", docs, `"9"`, key, 400, ""},
		{"no id", "POST", docs, `{"pk":"a"}`, key, 400, ""},
		{"an id that is a number", "POST", docs, `{"id":9,"pk":"a"}`, key, 400, ""},
		{"an empty id", "POST", docs, `{"id":"","pk":"a"}`, key, 400, ""},
		{"an id that is a dot", "POST", docs, `{"id":".","pk":"a"}`, key, 400, ""},
		{"an id that is two dots", "POST", docs, `{"id":"..","pk":"a"}`, key, 400, ""},
		{"upsert an id that is a dot", "POST", docs, `{"id":".","pk":"a"}`, append([]string{upsert, "true"}, key...), 400, ""},
		{"an id that is too long", "POST", docs, `{"id":"` + strings.Repeat("x", 1024) + `","pk":"a"}`, key, 400, ""},
		{"an object for a text", "POST", docs, `{"id":"9","pk":{}}`, key, 400, "1001"},
		{"another key", "POST", docs, `{"id":"9","pk":"b"}`, key, 400, "1001"},
		{"a missing key for null", "POST", docs, `{"id":"9"}`, []string{keyHeader, `[null]`}, 400, "1001"},
		{"null for a missing key", "POST", docs, `{"id":"9","pk":null}`, []string{keyHeader, `[{}]`}, 400, "1001"},
		{"a number for a text", "POST", docs, `{"id":"9","pk":"1"}`, []string{keyHeader, `[1]`}, 400, "1001"},
		{"a key header of rubbish", "POST", docs, `{"id":"9","pk":"a"}`, []string{keyHeader, `a`}, 400, ""},
		{"two levels of key", "POST", docs, `{"id":"9","pk":"a"}`, []string{keyHeader, `["a","b"]`}, 400, "1001"},
		{"a trigger", "POST", docs, `{"id":"9","pk":"a"}`, append([]string{"x-ms-documentdb-pre-trigger-include", "t"}, key...), 400, ""},
		{"a ttl that is none", "POST", docs, `{"id":"9","pk":"a","ttl":0}`, key, 400, ""},
		{"too deep", "POST", docs, deep, key, 400, ""},
		{"two members of one name", "POST", docs, `{"id":"9","pk":"a","x":1,"x":2}`, key, 400, ""},
		{"too large", "POST", docs, large, key, 413, ""},
		{"an id that is taken", "POST", docs, `{"id":"1","pk":"a"}`, key, 409, ""},
		{"a unique key that is taken", "POST", docs, `{"id":"9","pk":"a","sku":"s1"}`, key, 409, ""},
		{"a unique key that is taken, by upsert", "POST", docs, `{"id":"9","pk":"a","sku":"s1"}`, append([]string{upsert, "true"}, key...), 409, ""},
		{"replace what is not there", "PUT", docs + "/9", `{"id":"9","pk":"a"}`, key, 404, ""},
		{"replace with another id", "PUT", docs + "/1", `{"id":"2","pk":"a"}`, key, 400, ""},
		{"replace with another key", "PUT", docs + "/1", `{"id":"1","pk":"b"}`, key, 400, "1001"},
		{"replace another version", "PUT", docs + "/1", `{"id":"1","pk":"a"}`, append([]string{"If-Match", `"0000000000000001-7"`}, key...), 412, ""},
		{"replace a version of another world", "PUT", docs + "/1", `{"id":"1","pk":"a"}`, append([]string{"If-Match", `"invalid"`}, key...), 412, ""},
		{"upsert another version", "POST", docs, `{"id":"1","pk":"a"}`, append([]string{upsert, "true", "If-Match", `"x"`}, key...), 412, ""},
		{"upsert only to replace", "POST", docs, `{"id":"9","pk":"a"}`, append([]string{upsert, "true", "If-Match", `*`}, key...), 412, ""},
		{"upsert only to create", "POST", docs, `{"id":"1","pk":"a"}`, append([]string{upsert, "true", "If-None-Match", `*`}, key...), 412, ""},
		{"upsert only to create what has a unique key that is taken", "POST", docs, `{"id":"9","pk":"a","sku":"s1"}`, append([]string{upsert, "true", "If-None-Match", `*`}, key...), 409, ""},
		{"upsert only to replace in a container that is none", "POST", "/dbs/shop/colls/none/docs", `{"id":"9","pk":"a"}`, append([]string{upsert, "true", "If-Match", `*`}, key...), 404, "1003"},
		{"patch what is not there", "PATCH", docs + "/9", `[{"op":"add","path":"/n","value":1}]`, key, 404, ""},
		{"patch nothing", "PATCH", docs + "/1", `[]`, key, 400, ""},
		{"patch too much", "PATCH", docs + "/1", "[" + strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/n","value":1},`, 11), ",") + "]", key, 400, ""},
		{"patch the id", "PATCH", docs + "/1", `[{"op":"set","path":"/id","value":"2"}]`, key, 400, ""},
		{"patch the key", "PATCH", docs + "/1", `[{"op":"set","path":"/pk","value":"b"}]`, key, 400, ""},
		{"patch a system property", "PATCH", docs + "/1", `[{"op":"set","path":"/_ts","value":1}]`, key, 400, ""},
		{"patch half", "PATCH", docs + "/1", `[{"op":"add","path":"/n","value":1},{"op":"remove","path":"/none"}]`, key, 400, ""},
		{"patch by an operation that is none", "PATCH", docs + "/1", `[{"op":"flip","path":"/n"}]`, key, 400, ""},
		{"patch a text by a number", "PATCH", docs + "/1", `[{"op":"incr","path":"/sku","value":1}]`, key, 400, ""},
		{"patch under a condition that is none", "PATCH", docs + "/1", `{"condition":"from c where (","operations":[{"op":"add","path":"/n","value":1}]}`, key, 400, ""},
		{"patch under a condition that is false", "PATCH", docs + "/1", `{"condition":"from c where c.n = 1","operations":[{"op":"add","path":"/n","value":1}]}`, key, 412, "1110"},
		{"patch another version", "PATCH", docs + "/1", `[{"op":"add","path":"/n","value":1}]`, append([]string{"If-Match", `"x"`}, key...), 412, ""},
		{"patch with rubbish", "PATCH", docs + "/1", `nonsense`, key, 400, ""},
		{"patch without a key", "PATCH", docs + "/1", `[{"op":"add","path":"/n","value":1}]`, nil, 400, ""},
		{"delete what is not there", "DELETE", docs + "/9", "", key, 404, ""},
		{"delete another version", "DELETE", docs + "/1", "", append([]string{"If-Match", `"x"`}, key...), 412, ""},
		{"delete without a key", "DELETE", docs + "/1", "", nil, 400, ""},
		{"read without a key", "GET", docs + "/1", "", nil, 400, ""},
		{"read in another partition", "GET", docs + "/1", "", []string{keyHeader, `["b"]`}, 404, ""},
		{"a container that is none", "POST", "/dbs/shop/colls/none/docs", `{"id":"9","pk":"a"}`, key, 404, "1003"},
		{"a database that is none", "GET", "/dbs/none/colls/things/docs/1", "", key, 404, "1003"},
		{"a container of before", "GET", docs + "/1", "", append([]string{"x-ms-cosmos-intended-collection-rid", "AAAAAA=="}, key...), 400, "1024"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.ask(c.method, c.path, c.body, c.with...)
			if c.substatus == "" {
				a.is(c.status)
			} else {
				a.is(c.status, c.substatus)
			}
		})
	}
	if after := w.ask("GET", docs, "").is(200); string(after.body) != string(before.body) {
		t.Errorf("before: %s\nafter: %s", before.body, after.body)
	}
}

// The same id in two partitions is two items, and keys of every type are different.
func TestItem_IdentityIsKeyAndID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	keys := map[string]string{
		`["a"]`: `"a"`, `[1]`: `1`, `["1"]`: `"1"`, `[null]`: `null`, `[true]`: `true`, `["true"]`: `"true"`, `[-1.5]`: `-1.5`, `["Zo\u00eb"]`: `"Zoë"`, `[""]`: `""`,
	}
	for header, value := range keys {
		w.ask("POST", docs, `{"id":"x","pk":`+value+`}`, keyHeader, header).is(201)
	}
	w.ask("POST", docs, `{"id":"x"}`, keyHeader, `[{}]`).is(201)
	for header, value := range keys {
		if a := w.ask("GET", docs+"/x", "", keyHeader, header).is(200); !strings.Contains(string(a.body), `"pk":`+value) {
			t.Errorf("under %s lies %s", header, a.body)
		}
	}
	if got := w.pages(); len(got) != len(keys)+1 {
		t.Errorf("%d items, want %d", len(got), len(keys)+1)
	}
	// Without a header the item itself tells.
	w.ask("POST", docs, `{"id":"y","pk":"a"}`).is(201)
	w.ask("GET", docs+"/y", "", keyHeader, `["a"]`).is(200)
}

func TestItem_NamesInURLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for _, id := range []string{"a b", "ä+ö", "100%", `"quoted"`, "a&b=c", "a,b;c", "~._-", "日本"} {
		body := `{"id":` + quote(t, id) + `,"pk":"a"}`
		w.ask("POST", docs, body, keyHeader, `["a"]`).is(201)
		w.ask("GET", docs+"/"+url.PathEscape(id), "", keyHeader, `["a"]`).is(200)
		w.ask("DELETE", docs+"/"+url.PathEscape(id), "", keyHeader, `["a"]`).is(204)
	}
}

func TestItem_MinimalAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	minimal := []string{keyHeader, `["a"]`, "Prefer", "return=minimal"}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", docs, `{"id":"1","pk":"a"}`, 201},
		{"PUT", docs + "/1", `{"id":"1","pk":"a","n":1}`, 200},
		{"PATCH", docs + "/1", `[{"op":"incr","path":"/n","value":1}]`, 200},
	} {
		if a := w.ask(c.method, c.path, c.body, minimal...).is(c.status); len(a.body) > 0 || a.header.Get("etag") == "" {
			t.Errorf("%s answers %q with etag %q", c.method, a.body, a.header.Get("etag"))
		}
	}
	if a := w.ask("GET", docs+"/1", "", minimal...).is(200); len(a.body) == 0 {
		t.Error("a read has no body")
	}
}

// Charges are a function of what was asked: the same again costs the same.
func TestItem_Charges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	body := func(kib int) string { return `{"id":"1","pk":"a","x":"` + strings.Repeat("x", kib<<10-40) + `"}` }
	for _, c := range []struct {
		kib         int
		write, read string
	}{{1, "5", "1"}, {4, "20", "4"}} {
		for range 2 {
			a := w.ask("POST", docs, body(c.kib), keyHeader, `["a"]`, upsert, "true")
			if got := a.header.Get("x-ms-request-charge"); got != c.write {
				t.Errorf("a write of %d KiB costs %s, want %s", c.kib, got, c.write)
			}
			if got := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).header.Get("x-ms-request-charge"); got != c.read {
				t.Errorf("a read of %d KiB costs %s, want %s", c.kib, got, c.read)
			}
		}
	}
}

func TestItem_ActivityIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	const id = "2c4f1b3e-0000-4000-8000-123456789abc"
	if got := w.ask("GET", "/dbs", "", "x-ms-activity-id", id).header.Get("x-ms-activity-id"); got != id {
		t.Errorf("activity %q, want the one that was sent", got)
	}
	if got := w.ask("GET", "/dbs", "", "x-ms-activity-id", "<script>").header.Get("x-ms-activity-id"); got == "<script>" || len(got) != 36 {
		t.Errorf("activity %q", got)
	}
}

// An expired item is gone for reads, queries and creates at once.
func TestItem_Expires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", `{"partitionKey":{"paths":["/pk"]},"defaultTtl":-1}`)
	w.ask("POST", docs, `{"id":"1","pk":"a","ttl":1}`, keyHeader, `["a"]`).is(201)
	deadline := time.Now().Add(30 * time.Second)
	for w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).status != 404 {
		if time.Now().After(deadline) {
			t.Fatal("the item does not expire")
		}
	}
	if got := w.query("SELECT VALUE COUNT(1) FROM c"); got[0] != "0" {
		t.Errorf("a query counts %v", got)
	}
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
}

// Of creates that race for one id, or one unique key, one wins.
func TestItem_RacingCreates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", `{"partitionKey":{"paths":["/pk"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/sku"]}]}}`)
	statuses := make([]int, 16)
	var racing sync.WaitGroup
	for i := range statuses {
		racing.Go(func() {
			statuses[i] = w.ask("POST", docs, `{"id":"`+strings.Repeat("x", i+1)+`","pk":"a","sku":"one"}`, keyHeader, `["a"]`).status
		})
	}
	racing.Wait()
	won := 0
	for _, s := range statuses {
		switch s {
		case 201:
			won++
		case 409:
		default:
			t.Errorf("status %d", s)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d won: %v", won, len(statuses), statuses)
	}
}

// Of patches at the same time all count.
func TestItem_RacingPatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a","n":0}`, keyHeader, `["a"]`).is(201)
	var racing sync.WaitGroup
	for range 20 {
		racing.Go(func() {
			if a := w.ask("PATCH", docs+"/1", `[{"op":"incr","path":"/n","value":1}]`, keyHeader, `["a"]`); a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	racing.Wait()
	if a := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200); !strings.Contains(string(a.body), `"n":20`) {
		t.Errorf("%s", a.body)
	}
}
