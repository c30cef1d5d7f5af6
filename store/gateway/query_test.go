package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/gateway"
)

// query asks a query and returns its rows of all pages.
func (w *world) query(text string, with ...string) []string {
	w.t.Helper()
	body, err := json.Marshal(map[string]string{"query": text})
	if err != nil {
		w.t.Fatal(err)
	}
	var rows []string
	for token := ""; ; {
		a := w.ask("POST", docs, string(body), append([]string{isQuery, "True", acrossKeys, "True", goOn, token}, with...)...).is(200)
		var list struct{ Documents []json.RawMessage }
		a.into(&list)
		for _, row := range list.Documents {
			rows = append(rows, string(row))
		}
		if token = a.header.Get(goOn); token == "" {
			return rows
		}
		if len(token) > 1024 {
			w.t.Errorf("a continuation of %d bytes", len(token))
		}
	}
}

func TestQuery_AnswersWhatTheClientWouldHaveToMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 3})
	w.container("things", byPK)
	for i := range 24 {
		pk := fmt.Sprintf("k%d", i%6)
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%02d","pk":%q,"n":%d}`, i, pk, i), keyHeader, fmt.Sprintf("[%q]", pk)).is(201)
	}
	for text, want := range map[string][]string{
		"SELECT VALUE COUNT(1) FROM c":                                           {"24"},
		"SELECT VALUE SUM(c.n) FROM c WHERE c.pk = 'k1'":                         {"40"},
		"SELECT VALUE c.n FROM c WHERE c.n >= 20 ORDER BY c.n DESC":              {"23", "22", "21", "20"},
		"SELECT TOP 2 c.id FROM c ORDER BY c.n":                                  {`{"id":"00"}`, `{"id":"01"}`},
		"SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 22 LIMIT 5":                 {"22", "23"},
		"SELECT DISTINCT VALUE c.n % 2 FROM c ORDER BY c.n % 2":                  {"0", "1"},
		"SELECT c.pk, COUNT(1) AS n FROM c WHERE c.pk < 'k2' GROUP BY c.pk":      {`{"pk":"k0","n":4}`, `{"pk":"k1","n":4}`},
		"SELECT VALUE 1 FROM c WHERE c.pk = 'none'":                              nil,
		"SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c._ts) AND c._etag != ''": {"24"},
	} {
		t.Run(text, func(t *testing.T) {
			for _, size := range []string{"-1", "1", "3"} {
				got := w.query(text, pageItems, size)
				if strings.Contains(text, "GROUP BY") {
					slices.Sort(got)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("by %s: %s", size, diff)
				}
			}
		})
	}
	const count = "SELECT VALUE COUNT(1) FROM c"
	if got := w.query(count, keyHeader, `["k1"]`); !cmp.Equal(got, []string{"4"}) {
		t.Errorf("a key counts %v", got)
	}
	total := 0
	for _, id := range []string{"0", "1", "2"} {
		var n int
		if err := json.Unmarshal([]byte(w.query(count, rangeHeader, id)[0]), &n); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 24 {
		t.Errorf("the ranges count %d together, want 24", total)
	}
	a := w.ask("POST", docs, `{"query":"SELECT * FROM c WHERE c.id = @id","parameters":[{"name":"@id","value":"07"}]}`, "Content-Type", "application/query+json", acrossKeys, "true").is(200)
	if ids := a.ids("Documents"); !cmp.Equal(ids, []string{"07"}) || !strings.Contains(string(a.body), `"_etag"`) {
		t.Errorf("%s", a.body)
	}
	if tokens := strings.Split(a.header.Get("x-ms-session-token"), ","); len(tokens) != 3 {
		t.Errorf("session tokens %v, want one for each range", tokens)
	}
}

// Python's SDK and azcosmos ask for the first version of the index metrics, that for JavaScript for the second.
func TestQuery_IndexMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	w.ask("POST", "/dbs/shop/colls", `{"id":"things","partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":{"includedPaths":[{"path":"/n/?"},{"path":"/*"}]}}`).is(201)
	w.ask("POST", docs, `{"id":"1","pk":"a","n":1}`, keyHeader, `["a"]`).is(201)
	for _, c := range []struct {
		text string
		with []string
		want string // the parts that the answer has to have
	}{
		{"SELECT * FROM c", []string{"x-ms-cosmos-populateindexmetrics", "true", keyHeader, `["a"]`}, `"UtilizedSingleIndexes":[{"FilterExpression":"","IndexSpec":"/pk/?","IndexImpactScore":"High"}]`},
		{"SELECT * FROM c", []string{"x-ms-cosmos-populateindexmetrics", "true"}, `"PotentialCompositeIndexes":[],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"UtilizedSingleIndexes":[]`},
		{"SELECT * FROM c WHERE c.n = 1", []string{"x-ms-cosmos-populateindexmetrics-v2", "true"}, `"UtilizedIndexes":{"CompositeIndexes":[],"SingleIndexes":[{"FilterExpression":"","IndexSpec":"/n/?","IndexImpactScore":"High"}]}`},
	} {
		a := w.ask("POST", docs, `{"query":`+quote(t, c.text)+`}`, append([]string{isQuery, "true", acrossKeys, "true"}, c.with...)...).is(200)
		metrics, err := base64.StdEncoding.DecodeString(a.header.Get("x-ms-cosmos-index-utilization"))
		if err != nil || !strings.Contains(string(metrics), c.want) || !strings.Contains(string(metrics), `"Access":`) {
			t.Errorf("%s with %v: %s, %v, want %s", c.text, c.with, metrics, err, c.want)
		}
	}
}

// What RAND gives an item is the same on each page and in each range, and DOCUMENTID is the number
// in its _rid. A count of what RAND lets through looks at every item.
func TestQuery_ChanceAndNumbersOfItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 3})
	w.container("things", byPK)
	const items = 60
	for i := range items {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%02d","pk":"k%d","v":[%d,1]}`, i, i, i), keyHeader, fmt.Sprintf(`["k%d"]`, i)).is(201)
	}
	for _, text := range []string{"SELECT VALUE RAND() FROM c", "SELECT VALUE RAND() FROM c ORDER BY RAND()", "SELECT VALUE DOCUMENTID(c) FROM c", "SELECT VALUE DOCUMENTID(c) FROM c ORDER BY RAND()"} {
		rows := w.query(text, pageItems, "7")
		slices.Sort(rows)
		if rows = slices.Compact(rows); len(rows) != items {
			t.Errorf("%s gives %d rows, want %d different ones", text, len(rows), items)
		}
	}
	if got := w.query("SELECT VALUE c.id FROM c ORDER BY RAND()"); len(got) != items || slices.IsSorted(got) {
		t.Errorf("in an order of chance: %v", got)
	}
	for text, most := range map[string]int{"SELECT VALUE COUNT(1) FROM c WHERE RAND() < 0.5": items - 1, "SELECT VALUE COUNT(1) FROM c WHERE RAND() >= 0.5 AND c.id >= '00'": items - 1} {
		if n, err := strconv.Atoi(w.query(text)[0]); err != nil || n < 1 || n > most {
			t.Errorf("%s is %d", text, n)
		}
	}
	if got := w.query("SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [5, 1], false, {'distanceFunction':'euclidean'}), c.id", pageItems, "2"); !cmp.Equal(got, []string{`"05"`, `"04"`, `"06"`}) {
		t.Errorf("the nearest are %v", got)
	}
}

func TestQuery_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for i := range 3 {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%d","pk":"a"}`, i), keyHeader, `["a"]`).is(201)
	}
	ask := func(body string, with ...string) *answer {
		t.Helper()
		return w.ask("POST", docs, body, append([]string{isQuery, "true", acrossKeys, "true"}, with...)...)
	}
	a := ask(`{"query":"SELECT * FROM c WHERE c.n = = 1"}`).is(400)
	if !strings.Contains(string(a.body), "1:29") && !strings.Contains(string(a.body), "column 29") {
		t.Errorf("no place in %s", a.body)
	}
	ask(`{"query":"SELECT NONSENSE(c.n) FROM c"}`).is(400)
	ask(`{"query":"SELECT * FROM c WHERE c.n = @n"}`).is(400)
	ask(`{"query":""}`).is(400)
	ask(`{"query":1}`).is(400)
	ask(`nonsense`).is(400)
	ask(`{"query":"SELECT * FROM c","parameters":[{"name":"n","value":1}]}`).is(400)
	ask(`{"query":"SELECT * FROM c"}`, acrossKeys, "false").is(400)
	ask(`{"query":"SELECT * FROM c"}`, rangeHeader, "9").is(410, "1002")
	ask(`{"query":"SELECT * FROM c"}`, keyHeader, `["a","b"]`).is(400, "1001")
	ask(`{"query":"SELECT * FROM c"}`, goOn, "nonsense").is(400)
	ask(`{"query":"` + strings.Repeat("x", 2<<20) + `"}`).is(413)
	token := ask(`{"query":"SELECT * FROM c"}`, pageItems, "1").is(200).header.Get(goOn)
	ask(`{"query":"SELECT c.id FROM c"}`, pageItems, "1", goOn, token).is(400)
	ask(`{"query":"SELECT * FROM c"}`, pageItems, "1", goOn, token).is(200)
	w.ask("POST", "/dbs/shop/colls/none/docs", `{"query":"SELECT * FROM c"}`, isQuery, "true").is(404, "1003")
}

// A client must say that a query may read more than one partition key, unless the query itself names one.
func TestQuery_AcrossPartitionKeysIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	for i := range 4 {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%d","pk":"k%d"}`, i, i%2), keyHeader, fmt.Sprintf(`["k%d"]`, i%2)).is(201)
	}
	for text, refused := range map[string]bool{
		"SELECT * FROM c": true, "SELECT * FROM c WHERE c.id = '1'": true, "SELECT VALUE COUNT(1) FROM c": true,
		"SELECT * FROM c WHERE c.pk IN ('k0', 'k1')": true, "SELECT * FROM c WHERE c.pk = 'k0' OR c.id = '1'": true,
		"SELECT * FROM c WHERE c.pk = 'k0'": false, "SELECT * FROM c WHERE c.pk = @k AND c.id = '0' ORDER BY c.id": false,
		"SELECT * FROM c WHERE c.pk IN ('k0', 'k0')": false, "SELECT 1": false,
	} {
		body := `{"query":` + quote(t, text) + `,"parameters":[{"name":"@k","value":"k0"}]}`
		if !strings.Contains(text, "@k") {
			body = `{"query":` + quote(t, text) + `}`
		}
		for _, header := range [][]string{nil, {acrossKeys, "False"}} {
			want := 200
			if refused {
				want = 400
			}
			if a := w.ask("POST", docs, body, append(header, isQuery, "true")...); a.status != want {
				t.Errorf("%s with %v: %d %s, want %d", text, header, a.status, a.body, want)
			} else if refused && !strings.Contains(string(a.body), "Cross partition query is required but disabled") {
				t.Errorf("the service's SDKs look for other words: %s", a.body)
			}
		}
		w.ask("POST", docs, body, acrossKeys, "True", isQuery, "true").is(200)
		w.ask("POST", docs, body, keyHeader, `["k0"]`, isQuery, "true").is(200)
		w.ask("POST", docs, body, rangeHeader, "0", isQuery, "true").is(200)
	}
}

// The figures of a query are those that were measured, and come where they are asked for.
func TestQuery_Metrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	stored := 0
	for i := range 6 {
		body := fmt.Sprintf(`{"id":"%d","pk":"k%d"}`, i, i%3)
		stored += len(body)
		w.ask("POST", docs, body, keyHeader, fmt.Sprintf(`["k%d"]`, i%3)).is(201)
	}
	ask := func(text string, with ...string) map[string]float64 {
		t.Helper()
		a := w.ask("POST", docs, `{"query":"`+text+`"}`, append(with, isQuery, "true", acrossKeys, "true")...).is(200)
		figures := map[string]float64{}
		for field := range strings.SplitSeq(a.header.Get("x-ms-documentdb-query-metrics"), ";") {
			name, value, ok := strings.Cut(field, "=")
			n, err := strconv.ParseFloat(value, 64)
			if ok && err != nil {
				t.Errorf("%s in %s: %v", field, text, err)
			}
			if ok {
				figures[name] = n
			}
		}
		return figures
	}
	if got := ask("SELECT * FROM c"); len(got) != 0 {
		t.Errorf("nobody asked, and was told %v", got)
	}
	got := ask("SELECT VALUE c.id FROM c WHERE c.id > '2'", "x-ms-documentdb-populatequerymetrics", "True")
	if got["totalExecutionTimeInMs"] < got["queryCompileTimeInMs"] {
		t.Errorf("times %v", got)
	}
	delete(got, "totalExecutionTimeInMs")
	delete(got, "queryCompileTimeInMs")
	want := map[string]float64{
		"retrievedDocumentCount": 6, "retrievedDocumentSize": float64(stored), "outputDocumentCount": 3, "outputDocumentSize": float64(len(`"3""4""5"`)),
		"indexUtilizationRatio": 0.5, // the SDK for Java fails without one
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := ask("SELECT * FROM c", keyHeader, `["none"]`, "x-ms-documentdb-populatequerymetrics", "True"); got["indexUtilizationRatio"] != 1 {
		t.Errorf("nothing was read, and the figures are %v", got)
	}
	// A count of a key's items reads none of them.
	got = ask("SELECT VALUE COUNT(1) FROM c", "x-ms-documentdb-populatequerymetrics", "True", keyHeader, `["k1"]`)
	if got["retrievedDocumentCount"] != 0 || got["indexUtilizationRatio"] != 1 {
		t.Errorf("a count has %v", got)
	}
}

// A plan is looked for before the query is, since it carries the same headers.
func TestQueryPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.gatewayPartitions("wide", 2)
	plan := func(container, text string) *answer {
		t.Helper()
		return w.ask("POST", "/dbs/shop/colls/"+container+"/docs", `{"query":"`+text+`"}`,
			isQuery, "true", "x-ms-cosmos-is-query-plan-request", "True", "Content-Type", "application/query+json")
	}
	body := plan("things", "SELECT TOP 3 * FROM c ORDER BY c.n").is(200).object()
	if body["queryInfo"] == nil || body["queryRanges"] == nil {
		t.Errorf("plan %v", body)
	}
	// The SDK for Java takes rows out of the form in which it keeps what is no object only where the plan says that they are values.
	for text, value := range map[string]bool{"SELECT * FROM c WHERE c.n > 1": false, "SELECT VALUE c.n FROM c": true, "SELECT VALUE c.n FROM c ORDER BY c.n": true} {
		for _, container := range []string{"things", "wide"} {
			var p struct{ QueryInfo struct{ HasSelectValue bool } }
			if plan(container, text).is(200).into(&p); p.QueryInfo.HasSelectValue != value {
				t.Errorf("hasSelectValue is %t of %s in %s", p.QueryInfo.HasSelectValue, text, container)
			}
		}
	}
	plan("things", "SELEC").is(400)
	// The first range answers for the whole container, and for no part of it.
	for text, status := range map[string]int{"SELECT * FROM c ORDER BY c.n": 400, "SELECT * FROM c": 200} {
		w.ask("POST", "/dbs/shop/colls/wide/docs", `{"query":"`+text+`"}`, "x-ms-cosmos-is-query-plan-request", "True", rangeHeader, "0,1").is(status)
	}
	// A client asks every range for the rewritten text and joins what comes.
	for i := range 9 {
		w.ask("POST", "/dbs/shop/colls/wide/docs", fmt.Sprintf(`{"id":"%d","pk":"k%d","n":%d}`, i, i, i), keyHeader, fmt.Sprintf(`["k%d"]`, i)).is(201)
	}
	var p struct {
		QueryInfo   struct{ RewrittenQuery string }
		QueryRanges []struct{ Min, Max string }
	}
	for text, want := range map[string][]int{"SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 2 LIMIT 4": {6, 5, 4, 3}, "SELECT VALUE 1": {1}} {
		p.QueryInfo.RewrittenQuery, p.QueryRanges = "", nil
		plan("wide", text).is(200).into(&p)
		if rewritten := p.QueryInfo.RewrittenQuery; rewritten != "" {
			text = rewritten
		}
		body2, err := json.Marshal(map[string]string{"query": text})
		if err != nil {
			t.Fatal(err)
		}
		var joined []int
		for _, id := range []string{"0", "1"} {
			for token := ""; ; {
				a := w.ask("POST", "/dbs/shop/colls/wide/docs", string(body2), isQuery, "true", rangeHeader, id, pageItems, "3", goOn, token).is(200)
				var list struct{ Documents []int }
				a.into(&list)
				joined = append(joined, list.Documents...)
				// The SDK for Java reads no token of several ranges, and fails.
				if token := a.header.Get("x-ms-session-token"); strings.Contains(token, ",") || token != "" && !strings.HasPrefix(token, id+":-1#") {
					t.Errorf("range %s is asked, and the session token is %q", id, token)
				}
				if token = a.header.Get(goOn); token == "" {
					break
				}
			}
		}
		if !slices.Equal(want, joined) || len(p.QueryRanges) != 1 {
			t.Errorf("%s: joined %v, want %v; ranges %v", text, joined, want, p.QueryRanges)
		}
	}
}
