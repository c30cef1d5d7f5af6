package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// self is the link of a resource, by resource ids, and what clients sign of it.
type self struct{ path, kind, signed string }

// selfOf returns the link in an answer.
func selfOf(t *testing.T, body []byte) self {
	t.Helper()
	var resource struct {
		RID  string `json:"_rid"`
		Self string `json:"_self"`
	}
	if err := json.Unmarshal(body, &resource); err != nil || resource.Self == "" {
		t.Fatalf("no _self: %v: %s", err, body)
	}
	segments := strings.Split(strings.Trim(resource.Self, "/"), "/")
	if last := segments[len(segments)-1]; last != resource.RID {
		t.Errorf("the link %s does not end with the rid %s", resource.Self, resource.RID)
	}
	return self{"/" + strings.Trim(resource.Self, "/"), segments[len(segments)-2], strings.ToLower(resource.RID)}
}

// in returns the link of what is in a resource. It is signed with the id of the resource.
func (s self) in(kind string) self { return self{s.path + "/" + kind, kind, s.signed} }

// follow sends a request to a link as .NET and Java do: what is signed is the resource id alone, in lower case.
func (w *world) follow(method string, to self, body string, with ...string) *answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.web.URL+to.path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(with); i += 2 {
		r.Header.Set(with[i], with[i+1])
	}
	r.Header.Set("x-ms-date", now())
	r.Header.Set("x-ms-version", "2020-07-15")
	r.Header.Set("x-ms-cosmos-sdk-supportedcapabilities", "1")
	r.Header.Set("authorization", authorization(w.t, w.key, method, to.kind, to.signed, r.Header.Get("x-ms-date")))
	return w.send(r)
}

// The .NET SDK, version 3 in gateway mode, before a query or a change feed: it reads the account and the container, and asks
// for the ranges by the container's resource id, until nothing has changed.
func TestByRID_SequenceOfDotNet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	w.ask("GET", "/", "").is(200)
	container := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	changes := []string{"A-IM", "Incremental feed", pageItems, "-1"}
	first := w.follow("GET", container.in("pkranges"), "", changes...).is(200)
	var ranges struct {
		RID                string            `json:"_rid"`
		PartitionKeyRanges []json.RawMessage `json:"PartitionKeyRanges"`
	}
	first.into(&ranges)
	if !strings.EqualFold(ranges.RID, container.signed) || len(ranges.PartitionKeyRanges) != 2 {
		t.Errorf("ranges of %s: %s", container.path, first.body)
	}
	w.follow("GET", container.in("pkranges"), "", append(changes, "If-None-Match", first.header.Get("etag"))...).is(304)
	for i, body := range ranges.PartitionKeyRanges {
		var one, read struct{ ID, MinInclusive string }
		if err := json.Unmarshal(body, &one); err != nil {
			t.Fatal(err)
		}
		for _, a := range []*answer{
			w.follow("GET", selfOf(t, body), "").is(200), w.ask("GET", fmt.Sprintf("/dbs/shop/colls/things/pkranges/%d", i), "").is(200),
		} {
			if a.into(&read); read != one {
				t.Errorf("range %s, listed as %s", a.body, body)
			}
		}
	}
	w.ask("GET", "/dbs/shop/colls/things/pkranges/2", "").is(404)
	// The change feed processor keeps its leases as items, by names, and reads a range of the feed.
	w.follow("GET", container.in("docs"), "", "A-IM", "Incremental feed", rangeHeader, "0").is(304)
	// Throughput: the offer is found by the container's resource id, and read and replaced by its own.
	offers := w.ask("POST", "/offers", `{"query":"SELECT * FROM root r WHERE r.offerResourceId = @rid","parameters":[{"name":"@rid","value":`+
		quote(t, ranges.RID)+`}]}`, isQuery, "true").is(200)
	var list struct{ Offers []json.RawMessage }
	if offers.into(&list); len(list.Offers) != 1 {
		t.Fatalf("offers: %s", offers.body)
	}
	w.follow("GET", selfOf(t, list.Offers[0]), "").is(200)
	w.follow("PUT", selfOf(t, list.Offers[0]), strings.Replace(string(list.Offers[0]), ":400", ":500", 1)).is(200)
}

// Clients that keep links (version 2 of the .NET SDK, Java before 4) use nothing else: each resource is reached by the _self
// that came with it.
func TestByRID_EveryResourceUnderItsSelf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	database := selfOf(t, w.ask("POST", "/dbs", `{"id":"shop"}`).is(201).body)
	w.follow("GET", database, "").is(200)
	container := selfOf(t, w.follow("POST", database.in("colls"), strings.Replace(byPK, "{", `{"id":"things",`, 1)).is(201).body)
	if diff := cmp.Diff([]string{"things"}, w.follow("GET", database.in("colls"), "").is(200).ids("DocumentCollections")); diff != "" {
		t.Error(diff)
	}
	found := w.follow("POST", database.in("colls"), `{"query":"SELECT * FROM root r WHERE r.id = 'things'"}`, isQuery, "True").is(200)
	if diff := cmp.Diff([]string{"things"}, found.ids("DocumentCollections")); diff != "" {
		t.Error(diff)
	}
	read := w.follow("GET", container, "").is(200)
	changed := strings.Replace(string(read.body), `"id":`, `"defaultTtl":-1,"id":`, 1)
	if a := w.follow("PUT", container, changed).is(200); !strings.Contains(string(a.body), `"defaultTtl":-1`) {
		t.Errorf("replaced: %s", a.body)
	}
	items, key := container.in("docs"), []string{keyHeader, `["a"]`}
	item := selfOf(t, w.follow("POST", items, `{"id":"1","pk":"a","n":1}`, key...).is(201).body)
	other := selfOf(t, w.follow("POST", items, `{"id":"2","pk":"a","n":2}`, key...).is(201).body)
	w.follow("POST", items, `{"id":"1","pk":"a","n":1}`, key...).is(409)
	one := w.follow("GET", item, "", key...).is(200)
	if a := w.ask("GET", docs+"/1", "", key...).is(200); string(a.body) != string(one.body) || a.header.Get("etag") != one.header.Get("etag") {
		t.Errorf("by id %s, by name %s", one.body, a.body)
	}
	w.follow("GET", item, "", keyHeader, `["a"]`, "If-None-Match", one.header.Get("etag")).is(304)
	w.follow("PUT", item, `{"id":"1","pk":"a","n":5}`, keyHeader, `["a"]`, "If-Match", `"none"`).is(412)
	w.follow("PUT", item, `{"id":"1","pk":"a","n":5}`, keyHeader, `["a"]`, "If-Match", one.header.Get("etag")).is(200)
	w.follow("PATCH", item, `[{"op":"incr","path":"/n","value":1}]`, key...).is(200)
	if n := w.follow("GET", item, "", key...).is(200).object()["n"]; fmt.Sprint(n) != "6" {
		t.Errorf("n is %v, want 6", n)
	}
	w.follow("GET", item, "").is(400)                     // the key is missing
	w.follow("GET", item, "", keyHeader, `["b"]`).is(404) // it is in another
	w.follow("DELETE", item, "", key...).is(204)
	w.follow("GET", item, "", key...).is(404)
	w.follow("DELETE", item, "", key...).is(404)
	w.follow("GET", other, "", key...).is(200)
	rows := w.follow("POST", items, `{"query":"SELECT * FROM c WHERE c.n > 1"}`, isQuery, "True", acrossKeys, "True").is(200)
	if diff := cmp.Diff([]string{"2"}, rows.ids("Documents")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"2"}, w.follow("GET", items, "").is(200).ids("Documents")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"2"}, w.follow("GET", items, "", "A-IM", "Incremental feed").is(200).ids("Documents")); diff != "" {
		t.Error(diff)
	}
	w.follow("POST", items, `[{"operationType":"Create","resourceBody":{"id":"3","pk":"a"}}]`, keyHeader, `["a"]`, isBatch, "True", atomic, "True").is(200)
	w.follow("GET", container.in("sprocs"), "").is(501)
	// A slash behind a link, and its = escaped, are the same link.
	for _, path := range []string{container.path + "/", strings.ReplaceAll(container.path, "=", "%3D")} {
		w.follow("GET", self{path, "colls", container.signed}, "").is(200)
	}
	w.follow("DELETE", container, "").is(204)
	w.follow("GET", container, "").is(404)
	w.follow("DELETE", database, "").is(204)
	w.follow("GET", database, "").is(404)
}

// A link leads to what it was given for: what was deleted and made again under its name has another.
func TestByRID_OfWhatWasMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	key := []string{keyHeader, `["a"]`}
	w.container("things", byPK)
	database := selfOf(t, w.ask("GET", "/dbs/shop", "").is(200).body)
	before := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	item := selfOf(t, w.ask("POST", docs, `{"id":"1","pk":"a"}`, key...).is(201).body)
	w.ask("DELETE", "/dbs/shop/colls/things", "").is(204)
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, key...).is(201)
	w.follow("GET", before, "").is(404)
	w.follow("PUT", before, strings.Replace(byPK, "{", `{"id":"things",`, 1)).is(404)
	w.follow("DELETE", before, "").is(404)
	w.follow("GET", before.in("pkranges"), "").is(404, "1003")
	w.follow("GET", before.in("docs"), "").is(404, "1003")
	w.follow("GET", before.in("docs"), "", "A-IM", "Incremental feed").is(404, "1003")
	w.follow("POST", before.in("docs"), `{"id":"2","pk":"a"}`, key...).is(404, "1003")
	w.follow("POST", before.in("docs"), `{"query":"SELECT * FROM c"}`, keyHeader, `["a"]`, isQuery, "True").is(404, "1003")
	w.follow("GET", item, "", key...).is(404, "1003")
	w.follow("DELETE", item, "", key...).is(404, "1003")
	w.ask("GET", docs+"/1", "", key...).is(200)
	w.follow("GET", database.in("colls"), "").is(200)
	w.ask("DELETE", "/dbs/shop", "").is(204)
	w.container("things", byPK)
	w.follow("GET", database, "").is(404)
	w.follow("DELETE", database, "").is(404)
	w.follow("GET", database.in("colls"), "").is(404, "1003")
	w.follow("POST", database.in("colls"), strings.Replace(byPK, "{", `{"id":"more",`, 1)).is(404, "1003")
	w.ask("GET", "/dbs/shop", "").is(200)
}

// Hostile and damaged links: nothing is found by them, changed by them, or told to whom has no key.
func TestByRID_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	if _, err := w.catalog.Create(t.Context(), store.SystemDatabase, "dead", store.ContainerSpec{PartitionKey: []string{"/pk"}}); err != nil {
		t.Fatal(err)
	}
	key := []string{keyHeader, `["a"]`}
	database := selfOf(t, w.ask("GET", "/dbs/shop", "").is(200).body)
	container := selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body)
	item := selfOf(t, w.ask("POST", docs, `{"id":"1","pk":"a"}`, key...).is(201).body)
	system := selfOf(t, w.ask("GET", "/dbs/system", "").is(200).body)
	dead := selfOf(t, w.ask("GET", "/dbs/system/colls/dead", "").is(200).body)
	id := func(s self) string { return s.path[strings.LastIndexByte(s.path, '/')+1:] }
	for name, c := range map[string]struct {
		path   string
		status int
		sub    string
	}{
		"a database that nobody has":      {"/dbs/AAAAAA==", 404, ""},
		"its containers":                  {"/dbs/AAAAAA==/colls", 404, "1003"},
		"a container that nobody has":     {database.path + "/colls/" + id(database)[:5] + "oAAAAA=", 404, ""},
		"a container in another database": {system.path + "/colls/" + id(container), 404, ""},
		"its items":                       {system.path + "/colls/" + id(container) + "/docs", 404, "1003"},
		"a name behind a resource id":     {database.path + "/colls/things", 400, ""},
		"a resource id behind a name":     {"/dbs/shop/colls/" + id(container), 404, ""},
		"a container's as a database's":   {"/dbs/" + id(container) + "/colls/things", 404, ""},
		"a database's as a container's":   {database.path + "/colls/" + id(database), 400, ""},
		"an item's as a container's":      {database.path + "/colls/" + id(item), 400, ""},
		"not padded":                      {database.path + "/colls/" + strings.TrimRight(id(container), "="), 400, ""},
		"a longer one":                    {database.path + "/colls/" + strings.Repeat("A", 5000) + "=", 400, ""},
		"an escape":                       {database.path + "/colls/%00%00%00%00%00%00%00=", 400, ""},
		"an item by its name":             {container.path + "/docs/1", 400, ""},
		"an item with a container's":      {container.path + "/docs/" + id(container), 400, ""},
		"an item in another container":    {dead.path + "/docs/" + id(item), 404, ""},
		"an item that nobody has":         {container.path + "/docs/" + id(item)[:12] + "AAAAAAAAAA==", 404, ""},
		"as many letters as an item's":    {container.path + "/docs/" + strings.Repeat("A", 24), 400, ""},
		"a range by its name":             {container.path + "/pkranges/0", 400, ""},
		"a range that nobody has":         {container.path + "/pkranges/" + id(item), 404, ""},
		"an offer that nobody has":        {"/offers/AAAA", 404, ""},
		"what the protocol does not have": {container.path + "/none", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.t = t
			a := w.ask("GET", c.path, "", key...)
			var sub []string
			if c.sub != "" {
				sub = []string{c.sub}
			}
			a.is(c.status, sub...)
		})
	}
	t.Run("signed for another", func(t *testing.T) {
		w := *w
		w.t = t
		for _, signed := range []string{"", database.signed, item.signed, "dbs/shop/colls/things", strings.TrimPrefix(container.path, "/") + "/docs", container.signed + "/"} {
			w.follow("GET", self{container.path, "colls", signed}, "").is(401)
		}
		w.follow("GET", self{container.path, "docs", container.signed}, "").is(401)
		w.follow("GET", self{item.path, "docs", container.signed}, "", key...).is(401)
		w.follow("GET", self{container.in("docs").path, "docs", item.signed}, "").is(401)
		w.follow("GET", self{container.path + "/docs/" + strings.Repeat("A", 24), "docs", item.signed}, "", key...).is(401)
		for _, kind := range []string{"pkranges", "docs"} { // a name alone would be good for every container
			w.follow("GET", self{container.path + "/" + kind + "/0", kind, "0"}, "", key...).is(401)
		}
	})
	t.Run("the system's are read-only", func(t *testing.T) {
		w := *w
		w.t = t
		w.follow("GET", dead.in("docs"), "").is(200)
		w.follow("POST", dead.in("docs"), `{"id":"1","pk":"a"}`, key...).is(403)
		w.follow("DELETE", dead, "").is(403)
		w.follow("DELETE", system, "").is(403)
		w.follow("POST", system.in("colls"), strings.Replace(byPK, "{", `{"id":"more",`, 1)).is(403)
	})
	t.Run("with a key that reads", func(t *testing.T) {
		w := *w
		w.t, w.key = t, w.keys.PrimaryReadOnly
		w.follow("GET", container, "").is(200)
		w.follow("DELETE", container, "").is(403)
		w.follow("POST", container.in("docs"), `{"id":"2","pk":"a"}`, key...).is(403)
	})
	w.ask("GET", docs+"/1", "", key...).is(200)
}
