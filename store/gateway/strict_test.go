package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/gateway"
)

// With gateway.strict a query is refused that Cosmos DB refuses, and without it is answered. What is refused
// here and there, and what is answered here and there, is in docs/gateway.md.
func TestStrict(t *testing.T) {
	t.Parallel()
	const policy = `{"indexingMode":"consistent","includedPaths":[{"path":"/*"},{"path":"/big/kept/?"}],"excludedPaths":[{"path":"/big/*"},{"path":"/blob/?"}],
		"compositeIndexes":[[{"path":"/name","order":"ascending"},{"path":"/n","order":"descending"}]]}`
	loose, strict := newWorld(t, gateway.Config{Partitions: 2}), newWorld(t, gateway.Config{Partitions: 2, Strict: true})
	for _, w := range []*world{loose, strict} {
		w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
		w.ask("POST", "/dbs/shop/colls", `{"id":"things","partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":`+policy+`}`).is(201)
		w.ask("POST", docs, `{"id":"1","pk":"a","n":1,"name":"x","order":5,"t":[1],"big":{"kept":1,"other":2},"blob":3}`, keyHeader, `["a"]`).is(201)
	}
	ask := func(w *world, text string, with ...string) *answer {
		t.Helper()
		body, err := json.Marshal(map[string]string{"query": text})
		if err != nil {
			t.Fatal(err)
		}
		return w.ask("POST", docs, string(body), append([]string{isQuery, "true", acrossKeys, "true"}, with...)...)
	}
	oneKey := []string{keyHeader, `["a"]`}
	for _, c := range []struct {
		text string
		want string // in the refusal; "" if it is served
	}{
		{`SELECT * FROM c`, ``},
		{`SELECT c.id, t FROM c JOIN t IN c.t WHERE c.n * 2 = 2`, ``},
		{`SELECT * FROM c ORDER BY c.n`, ``},
		{`SELECT * FROM c ORDER BY c.big.kept`, ``},
		{`SELECT * FROM c ORDER BY c.id DESC`, ``},
		{`SELECT * FROM c ORDER BY c.name, c.n DESC`, ``},
		{`SELECT * FROM c ORDER BY c.name DESC, c.n ASC`, ``},
		{`SELECT VALUE COUNT(1) FROM c`, ``},
		{`SELECT c.name, COUNT(1) AS n FROM c GROUP BY c.name`, ``},
		{`SELECT TOP 1 c.id FROM c ORDER BY VectorDistance(c.t, [1])`, ``},
		{`SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.t) + 1 FROM c`, ``},
		{`SELECT c["order"] FROM c`, ``},
		{`SELECT c.order FROM c`, `write [\"order\"]`},
		{`SELECT VALUE COUNT(1) + 1 FROM c`, `an aggregate by itself`},
		{`SELECT * FROM c ORDER BY c.n + 1`, `orders by paths of the item`},
		{`SELECT * FROM c ORDER BY LOWER(c.name)`, `orders by paths of the item`},
		{`SELECT c.id, t FROM c JOIN t IN c.t ORDER BY t`, `what JOIN and IN name`},
		{`SELECT * FROM c ORDER BY c.n, c.n`, `one path twice`},
		{`SELECT * FROM c ORDER BY c.name, c.n`, `a composite index of them`},
		{`SELECT * FROM c ORDER BY c.n DESC, c.name`, `a composite index of them`},
		{`SELECT * FROM c ORDER BY c.name, c.n DESC, c.id`, `a composite index of them`},
		{`SELECT * FROM c ORDER BY c.big.other`, `does not order by /big/other`},
		{`SELECT * FROM c ORDER BY c.blob`, `does not order by /blob`},
		{`SELECT * FROM c ORDER BY c._etag`, `does not order by /_etag`},
		{`SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.t ORDER BY t) FROM c`, `no ORDER BY in a subquery`},
		{`SELECT VALUE ARRAY(SELECT TOP 1 VALUE t FROM t IN c.t) FROM c`, `no TOP in a subquery`},
		{`SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.t OFFSET 0 LIMIT 1) FROM c`, `no OFFSET LIMIT in a subquery`},
		{`SELECT VALUE c.t[c.n - 1] FROM c`, `a constant in brackets`},
		{`SELECT VALUE FIRST(SELECT VALUE t FROM t IN c.t) FROM c`, `has no FIRST`},
		{`SELECT * FROM c WHERE c.n < Infinity`, `has no Infinity`},
	} {
		ask(loose, c.text, oneKey...).is(200)
		if c.want == "" {
			ask(strict, c.text, oneKey...).is(200)
			continue
		}
		a := ask(strict, c.text, oneKey...).is(400)
		if !strings.Contains(string(a.body), c.want) || !strings.Contains(string(a.body), "Cosmos DB") {
			t.Errorf("%s: %s, want %s", c.text, a.body, c.want)
		}
		// A client that asks for the plan first learns it there.
		body, err := json.Marshal(map[string]string{"query": c.text})
		if err != nil {
			t.Fatal(err)
		}
		strict.ask("POST", docs, string(body), "x-ms-cosmos-is-query-plan-request", "True").is(400)
	}
}

// What rows of several partition keys come to clients merge there, by a plan. A client that has none is refused, as azcosmos
// is; one that has a plan is answered.
func TestStrict_AcrossKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2, Strict: true})
	w.container("things", byPK)
	for _, pk := range []string{"a", "b", "c"} {
		w.ask("POST", docs, `{"id":"1","pk":"`+pk+`"}`, keyHeader, `["`+pk+`"]`).is(201)
	}
	for text, want := range map[string]string{
		`SELECT VALUE c.pk FROM c ORDER BY c.pk`:                `"a" "b" "c"`,
		`SELECT VALUE COUNT(1) FROM c`:                          `3`,
		`SELECT TOP 5 VALUE 1 FROM c`:                           `1 1 1`,
		`SELECT DISTINCT VALUE c.id FROM c`:                     `"1"`,
		`SELECT VALUE 1 FROM c OFFSET 1 LIMIT 5`:                `1 1`,
		`SELECT VALUE MAX(c.pk) FROM c WHERE c.pk IN ('a','b')`: `"b"`,
		`SELECT c.id, COUNT(1) AS n FROM c GROUP BY c.id`:       `{"id":"1","n":3}`,
	} {
		body, err := json.Marshal(map[string]string{"query": text})
		if err != nil {
			t.Fatal(err)
		}
		a := w.ask("POST", docs, string(body), isQuery, "true", acrossKeys, "true").is(400, "1004")
		if !strings.Contains(string(a.body), `"additionalErrorInfo"`) {
			t.Errorf("%s: %s", text, a.body)
		}
		rows := w.byPlan(text, "0", "1")
		if got := strings.Join(rows, " "); got != want {
			t.Errorf("%s gives %s by its plan, want %s", text, got, want)
		}
	}
	for text, want := range map[string][]string{
		`SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'b'`:              {"1"},
		`SELECT VALUE c.pk FROM c WHERE c.pk >= 'c'`:                 {`"c"`},
		`SELECT VALUE 1 + 1`:                                         {"2"},
		`SELECT DISTINCT VALUE c.id FROM c WHERE c.pk IN ('c', 'c')`: {`"1"`},
	} {
		if got := w.query(text); !cmp.Equal(got, want) {
			t.Errorf("%s gives %v, want %v", text, got, want)
		}
	}
}

// A page has rows of one range, and is empty where the range has none.
func TestStrict_PagesOfOneRange(t *testing.T) {
	t.Parallel()
	for strict, want := range map[bool]int{false: 1, true: 3} {
		w := newWorld(t, gateway.Config{Partitions: 3, Strict: strict})
		w.container("things", byPK)
		const items = 4
		for i := range items { // of one partition key, and so in one of the ranges
			w.ask("POST", docs, fmt.Sprintf(`{"id":"%d","pk":"a"}`, i), keyHeader, `["a"]`).is(201)
		}
		pages, rows := 0, 0
		for token := ""; pages == 0 || token != ""; pages++ {
			a := w.ask("POST", docs, `{"query":"SELECT * FROM c"}`, isQuery, "true", acrossKeys, "true", goOn, token).is(200)
			n := len(a.ids("Documents"))
			if n != 0 && n != items {
				t.Errorf("with strict %t page %d has %d items", strict, pages, n)
			}
			rows += n
			token = a.header.Get(goOn)
		}
		if pages != want || rows != items {
			t.Errorf("with strict %t %d items come in %d pages, want %d", strict, rows, pages, want)
		}
	}
}

// An indexing policy names the root path.
func TestStrict_Policy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Strict: true})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	for policy, status := range map[string]int{
		`{"includedPaths":[{"path":"/a/?"}]}`:                                   400,
		`{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/b/?"}]}`: 400,
		`{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}`:   201,
		`{"includedPaths":[{"path":"/"}]}`:                                      201,
		`{"indexingMode":"none"}`:                                               201,
		`{}`:                                                                    201,
	} {
		w.ask("POST", "/dbs/shop/colls", `{"id":"c`+strings.Map(letters, policy)+`","partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":`+policy+`}`).is(status)
	}
	w.ask("PUT", "/dbs/shop/colls/c", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":{"includedPaths":[{"path":"/a/?"}]}}`).is(400)
}

// An item is not found by an id in a path that the service's gateway reads otherwise than it was signed. It is made, and other ids are found.
func TestStrict_PathsOfItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Strict: true})
	w.container("things", byPK)
	key := []string{keyHeader, `["a"]`}
	for id, status := range map[string]int{
		"plain": 200, " before": 200, "in between": 200, "a?b": 200, "100%": 200, "a%zz": 200, "ü鱀": 200, ",=.:~+-@()^${}[]!_": 200,
		"behind ": 401, "behind%20": 401, "a%E9%B1%80b": 401, "a/b": 401, `a\b`: 401, "a#b": 401, "a\tb": 400, "a\nb": 400, "a\rb": 400,
	} {
		body := `{"id":` + quote(t, id) + `,"pk":"a"}`
		path := docs + "/" + url.PathEscape(id)
		var item struct {
			Self string `json:"_self"`
		}
		w.ask("POST", docs, body, key...).is(201).into(&item)
		w.ask("GET", path, "", key...).is(status)
		w.ask("PUT", path, body, key...).is(status)
		w.ask("PATCH", path, `[{"op":"set","path":"/n","value":1}]`, key...).is(status)
		if got := w.query(`SELECT VALUE c.id FROM c WHERE c.id = ` + quote(t, id)); len(got) != 1 {
			t.Errorf("%q is not found by a query", id)
		}
		w.ask("GET", "/"+item.Self, "", key...).is(200) // no id stands in it
		if status == 200 {
			status = 204
		}
		w.ask("DELETE", path, "", key...).is(status)
	}
	w.key = w.keys.PrimaryReadOnly
	w.ask("DELETE", docs+"/a%2Fb", "", key...).is(403) // who may not write learns that first
}

// A read whose session has seen more of its range than there is of it is refused, and one that has seen as much or is at another
// level is answered. Without gateway.strict all are.
func TestStrict_SessionsOfTheFuture(t *testing.T) {
	t.Parallel()
	const session = "x-ms-session-token"
	loose, strict := newWorld(t, gateway.Config{}), newWorld(t, gateway.Config{Strict: true})
	for _, w := range []*world{loose, strict} {
		w.container("things", byPK)
		key := []string{keyHeader, `["a"]`}
		now := w.ask("POST", docs, `{"id":"1","pk":"a"}`, key...).is(201).header.Get(session)
		for name, ask := range map[string]func(with ...string) *answer{
			"an item": func(with ...string) *answer { return w.ask("GET", docs+"/1", "", append(with, key...)...) },
			"no item": func(with ...string) *answer { return w.ask("GET", docs+"/2", "", append(with, key...)...) },
			"a feed":  func(with ...string) *answer { return w.ask("GET", docs, "", with...) },
			"a change feed": func(with ...string) *answer {
				return w.ask("GET", docs, "", append(with, "a-im", "Incremental feed")...)
			},
			"a page of it": func(with ...string) *answer {
				return w.ask("GET", docs, "", append(with, "a-im", "Incremental feed", pageItems, "1")...)
			},
			"a query": func(with ...string) *answer {
				return w.ask("POST", docs, `{"query":"SELECT * FROM c"}`, append(with, isQuery, "true", acrossKeys, "true")...)
			},
			"a query of none": func(with ...string) *answer {
				return w.ask("POST", docs, `{"query":"SELECT * FROM c WHERE c.id = 'none'"}`, append(with, append(key, isQuery, "true")...)...)
			},
		} {
			t.Run(fmt.Sprintf("%s, strict: %t", name, w == strict), func(t *testing.T) {
				want, substatus := 200, ""
				if name == "no item" {
					want = 404
				}
				for _, with := range []headers{{}, {session, now}, {session, now + ",7:-1#999"}, {session, "0:-1#999", "x-ms-consistency-level", "Eventual"}, {session, "nonsense"}} {
					ask(with...).is(want)
				}
				if w == strict {
					want, substatus = 404, "1002"
				}
				if a := ask(session, now+",0:-1#999").is(want, substatus); w == strict && !strings.Contains(string(a.body), "gateway.strict") {
					t.Errorf("the refusal is %s", a.body)
				}
			})
		}
		// Writes need no session.
		w.ask("PUT", docs+"/1", `{"id":"1","pk":"a"}`, append(key, session, "0:-1#999")...).is(200)
	}
}

// letters drops what is no letter.
func letters(r rune) rune {
	if r < 'a' || r > 'z' {
		return -1
	}
	return r
}
