package gateway_test

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/clientplan"
	"github.com/millrace/millrace/store/gateway"
)

// orderedRow is what a range gives of an ORDER BY.
type orderedRow struct {
	Items   []map[string]any `json:"orderByItems"`
	Payload any              `json:"payload"`
}

// byPlan has a query by its plan, as the SDKs have it: each range is asked for the rewritten text, and its rows are
// merged here.
func (w *world) byPlan(text string, ranges ...string) []string {
	w.t.Helper()
	var plan struct {
		Info clientplan.Info `json:"queryInfo"`
	}
	w.ask("POST", docs, `{"query":`+quote(w.t, text)+`}`, "x-ms-cosmos-is-query-plan-request", "True").is(200).into(&plan)
	info := plan.Info
	rewritten := cmp.Or(strings.ReplaceAll(info.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true"), text)
	var rows []any
	var ordered []orderedRow
	for _, id := range ranges {
		for _, raw := range w.query(rewritten, rangeHeader, id, pageItems, "2") {
			var row any
			var in orderedRow
			target := any(&row)
			if len(info.OrderBy) > 0 {
				target = &in
			}
			if err := json.Unmarshal([]byte(raw), target); err != nil {
				w.t.Fatal(err)
			}
			rows, ordered = append(rows, row), append(ordered, in)
		}
	}
	switch {
	case len(info.OrderBy) > 0:
		slices.SortStableFunc(ordered, func(a, b orderedRow) int { return compareItems(info.OrderBy, a.Items, b.Items) })
		for i := range rows {
			rows[i] = ordered[i].Payload
		}
	case len(info.Aggregates)+len(info.GroupByExpressions)+len(info.GroupByAliasToAggregateType) > 0:
		rows = mergeGroups(info, rows)
	}
	var list []string
	for _, row := range rows {
		raw, err := json.Marshal(row)
		if err != nil {
			w.t.Fatal(err)
		}
		again := info.DistinctType == "Ordered" && len(list) > 0 && list[len(list)-1] == string(raw) ||
			info.DistinctType == "Unordered" && slices.Contains(list, string(raw))
		if !again {
			list = append(list, string(raw))
		}
	}
	if info.Offset != nil {
		list = list[min(int64(len(list)), *info.Offset):]
	}
	for _, most := range []*int64{info.Top, info.Limit} {
		if most != nil {
			list = list[:min(int64(len(list)), *most)]
		}
	}
	return list
}

// compareItems compares the places of two rows in an order.
func compareItems(directions []string, a, b []map[string]any) int {
	for i, direction := range directions {
		n := compareValues(a[i]["item"], b[i]["item"])
		if n == 0 {
			n = cmp.Compare(len(a[i]), len(b[i])) // nothing comes before null
		}
		if direction == "Descending" {
			n = -n
		}
		if n != 0 {
			return n
		}
	}
	return 0
}

// compareValues compares values of JSON in the order of types.
func compareValues(a, b any) int {
	rank := func(v any) int {
		switch v.(type) {
		case nil:
			return 0
		case bool:
			return 1
		case float64:
			return 2
		}
		return 3
	}
	if n := cmp.Compare(rank(a), rank(b)); n != 0 {
		return n
	}
	switch a := a.(type) {
	case float64:
		return cmp.Compare(a, b.(float64))
	case string:
		return cmp.Compare(a, b.(string))
	}
	return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// mergeGroups merges the groups of ranges.
func mergeGroups(info clientplan.Info, rows []any) (merged []any) {
	type group map[string]*partials // by the property, "" with SELECT VALUE
	groups, first := map[string]group{}, map[string]any{}
	for _, row := range rows {
		key, payload := "", row
		if object, ok := row.(map[string]any); ok && (object["groupByItems"] != nil || !info.HasSelectValue) {
			raw, _ := json.Marshal(object["groupByItems"])
			key, payload = string(raw), object["payload"]
		}
		if groups[key] == nil {
			groups[key], first[key] = group{}, payload
		}
		add := func(name, kind string, part any) {
			if groups[key][name] == nil {
				groups[key][name] = &partials{kind: kind}
			}
			groups[key][name].add(part.(map[string]any))
		}
		if info.HasSelectValue {
			if len(info.Aggregates) > 0 {
				add("", info.Aggregates[0], payload.([]any)[0])
			}
			continue
		}
		for name, kind := range info.GroupByAliasToAggregateType {
			if kind != nil {
				add(name, *kind, payload.(map[string]any)[name])
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		row, defined := first[key], true
		for name, part := range groups[key] {
			value, ok := part.result()
			switch object, _ := row.(map[string]any); {
			case name == "":
				row, defined = value, ok
			case ok:
				object[name] = value
			default:
				delete(object, name)
			}
		}
		if defined {
			merged = append(merged, row)
		}
	}
	return merged
}

// partials are the partial aggregates of ranges.
type partials struct {
	kind       string
	bad        bool // one of them is undefined though it has values
	sum, count float64
	best       any
	some       bool
}

func (p *partials) add(part map[string]any) {
	item, defined := part["item"]
	switch p.kind {
	case "Count", "Sum":
		n, ok := item.(float64)
		p.sum, p.bad, p.some = p.sum+n, p.bad || !ok, true
	case "Average":
		of := item.(map[string]any)
		sum, ok := of["sum"].(float64)
		count := of["count"].(float64)
		p.sum, p.count, p.bad = p.sum+sum, p.count+count, p.bad || !ok
		p.some = p.count > 0
	default:
		more := part["item2"].(map[string]any)
		if of, ok := more[strings.ToLower(p.kind)]; ok != defined || !gocmp.Equal(of, item) {
			panic("item2 has another value than item")
		}
		if !defined {
			p.bad = p.bad || more["count"].(float64) > 0
			return
		}
		if n := compareValues(item, p.best); !p.some || p.kind == "Min" && n < 0 || p.kind == "Max" && n > 0 {
			p.best, p.some = item, true
		}
	}
}

func (p *partials) result() (any, bool) {
	switch {
	case p.bad || !p.some:
		return nil, false
	case p.kind == "Count" || p.kind == "Sum":
		return p.sum, true
	case p.kind == "Average":
		return p.sum / p.count, true
	}
	return p.best, true
}

// By its plan a query has the rows that the server gives of it whole.
func TestPlan_MergesToTheSameRows(t *testing.T) {
	t.Parallel()
	loose, strict := newWorld(t, gateway.Config{Partitions: 3}), newWorld(t, gateway.Config{Partitions: 3, Strict: true})
	for _, w := range []*world{loose, strict} {
		w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
		w.ask("POST", "/dbs/shop/colls", `{"id":"things","partitionKey":{"paths":["/pk"],"kind":"Hash"},"indexingPolicy":{"includedPaths":[{"path":"/*"}],
			"compositeIndexes":[[{"path":"/g","order":"ascending"},{"path":"/n","order":"descending"}]]}}`).is(201)
		for i := range 30 {
			x := []string{`"x":7,`, `"x":"s",`, `"x":null,`, `"x":false,`, ``, `"x":-2.5,`}[i%6]
			w.ask("POST", docs, fmt.Sprintf(`{"id":"%02d","pk":"k%d",%s"n":%d,"g":"g%d","my prop":%d,"tags":[{"t":%d},{"t":-1}]}`, i, i%11, x, i, i%4, i%3, i%2), keyHeader, fmt.Sprintf(`["k%d"]`, i%11)).is(201)
		}
	}
	for _, text := range []string{
		`SELECT VALUE c.n FROM c WHERE c.n > 3 OR c.n < 1 ORDER BY c.n`,
		`SELECT VALUE c.n FROM c ORDER BY c.n DESC`,
		`SELECT c.id, c.n + 1, c["my prop"], UPPER(c.g) AS up FROM c ORDER BY c.n`,
		`SELECT VALUE {"g": c.g, "x": c.x} FROM c ORDER BY c.n`,
		`SELECT r.n FROM root AS r ORDER BY r.g, r.n DESC`,
		`SELECT VALUE c.x FROM c ORDER BY c.x`,
		`SELECT VALUE c.x FROM c ORDER BY c.x DESC`,
		`SELECT VALUE c.x FROM c ORDER BY c.n OFFSET 3 LIMIT 9`,
		`SELECT TOP 3 VALUE t.t FROM c JOIN t IN c.tags ORDER BY c.n`,
		`SELECT TOP 4 c.n FROM c ORDER BY c.n DESC`,
		`SELECT TOP 0 c.n FROM c ORDER BY c.n DESC`,
		`SELECT VALUE t.t FROM t IN c.tags WHERE t.t >= 0`,
		`SELECT VALUE c.n FROM c WHERE c.n > 27 OFFSET 0 LIMIT 5`,
		`SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g DESC`,
		`SELECT DISTINCT c.g FROM c ORDER BY c.g OFFSET 1 LIMIT 2`,
		`SELECT DISTINCT TOP 2 c.g FROM c ORDER BY c.g`,
		`SELECT DISTINCT VALUE c.x FROM c ORDER BY c.x`,
		`SELECT DISTINCT c.g, c.x FROM c ORDER BY c.g`,
		`SELECT DISTINCT c.g, c.x FROM c`,
		`SELECT DISTINCT VALUE c["my prop"] FROM c`,
		`SELECT DISTINCT TOP 9 VALUE c.g FROM c`,
		`SELECT VALUE COUNT(1) FROM c`,
		`SELECT TOP 10 VALUE COUNT(c.x) FROM c`,
		`SELECT VALUE SUM(c.n) FROM c WHERE c.n < 0`,
		`SELECT VALUE SUM(c.n) FROM c`,
		`SELECT VALUE AVG(c.n) FROM c`,
		`SELECT VALUE AVG(c.n) FROM c WHERE c.n < 0`,
		`SELECT VALUE AVG(c.x) FROM c`,
		`SELECT VALUE MIN(c.n) FROM c WHERE c.n = 17`,
		`SELECT VALUE MAX(c.x) FROM c`,
		`SELECT VALUE MIN(c.x) FROM c`,
		`SELECT VALUE MAX(c.tags) FROM c`,
		`SELECT VALUE MAX(c.n) FROM c WHERE c.n < 0`,
		`SELECT VALUE COUNT(1) FROM c ORDER BY c.n`,
		`SELECT COUNT(1) AS n, MAX(c.n), 1 AS one FROM c`,
		`SELECT c.g, COUNT(1) AS n, AVG(c.n) AS mean, MIN(c.x) AS least FROM c GROUP BY c.g`,
		`SELECT c.g, c.x FROM c GROUP BY c.g, c.x`,
		`SELECT SUM(t.t) AS n, c.g FROM c JOIN t IN c.tags WHERE c.n > 5 GROUP BY c.g`,
		`SELECT VALUE c.g FROM c GROUP BY c.g`,
		`SELECT VALUE MAX(c.n) FROM c GROUP BY c.g`,
	} {
		want, got := loose.query(text), strict.byPlan(text, "0", "1", "2")
		for _, rows := range [][]string{want, got} {
			for i := range rows { // in one form
				var v any
				if err := json.Unmarshal([]byte(rows[i]), &v); err != nil {
					t.Fatal(err)
				}
				raw, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				rows[i] = string(raw)
			}
			// Beside what the order decides nothing is promised.
			if !strings.Contains(text, "ORDER BY") || strings.Contains(text, "c.x FROM c ORDER BY c.g") {
				slices.Sort(rows)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// Clients drop equal rows that are in the order of what is not shown, and the server, asked for one key, refuses them.
func TestPlan_DistinctInAnotherOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2, Strict: true})
	w.container("things", byPK)
	for i := range 10 {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"1","pk":%d,"v":%d}`, i, i/3), keyHeader, fmt.Sprintf("[%d]", i)).is(201)
	}
	for text, want := range map[string]string{
		`SELECT DISTINCT VALUE c.v FROM c ORDER BY c.pk`:                       "0 1 2 3",
		`SELECT DISTINCT VALUE c.v FROM c ORDER BY c.pk OFFSET 2 LIMIT 2`:      "2 3",
		`SELECT DISTINCT TOP 2 c.v FROM c ORDER BY c.pk DESC`:                  `{"v":3} {"v":2}`,
		`SELECT DISTINCT VALUE c.v FROM c WHERE c.v > 1 ORDER BY c.pk`:         "2 3",
		`SELECT DISTINCT VALUE c.v FROM c ORDER BY c.pk DESC OFFSET 4 LIMIT 1`: "",
	} {
		if got := strings.Join(w.byPlan(text, "0", "1"), " "); got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
		body := `{"query":` + quote(t, text) + `}`
		w.ask("POST", docs, body, isQuery, "true", acrossKeys, "true").is(400, "1004")
		w.ask("POST", docs, body, isQuery, "true", keyHeader, "[1]").is(400)
	}
}

// A client that has not what a plan takes is refused the plan.
func TestPlan_Features(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2, Strict: true})
	w.container("things", byPK)
	const python = "Aggregate,CompositeAggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,NonStreamingOrderBy,CountIf"
	for text, status := range map[string]int{
		`SELECT VALUE COUNT(1) FROM c`:                          200,
		`SELECT VALUE AVG(c.n) FROM c`:                          200,
		`SELECT TOP 1 * FROM c ORDER BY c.n`:                    200,
		`SELECT DISTINCT c.n FROM c OFFSET 1 LIMIT 2`:           200,
		`SELECT COUNT(1) FROM c`:                                400,
		`SELECT COUNT(1) FROM c WHERE c.pk = 'a'`:               400,
		`SELECT c.n, COUNT(1) AS m FROM c GROUP BY c.n`:         400,
		`SELECT VALUE c.n FROM c GROUP BY c.n`:                  400,
		`SELECT * FROM c WHERE c.n > 1`:                         200,
		`SELECT TOP 1 * FROM c ORDER BY VectorDistance(c.v,[])`: 200,
	} {
		w.ask("POST", docs, `{"query":`+quote(t, text)+`}`, "x-ms-cosmos-is-query-plan-request", "True", "x-ms-cosmos-supported-query-features", python).is(status)
	}
	// As those of a client that has no plan, so that it asks for one.
	w.ask("POST", docs, `{"query":"SELECT COUNT(1) FROM c WHERE c.pk = 'a'"}`, isQuery, "true", acrossKeys, "true").is(400, "1004")
	// Without the client's part a range's rows are its own.
	if got := w.query("SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'a'"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("a count of one key gives %v", got)
	}
}

// Of rows of one place in the order those come first whose resource ids are lower, or greater where the first path is in descending
// order, whichever byte of their numbers counts most: so SDKs go on between two of them.
func TestPlan_RowsOfOnePlaceComeByTheirResourceIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Strict: true})
	w.container("things", byPK)
	const items = 40
	for i := range items {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%d","pk":"k%d","g":1}`, i, i%7), keyHeader, fmt.Sprintf(`["k%d"]`, i%7)).is(201)
	}
	for _, direction := range []string{"ASC", "DESC"} {
		var plan struct {
			Info clientplan.Info `json:"queryInfo"`
		}
		w.ask("POST", docs, `{"query":"SELECT c.id FROM c ORDER BY c.g `+direction+`"}`, "x-ms-cosmos-is-query-plan-request", "True").is(200).into(&plan)
		rewritten := strings.ReplaceAll(plan.Info.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true")
		var first, last []int64 // the numbers, by the byte that counts most
		for _, raw := range w.query(rewritten, rangeHeader, "0", pageItems, "7") {
			var row struct {
				RID string `json:"_rid"`
			}
			if err := json.Unmarshal([]byte(raw), &row); err != nil {
				t.Fatal(err)
			}
			id, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(row.RID, "-", "/"))
			if err != nil || len(id) != 16 {
				t.Fatalf("%q: %v", row.RID, err)
			}
			first, last = append(first, int64(binary.BigEndian.Uint64(id[8:]))), append(last, int64(binary.LittleEndian.Uint64(id[8:])))
		}
		if direction == "DESC" {
			slices.Reverse(first)
			slices.Reverse(last)
		}
		if len(first) != items || !slices.IsSorted(first) || !slices.IsSorted(last) || first[0] == first[items-1] {
			t.Errorf("%s: %d rows, %v, %v", direction, len(first), first, last)
		}
	}
}
