package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// ids returns the ids in a list.
func (a *answer) ids(name string) []string {
	a.t.Helper()
	var list map[string]json.RawMessage
	a.into(&list)
	var all []struct{ ID string }
	if err := json.Unmarshal(list[name], &all); err != nil {
		a.t.Fatalf("%s: %v: %s", a.what, err, a.body)
	}
	ids := []string{}
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	if count := string(list["_count"]); count != fmt.Sprint(len(ids)) {
		a.t.Errorf("%s: _count is %s of %d", a.what, count, len(ids))
	}
	return ids
}

func TestAccount_NamesThePlaceByWhichItWasReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{TrustedProxies: []string{"127.0.0.1"}})
	type location struct{ Name, DatabaseAccountEndpoint string }
	var account struct {
		ID                                   string
		WritableLocations, ReadableLocations []location
		UserConsistencyPolicy                struct{ DefaultConsistencyLevel string }
		QueryEngineConfiguration             string
		EnableMultipleWriteLocations         bool
	}
	w.ask("GET", "/", "").is(200).into(&account)
	if len(account.WritableLocations) != 1 || account.WritableLocations[0].DatabaseAccountEndpoint != w.web.URL+"/" {
		t.Errorf("locations %+v, want %s", account.WritableLocations, w.web.URL)
	}
	if name := account.WritableLocations[0].Name; name != "Local" {
		t.Errorf("the region is %q", name)
	}
	if account.ID == "localhost" || account.ID == "" || account.UserConsistencyPolicy.DefaultConsistencyLevel != "Session" {
		t.Errorf("account %+v", account)
	}
	if !json.Valid([]byte(account.QueryEngineConfiguration)) {
		t.Errorf("queryEngineConfiguration %q is no JSON", account.QueryEngineConfiguration)
	}
	w.ask("GET", "/", "", "X-Forwarded-Host", "db.example.com", "X-Forwarded-Proto", "https").is(200).into(&account)
	if got := account.WritableLocations[0].DatabaseAccountEndpoint; got != "https://db.example.com/" {
		t.Errorf("behind a trusted proxy: %s", got)
	}
	public := newWorld(t, gateway.Config{PublicURL: "https://shop.example.com:444", Region: "South Central US", Consistency: "Strong"})
	public.ask("GET", "/", "", "X-Forwarded-Host", "evil.example.com").is(200).into(&account)
	if got := account.WritableLocations[0].DatabaseAccountEndpoint; got != "https://shop.example.com:444/" {
		t.Errorf("with a public URL: %s", got)
	}
	if w, r := account.WritableLocations[0].Name, account.ReadableLocations[0].Name; w != "South Central US" || r != w || account.UserConsistencyPolicy.DefaultConsistencyLevel != "Strong" {
		t.Errorf("with a region and a level of its own: %+v", account)
	}
	for _, wrong := range []gateway.Config{{Region: " here"}, {Region: "a\nb"}, {Region: strings.Repeat("x", 101)}, {Consistency: "Eventual"}, {Consistency: "strong"}} {
		if wrong.Check() == nil {
			t.Errorf("taken: %+v", wrong)
		}
	}
}

func TestDatabase_Life(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	a := w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	if body := a.object(); body["id"] != "shop" || body["_etag"] != a.header.Get("etag") || body["_rid"] == nil {
		t.Errorf("created %s", a.body)
	}
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(409)
	w.ask("POST", "/dbs", `{"id":""}`).is(400)
	w.ask("POST", "/dbs", `{"id":"a/b"}`).is(400)
	w.ask("POST", "/dbs", `{`).is(400)
	w.ask("POST", "/dbs", `{"id":"bank"}`).is(201)
	w.ask("GET", "/dbs/shop/", "").is(200)
	w.ask("GET", "/dbs/none", "").is(404)
	if diff := cmp.Diff([]string{"bank", "shop"}, w.ask("GET", "/dbs", "").is(200).ids("Databases")); diff != "" {
		t.Error(diff)
	}
	a = w.ask("GET", "/dbs", "", pageItems, "1").is(200)
	next := w.ask("GET", "/dbs", "", pageItems, "1", goOn, a.header.Get(goOn)).is(200)
	if diff := cmp.Diff([]string{"bank", "shop"}, append(a.ids("Databases"), next.ids("Databases")...)); diff != "" || next.header.Get(goOn) != "" {
		t.Errorf("pages: %s, then %q", diff, next.header.Get(goOn))
	}
	w.ask("GET", "/dbs", "", goOn, "nowhere").is(400)
	a = w.ask("POST", "/dbs", `{"query":"SELECT * FROM root r WHERE r.id = @id","parameters":[{"name":"@id","value":"shop"}]}`, isQuery, "true").is(200)
	if diff := cmp.Diff([]string{"shop"}, a.ids("Databases")); diff != "" {
		t.Error(diff)
	}
	w.ask("POST", "/dbs", `{"query":"SELEC * FROM root"}`, isQuery, "true").is(400)
	w.ask("DELETE", "/dbs/shop", "").is(204)
	w.ask("DELETE", "/dbs/shop", "").is(404)
	w.ask("POST", "/dbs/shop/colls", byPK).is(404, "1003")
	w.ask("GET", "/dbs/shop/colls", "").is(404, "1003")
}

// Containers that are made here and those that are declared are the same thing.
func TestContainer_MadeHereOrDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", `{"partitionKey":{"paths":["/pk"]},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/sku"]}]},
		"indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/*"},{"path":"/price/?"},{"path":"/tags/[]/id/?"},{"path":"/_ts/?"},{"path":"/_attachments/x/?"}],"excludedPaths":[]}}`)
	info, err := w.catalog.Get(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	want := store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 2, Indexes: []string{"/price", "/tags/*/id"}, UniqueKeys: [][]string{{"/sku"}}, TTL: -1}
	want.Normalize()
	if diff := cmp.Diff(want, info.Spec); diff != "" {
		t.Error(diff)
	}
	declared := store.ContainerSpec{PartitionKey: []string{"/a", "/b/c"}, Indexes: []string{"/n"}, TTL: 60}
	if _, err := w.catalog.Create(t.Context(), "shop", "declared", declared); err != nil {
		t.Fatal(err)
	}
	var shown struct {
		ID           string
		PartitionKey struct {
			Paths   []string
			Kind    string
			Version int
		}
		DefaultTTL     int
		IndexingPolicy struct{ IncludedPaths []struct{ Path string } }
	}
	a := w.ask("GET", "/dbs/shop/colls/declared", "").is(200).into(&shown)
	if shown.PartitionKey.Kind != "MultiHash" || shown.PartitionKey.Version != 2 || shown.DefaultTTL != 60 ||
		!cmp.Equal(shown.PartitionKey.Paths, []string{"/a", "/b/c"}) || len(shown.IndexingPolicy.IncludedPaths) != 2 {
		t.Errorf("shown %s", a.body)
	}
	// What was read may be sent back, with a change.
	changed := strings.Replace(string(a.body), `"defaultTtl":60`, `"defaultTtl":90`, 1)
	w.ask("PUT", "/dbs/shop/colls/declared", changed).is(200)
	if info, err = w.catalog.Get(t.Context(), "shop", "declared"); err != nil || info.Spec.TTL != 90 || !cmp.Equal(info.Spec.Indexes, []string{"/n"}) {
		t.Errorf("after the change: %+v, %v", info.Spec, err)
	}
	w.ask("PUT", "/dbs/shop/colls/declared", strings.Replace(changed, `"/a"`, `"/z"`, 1)).is(400)
	w.ask("PUT", "/dbs/shop/colls/declared", changed, "If-Match", a.header.Get("etag")).is(412)
	// Of several who change the same version one succeeds.
	etag := w.ask("GET", "/dbs/shop/colls/declared", "").is(200).header.Get("etag")
	const clients = 8
	statuses := make(chan int, clients)
	for i := range clients {
		body := strings.Replace(changed, `"defaultTtl":90`, fmt.Sprintf(`"defaultTtl":%d`, 100+i), 1)
		go func() { statuses <- w.ask("PUT", "/dbs/shop/colls/declared", body, "If-Match", etag).status }()
	}
	count := map[int]int{}
	for range clients {
		count[<-statuses]++
	}
	if diff := cmp.Diff(map[int]int{200: 1, 412: clients - 1}, count); diff != "" {
		t.Error(diff)
	}
	a = w.ask("POST", "/dbs/shop/colls", `{"query":"SELECT * FROM root r WHERE r.partitionKey.kind = 'MultiHash'"}`, "Content-Type", "application/query+json").is(200)
	if diff := cmp.Diff([]string{"declared"}, a.ids("DocumentCollections")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"declared", "things"}, w.ask("GET", "/dbs/shop/colls", "").is(200).ids("DocumentCollections")); diff != "" {
		t.Error(diff)
	}
	w.ask("DELETE", "/dbs/shop/colls/declared", "").is(204)
	w.ask("GET", "/dbs/shop/colls/declared", "").is(404)
	w.ask("GET", "/dbs/shop/colls/declared/docs/1", "", keyHeader, `["a","b"]`).is(404, "1003")
}

func TestContainer_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	const colls = "/dbs/shop/colls"
	w.ask("POST", colls, `{"id":"things","partitionKey":{"paths":["/pk"]}}`).is(409)
	if a := w.ask("POST", colls, `{"id":"x","partitionKey":{"paths":["/a","/b","/c","/d"]}}`).is(400); !strings.Contains(string(a.body), "Too many partition key paths") {
		t.Errorf("the service's SDKs look for other words: %s", a.body)
	}
	for name, body := range map[string]string{
		"no id":                 `{"partitionKey":{"paths":["/pk"]}}`,
		"no key":                `{"id":"x"}`,
		"no paths":              `{"id":"x","partitionKey":{"paths":[]}}`,
		"four paths":            `{"id":"x","partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash"}}`,
		"a path without slash":  `{"id":"x","partitionKey":{"paths":["pk"]}}`,
		"two paths of one kind": `{"id":"x","partitionKey":{"paths":["/a","/b"],"kind":"Hash"}}`,
		"a kind that is none":   `{"id":"x","partitionKey":{"paths":["/a"],"kind":"Range"}}`,
		"ttl of zero":           `{"id":"x","partitionKey":{"paths":["/a"]},"defaultTtl":0}`,
		"ttl of a fraction":     `{"id":"x","partitionKey":{"paths":["/a"]},"defaultTtl":1.5}`,
		"a bad included path":   `{"id":"x","partitionKey":{"paths":["/a"]},"indexingPolicy":{"includedPaths":[{"path":"/a"}]}}`,
		"an excluded text":      `{"id":"x","partitionKey":{"paths":["/a"]},"indexingPolicy":{"excludedPaths":["/a/*"]}}`,
		"an empty exclusion":    `{"id":"x","partitionKey":{"paths":["/a"]},"indexingPolicy":{"excludedPaths":[{}]}}`,
		"computed properties":   `{"id":"x","partitionKey":{"paths":["/a"]},"computedProperties":[{"name":"n","query":"SELECT VALUE 1 FROM c"}]}`,
		"no JSON":               `{"id":"x"`,
		"a list":                `[]`,
		"a bad name":            `{"id":"a/b","partitionKey":{"paths":["/a"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w.ask("POST", colls, body).is(400)
		})
	}
	if infos, err := w.catalog.List(t.Context()); err != nil || len(infos) != 1 {
		t.Errorf("there are %v, %v; want the one of before", infos, err)
	}
	w.ask("PUT", colls+"/none", `{"id":"none","partitionKey":{"paths":["/pk"]}}`).is(404)
	w.ask("DELETE", colls+"/none", "").is(404)
}

// Paths have names in quotes of either kind, and are shown so that they mean the same.
func TestContainer_NamesInQuotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	paths := []string{`/"level' 1*()"/"le/vel2"`, `/'level" 2*()'/'le/vel2'`}
	var got struct{ PartitionKey struct{ Paths []string } }
	w.ask("POST", "/dbs/shop/colls", `{"id":"things","partitionKey":{"paths":[`+quote(t, paths[0])+","+quote(t, paths[1])+`],"kind":"MultiHash"}}`).is(201).into(&got)
	if diff := cmp.Diff([]string{paths[0], `/'level" 2*()'/"le/vel2"`}, got.PartitionKey.Paths); diff != "" {
		t.Error(diff)
	}
	w.ask("POST", docs, `{"id":"1","level' 1*()":{"le/vel2":"a"},"level\" 2*()":{"le/vel2":"b"}}`, keyHeader, `["a","b"]`).is(201)
	w.ask("GET", docs+"/1", "", keyHeader, `["a","b"]`).is(200)
	for _, path := range []string{`/'a`, `/"a'`, `/a"b'`, `/'a'b`} {
		w.ask("POST", "/dbs/shop/colls", `{"id":"none","partitionKey":{"paths":[`+quote(t, path)+`]}}`).is(400)
	}
}

// There are no conflicts, and whoever asks is told so.
func TestConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	const conflicts = "/dbs/shop/colls/things/conflicts"
	if got := w.ask("GET", conflicts, "").is(200).ids("Conflicts"); len(got) != 0 {
		t.Errorf("conflicts %v", got)
	}
	if got := w.ask("POST", conflicts, `{"query":"SELECT * FROM c WHERE c.resourceType = 'document'"}`, isQuery, "true").is(200).ids("Conflicts"); len(got) != 0 {
		t.Errorf("a query finds the conflicts %v", got)
	}
	w.ask("POST", conflicts, `{"query":"SELECT"}`, isQuery, "true").is(400)
	w.ask("GET", conflicts+"/x", "", keyHeader, `["a"]`).is(404)
	w.ask("DELETE", conflicts+"/x", "", keyHeader, `["a"]`).is(404)
	w.ask("GET", "/dbs/shop/colls/none/conflicts", "").is(404)
	w.ask("GET", selfOf(t, w.ask("GET", "/dbs/shop/colls/things", "").is(200).body).path+"/conflicts", "").is(200)
}

// A container that pipelines use is not deleted, nor is its database.
func TestContainer_InUseStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Users: usedBy("category-names")})
	w.container("things", byPK)
	w.ask("DELETE", "/dbs/shop/colls/things", "").is(409)
	w.ask("DELETE", "/dbs/shop", "").is(409)
	w.ask("GET", "/dbs/shop/colls/things", "").is(200)
}

// A client that reads the ranges until nothing changed comes to an end.
func TestRanges_AreContiguousAndEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 3})
	w.container("things", byPK)
	var list struct {
		Ranges []struct{ ID, MinInclusive, MaxExclusive string } `json:"PartitionKeyRanges"`
		Count  int                                               `json:"_count"`
	}
	a := w.ask("GET", "/dbs/shop/colls/things/pkranges", "", "A-IM", "Incremental Feed").is(200).into(&list)
	at := ""
	for _, r := range list.Ranges {
		if r.MinInclusive != at || r.ID == "" {
			t.Errorf("range %+v, want it to begin at %q", r, at)
		}
		at = r.MaxExclusive
	}
	if at != "FF" || len(list.Ranges) != 3 || list.Count != 3 {
		t.Errorf("ranges %+v", list)
	}
	w.ask("GET", "/dbs/shop/colls/things/pkranges", "", "A-IM", "Incremental Feed", "If-None-Match", a.header.Get("etag")).is(304)
}

func TestOffers_TellWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("none", byPK)
	colls, body := "/dbs/shop/colls", func(id string) string { return `{"id":"` + id + `","partitionKey":{"paths":["/pk"]}}` }
	const manual, auto = "x-ms-offer-throughput", "x-ms-cosmos-offer-autopilot-settings"
	w.ask("POST", colls, body("manual"), manual, "500").is(201)
	w.ask("POST", colls, body("auto"), auto, `{"maxThroughput":4000}`).is(201)
	for _, bad := range [][]string{{manual, "399"}, {manual, "450"}, {manual, "0"}, {manual, "x"}, {auto, "{}"}, {auto, `{"maxThroughput":1500}`}, {manual, "400", auto, `{"maxThroughput":1000}`}} {
		w.ask("POST", colls, body("bad"), bad...).is(400)
	}
	w.ask("GET", colls+"/bad", "").is(404)
	type content struct {
		Throughput int `json:"offerThroughput"`
		Autopilot  struct {
			Max int `json:"maxThroughput"`
		} `json:"offerAutopilotSettings"`
	}
	type offer struct {
		ID      string  `json:"id"`
		Content content `json:"content"`
	}
	offerOf := func(container string) offer {
		t.Helper()
		var c struct {
			RID  string `json:"_rid"`
			Self string `json:"_self"`
		}
		w.ask("GET", colls+"/"+container, "").is(200).into(&c)
		var found struct{ Offers []offer }
		for _, text := range []string{"SELECT * FROM c WHERE c.offerResourceId = '" + c.RID + "'", "SELECT * from root where root.resource = '" + c.Self + "'"} {
			w.ask("POST", "/offers", `{"query":"`+text+`"}`, isQuery, "true").is(200).into(&found)
			if len(found.Offers) != 1 {
				t.Fatalf("%s: offers %+v", text, found.Offers)
			}
		}
		return found.Offers[0]
	}
	for name, want := range map[string][2]int{"none": {400, 0}, "manual": {500, 0}, "auto": {400, 4000}} {
		if o := offerOf(name); o.Content.Throughput != want[0] || o.Content.Autopilot.Max != want[1] {
			t.Errorf("the offer of %s is %+v, want %v", name, o, want)
		}
	}
	o := offerOf("manual")
	a := w.ask("GET", "/offers/"+o.ID, "").is(200)
	// A replacement of the container keeps it.
	w.ask("PUT", "/offers/"+o.ID, `{"content":{"offerThroughput":700}}`, "If-Match", a.header.Get("etag")).is(200)
	w.ask("PUT", "/offers/"+o.ID, `{"content":{"offerThroughput":800}}`, "If-Match", a.header.Get("etag")).is(412)
	w.ask("PUT", "/offers/"+o.ID, `{"content":{"offerThroughput":750}}`).is(400)
	w.ask("PUT", colls+"/manual", `{"id":"manual","partitionKey":{"paths":["/pk"]},"defaultTtl":60}`).is(200)
	if o := offerOf("manual"); o.Content.Throughput != 700 {
		t.Errorf("the offer is %+v, want 700", o)
	}
	w.ask("PUT", "/offers/"+o.ID, `{"content":{"offerThroughput":700,"offerAutopilotSettings":{"maxThroughput":2000}}}`).is(200)
	if o := offerOf("manual"); o.Content.Throughput != 200 || o.Content.Autopilot.Max != 2000 {
		t.Errorf("the offer is %+v, want 2000 by autoscale", o)
	}
	w.ask("GET", "/offers/AbC=", "").is(404)
	w.ask("PUT", "/offers/AbC=", `{"content":{"offerThroughput":700}}`).is(404)
}

// A database has the throughput that was asked for it; a container in it has one of its own if it was asked for that.
func TestOffers_OfDatabases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	const manual, auto = "x-ms-offer-throughput", "x-ms-cosmos-offer-autopilot-settings"
	w.ask("POST", "/dbs", `{"id":"plain"}`).is(201)
	w.ask("POST", "/dbs", `{"id":"shared"}`, manual, "700").is(201)
	w.ask("POST", "/dbs", `{"id":"scaled"}`, auto, `{"maxThroughput":5000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}`).is(201)
	w.ask("POST", "/dbs", `{"id":"bad"}`, manual, "1").is(400)
	w.ask("GET", "/dbs/bad", "").is(404)
	body := func(id string) string { return `{"id":"` + id + `","partitionKey":{"paths":["/pk"]}}` }
	w.ask("POST", "/dbs/plain/colls", body("c")).is(201)
	w.ask("POST", "/dbs/shared/colls", body("c")).is(201)
	w.ask("POST", "/dbs/shared/colls", body("own"), manual, "900").is(201)
	rid := func(path string) string { return fmt.Sprint(w.ask("GET", path, "").is(200).object()["_rid"]) }
	offer := func(path string) string {
		t.Helper()
		a := w.ask("GET", "/offers/"+rid(path), "")
		if a.status != 200 {
			return fmt.Sprint(a.status)
		}
		var o struct {
			Resource string
			Content  json.RawMessage
		}
		a.into(&o)
		if want := fmt.Sprint(w.ask("GET", path, "").is(200).object()["_self"]); o.Resource != want {
			t.Errorf("the offer of %s is that of %s, want %s", path, o.Resource, want)
		}
		return a.header.Get("x-ms-cosmos-min-throughput") + " " + a.header.Get("x-ms-offer-replace-pending") + " " + string(o.Content)
	}
	for path, want := range map[string]string{
		"/dbs/plain": "404", "/dbs/shared/colls/c": "404",
		"/dbs/plain/colls/c":    `400 false {"offerThroughput":400,"offerIsRUPerMinuteThroughputEnabled":false}`,
		"/dbs/shared":           `400 false {"offerThroughput":700,"offerIsRUPerMinuteThroughputEnabled":false}`,
		"/dbs/shared/colls/own": `400 false {"offerThroughput":900,"offerIsRUPerMinuteThroughputEnabled":false}`,
		"/dbs/scaled": `1000 false {"offerThroughput":500,"offerIsRUPerMinuteThroughputEnabled":false,"offerAutopilotSettings":` +
			`{"maxThroughput":5000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}}`,
	} {
		if got := offer(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	before := w.ask("GET", "/offers/"+rid("/dbs/shared"), "").is(200)
	w.ask("PUT", "/offers/"+rid("/dbs/shared"), `{"content":{"offerThroughput":800}}`, "If-Match", before.header.Get("etag")).is(200)
	w.ask("PUT", "/offers/"+rid("/dbs/shared"), `{"content":{"offerThroughput":900}}`, "If-Match", before.header.Get("etag")).is(412)
	w.ask("PUT", "/offers/"+rid("/dbs/plain"), `{"content":{"offerThroughput":900}}`).is(404)
	if got := offer("/dbs/shared"); !strings.Contains(got, ":800") {
		t.Errorf("replaced, and is %s", got)
	}
	list := w.ask("GET", "/offers", "").is(200).ids("Offers")
	if len(list) != 4 {
		t.Errorf("offers %v, want 4", list)
	}
	w.ask("DELETE", "/dbs/shared", "").is(204)
	w.ask("POST", "/dbs", `{"id":"shared"}`).is(201)
	if got := offer("/dbs/shared"); got != "404" {
		t.Errorf("made anew, and has the offer %s of before", got)
	}
}

// What the service makes of a policy is what it shows.
func TestContainer_IndexingPolicyAsTheServiceShowsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	for name, c := range map[string]struct{ sent, shown string }{
		"none-sent":    {`null`, `{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`},
		"empty":        {`{}`, `{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`},
		"root":         {`{"includedPaths":[{"path":"/"}]}`, `{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`},
		"all-excluded": {`{"excludedPaths":[{"path":"/*"}]}`, `{"indexingMode":"consistent","automatic":true,"includedPaths":[],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}`},
		"as-shown": {
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/\"_etag\"/?"},{"path":"/a/*"}],"compositeIndexes":[[{"path":"/a","order":"ascending"}]]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/\"_etag\"/?"},{"path":"/a/*"}],"compositeIndexes":[[{"path":"/a","order":"ascending"}]]}`,
		},
		"old-kinds": { // which the service chooses by itself; another stays
			`{"includedPaths":[{"path":"/*","indexes":[{"kind":"Range","dataType":"Number","precision":-1},{"kind":"Hash","dataType":"String"},{"kind":"Spatial","dataType":"Point"}]},{"path":"/n/?","indexes":[{"kind":"Hash"}]}]}`,
			`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*","indexes":[{"kind":"Spatial","dataType":"Point"}]},{"path":"/n/?"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`,
		},
		"off": {`{"indexingMode":"none"}`, `{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}`},
	} {
		a := w.ask("POST", "/dbs/shop/colls", `{"id":"`+name+`","partitionKey":{"paths":["/pk"]},"indexingPolicy":`+c.sent+`}`).is(201)
		var got struct{ IndexingPolicy any }
		a.into(&got)
		var want any
		if err := json.Unmarshal([]byte(c.shown), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.IndexingPolicy); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		// What is shown may be sent back.
		w.ask("PUT", "/dbs/shop/colls/"+name, string(a.body)).is(200)
	}
	// How far indexes are made is told where it is asked for.
	const progress = "x-ms-documentdb-collection-index-transformation-progress"
	if a := w.ask("GET", "/dbs/shop/colls/as-shown", "").is(200); a.header.Get(progress) != "" {
		t.Errorf("nobody asked, and was told %s", a.header.Get(progress))
	}
	for name, done := range map[string]string{"root": "100", "as-shown": "100"} {
		for got := ""; got != done; { // ends: an index of nothing is soon built
			got = w.ask("GET", "/dbs/shop/colls/"+name, "", "x-ms-documentdb-populatequotainfo", "True").is(200).header.Get(progress)
		}
	}
}

// A container is replaced by a body that does not name its throughput, while another request changes that: what it was told
// to be stored stays.
func TestReplaceContainer_KeepsWhatOthersChangeMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	var c struct {
		RID string `json:"_rid"`
	}
	w.ask("GET", "/dbs/shop/colls/things", "").is(200).into(&c)
	type offer struct {
		Content struct {
			Throughput int `json:"offerThroughput"`
		} `json:"content"`
	}
	for i := range 200 {
		replaced := make(chan *answer)
		go func() {
			replaced <- w.ask("PUT", "/dbs/shop/colls/things", fmt.Sprintf(`{"id":"things","partitionKey":{"paths":["/pk"]},"defaultTtl":%d}`, i+1))
		}()
		want := 400 + 100*(i+1)
		a := w.ask("PUT", "/offers/"+c.RID, fmt.Sprintf(`{"content":{"offerThroughput":%d}}`, want))
		(<-replaced).is(200)
		if a.status == 409 { // it was changed meanwhile
			continue
		}
		a.is(200)
		var o offer
		if w.ask("GET", "/offers/"+c.RID, "").is(200).into(&o); o.Content.Throughput != want {
			t.Fatalf("round %d: the throughput is %d, and %d was taken", i, o.Content.Throughput, want)
		}
	}
}

func TestRouter_AnswersInTheProtocolsForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/nothing", 404},
		{"GET", "/dbs/shop/nothing", 404},
		{"GET", "/dbs/shop/colls/things/docs/1/2/3", 404},
		{"PUT", "/dbs", 405},
		{"DELETE", "/", 405},
		{"PATCH", "/dbs/shop", 405},
		{"OPTIONS", "/dbs", 405},
		{"POST", "/dbs/shop/colls/things/sprocs", 501},
		{"GET", "/dbs/shop/colls/things/triggers", 501},
		{"GET", "/dbs/shop/colls/things/udfs/x", 501},
		{"GET", "/dbs/shop/clientencryptionkeys", 501},
		{"GET", "/dbs/shop/users/ann/nothing", 404},
		{"PATCH", "/dbs/shop/users/ann", 405},
		{"GET", "/dbs/shop/users/ann/permissions/p/x", 404},
		{"POST", "/dbs/shop/colls/things/conflicts", 405},
		{"PUT", "/dbs/shop/colls/things/conflicts/x", 405},
		{"GET", "/dbs/shop/colls/things/operations/partitionkeydelete", 405},
		{"POST", "/dbs/shop/colls/things/operations/other", 501},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w.ask(c.method, c.path, "").is(c.status)
		})
	}
}

// Of those that make one container at the same time, one has made it.
func TestContainer_MadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	statuses := make([]int, 6)
	var makers sync.WaitGroup
	for i := range statuses {
		makers.Go(func() {
			statuses[i] = w.ask("POST", "/dbs/shop/colls", `{"id":"things","partitionKey":{"paths":["/pk"],"kind":"Hash"}}`).status
		})
	}
	makers.Wait()
	slices.Sort(statuses)
	if diff := cmp.Diff([]int{201, 409, 409, 409, 409, 409}, statuses); diff != "" {
		t.Error(diff)
	}
}

// TestContainer_OneInAnyStateIsDeleted: a creation or a deletion that was cut off leaves a record that is no container to
// whoever reads it, and whose name was taken for good.
func TestContainer_OneInAnyStateIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	kv, err := w.js.KeyValue(t.Context(), store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []store.ContainerState{store.ContainerCreating, store.ContainerDeleting} {
		w.container("things", byPK)
		info, err := w.catalog.Get(t.Context(), "shop", "things")
		if err != nil {
			t.Fatal(err)
		}
		info.State = state
		data, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Update(t.Context(), "container.shop.things", data, info.Revision); err != nil {
			t.Fatal(err)
		}
		w.ask("GET", "/dbs/shop/colls/things", "").is(404)
		w.ask("DELETE", "/dbs/shop/colls/things", "").is(204)
		w.ask("DELETE", "/dbs/shop/colls/things", "").is(404)
	}
	w.container("things", byPK)
}
