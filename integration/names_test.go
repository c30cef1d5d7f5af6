package integration_test

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/gateway"
)

// The names of a database and its containers that an earlier release refused.
const (
	namedDatabase = "日本 ü.*>=%20:\"'<b>"
	namedOrders   = "orders.2026 + ☃"
	namedKinds    = "-Kinds 🙂*"
)

// The ids of two items that an earlier release refused.
const (
	namedKind  = `k?/#a\b`
	namedOrder = "1/]?#/x"
)

// wideNames declares them, with pipelines of each kind over them.
func wideNames(t *testing.T, sink string) string {
	t.Helper()
	quoted := func(text string) string {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	text := `apiVersion: millrace/v1
kind: Container
metadata: {name: ORDERS, database: DATABASE}
spec: {partitionKey: [/k], partitions: 2, indexes: [/kind]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: KINDS, database: DATABASE}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: kind-names, database: DATABASE}
spec:
  source: {container: KINDS}
  cascade: {into: ORDERS, match: {kind: id}, set: {kindName: name}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: kind-counts, database: DATABASE}
spec:
  source: {container: ORDERS}
  aggregate: {into: KINDS, match: {id: kind}, set: {orders: {count: true}}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: order-rows, database: DATABASE}
spec:
  source: {container: ORDERS}
  project:
    tables:
      orders: {key: [id], columns: {id: id, kind: kindName}}
    sink: {parquet: {path: SINK}}
`
	return strings.NewReplacer("DATABASE", quoted(namedDatabase), "ORDERS", quoted(namedOrders), "KINDS", quoted(namedKinds), "SINK", quoted(sink)).Replace(text)
}

// TestWideNames has every door take the names that the service takes: YAML, commands, the protocol, the console, pipelines of each kind,
// a restart, a backup and its restore.
func TestWideNames(t *testing.T) {
	t.Parallel()
	dir, place, to, files := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "restored"), t.TempDir()
	port, listen, at := strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	up := []string{"up", "--dir", dir, "--port", port, "--listen", listen, "--gateway", at}
	node := spawn(t, up...)
	declared := filepath.Join(files, "all.yaml")
	writeText(t, declared, wideNames(t, filepath.Join(dir, "analytics", "wide")))
	mustRun(t, server, "apply", "-f", declared)
	orders, kinds := namedDatabase+"/"+namedOrders, namedDatabase+"/"+namedKinds
	imported := func(name, items string) {
		t.Helper()
		if out, errs, exit := command(t, items, nil, "import", name, "-", "--server", server); exit != 0 {
			t.Fatalf("import %s: exit %d\n%s%s", name, exit, out, errs)
		}
	}
	imported(kinds, `{"id":"`+namedKind+`","name":"first"}`)
	imported(orders, `{"id":"`+namedOrder+`","k":"x","kind":"`+namedKind+`"}`+"\n"+`{"id":"2","k":"y","kind":"`+namedKind+`"}`)
	copied := func(server string) {
		t.Helper()
		mustRun(t, server, "verify", "-d", namedDatabase)
		got := mustRun(t, server, "query", "SELECT c.id, c.kindName FROM c ORDER BY c.id", "-c", orders, "-o", "ndjson")
		if want := `{"id":"` + namedOrder + `","kindName":"first"}` + "\n" + `{"id":"2","kindName":"first"}` + "\n"; got != want {
			t.Errorf("the orders are\n%s", got)
		}
		if got := mustRun(t, server, "query", "SELECT VALUE c.orders FROM c", "-d", namedDatabase, "-c", namedKinds, "-o", "ndjson"); got != "2\n" {
			t.Errorf("the kind counts %s", got)
		}
	}
	copied(server)

	again := filepath.Join(files, "again.yaml")
	writeText(t, again, mustRun(t, server, "get", "container", orders, "-o", "yaml")+"---\n"+mustRun(t, server, "get", "pipeline", namedDatabase+"/kind-names", "-o", "yaml"))
	for _, file := range []string{declared, again} {
		if out := mustRun(t, server, "apply", "-f", file); strings.Contains(out, "created") || !strings.Contains(out, "unchanged") {
			t.Errorf("applied again:\n%s", out)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "containers", "-d", namedDatabase}, namedOrders},
		{[]string{"describe", "container", orders}, namedOrders},
		{[]string{"describe", "pipeline", namedDatabase + "/kind-names"}, namedOrders},
		{[]string{"items", "get", orders, namedOrder, "--key", "x"}, `"kindName": "first"`},
		{[]string{"items", "history", orders, namedOrder, "--key", "x"}, "kindName"},
		{[]string{"export", orders}, `"kindName":"first"`},
		{[]string{"feed", kinds, "-o", "json"}, "first"},
		{[]string{"status"}, namedDatabase + "/kind-names"},
		{[]string{"top"}, orders},
		{[]string{"plan", "-f", declared}, namedOrders},
		{[]string{"doctor"}, ""},
	} {
		if out := mustRun(t, server, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("%q does not tell of %s:\n%s", c.args, c.want, out)
		}
	}

	e := &endpoint{t: t, url: "https://" + at, ca: filepath.Join(dir, "gateway", "ca.pem")}
	keys, err := gateway.ReadKeys(filepath.Join(dir, "gateway", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	e.key = string(keys.Primary)
	if got := e.must("query", "SELECT VALUE COUNT(1) FROM c", "-c", orders, "-o", "ndjson"); got != "2\n" {
		t.Errorf("over the protocol there are %s", got)
	}
	if got := e.must("items", "get", orders, namedOrder, "--key", "x"); !strings.Contains(got, `"kindName": "first"`) {
		t.Errorf("over the protocol the order is %s", got)
	}
	if out, errs, exit := e.run(`{"id":"1","pk":"a"}`, "import", namedDatabase+"/=.\"new\"", "-", "--partition-key", "/pk"); exit != 0 {
		t.Errorf("import over the protocol: exit %d\n%s%s", exit, out, errs)
	}
	if got := e.must("export", namedDatabase+"/=.\"new\""); got != `{"id":"1","pk":"a"}`+"\n" {
		t.Errorf("export over the protocol: %s", got)
	}

	b := newBrowser(t, "http://"+listen)
	b.signIn(keys.Primary)
	path := "/containers/" + url.PathEscape(namedDatabase) + "/" + url.PathEscape(namedOrders)
	for _, page := range []string{path, path + "/item?item=" + url.QueryEscape(`["x"]/`+namedOrder), "/containers", "/pipelines/" + url.PathEscape(namedDatabase) + "/kind-names"} {
		b.sees(page, "orders.2026 &#43; ☃")
	}
	b.answered("/pipelines/"+url.PathEscape(namedDatabase)+"/kind-names/pause", url.Values{}, 200, "paused")
	b.answered("/pipelines/"+url.PathEscape(namedDatabase)+"/kind-names/resume", url.Values{}, 200, "kind-names")

	mustRun(t, server, "backup", "create", place)
	node.kill()
	node.start()
	copied(server)
	imported(kinds, `{"id":"`+namedKind+`","name":"first"}`)
	copied(server)
	node.kill()

	if out, errs, exit := command(t, "", nil, "restore", place, "--dir", to); exit != 0 {
		t.Fatalf("restore: exit %d\n%s%s", exit, out, errs)
	}
	second := strconv.Itoa(freePort(t))
	spawn(t, "up", "--dir", to, "--port", second, "--listen", "off")
	restored := "nats://127.0.0.1:" + second
	poll.Until(t, func() error { // its pipelines begin anew
		out, _ := run(t, restored, "describe", "pipeline", namedDatabase+"/kind-names")
		return poll.Unless(strings.Contains(out, "generation 2"), out)
	})
	mustRun(t, restored, "delete", "pipeline", namedDatabase+"/order-rows") // paused, because its rows lie outside of the store
	copied(restored)
	for _, name := range []string{"kind-names", "kind-counts"} {
		mustRun(t, restored, "delete", "pipeline", namedDatabase+"/"+name)
	}
	mustRun(t, restored, "delete", "container", orders, "--yes")
	if out, exit := run(t, restored, "get", "container", orders); exit != 1 {
		t.Errorf("deleted, and there: exit %d\n%s", exit, out)
	}
}

// TestWideNames_OfATest has a test of declarations run over such names.
func TestWideNames_OfATest(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	writeText(t, filepath.Join(files, "all.yaml"), wideNames(t, "analytics")+strings.NewReplacer("DATABASE", strconv.Quote(namedDatabase),
		"ORDERS", strconv.Quote(namedOrders), "KINDS", strconv.Quote(namedKinds)).Replace(`---
apiVersion: millrace/v1
kind: Test
metadata: {name: names-are-copied, database: DATABASE}
spec:
  given: {KINDS: [{id: a, name: first}]}
  steps:
    - change: {create: {ORDERS: [{id: "1", k: x, kind: a}]}}
      expect: {ORDERS: [{id: "1", k: x, kindName: first}], KINDS: [{id: a, orders: 1}]}
      expectRows: {order-rows: {orders: [{id: "1", kind: first}]}}
`))
	out, errs, exit := command(t, "", nil, "test", "-f", files)
	if exit != 0 {
		t.Errorf("exit %d\n%s%s", exit, out, errs)
	}
}
