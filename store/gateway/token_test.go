package gateway_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/script"
	"github.com/millrace/millrace/store/users"
)

const expirySeconds = "x-ms-documentdb-expiry-seconds"

// permission is the answer to a request for a permission.
type permission struct {
	ID       string
	Mode     string `json:"permissionMode"`
	Resource string
	Key      []any  `json:"resourcePartitionKey"`
	RID      string `json:"_rid"`
	Self     string `json:"_self"`
	ETag     string `json:"_etag"`
	Token    string `json:"_token"`
}

// user makes a user of database shop.
func (w *world) user(name string) {
	w.t.Helper()
	w.ask("POST", "/dbs/shop/users", `{"id":`+quote(w.t, name)+`}`).is(201)
}

// permit makes a permission of a user and returns it. key is JSON or "".
func (w *world) permit(user, name, mode, resource, key string) permission {
	w.t.Helper()
	var p permission
	w.ask("POST", "/dbs/shop/users/"+user+"/permissions", permissionBody(w.t, name, mode, resource, key)).is(201).into(&p)
	return p
}

func permissionBody(t testing.TB, name, mode, resource, key string) string {
	t.Helper()
	body := fmt.Sprintf(`{"id":%s,"permissionMode":%q,"resource":%s`, quote(t, name), mode, quote(t, resource))
	if key != "" {
		body += `,"resourcePartitionKey":` + key
	}
	return body + "}"
}

// with sends a request with a resource token, as the SDKs do.
func (w *world) with(token, method, path, body string, with ...string) *answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.web.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(with); i += 2 {
		r.Header.Set(with[i], with[i+1])
	}
	r.Header.Set("authorization", url.QueryEscape(token))
	return w.send(r)
}

const (
	things   = "dbs/shop/colls/things"
	theUsers = "/dbs/shop/users"
)

// A user, a permission, and an item that is read with its token: the whole way.
func TestToken_ReadsAnItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	item := w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
	w.user("ann")
	p := w.permit("ann", "reads", "Read", things, "")
	if p.ID != "reads" || p.Mode != "Read" || p.Resource != things || p.Key != nil || p.RID == "" || p.Self == "" || p.ETag == "" ||
		!strings.HasPrefix(p.Token, "type=resource&ver=1&sig=") {
		t.Errorf("the permission is %+v", p)
	}
	if got := w.with(p.Token, "GET", docs+"/1", "", keyHeader, `["a"]`).is(200); string(got.body) != string(item.body) {
		t.Errorf("the item was %s and is %s", item.body, got.body)
	}
	w.with(p.Token, "DELETE", docs+"/1", "", keyHeader, `["a"]`).is(403)
	w.with(p.Token, "GET", "/dbs/shop/colls/other/docs/1", "", keyHeader, `["a"]`).is(403)
}

// request is how an operation of the table is asked for; %s is a new id.
type request struct {
	method, path, body string
	with               []string
}

const (
	asItem = `{"id":"%s","pk":"a"}`
	keyA   = `["a"]`
)

// requests has one for each operation that a gateway has. None of them names what is not there, but conflicts and the deletions of what
// is not a container or item.
var requests = map[string]request{
	"account GET":         {"GET", "/", "", nil},
	"databases GET":       {"GET", "/dbs", "", nil},
	"databases query":     {"POST", "/dbs", `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"databases POST":      {"POST", "/dbs", `{"id":"%s"}`, nil},
	"database GET":        {"GET", "/dbs/shop", "", nil},
	"database DELETE":     {"DELETE", "/dbs/%s", "", nil},
	"containers GET":      {"GET", "/dbs/shop/colls", "", nil},
	"containers query":    {"POST", "/dbs/shop/colls", `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"containers POST":     {"POST", "/dbs/shop/colls", `{"id":"%s","partitionKey":{"paths":["/pk"]}}`, nil},
	"container GET":       {"GET", "/" + things, "", nil},
	"container PUT":       {"PUT", "/" + things, `{"id":"things","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil},
	"container DELETE":    {"DELETE", "/" + things, "", []string{"if-match", "*"}},
	"ranges GET":          {"GET", "/" + things + "/pkranges", "", nil},
	"range GET":           {"GET", "/" + things + "/pkranges/0", "", nil},
	"items GET":           {"GET", docs, "", []string{keyHeader, keyA}},
	"items changes":       {"GET", docs, "", []string{keyHeader, keyA, "a-im", "Incremental feed"}},
	"items POST":          {"POST", docs, asItem, []string{keyHeader, keyA}},
	"items query":         {"POST", docs, `{"query":"SELECT * FROM c"}`, []string{keyHeader, keyA, isQuery, "true"}},
	"items plan":          {"POST", docs, `{"query":"SELECT * FROM c"}`, []string{keyHeader, keyA, "x-ms-cosmos-is-query-plan-request", "True"}},
	"items batch":         {"POST", docs, `[{"operationType":"Create","resourceBody":` + asItem + `}]`, []string{keyHeader, keyA, isBatch, "True", atomic, "True"}},
	"item GET":            {"GET", docs + "/1", "", []string{keyHeader, keyA}},
	"item PUT":            {"PUT", docs + "/1", `{"id":"1","pk":"a"}`, []string{keyHeader, keyA}},
	"item PATCH":          {"PATCH", docs + "/1", `[{"op":"set","path":"/n","value":1}]`, []string{keyHeader, keyA}},
	"item DELETE":         {"DELETE", docs + "/1", "", []string{keyHeader, keyA}},
	"offers GET":          {"GET", "/offers", "", nil},
	"offers query":        {"POST", "/offers", `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"offer GET":           {"GET", "/offers/RID", "", nil},
	"offer PUT":           {"PUT", "/offers/RID", `{"content":{"offerThroughput":400}}`, nil},
	"users GET":           {"GET", theUsers, "", nil},
	"users query":         {"POST", theUsers, `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"users POST":          {"POST", theUsers, `{"id":"%s"}`, nil},
	"user GET":            {"GET", theUsers + "/ann", "", nil},
	"user PUT":            {"PUT", theUsers + "/ann", `{"id":"ann"}`, nil},
	"user DELETE":         {"DELETE", theUsers + "/%s", "", nil},
	"permissions GET":     {"GET", theUsers + "/ann/permissions", "", nil},
	"permissions query":   {"POST", theUsers + "/ann/permissions", `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"permissions POST":    {"POST", theUsers + "/ann/permissions", `{"id":"%s","permissionMode":"Read","resource":"dbs/shop/colls/other"}`, nil},
	"permission GET":      {"GET", theUsers + "/ann/permissions/key Read", "", nil},
	"permission PUT":      {"PUT", theUsers + "/ann/permissions/key Read", `{"id":"key Read","permissionMode":"Read","resource":"dbs/shop/colls/things","resourcePartitionKey":["a"]}`, nil},
	"permission DELETE":   {"DELETE", theUsers + "/ann/permissions/%s", "", nil},
	"scripts GET":         {"GET", sprocs, "", nil},
	"scripts query":       {"POST", sprocs, `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"scripts POST":        {"POST", sprocs, `{"id":"%s","body":"function () {}"}`, nil},
	"script GET":          {"GET", sprocs + "/p", "", nil},
	"script PUT":          {"PUT", sprocs + "/p", `{"id":"p","body":"function () {}"}`, nil},
	"script DELETE":       {"DELETE", sprocs + "/%s", "", nil},
	"script POST":         {"POST", sprocs + "/p", "[]", []string{keyHeader, keyA}}, // which executes it
	"conflicts GET":       {"GET", "/" + things + "/conflicts", "", nil},
	"conflicts query":     {"POST", "/" + things + "/conflicts", `{"query":"SELECT * FROM c"}`, []string{isQuery, "true"}},
	"conflict GET":        {"GET", "/" + things + "/conflicts/x", "", nil},
	"conflict DELETE":     {"DELETE", "/" + things + "/conflicts/x", "", nil},
	"key deletion POST":   {"POST", "/" + things + "/operations/partitionkeydelete", "", []string{keyHeader, keyA}},
	"unserved operations": {"POST", "/" + things + "/schemas/x", "", nil}, // which has no row in the table
}

// opens says which scopes open an operation; every other one is refused with 403. The letters are those of allScopes.
var opens = map[string]string{
	"account GET":   "rakKiI",
	"container GET": "rakKiI", "container PUT": "a", "container DELETE": "a",
	"ranges GET": "rakKiI", "range GET": "rakKiI",
	"items GET": "rakK", "items changes": "rakK", "items query": "rakK", "items plan": "rakK",
	"items POST": "aK", "items batch": "aK", "script POST": "aK", "key deletion POST": "aK",
	"item GET": "rakKiI", "item PUT": "aKI", "item PATCH": "aKI", "item DELETE": "aKI",
	"unserved operations": "rakKiI", // 501 like with a key: they are in the container
}

// allScopes are the permissions that there are: of a container, a partition key, an item, to read and for all.
var allScopes = map[rune]struct{ name, mode, resource, key string }{
	'r': {"container Read", "Read", things, ""}, 'a': {"container All", "All", things, ""},
	'k': {"key Read", "Read", things, keyA}, 'K': {"key All", "All", things, keyA},
	'i': {"item Read", "Read", things + "/docs/1", keyA}, 'I': {"item All", "All", things + "/docs/1", keyA},
}

// Every operation that the gateway has with every kind of token. One that is added to the gateway has no row here, and fails.
func TestToken_EveryOperationWithEveryScope(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("p", "function () {}")
	for _, name := range w.gateway.Operations() {
		if _, ok := requests[name]; !ok {
			t.Errorf("no request for %s: say what tokens open it", name)
		}
	}
	if n := len(w.gateway.Operations()); n+1 != len(requests) {
		t.Errorf("%d operations, and requests for %d", n, len(requests)-1)
	}
	w.container("other", byPK)
	letters := slices.Sorted(func(yield func(rune) bool) {
		for letter := range allScopes {
			if !yield(letter) {
				return
			}
		}
	})
	fresh := 0
	for _, letter := range letters {
		scope := allScopes[letter]
		// A user has one permission for a resource, so those to read and those for all are of two.
		user := map[string]string{"Read": "ann", "All": "bob"}[scope.mode]
		w.ask("POST", theUsers, `{"id":"`+user+`"}`, upsert, "true")
		w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, keyA, upsert, "true")
		token := w.permit(user, scope.name, scope.mode, scope.resource, scope.key).Token
		for name, r := range requests {
			open := strings.ContainsRune(opens[name], letter)
			if name == "container DELETE" && open {
				continue // last
			}
			fresh++
			id := fmt.Sprint("new", fresh)
			fill := func(text string) string { return strings.ReplaceAll(text, "%s", id) }
			a := w.with(token, r.method, strings.ReplaceAll(fill(r.path), " ", "%20"), fill(r.body), r.with...)
			switch {
			case !open && a.status != 403, open && a.status >= 400 && a.status != 501:
				t.Errorf("%s with %s: %d %s", name, scope.name, a.status, a.body)
			case (name == "item DELETE" || name == "key deletion POST") && open:
				w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, keyA).is(201)
			}
		}
	}
	w.with(w.permitted("bob", "container All"), "DELETE", "/"+things, "").is(204)
}

// permitted reads the token of a permission.
func (w *world) permitted(user, name string) string {
	w.t.Helper()
	var p permission
	w.ask("GET", theUsers+"/"+user+"/permissions/"+url.PathEscape(name), "").is(200).into(&p)
	return p.Token
}

// The same operations with the keys of the account: what answers with a token takes a key that writes.
func TestToken_EveryOperationWithEveryKey(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.container("other", byPK)
	w.user("ann")
	w.permit("ann", "key Read", "Read", things, keyA)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, keyA).is(201)
	for _, key := range []gateway.Key{w.keys.PrimaryReadOnly, w.keys.SecondaryReadOnly} {
		w.key = key
		for name, r := range requests {
			writes := strings.HasPrefix(name, "permission")
			switch method := name[strings.LastIndexByte(name, ' ')+1:]; method {
			case "POST", "PUT", "PATCH", "DELETE", "batch":
				writes = true
			}
			a := w.ask(r.method, strings.NewReplacer(" ", "%20", "%s", "new").Replace(r.path), r.body, r.with...)
			if (a.status == 403) != writes || a.status == 401 {
				t.Errorf("%s with a read-only key: %d %s", name, a.status, a.body)
			}
		}
	}
}

// Scripts reach all items of a logical partition: a token of one item runs none, and one of a partition key none for another.
func TestToken_Scripts(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("all", `function () { __.map((d) => d.id) }`)
	w.ask("POST", triggers, `{"id":"t","triggerType":"Pre","triggerOperation":"All","body":"function () {}"}`).is(201)
	for _, pk := range []string{"a", "b"} {
		w.ask("POST", docs, `{"id":"1","pk":"`+pk+`"}`).is(201)
	}
	w.user("ann")
	key := w.permit("ann", "key", "All", things, keyA).Token
	item := w.permit("ann", "item", "All", things+"/docs/1", keyA).Token
	const before = "x-ms-documentdb-pre-trigger-include"
	if got := w.with(key, "POST", sprocs+"/all", "[]", keyHeader, keyA).is(200); string(got.body) != `["1"]` {
		t.Errorf("%s", got.body)
	}
	w.with(key, "POST", sprocs+"/all", "[]", keyHeader, `["b"]`).is(403)
	w.with(item, "POST", sprocs+"/all", "[]", keyHeader, keyA).is(403)
	w.with(key, "PUT", docs+"/1", `{"id":"1","pk":"a"}`, keyHeader, keyA, before, "t").is(200)
	w.with(key, "PUT", docs+"/1", `{"id":"1","pk":"b"}`, keyHeader, `["b"]`, before, "t").is(403)
	w.with(item, "PUT", docs+"/1", `{"id":"1","pk":"a"}`, keyHeader, keyA).is(200)
	w.with(item, "PUT", docs+"/1", `{"id":"1","pk":"a"}`, keyHeader, keyA, before, "t").is(403)
}

// A partition key's token opens what is in it and nothing else, however it is asked for.
func TestToken_OfAPartitionKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	w.gatewayPartitions("things", 3)
	for _, key := range []string{"a", "b"} {
		w.ask("POST", docs, `{"id":"1","pk":"`+key+`"}`).is(201)
	}
	w.user("ann")
	token := w.permit("ann", "all of a", "All", things, keyA).Token
	keyB, query := `["b"]`, `{"query":"SELECT * FROM c"}`
	marked := `{"query":"/* millrace: the first range answers for all */ SELECT * FROM c"}`
	refused := func(what string, a *answer) {
		t.Helper()
		if a.status != 403 {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	for _, key := range []string{"", keyB, `[null]`, `[{}]`, `[1]`} {
		with := []string{acrossKeys, "true"}
		if key != "" {
			with = append(with, keyHeader, key)
		}
		refused("query "+key, w.with(token, "POST", docs, query, append(with, isQuery, "true")...))
		refused("marked query "+key, w.with(token, "POST", docs, marked, append(with, isQuery, "true")...))
		refused("plan "+key, w.with(token, "POST", docs, query, append(with, "x-ms-cosmos-is-query-plan-request", "true")...))
		refused("feed "+key, w.with(token, "GET", docs, "", with...))
		refused("range "+key, w.with(token, "GET", docs, "", append(with, rangeHeader, "0")...))
		refused("span "+key, w.with(token, "GET", docs, "", append(with, "x-ms-start-epk", "", "x-ms-end-epk", "FF")...))
		refused("changes "+key, w.with(token, "GET", docs, "", append(with, "a-im", "Incremental feed")...))
		refused("all versions "+key, w.with(token, "GET", docs, "", append(with, "a-im", "Full-Fidelity Feed")...))
	}
	refused("read", w.with(token, "GET", docs+"/1", "", keyHeader, keyB))
	refused("create", w.with(token, "POST", docs, `{"id":"2","pk":"b"}`, keyHeader, keyB))
	refused("create without a key", w.with(token, "POST", docs, `{"id":"2","pk":"b"}`))
	refused("upsert", w.with(token, "POST", docs, `{"id":"1","pk":"b"}`, upsert, "true"))
	refused("replace", w.with(token, "PUT", docs+"/1", `{"id":"1","pk":"b"}`))
	refused("patch", w.with(token, "PATCH", docs+"/1", `[{"op":"set","path":"/n","value":1}]`, keyHeader, keyB))
	refused("delete", w.with(token, "DELETE", docs+"/1", "", keyHeader, keyB))
	refused("batch", w.with(token, "POST", docs, `[{"operationType":"Read","id":"1"}]`, keyHeader, keyB, isBatch, "True", atomic, "True"))

	bulk := `[{"operationType":"Read","id":"1","partitionKey":"[\"a\"]"},{"operationType":"Read","id":"1","partitionKey":"[\"b\"]"},` +
		`{"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"9","pk":"b"}},{"operationType":"Delete","id":"1","partitionKey":["b"]}]`
	var results []struct{ StatusCode int }
	w.with(token, "POST", docs, bulk, isBatch, "True", atomic, "False", goesOn, "True").is(207).into(&results)
	for i, want := range []int{200, 403, 403, 403} {
		if results[i].StatusCode != want {
			t.Errorf("operation %d of the bulk: %d, want %d", i, results[i].StatusCode, want)
		}
	}
	// What is allowed tells of nothing else.
	for what, a := range map[string]*answer{
		"query":        w.with(token, "POST", docs, query, keyHeader, keyA, isQuery, "true"),
		"marked query": w.with(token, "POST", docs, marked, keyHeader, keyA, isQuery, "true"),
		"feed":         w.with(token, "GET", docs, "", keyHeader, keyA),
		"changes":      w.with(token, "GET", docs, "", keyHeader, keyA, "a-im", "Incremental feed"),
	} {
		if got := a.is(200).ids("Documents"); len(got) != 1 || !strings.Contains(string(a.body), `"pk":"a"`) {
			t.Errorf("%s: %s", what, a.body)
		}
	}
	if n := len(w.ask("GET", docs, "").is(200).ids("Documents")); n != 2 {
		t.Errorf("%d items are there, want the two of before", n)
	}
	// Continuations of others lead nowhere.
	first := w.ask("GET", docs, "", pageItems, "1").is(200)
	w.with(token, "GET", docs, "", keyHeader, keyA, goOn, first.header.Get("x-ms-continuation")).is(400)
	feed := w.ask("GET", docs, "", "a-im", "Incremental feed").is(200)
	w.ask("POST", docs, `{"id":"2","pk":"b"}`).is(201)
	w.with(token, "GET", docs, "", keyHeader, keyA, "a-im", "Incremental feed", "if-none-match", feed.header.Get("etag")).is(304)
}

// An item's token opens one item: by name, by its resource id, with and without a partition key.
func TestToken_OfAnItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	one := selfOf(t, w.ask("POST", docs, `{"id":"1","pk":"a"}`).is(201).body)
	two := selfOf(t, w.ask("POST", docs, `{"id":"2","pk":"a"}`).is(201).body)
	elsewhere := selfOf(t, w.ask("POST", docs, `{"id":"1","pk":"b"}`).is(201).body)
	for name, c := range map[string]struct {
		resource, key string
		anyKey        bool
	}{
		"by name":              {things + "/docs/1", keyA, false},
		"by name, any key":     {things + "/docs/1", "", true},
		"by name, encoded":     {"/dbs/shop/colls/%74hings/docs/%31/", keyA, false},
		"by resource id":       {strings.TrimPrefix(one.path, "/") + "/", "", false},
		"by both":              {one.path, keyA, false},
		"by resource id, null": {one.path, "null", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.t = t
			user := strings.Map(func(r rune) rune {
				if r == ' ' || r == ',' {
					return '-'
				}
				return r
			}, name)
			w.user(user)
			token := w.permit(user, "p", "All", c.resource, c.key).Token
			w.with(token, "GET", docs+"/1", "", keyHeader, keyA).is(200)
			w.with(token, "GET", one.path, "", keyHeader, keyA).is(200)
			w.with(token, "PATCH", one.path, `[{"op":"set","path":"/n","value":1}]`, keyHeader, keyA).is(200)
			w.with(token, "PUT", docs+"/1", `{"id":"1","pk":"a"}`).is(200)
			w.with(token, "GET", docs+"/2", "", keyHeader, keyA).is(403)
			w.with(token, "GET", two.path, "", keyHeader, keyA).is(403)
			w.with(token, "PATCH", two.path, `[{"op":"set","path":"/n","value":1}]`, keyHeader, keyA).is(403)
			w.with(token, "DELETE", docs+"/2", "", keyHeader, keyA).is(403)
			w.with(token, "PUT", docs+"/1", `{"id":"2","pk":"a","stolen":true}`).is(400)
			w.with(token, "POST", docs, `{"id":"1","pk":"a"}`, upsert, "true").is(403)
			other := 403
			if c.anyKey {
				other = 200
			}
			w.with(token, "GET", docs+"/1", "", keyHeader, `["b"]`).is(other)
			w.with(token, "GET", elsewhere.path, "", keyHeader, `["b"]`).is(other)
		})
	}
}

// Links by resource id with a token, to what it opens and to what it does not.
func TestToken_ByRID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.container("other", byPK)
	database := selfOf(t, w.ask("GET", "/dbs/shop", "").is(200).body)
	mine := selfOf(t, w.ask("GET", "/"+things, "").is(200).body)
	other := selfOf(t, w.ask("GET", "/dbs/shop/colls/other", "").is(200).body)
	w.user("ann")
	token := w.permit("ann", "p", "All", mine.path, "").Token
	w.with(token, "GET", mine.path, "").is(200)
	w.with(token, "GET", mine.path+"/pkranges", "").is(200)
	w.with(token, "POST", mine.path+"/docs", `{"id":"1","pk":"a"}`).is(201)
	w.with(token, "GET", mine.path+"/schemas", "").is(501)
	for _, path := range []string{
		other.path, other.path + "/docs", other.path + "/sprocs", database.path, database.path + "/colls", database.path + "/users",
		database.path + "/colls/AAAAAIAAAAA=/docs", "/dbs/AAAAAA==" + strings.TrimPrefix(mine.path, database.path),
		"/dbs/shop" + strings.TrimPrefix(mine.path, database.path), database.path + "/colls/things", "/dbs/shop/colls/none",
	} {
		w.with(token, "GET", path, "").is(403)
	}
}

// Whoever has no token of this gateway learns nothing with one, and changes nothing.
func TestToken_Forged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`).is(201)
	w.user("ann")
	good := w.permit("ann", "p", "Read", things, "").Token
	w.with(good, "GET", docs, "").is(200)
	signature, said, _ := strings.Cut(strings.TrimPrefix(good, "type=resource&ver=1&sig="), ";")
	said = strings.TrimSuffix(said, ";")
	raw, err := base64.RawURLEncoding.DecodeString(said)
	if err != nil {
		t.Fatal(err)
	}
	token := func(signature, said string) string { return "type=resource&ver=1&sig=" + signature + ";" + said + ";" }
	for name, forged := range map[string]string{
		"no signature":       token("", said),
		"nothing said":       token(signature, ""),
		"nothing":            token("", ""),
		"zeros":              token(strings.Repeat("A", 43), said),
		"half a signature":   token(signature[:20], said),
		"another version":    strings.Replace(good, "ver=1", "ver=2", 1),
		"a master signature": strings.Replace(good, "resource", "master", 1),
		"three parts":        good + "AA;",
		"too long":           token(signature, strings.Repeat("A", 5000)),
		"read-only key":      (&users.Token{Database: "shop", User: "ann", Expires: time.Now().Add(time.Hour)}).Sign(keyBytes(t, w.keys.PrimaryReadOnly)),
		"another account":    (&users.Token{Database: "shop", User: "ann", Expires: time.Now().Add(time.Hour)}).Sign(keyBytes(t, gateway.NewKeys().Primary)),
		"rubbish":            "type=resource&ver=1&sig=\x00;;;;",
	} {
		w.with(forged, "GET", docs, "").is(401)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	// Every bit that a token says is signed.
	for i := range len(raw) * 8 {
		altered := slices.Clone(raw)
		altered[i/8] ^= 1 << (i % 8)
		w.with(token(signature, base64.RawURLEncoding.EncodeToString(altered)), "GET", docs, "").is(401)
	}
	// A key in force, and a serial that no permission has, as of another Millrace with the same keys.
	unknown := users.Token{Database: "shop", User: "ann", Expires: time.Now().Add(time.Hour)}
	for _, key := range []gateway.Key{w.keys.Primary, w.keys.Secondary} {
		w.with(unknown.Sign(keyBytes(t, key)), "GET", docs, "").is(401)
		unknown.User = "nobody"
	}
}

func keyBytes(t *testing.T, key gateway.Key) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(string(key))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// What a token's permission was and is no more does not count, under whatever name it comes again.
func TestToken_Revoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`).is(201)
	at := theUsers + "/ann/permissions/p"
	read := func(token string, status int) {
		t.Helper()
		w.with(token, "GET", docs+"/1", "", keyHeader, keyA).is(status)
	}
	begin := func() string {
		t.Helper()
		w.user("ann")
		token := w.permit("ann", "p", "Read", things, "").Token
		read(token, 200)
		return token
	}
	token := begin()
	// The same again: a client that asks once more takes nothing from others.
	var again permission
	w.ask("PUT", at, permissionBody(t, "p", "Read", "/"+things+"/", "")).is(200).into(&again)
	read(token, 200)
	w.ask("PUT", at, permissionBody(t, "p", "All", things, "")).is(200).into(&again)
	read(token, 401)
	read(again.Token, 200)
	w.ask("PUT", at, permissionBody(t, "p", "Read", things, "")).is(200)
	read(token, 401)
	read(again.Token, 401)
	token = w.permitted("ann", "p")
	read(token, 200)
	w.ask("DELETE", at, "").is(204)
	read(token, 401)
	next := w.permit("ann", "p", "Read", things, "").Token
	read(token, 401)
	read(next, 200)
	w.ask("DELETE", theUsers+"/ann", "").is(204)
	read(next, 401)
	token = begin()
	read(next, 401)
	w.ask("DELETE", "/"+things, "").is(204)
	w.with(token, "GET", docs+"/1", "", keyHeader, keyA).is(404, "1003")
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`).is(201)
	read(token, 403)
	w.with(token, "GET", "/"+things, "").is(403)
	w.with(token, "DELETE", "/"+things, "").is(403)
	w.ask("DELETE", "/dbs/shop", "").is(204)
	read(token, 401)
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`).is(201)
	w.ask("GET", theUsers+"/ann", "").is(404)
	read(token, 401)
	begin()
	read(token, 401)
}

// At another gateway a token opens nothing any more within a second, and what it takes to ask.
func TestToken_RevokedAtAnotherGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.user("ann")
	token := w.permit("ann", "p", "Read", things, "").Token
	first := *w
	w.serve(gateway.Config{})
	w.with(token, "GET", docs, "").is(200)
	first.ask("DELETE", theUsers+"/ann/permissions/p", "").is(204)
	deadline := time.Now().Add(time.Minute)
	for w.with(token, "GET", docs, "").status != 401 {
		if time.Now().After(deadline) {
			t.Fatal("the token opens the container still")
		}
	}
	w.with(token, "GET", docs, "").is(401)
}

// A token ends with its time, and with the key that has signed it.
func TestToken_Expires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.user("ann")
	at := theUsers + "/ann/permissions/p"
	w.permit("ann", "p", "Read", things, "")
	u, err := w.catalog.Users().Lookup(t.Context(), "shop", "ann")
	if err != nil {
		t.Fatal(err)
	}
	for _, seconds := range []int{10, 86400} {
		var p permission
		w.ask("GET", at, "", expirySeconds, fmt.Sprint(seconds)).is(200).into(&p)
		w.with(p.Token, "GET", docs, "").is(200)
		signed, err := users.ParseToken(strings.TrimPrefix(p.Token, "type=resource&ver=1&sig="))
		if err != nil {
			t.Fatal(err)
		}
		said, err := signed.Token()
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(said.Expires); left > time.Duration(seconds)*time.Second || left < time.Duration(seconds)*time.Second-time.Minute {
			t.Errorf("a token for %d seconds has %s left", seconds, left)
		}
	}
	for _, seconds := range []string{"9", "86401", "0", "-1", "x", "3600.5", "99999999999999999999"} {
		w.ask("GET", at, "", expirySeconds, seconds).is(400)
	}
	old := users.Token{Database: "shop", User: "ann", Serial: u.Permissions[0].Serial, Expires: time.Now().Add(-time.Second)}
	w.with(old.Sign(keyBytes(t, w.keys.Primary)), "GET", docs, "").is(403)
	old.Expires = time.Unix(-1, 0)
	w.with(old.Sign(keyBytes(t, w.keys.Primary)), "GET", docs, "").is(403)
}

// Tokens live with the key of whoever asked for them: that is the one to rotate.
func TestToken_EndsWithItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.user("ann")
	byPrimary := w.permit("ann", "p", "Read", things, "").Token
	w.key = w.keys.Secondary
	bySecondary := w.permitted("ann", "p")
	w.keys.Primary = gateway.NewKeys().Primary
	w.serve(gateway.Config{})
	w.with(byPrimary, "GET", docs, "").is(401)
	w.with(bySecondary, "GET", docs, "").is(200)
}
