package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/script"
)

const (
	sprocs   = "/dbs/shop/colls/things/sprocs"
	triggers = "/dbs/shop/colls/things/triggers"
)

// scriptWorld is a world that runs scripts, in processes of this test binary, with a container things.
func scriptWorld(t testing.TB, cfg script.Config) *world {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Command = []string{self}
	engine, err := script.NewEngine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	w := newWorld(t, gateway.Config{Engine: engine, RequestTimeout: time.Minute})
	w.container("things", byPK)
	return w
}

// procedure makes a stored procedure, or replaces it.
func (w *world) procedure(id, body string) {
	w.t.Helper()
	if a := w.ask("POST", sprocs, `{"id":`+quote(w.t, id)+`,"body":`+quote(w.t, body)+`}`, upsert, "true"); a.status > 201 {
		w.t.Fatalf("%s: %d %s", id, a.status, a.body)
	}
}

// execute runs one for the logical partition "a".
func (w *world) execute(id, args string, with ...string) *answer {
	w.t.Helper()
	return w.ask("POST", sprocs+"/"+id, args, append([]string{keyHeader, `["a"]`}, with...)...)
}

func TestScripts_AreResources(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	for _, kind := range []struct{ word, list, more string }{
		{"sprocs", "StoredProcedures", ``},
		{"triggers", "Triggers", `,"triggerType":"Pre","triggerOperation":"All"`},
		{"udfs", "UserDefinedFunctions", ``},
	} {
		all := "/dbs/shop/colls/things/" + kind.word
		made := w.ask("POST", all, `{"id":"sample script","body":"function () { const x = 10; }"`+kind.more+`}`).is(201)
		o := made.object()
		if o["id"] != "sample script" || o["body"] != "function () { const x = 10; }" || o["_etag"] != made.header.Get("etag") || o["_rid"] == nil {
			t.Errorf("%s", made.body)
		}
		w.ask("POST", all, `{"id":"sample script","body":"function () {}"`+kind.more+`}`).is(409)
		w.ask("POST", all, `{"id":"second","body":"not even a function"`+kind.more+`}`, upsert, "True").is(201)
		if diff := cmp.Diff([]string{"sample script", "second"}, w.ask("GET", all, "").is(200).ids(kind.list)); diff != "" {
			t.Error(diff)
		}
		rows := w.ask("POST", all, `{"query":"SELECT * FROM root r WHERE r.id=@id","parameters":[{"name":"@id","value":"second"}]}`, isQuery, "true").is(200)
		if diff := cmp.Diff([]string{"second"}, rows.ids(kind.list)); diff != "" {
			t.Error(diff)
		}
		one := all + "/sample%20script"
		w.ask("GET", one, "", "If-None-Match", made.header.Get("etag")).is(304)
		w.ask("PUT", one, `{"id":"sample script","body":"function () {}"`+kind.more+`}`, "If-Match", `"other"`).is(412)
		w.ask("PUT", one, `{"id":"renamed","body":"function () {}"`+kind.more+`}`).is(400)
		replaced := w.ask("PUT", one, `{"id":"sample script","body":"function () { const x = 20; }"`+kind.more+`}`, "If-Match", made.header.Get("etag")).is(200)
		if got := w.ask("GET", one, "").is(200); string(got.body) != string(replaced.body) || got.header.Get("etag") == made.header.Get("etag") {
			t.Errorf("replaced %s, read %s", replaced.body, got.body)
		}
		// By its _self, signed as .NET signs it.
		link := selfOf(t, replaced.body)
		if got := w.follow("GET", link, "").is(200); string(got.body) != string(replaced.body) {
			t.Errorf("by link: %s", got.body)
		}
		w.follow("PUT", link, `{"id":"sample script","body":"3"`+kind.more+`}`).is(200)
		w.follow("DELETE", link, "", "If-Match", `"other"`).is(412)
		w.follow("DELETE", link, "").is(204)
		w.follow("GET", link, "").is(404)
		w.ask("DELETE", one, "").is(404)
		w.ask("PUT", one, `{"id":"sample script","body":"1"`+kind.more+`}`).is(404)
	}
	w.ask("PUT", "/dbs/shop/colls/things", `{"id":"things",`+byPK[1:]).is(200)
	if n := len(w.ask("GET", sprocs, "").is(200).ids("StoredProcedures")); n != 1 {
		t.Errorf("a container that is replaced has %d stored procedures", n)
	}
	w.ask("DELETE", "/dbs/shop/colls/things", "").is(204)
	w.container("things", byPK)
	if n := len(w.ask("GET", sprocs, "").is(200).ids("StoredProcedures")); n != 0 {
		t.Errorf("a container that is made anew has %d stored procedures", n)
	}
}

func TestScripts_BadInput(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	for body, status := range map[string]int{
		`{"id":"a"}`: 400, `{"body":"b"}`: 400, `{"id":1,"body":"b"}`: 400, `{"id":"a/b","body":"b"}`: 400, `{"id":"","body":"b"}`: 400, `[]`: 400, `{`: 400,
		`{"id":"a","body":` + quote(t, strings.Repeat("x", store.ScriptBytesMax+1)) + `}`: 413,
	} {
		w.ask("POST", sprocs, body).is(status)
	}
	for _, body := range []string{
		`{"id":"a","body":"b"}`, `{"id":"a","body":"b","triggerType":"Before","triggerOperation":"All"}`, `{"id":"a","body":"b","triggerType":"Pre","triggerOperation":"Read"}`,
		`{"id":"a","body":"b","triggerType":7,"triggerOperation":0}`,
	} {
		w.ask("POST", triggers, body).is(400)
	}
	w.ask("POST", triggers, `{"id":"numbers","body":"b","triggerType":1,"triggerOperation":3}`).is(201)
	if o := w.ask("GET", triggers+"/numbers", "").is(200).object(); o["triggerType"] != "Post" || o["triggerOperation"] != "Delete" {
		t.Errorf("%v", o)
	}
	// Words count in any case and are shown as they were sent.
	w.ask("POST", triggers, `{"id":"words","body":"b","triggerType":"pre","triggerOperation":"CREATE"}`).is(201)
	if o := w.ask("GET", triggers+"/words", "").is(200).object(); o["triggerType"] != "pre" || o["triggerOperation"] != "CREATE" {
		t.Errorf("%v", o)
	}
	var status int
	for i := range 10 {
		status = w.ask("POST", sprocs, `{"id":"large`+strconv.Itoa(i)+`","body":`+quote(t, strings.Repeat("x", store.ScriptBytesMax))+`}`).status
	}
	if status != 413 {
		t.Errorf("more than all scripts may have: %d", status)
	}
	w.ask("POST", sprocs+"/none", "[]", keyHeader, `["a"]`).is(404)
	w.procedure("p", `function () {}`)
	w.ask("POST", sprocs+"/p", "[]").is(400)
	w.execute("p", `{"a":1}`).is(400)
	w.execute("p", `[1`).is(400)
	w.ask("POST", triggers+"/numbers", "[]", keyHeader, `["a"]`).is(405)
	w.ask("POST", "/dbs/shop/colls/none/sprocs", `{"id":"a","body":"b"}`).is(404)
	w.key = w.keys.PrimaryReadOnly
	w.ask("GET", sprocs+"/p", "").is(200)
	w.execute("p", `[]`).is(403)
	w.ask("DELETE", sprocs+"/p", "").is(403)
}

func TestProcedure_Runs(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("add", `function (a, b) { console.log("adds %d", a); getContext().getResponse().setBody(a + b) }`)
	a := w.execute("add", `[1, 2]`, "x-ms-documentdb-script-enable-logging", "true").is(200)
	if string(a.body) != `3` || a.header.Get("x-ms-documentdb-script-log-results") != "adds%201" || a.header.Get("x-ms-session-token") == "" {
		t.Errorf("%s %v", a.body, a.header)
	}
	w.procedure("none", `function () {}`)
	if a := w.execute("none", ``).is(200); len(a.body) != 0 {
		t.Errorf("%s", a.body)
	}
	// What it writes is there behind it, and it sees what it has written before.
	w.procedure("life", `function () {
		var c = getContext().getCollection(), seen = [];
		function check(err) { if (err) throw err }
		c.createDocument(c.getSelfLink(), {pk: "a", name: "given"}, function (err, made) {
			check(err);
			seen.push(made.id.length, made._self.startsWith(c.getSelfLink()));
			made.name = "replaced";
			c.replaceDocument(made._self, made, {etag: made._etag}, function (err, replaced) {
				check(err);
				seen.push(replaced.name, replaced._etag !== made._etag);
				c.replaceDocument(made._self, made, {etag: made._etag}, function (err) {
					seen.push(err.number);
					c.readDocument(c.getAltLink() + "/docs/" + made.id, function (err, read) {
						check(err);
						seen.push(read.name);
						c.deleteDocument(read._self, function (err) {
							check(err);
							c.readDocument(made._self, {}, function (err) { seen.push(err.number); getContext().getResponse().setBody(seen) });
						});
					});
				});
			});
		});
		c.upsertDocument(c.getAltLink(), {id: "kept", pk: "a", n: 1}, check);
		c.createDocument(c.getSelfLink(), {id: "kept", pk: "a"}, function (err) { seen.push(err.number) });
		c.createDocument(c.getSelfLink(), {pk: "a"}, {disableAutomaticIdGeneration: true}, function (err) { seen.push(err.number) });
	}`)
	if got, want := string(w.execute("life", `[]`).is(200).body), `[36,true,409,400,"replaced",true,412,"replaced",404]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	kept := w.ask("GET", docs+"/kept", "", keyHeader, `["a"]`).is(200)
	w.procedure("reads", `function (etag) {
		var c = __, said = [];
		c.readDocument(c.getAltLink() + "/docs/kept", {ifNoneMatch: etag}, function (err, item, options) { said.push(item === undefined, options.notModified) });
		c.queryDocuments(c.getSelfLink(), {query: "SELECT VALUE c.n FROM c WHERE c.n = @n", parameters: [{name: "@n", value: 1}]}, {}, function (err, rows) { said.push(rows); c.response.setBody(said) });
		c.queryDocuments(c.getSelfLink(), "SELECT nonsense nonsense nonsense", function (err) { said.push(err.number) });
		c.readDocuments(c.getSelfLink(), {pageSize: 10}, function (err, rows, options) { said.push(rows.length, options.continuation === undefined) });
	}`)
	if got, want := string(w.execute("reads", `[`+quote(t, kept.header.Get("etag"))+`]`).is(200).body), `[true,true,[1],400,1,true]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// The items of one logical partition, and no other.
	w.ask("POST", docs, `{"id":"of b","pk":"b","n":1}`).is(201)
	w.procedure("all", `function () { __.map((d) => d.id) }`)
	if got := string(w.execute("all", `[]`).is(200).body); got != `["kept"]` {
		t.Errorf("a script sees %s", got)
	}
}

// TestProcedure_WritesAllOrNothing: what it wrote before it failed is not there, whatever it failed of.
func TestProcedure_WritesAllOrNothing(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{Time: time.Minute})
	w.ask("POST", "/dbs/shop/colls", `{"id":"unique",`+strings.TrimSuffix(byPK[1:], "}")+`,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/n"]}]}}`).is(201)
	create := `function make(id, n) { __.createDocument(__.getSelfLink(), {id: id, pk: "a", n: n}) }`
	for name, c := range map[string]struct {
		body      string
		status    int
		substatus string
	}{
		"throws":           {`function f() { make("1", 1); throw new Error("no") }`, 400, ""},
		"fails unheard":    {`function f() { make("1", 1); make("1", 2) }`, 400, "409"},
		"fails in the end": {`function f() { make("1", 1); __.readDocument("elsewhere", function (err) { throw err }) }`, 400, "400"},
		"aborts":           {`function f() { make("1", 1); getContext().abort("enough") }`, 400, "400"},
		"a unique key":     {`function f() { make("1", 1); make("2", 1) }`, 409, ""},
		"another's key":    {`function f() { make("1", 1); __.createDocument(__.getSelfLink(), {id: "2", pk: "b"}) }`, 400, "400"},
		"another container": {
			`function f() { make("1", 1); __.createDocument("dbs/shop/colls/things", {id: "2", pk: "a"}) }`, 400, "400",
		},
		"an item there": {`function f() { make("1", 1); __.readDocument("dbs/shop/colls/things/docs/1") }`, 400, "400"},
	} {
		id := strings.ReplaceAll(name, " ", "")
		w.ask("POST", "/dbs/shop/colls/unique/sprocs", `{"id":"`+id+`","body":`+quote(t, c.body+"\n"+create)+`}`).is(201)
		a := w.ask("POST", "/dbs/shop/colls/unique/sprocs/"+id, "", keyHeader, `["a"]`)
		if a.status != c.status || a.header.Get("x-ms-substatus") != c.substatus {
			t.Errorf("%s: %d/%s %s", name, a.status, a.header.Get("x-ms-substatus"), a.body)
		}
		if n := len(w.ask("GET", "/dbs/shop/colls/unique/docs", "").is(200).ids("Documents")); n != 0 {
			t.Fatalf("%s: %d items were written", name, n)
		}
	}
	// A unique key that one item gives up and another takes.
	w.ask("POST", "/dbs/shop/colls/unique/docs", `{"id":"old","pk":"a","n":1}`).is(201)
	w.ask("POST", "/dbs/shop/colls/unique/sprocs", `{"id":"swap","body":`+quote(t, `function f() { make("new", 1); __.deleteDocument(__.getAltLink() + "/docs/old") }`+"\n"+create)+`}`).is(201)
	w.ask("POST", "/dbs/shop/colls/unique/sprocs/swap", "", keyHeader, `["a"]`).is(200)
	if diff := cmp.Diff([]string{"new"}, w.ask("GET", "/dbs/shop/colls/unique/docs", "").is(200).ids("Documents")); diff != "" {
		t.Error(diff)
	}
}

// TestProcedure_LosesNothing: two stored procedures increment one counter a thousand times, beside a client that patches it.
func TestProcedure_LosesNothing(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.ask("POST", docs, `{"id":"counter","pk":"a","n":0}`).is(201)
	for _, name := range []string{"one", "other"} {
		w.procedure(name, `function () {
			var link = __.getAltLink() + "/docs/counter";
			__.readDocument(link, function (err, counter) {
				if (err) throw err;
				counter.n++;
				__.replaceDocument(link, counter, function (err) { if (err) throw err });
			});
		}`)
	}
	const each = 500
	ct, err := w.client.Container(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	key, err := feed.NewPartitionKey("a")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"one", "other"} {
		wg.Go(func() {
			for done := 0; done < each; {
				switch a := w.execute(name, ``); a.status {
				case 200:
					done++
				case 449: // others came first, for as long as a request may take
				default:
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for range each / 5 {
			if _, err := ct.Patch(t.Context(), key, "counter", []document.Op{{Kind: "incr", Path: "/n", Value: []byte("1")}}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	if n := w.ask("GET", docs+"/counter", "", keyHeader, `["a"]`).is(200).object()["n"]; fmt.Sprint(n) != strconv.Itoa(2*each+each/5) {
		t.Errorf("the counter is %v, of %d increments", n, 2*each+each/5)
	}
}

// TestProcedure_SeesWhatIsAbsent: each of two scripts writes if the other's item is not there. One of them does.
func TestProcedure_SeesWhatIsAbsent(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("unless", `function (mine, other) {
		__.readDocument(__.getAltLink() + "/docs/" + other, function (err) {
			if (!err) return __.response.setBody(false);
			if (err.number !== 404) throw err;
			__.createDocument(__.getSelfLink(), {id: mine, pk: "a"}, function (err) { if (err) throw err; __.response.setBody(true) });
		});
	}`)
	for round := range 40 {
		wrote := make([]string, 2)
		var wg sync.WaitGroup
		for i, pair := range [][2]string{{"x", "y"}, {"y", "x"}} {
			wg.Go(func() {
				wrote[i] = string(w.execute("unless", fmt.Sprintf(`["%s%d","%s%d"]`, pair[0], round, pair[1], round)).is(200).body)
			})
		}
		wg.Wait()
		if wrote[0] == wrote[1] {
			t.Fatalf("round %d: %v", round, wrote)
		}
	}
}

// TestProcedure_SeesPhantoms: scripts that count and create up to three never make a fourth.
func TestProcedure_SeesPhantoms(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("upToThree", `function (round) {
		__.queryDocuments(__.getSelfLink(), {query: "SELECT VALUE COUNT(1) FROM c WHERE c.round = @r", parameters: [{name: "@r", value: round}]}, function (err, rows) {
			if (err) throw err;
			if (rows[0] < 3) __.createDocument(__.getSelfLink(), {pk: "a", round: round}, function (err) { if (err) throw err });
		});
	}`)
	for round := range 10 {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { w.execute("upToThree", fmt.Sprintf(`[%d]`, round)).is(200) })
		}
		wg.Wait()
		if got := w.query(fmt.Sprintf(`SELECT VALUE COUNT(1) FROM c WHERE c.round = %d`, round)); len(got) != 1 || got[0] != "3" {
			t.Fatalf("round %d: %v items", round, got)
		}
	}
}

// TestProcedure_Hostile: each is refused with a code of the protocol; other requests are answered meanwhile.
func TestProcedure_Hostile(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{Time: time.Minute, MemoryBytes: 16 << 20, ProcessesMax: 2, ResultBytes: 1 << 16})
	w.ask("POST", docs, `{"id":"1","pk":"a"}`).is(201)
	for name, c := range map[string]struct {
		body   string
		status []int
	}{
		"hungry":   {`function () { return "x".repeat(2 ** 30) }`, []int{403}},
		"growing":  {`function () { var s = "x"; for (;;) s += s }`, []int{403, 408}},
		"deep":     {`function f() { f() }`, []int{400}},
		"nested":   {`function () { var a = []; for (var i = 0; i < 1e6; i++) a = [a]; __.response.setBody(a) }`, []int{400, 403, 408}},
		"throwing": {`function () { throw "it" }`, []int{400}},
		"wordy":    {`function () { __.response.setBody("x".repeat(1 << 16)) }`, []int{413}},
		"broken":   {`function () {`, []int{400}},
	} {
		w.procedure(name, c.body)
		ended := make(chan *answer, 1)
		go func() { ended <- w.execute(name, ``) }()
		for range 5 {
			w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200)
			w.ask("POST", docs, `{"id":"2","pk":"a"}`, upsert, "true")
		}
		a := <-ended
		ok := false
		for _, want := range c.status {
			ok = ok || a.status == want
		}
		var body struct{ Code, Message string }
		if err := json.Unmarshal(a.body, &body); !ok || err != nil || body.Message == "" {
			t.Errorf("%s: %d %s, want %v", name, a.status, a.body, c.status)
		}
	}
}

// TestScripts_Endless: what does not end is ended, and has written nothing; a built-in function that nobody interrupts ends too. Other
// requests are answered meanwhile.
func TestScripts_Endless(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{Time: 300 * time.Millisecond, ProcessesMax: 2})
	for name, body := range map[string]string{
		"endless":  `function () { __.createDocument(__.getSelfLink(), {id: "late", pk: "a"}); for (;;) {} }`,
		"matching": `function () { /^(?=(a+)+$)(a|aa)+\1$/.test("a".repeat(60) + "!") }`,
	} {
		w.procedure(name, body)
		ended := make(chan *answer, 1)
		go func() { ended <- w.execute(name, ``) }()
		for range 5 {
			w.ask("POST", docs, `{"id":"1","pk":"a"}`, upsert, "true")
			w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200)
		}
		(<-ended).is(408)
		w.ask("GET", docs+"/late", "", keyHeader, `["a"]`).is(404)
	}
	w.ask("POST", "/dbs/shop/colls/things/udfs", `{"id":"endless","body":"function () { for (;;) {} }"}`).is(201)
	a := w.ask("POST", docs, `{"query":"SELECT VALUE udf.endless() FROM c"}`, isQuery, "True", acrossKeys, "True").is(400)
	if !strings.Contains(string(a.body), "took too long") {
		t.Errorf("%s", a.body)
	}
}

// TestProcedure_IsToldWhenItIsEnough: a script that writes more than goes into one transaction is told, and goes on in the next call.
func TestProcedure_IsToldWhenItIsEnough(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{Time: time.Minute})
	w.procedure("import", `function (from, to) {
		var c = getContext().getCollection();
		for (var i = from; i < to; i++) {
			if (!c.createDocument(c.getSelfLink(), {id: "i" + i, pk: "a", n: i}, function (err) { if (err) throw err })) break;
		}
		getContext().getResponse().setBody(i);
	}`)
	calls := 0
	for from := 0; from < 1500; calls++ {
		var next int
		w.execute("import", fmt.Sprintf(`[%d,1500]`, from)).into(&next)
		if next <= from {
			t.Fatalf("from %d to %d", from, next)
		}
		from = next
	}
	if got := w.query(`SELECT VALUE COUNT(1) FROM c`); got[0] != "1500" || calls < 2 {
		t.Errorf("%v items in %d calls", got, calls)
	}
}

// TestProcedure_IsDoneAnew where others write meanwhile: what it answers is of one state, its errors too.
func TestProcedure_IsDoneAnew(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{Time: 10 * time.Second})
	// Two items that are always equal.
	both := func(n int) string {
		return fmt.Sprintf(`[{"operationType":"Upsert","resourceBody":{"id":"x","pk":"a","n":%d}},{"operationType":"Upsert","resourceBody":{"id":"y","pk":"a","n":%d}}]`, n, n)
	}
	w.ask("POST", docs, both(0), keyHeader, `["a"]`, isBatch, "True", atomic, "True").is(200)
	w.procedure("equal", `function () {
		__.readDocument(__.getAltLink() + "/docs/x", function (err, x) {
			for (var i = 0; i < 20000; i++);
			__.queryDocuments(__.getSelfLink(), 'SELECT VALUE c.n FROM c WHERE c.id = "y"', function (err, rows) {
				if (rows[0] !== x.n) throw "half of it";
				__.response.setBody(x.n);
			});
		});
	}`)
	written := make(chan struct{})
	var writes sync.WaitGroup
	writes.Go(func() {
		defer close(written)
		for n := range 150 {
			w.ask("POST", docs, both(n+1), keyHeader, `["a"]`, isBatch, "True", atomic, "True").is(200)
		}
	})
	for more := true; more; {
		select {
		case <-written:
			more = false // this one is behind all writes
		default:
		}
		if a := w.execute("equal", ``); a.status != 200 && a.status != 449 || !more && string(a.body) != "150" {
			t.Errorf("%d %s", a.status, a.body)
			break
		}
	}
	writes.Wait()
}

func TestTriggers(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	for id, c := range map[string][3]string{
		"upper":    {"Pre", "All", `function () { var r = getContext().getRequest(), item = r.getBody(); item.id = item.id.toUpperCase() + "t1"; r.setBody(item) }`},
		"nothing":  {"Pre", "All", `function () {}`},
		"checks":   {"Post", "All", `function () { var a = __.request.getBody(), b = getContext().getResponse().getBody(); if (a.id !== "TESTt1" || b.id !== "TESTt1" || !b._etag) throw "mismatch" }`},
		"ofDelete": {"Post", "Delete", `function () {}`},
		"counts": {"Post", "Create", `function () {
			var link = __.getAltLink() + "/docs/count";
			__.readDocument(link, function (err, item) {
				if (err && err.number !== 404) throw err;
				item = item || {id: "count", pk: "a", n: 0};
				item.n++;
				__.upsertDocument(__.getSelfLink(), item, function (err) { if (err) throw err });
			});
		}`},
		"refuses": {"Post", "All", `function () { throw "refused" }`},
		"kind":    {"pre", "all", `function () { var r = __.request, item = r.getBody(); if (item) { item.kind = r.getOperationType(); r.setBody(item) } }`},
		"updates": {"PRE", "update", `function () { var item = __.request.getBody(); item.updated = true; __.request.setBody(item) }`},
		"moves":   {"Pre", "All", `function () { var item = __.request.getBody(); item.pk = "b"; __.request.setBody(item) }`},
	} {
		w.ask("POST", triggers, `{"id":"`+id+`","triggerType":"`+c[0]+`","triggerOperation":"`+c[1]+`","body":`+quote(t, c[2])+`}`).is(201)
	}
	const before, behind = "x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"
	key := []string{keyHeader, `["a"]`}
	with := func(more ...string) []string { return append(key, more...) }
	if o := w.ask("POST", docs, `{"id":"doc1","pk":"a"}`, with(before, "upper")...).is(201).object(); o["id"] != "DOC1t1" || o["_etag"] == nil {
		t.Errorf("%v", o)
	}
	if o := w.ask("POST", docs, `{"id":"doc2","pk":"a"}`, with(before, "nothing")...).is(201).object(); o["id"] != "doc2" {
		t.Errorf("%v", o)
	}
	made := w.ask("POST", docs, `{"id":"test","pk":"a"}`, with(before, "upper", behind, "checks")...).is(201)
	// Its etag is that of the item.
	w.ask("GET", docs+"/TESTt1", "", with("If-None-Match", made.header.Get("etag"))...).is(304)
	w.ask("POST", docs, `{"id":"test","pk":"a"}`, with(before, "upper", behind, "checks")...).is(409)
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(behind, "ofDelete")...).is(400)
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(behind, "upper")...).is(400)
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(before, "none")...).is(400)
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(before, "kind,kind,kind,kind,kind")...).is(400)
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(behind, "counts, refuses")...).is(400)
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(before, "moves")...).is(400)
	w.ask("GET", docs+"/x", "", key...).is(404)
	w.ask("GET", docs+"/count", "", key...).is(404)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			w.ask("POST", docs, `{"id":"n`+strconv.Itoa(i)+`","pk":"a"}`, keyHeader, `["a"]`, behind, "counts").is(201)
		})
	}
	wg.Wait()
	if n := w.ask("GET", docs+"/count", "", key...).is(200).object()["n"]; fmt.Sprint(n) != "20" {
		t.Errorf("20 creates were counted as %v", n)
	}
	// Conditions, and the words of operations.
	w.ask("PUT", docs+"/doc2", `{"id":"doc2","pk":"a"}`, with(before, "kind", "If-Match", `"none"`)...).is(412)
	if o := w.ask("PUT", docs+"/doc2", `{"id":"doc2","pk":"a"}`, with(before, "kind")...).is(200).object(); o["kind"] != "Replace" {
		t.Errorf("%v", o)
	}
	if o := w.ask("PUT", docs+"/doc2", `{"id":"doc2","pk":"a"}`, with(before, "updates")...).is(200).object(); o["updated"] != true {
		t.Errorf("%v", o)
	}
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, with(before, "updates")...).is(400)
	if o := w.ask("POST", docs, `{"id":"doc2","pk":"a"}`, with(before, "kind", upsert, "true")...).is(200).object(); o["kind"] != "Upsert" {
		t.Errorf("%v", o)
	}
	w.ask("PUT", docs+"/none", `{"id":"none","pk":"a"}`, with(before, "kind")...).is(404)
	w.ask("DELETE", docs+"/doc2", "", with(behind, "refuses")...).is(400)
	w.ask("GET", docs+"/doc2", "", key...).is(200)
	w.ask("DELETE", docs+"/doc2", "", with(before, "kind", behind, "ofDelete")...).is(204)
	w.ask("GET", docs+"/doc2", "", key...).is(404)
	w.ask("PATCH", docs+"/count", `[{"op":"incr","path":"/n","value":1}]`, with(before, "kind")...).is(400)
	w.ask("POST", docs, `[{"operationType":"Create","resourceBody":{"id":"3","pk":"a"}}]`, with(isBatch, "True", atomic, "True", before, "kind")...).is(400)
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{Time: time.Minute, MemoryBytes: 16 << 20, ProcessesMax: 2, ResultBytes: 1 << 16})
	w.gatewayPartitions("many", 3)
	const udfs, items = "/dbs/shop/colls/many/udfs", "/dbs/shop/colls/many/docs"
	for id, body := range map[string]string{
		"twice":   `function (n) { return n === undefined ? "none" : n * 2 }`,
		"hungry":  `function (n) { return "x".repeat(2 ** 30) }`,
		"deep":    `function f(n) { return f(n) + 1 }`,
		"throws":  `function (n) { throw new Error("no " + n) }`,
		"nothing": `function (n) {}`,
		"reaches": `function (n) { return typeof getContext + typeof __ }`,
		"large":   `function (n) { return "x".repeat(1 << 16) }`,
		"broken":  `function (`,
	} {
		w.ask("POST", udfs, `{"id":"`+id+`","body":`+quote(t, body)+`}`).is(201)
	}
	for i := range 30 {
		w.ask("POST", items, fmt.Sprintf(`{"id":"%d","pk":"p%d","n":%d}`, i, i%7, i)).is(201)
	}
	w.ask("POST", items, `{"id":"none","pk":"x"}`).is(201)
	query := func(text string, with ...string) *answer {
		return w.ask("POST", items, `{"query":`+quote(t, text)+`}`, append([]string{isQuery, "True", acrossKeys, "True"}, with...)...)
	}
	documents := func(a *answer) string {
		var body struct{ Documents json.RawMessage }
		a.is(200).into(&body)
		return string(body.Documents)
	}
	for text, want := range map[string]string{
		`SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = "7"`:                 `[14]`,
		`SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = "none"`:              `["none"]`,
		`SELECT VALUE c.id FROM c WHERE udf.twice(c.n) = 20`:                  `["10"]`,
		`SELECT VALUE SUM(udf.twice(c.n)) FROM c WHERE IS_DEFINED(c.n)`:       `[870]`,
		`SELECT VALUE {"a": udf.nothing(c.n)} FROM c WHERE c.id = "1"`:        `[{}]`,
		`SELECT VALUE udf.reaches() FROM c WHERE c.id = "1"`:                  `["undefinedundefined"]`,
		`SELECT VALUE udf.twice(udf.twice(c.n)) FROM c WHERE c.n = 3`:         `[12]`,
		`SELECT VALUE c.n FROM c WHERE udf.twice(c.n) > 50 ORDER BY c.n DESC`: `[29,28,27,26]`,
	} {
		if got := documents(query(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	// Pages go on.
	var all []string
	for token := ""; ; {
		with := []string{pageItems, "7"}
		if token != "" {
			with = append(with, goOn, token)
		}
		a := query(`SELECT VALUE udf.twice(c.n) FROM c WHERE IS_DEFINED(c.n)`, with...)
		var rows []json.Number
		if err := json.Unmarshal([]byte(documents(a)), &rows); err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			all = append(all, row.String())
		}
		if token = a.header.Get(goOn); token == "" {
			break
		}
	}
	if len(all) != 30 {
		t.Errorf("%d rows on all pages", len(all))
	}
	for call, message := range map[string]string{
		"hungry(c.n)": "memory", "deep(c.n)": "too deep", "throws(c.n)": "Exception = Error: no", "large(c.n)": "too large", "broken(c.n)": "SyntaxError",
		"none(c.n)": "no user-defined function", "twice(COUNT(1))": "within aggregates",
	} {
		a := query(`SELECT VALUE udf.` + call + ` FROM c`).is(400)
		if !strings.Contains(string(a.body), message) {
			t.Errorf("udf.%s: %s", call, a.body)
		}
		if got := documents(query(`SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = "7"`)); got != `[14]` {
			t.Errorf("behind udf.%s: %s", call, got)
		}
	}
	if _, err := w.client.Container(t.Context(), "shop", "many"); err != nil {
		t.Fatal(err)
	}
}

// TestScripts_Off: as long as nobody has enabled them nothing of them is served.
func TestScripts_Off(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for _, path := range []string{sprocs, triggers, "/dbs/shop/colls/things/udfs"} {
		w.ask(http.MethodGet, path, "").is(501)
		w.ask(http.MethodPost, path, `{"id":"a","body":"b"}`).is(501)
		w.ask(http.MethodPost, path+"/a", `[]`, keyHeader, `["a"]`).is(501)
	}
	w.ask("POST", docs, `{"id":"x","pk":"a"}`, "x-ms-documentdb-pre-trigger-include", "t").is(400)
}
