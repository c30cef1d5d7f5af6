package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/heat"
)

// consoled is millrace up with a console and some items, and its keys.
func consoled(t *testing.T) (at, dir, server string, keys gateway.Keys) {
	t.Helper()
	dir = t.TempDir()
	port, listen := strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t))
	server = "nats://127.0.0.1:" + port
	spawn(t, "up", "--dir", dir, "--port", port, "--listen", listen)
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	for container, items := range map[string]string{
		"productMeta": `{"id": "c1", "type": "category", "name": "Bikes"}`,
		"product":     `{"id": "p1", "categoryId": "c1", "name": "Mountain <b>", "price": 12.5}`,
	} {
		if out, errs, exit := command(t, items, nil, "import", container, "-", "--server", server); exit != 0 {
			t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
		}
	}
	keys, err := gateway.ReadKeys(filepath.Join(dir, "gateway", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + listen, dir, server, keys
}

const consoleItem = `/containers/default/product/item?item=%5B%22c1%22%5D%2Fp1`

func TestConsole(t *testing.T) {
	t.Parallel()
	at, dir, server, keys := consoled(t)
	t.Run("nobody looks without signing in", func(t *testing.T) {
		b := newBrowser(t, at)
		for _, path := range []string{"/", "/containers", "/containers/default/product", consoleItem, "/query", "/pipelines/default/category-names", "/none"} {
			b.sees(path, "<h1>Sign in</h1>")
		}
		b.answered("/sign-in", url.Values{"key": {string(gateway.NewKeys().Primary)}}, http.StatusUnauthorized, "no key in force")
		b.answered("/pipelines/default/category-names/pause", url.Values{}, http.StatusUnauthorized, "sign in first")
		if status, page := b.do(b.request(http.MethodGet, "/events", nil)); status != http.StatusUnauthorized {
			t.Errorf("events: %d %s", status, page)
		}
		if status, page := b.do(b.request(http.MethodGet, "/?o=json", nil)); status != http.StatusUnauthorized {
			t.Errorf("JSON: %d %s", status, page)
		}
	})
	t.Run("other sites and names are refused", func(t *testing.T) {
		b := newBrowser(t, at)
		r := b.request(http.MethodGet, "/", nil)
		r.Host = "evil.example:8082"
		if status, page := b.do(r); status != http.StatusMisdirectedRequest {
			t.Errorf("a foreign name: %d %s", status, page)
		}
		b.signIn(keys.Primary)
		r = b.request(http.MethodPost, "/pipelines/default/category-names/pause", url.Values{})
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if status, page := b.do(r); status != http.StatusForbidden {
			t.Errorf("a form of another site: %d %s", status, page)
		}
		status, page := b.do(b.request(http.MethodPost, "/sign-in", url.Values{"key": {string(keys.Primary)}, "to": {"//evil.example/"}}))
		if status != http.StatusOK || !strings.Contains(page, "<h1>Overview</h1>") {
			t.Errorf("signing in led elsewhere: %d %s", status, page)
		}
	})
	t.Run("who may read looks and changes nothing", func(t *testing.T) {
		b := newBrowser(t, at)
		b.signIn(keys.SecondaryReadOnly)
		page := b.sees(consoleItem, "Mountain &lt;b&gt;", "reads only")
		if strings.Contains(page, "textarea") {
			t.Error("there is a form to write with")
		}
		b.answered("/pipelines/default/category-names/pause", url.Values{}, http.StatusForbidden, "Sign in with one that writes")
		b.answered(consoleItem, url.Values{"act": {"delete"}, "item": {`["c1"]/p1`}}, http.StatusForbidden, "Sign in with one that writes")
	})
	t.Run("pages tell what is there", func(t *testing.T) {
		b := newBrowser(t, at)
		b.signIn(keys.Primary)
		poll.Until(t, func() error {
			page := b.sees("/")
			return poll.Unless(strings.Contains(page, "tag-names") && strings.Contains(page, "all is well"), "the overview lacks a pipeline, or is not well:\n"+page)
		})
		b.sees("/", "category-names")
		b.sees("/pipelines/default/category-names", "onSourceDelete: keep", "Processors")
		b.sees("/map", "category-names", "<td>productMeta</td>", `class="arrow"`, `href="/containers/default/product"`)
		b.sees("/containers", `href="/containers/default/product"`)
		poll.Until(t, func() error {
			return poll.Unless(strings.Contains(b.sees("/nodes"), ">productMeta</a>"), "the nodes lack a partition")
		})
		b.sees("/nodes", "<td>store</td>", "<td>worker</td>", "Trim point", `<th scope="row">store/`, `<th scope="row">pipe/`)
		poll.Until(t, func() error {
			var nodes inspectedNodes
			if err := json.Unmarshal([]byte(b.sees("/nodes?o=json")), &nodes); err != nil {
				t.Fatal(err)
			}
			return nodes.agree()
		})
		poll.Until(t, func() error {
			var nodes inspectedNodes
			if err := json.Unmarshal([]byte(mustRun(t, server, "nodes", "-o", "json")), &nodes); err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes.Nodes {
				if n.State != "up" || n.Leases == 0 {
					return fmt.Errorf("%s of %s is %s with %d leases", n.Node, n.Group, n.State, n.Leases)
				}
			}
			return poll.Unless(len(nodes.Nodes) == 2 && nodes.Unowned == 0, fmt.Sprintf("the nodes are %+v", nodes))
		})
		b.sees("/containers/default/product", "Mountain &lt;b&gt;", "/categoryId", "category-names", "Physical partitions")
		poll.Until(t, func() error {
			return poll.Unless(strings.Contains(b.sees("/containers/default/product/item?key=c1&id=p1"), "<td>equal</td>"), "no copy is equal")
		})
		b.sees("/containers/default/product/item?key=c1&id=p1", "Mountain &lt;b&gt;", "ETag", "Where fields come from",
			`<th scope="row">categoryName</th><td><code>&#34;Bikes&#34;</code></td><td><a href="/pipelines/default/category-names">`,
			"/containers/default/productMeta/item?item=%5b%22category%22%5d%2fc1", "<td>equal</td>")
		query := "/query?container=default%2Fproduct&q=" + url.QueryEscape(`SELECT c.name, c.price FROM c`)
		b.sees(query, "Mountain &lt;b&gt;", `<th scope="col">price</th>`, "1 row;")
		b.sees(query+"&explain=1", "partitions")
		b.sees("/query?container=default%2Fproduct&q=SELEC", "problem")
		if got := b.sees(query + "&o=csv"); got != "name,price\nMountain <b>,12.5\n" {
			t.Errorf("CSV: %q", got)
		}
		if got := b.sees(query + "&o=json"); !strings.Contains(got, `"price": 12.5`) {
			t.Errorf("JSON: %s", got)
		}
		for path, status := range map[string]int{
			"/none": 404, "/pipelines/default/none": 404, "/containers/default/none": 404, "/containers/default/product/item?key=c1&id=none": 404,
			"/containers/default/product?from=x": 200, "/containers/default/product/item?item=none": 400,
		} {
			if got, page := b.do(b.request(http.MethodGet, path, nil)); got != status {
				t.Errorf("%s: %d, want %d\n%s", path, got, status, page)
			}
		}
	})
	t.Run("its JSON is that of the commands", func(t *testing.T) {
		b := newBrowser(t, at)
		b.signIn(keys.PrimaryReadOnly)
		for path, args := range map[string][]string{
			"/containers/default/product?o=json": {"describe", "container", "product"}, "/?o=json": {"status"},
			"/pipelines/default/category-names?o=json": {"describe", "pipeline", "category-names"},
		} {
			var page, printed map[string]any
			if err := json.Unmarshal([]byte(b.sees(path)), &page); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(mustRun(t, server, append(args, "-o", "json")...)), &printed); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(printed["declaration"], page["declaration"]); diff != "" {
				t.Errorf("%s is not what %v prints:\n%s", path, args, diff)
			}
			if got, want := slices.Sorted(maps.Keys(page)), slices.Sorted(maps.Keys(printed)); !slices.Equal(got, want) {
				t.Errorf("%s has %v, and %v prints %v", path, got, args, want)
			}
		}
	})
	t.Run("the hottest partitions and keys are shown", func(t *testing.T) {
		var lines strings.Builder
		for i := range 200 {
			lines.WriteString(`{"id": "hot` + strconv.Itoa(i) + `", "type": "tag <hot>", "name": "n"}` + "\n")
		}
		if out, errs, exit := command(t, lines.String(), nil, "import", "productMeta", "-", "--server", server); exit != 0 {
			t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
		}
		const key = `["tag <hot>"]`
		b := newBrowser(t, at)
		b.signIn(keys.PrimaryReadOnly)
		poll.Until(t, func() error {
			return poll.Unless(strings.Contains(b.sees("/heat"), "<code>"+template.HTMLEscapeString(key)+"</code>"), "the hot key is not shown")
		})
		b.sees("/heat", ">productMeta</a>", "Deciding")
		b.sees("/", "Hottest partitions", "Hottest partition keys", `href="/heat"`)
		var page, printed struct {
			Partitions []struct {
				Container string
				Heat      heat.Report
			}
		}
		writes := func() (n uint64) {
			for _, p := range page.Partitions {
				for _, k := range p.Heat.Keys {
					if p.Container == "productMeta" && k.Key == key {
						n = k.Writes.Requests
					}
				}
			}
			return n
		}
		if err := json.Unmarshal([]byte(b.sees("/heat?o=json")), &page); err != nil {
			t.Fatal(err)
		}
		if writes() == 0 {
			t.Errorf("the JSON has no writes of the hot key: %+v", page)
		}
		if err := json.Unmarshal([]byte(mustRun(t, server, "top", "-o", "json")), &printed); err != nil {
			t.Fatal(err)
		}
		page = printed
		if writes() == 0 {
			t.Errorf("top has no writes of the hot key: %+v", page)
		}
		for _, args := range [][]string{{"top"}, {"describe", "container", "productMeta"}} {
			if out := mustRun(t, server, args...); !strings.Contains(out, key) || !strings.Contains(out, "DECIDING") {
				t.Errorf("%v:\n%s", args, out)
			}
		}
		poll.Until(t, func() error {
			metrics := b.sees("/metrics")
			if strings.Contains(metrics, "tag <hot>") {
				t.Fatal("a partition key is in the metrics")
			}
			counted := regexp.MustCompile(`(?m)^millrace_partition_requests_total\{[^}]*container="productMeta"[^}]*operation="write"`)
			return poll.Unless(counted.MatchString(metrics), "the metrics do not count the writes of the partition")
		})
	})
	t.Run("an item is written as it was shown, or not", func(t *testing.T) {
		b := newBrowser(t, at)
		b.signIn(keys.Secondary)
		form := url.Values{"act": {"create"}, "text": {`{"id": "p2", "categoryId": "c1", "name": "Road"}`}}
		b.answered(consoleItem, form, http.StatusOK, "Road")
		b.answered(consoleItem, form, http.StatusConflict, "Road")
		item := `/containers/default/product/item?key=c1&id=p2`
		// Its category's name is copied into it, which makes another version of it.
		settled := func() string {
			var page string
			poll.Until(t, func() error {
				page = b.sees(item)
				return poll.Unless(strings.Contains(page, "<td>equal</td>"), "the item has no name of its category")
			})
			return etagIn(t, page)
		}
		stale := settled()
		for name, form := range map[string]url.Values{
			"without a version":         {"act": {"replace"}, "text": {`{"id": "p2", "categoryId": "c1"}`}},
			"deleted without one":       {"act": {"delete"}, "sure": {"yes"}},
			"of another key":            {"act": {"replace"}, "etag": {stale}, "text": {`{"id": "p2", "categoryId": "c2"}`}},
			"that is no JSON":           {"act": {"replace"}, "etag": {stale}, "text": {`{"id": "p2", "categoryId": "c1",}`}},
			"that nothing is done with": {"act": {"mend"}, "etag": {stale}},
		} {
			form.Set("item", `["c1"]/p2`)
			page := b.answered(item, form, http.StatusBadRequest, "")
			if etag := form.Get("etag"); form.Get("act") == "replace" && etag != "" && etagIn(t, page) != etag {
				t.Errorf("an item %s: it cannot be tried again:\n%s", name, page)
			}
		}
		b.sees(item, "Road")
		replace := url.Values{"act": {"replace"}, "item": {`["c1"]/p2`}, "etag": {stale}, "text": {`{"id": "p2", "categoryId": "c1", "name": "Gravel"}`}}
		b.answered(item, replace, http.StatusOK, "Gravel")
		replace.Set("text", `{"id": "p2", "categoryId": "c1", "name": "Late"}`)
		b.answered(item, replace, http.StatusPreconditionFailed, "this is your text")
		b.sees(item, "Gravel")
		b.answered(item, url.Values{"act": {"delete"}, "sure": {"yes"}, "item": {`["c1"]/p2`}, "etag": {stale}}, http.StatusPreconditionFailed, "")
		sure := formOf(t, b.answered(item, url.Values{"act": {"delete"}, "item": {`["c1"]/p2`}, "etag": {settled()}}, http.StatusOK, "Delete the item?"))
		b.sees(item, "Gravel")
		b.answered(item, sure, http.StatusOK, "<h1>product</h1>")
		if status, _ := b.do(b.request(http.MethodGet, item, nil)); status != http.StatusNotFound {
			t.Errorf("the item that was deleted: %d", status)
		}
	})
	t.Run("a key that looks like a number is found", func(t *testing.T) {
		b := newBrowser(t, at)
		b.signIn(keys.Primary)
		for _, key := range []string{`42`, `"43"`} {
			b.answered(consoleItem, url.Values{"act": {"create"}, "text": {`{"id": "k", "categoryId": ` + key + `}`}}, http.StatusOK, `[`+html.EscapeString(key)+`]`)
		}
		b.sees("/containers/default/product/item?key=42&id=k", "[42]")
		b.sees("/containers/default/product/item?key=43&id=k", "[&#34;43&#34;]")
	})
	t.Run("who follows a link is led on", func(t *testing.T) {
		b := newBrowser(t, at)
		r := b.request(http.MethodGet, "/map", nil)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if status, page := b.do(r); status != http.StatusOK || !strings.Contains(page, `<a href="/map">open the page</a>`) {
			t.Errorf("a link from elsewhere: %d\n%s", status, page)
		}
		if page := b.sees("/map", "<h1>Sign in</h1>"); strings.Contains(page, "open the page") {
			t.Error("who followed no link is told of one")
		}
	})
	t.Run("all items are listed", func(t *testing.T) {
		var lines strings.Builder
		for i := range 130 {
			lines.WriteString(`{"id": "many` + strconv.Itoa(i) + `", "categoryId": "c` + strconv.Itoa(i%17) + `"}` + "\n")
		}
		if out, errs, exit := command(t, lines.String(), nil, "import", "product", "-", "--server", server); exit != 0 {
			t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
		}
		b := newBrowser(t, at)
		b.signIn(keys.PrimaryReadOnly)
		seen, next := map[string]int{}, "/containers/default/product"
		for range 10 {
			page := b.sees(next)
			for _, m := range regexp.MustCompile(`">(many\d+)</a>`).FindAllStringSubmatch(page, -1) {
				seen[m[1]]++
			}
			m := regexp.MustCompile(`href="([^"]+)">Next items`).FindStringSubmatch(page)
			if m == nil {
				break
			}
			next = m[1]
		}
		for id, times := range seen {
			if times != 1 {
				t.Errorf("%s is listed %d times", id, times)
			}
		}
		if len(seen) != 130 {
			t.Errorf("%d of 130 items are listed", len(seen))
		}
	})
	t.Run("a page is told of what is new", func(t *testing.T) {
		b := newBrowser(t, at)
		b.signIn(keys.Primary)
		answer, err := b.http.Do(b.request(http.MethodGet, "/events", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b.answered("/pipelines/default/tag-names/pause", url.Values{}, http.StatusOK, "Resume")
		events := bufio.NewScanner(answer.Body)
		for {
			if !events.Scan() {
				t.Fatalf("the events ended: %v", events.Err())
			}
			if strings.Contains(b.sees("/pipelines/default/tag-names"), "state paused") {
				break
			}
		}
		b.answered("/pipelines/default/tag-names/resume", url.Values{}, http.StatusOK, "Pause")
	})
	t.Run("a session ends", func(t *testing.T) {
		b, other := newBrowser(t, at), newBrowser(t, at)
		b.signIn(keys.Primary)
		b.answered("/sign-out", url.Values{}, http.StatusOK, "<h1>Sign in</h1>")
		b.sees("/", "<h1>Sign in</h1>")
		other.signIn(keys.Secondary)
		if _, err := gateway.RotateKey(filepath.Join(dir, "gateway", "keys.json"), gateway.KeySecondary); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, func() error {
			return poll.Unless(strings.Contains(other.sees("/"), "<h1>Sign in</h1>"), "the session of a key that was replaced goes on")
		})
	})
	t.Run("the command's address signs in once", func(t *testing.T) {
		console := invocation(t, "console", "--server", server, "--browser=false", "-o", "json")
		out, err := console.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := console.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = console.Process.Kill()
			_ = console.Wait()
		}()
		var printed struct{ URL string }
		if err := json.NewDecoder(out).Decode(&printed); err != nil {
			t.Fatal(err)
		}
		where, ticket, _ := strings.Cut(printed.URL, "/sign-in")
		first, second := newBrowser(t, where), newBrowser(t, where)
		first.sees("/sign-in"+ticket, "<h1>Overview</h1>")
		if status, page := second.do(second.request(http.MethodGet, "/sign-in"+ticket, nil)); status != http.StatusUnauthorized || !strings.Contains(page, "was used before") {
			t.Errorf("a ticket that was used: %d %s", status, page)
		}
	})
}

func decode(t *testing.T, text string, into *any) {
	t.Helper()
	*into = nil
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
}

func differ(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

var etagField = regexp.MustCompile(`name="etag" value="([^"]+)"`)

func etagIn(t *testing.T, page string) string {
	t.Helper()
	m := etagField.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no etag:\n%s", page)
	}
	return strings.ReplaceAll(m[1], "&#34;", `"`)
}

// inspectedNodes is the JSON of the page of the nodes.
type inspectedNodes struct {
	Nodes []struct {
		Group, Node, State string
		Leases             int
	}
	Unowned    int
	Leases     []struct{ Group, Resource, Node string }
	Partitions []struct{ Status *store.PartitionStatus }
}

// agree tells whether each partition is owned by a process that has leases, and each process has as
// many leases as name it.
func (n *inspectedNodes) agree() error {
	for _, node := range n.Nodes {
		had := 0
		for _, l := range n.Leases {
			if l.Group == node.Group && l.Node == node.Node {
				had++
			}
		}
		if had == 0 || had != node.Leases {
			return fmt.Errorf("%s of %s has %d leases, %d name it", node.Node, node.Group, node.Leases, had)
		}
	}
	for _, p := range n.Partitions {
		if p.Status == nil || !slices.ContainsFunc(n.Leases, func(l struct{ Group, Resource, Node string }) bool {
			return l.Node != "" && strings.HasPrefix(p.Status.Owner, l.Node)
		}) {
			return fmt.Errorf("a partition of nobody: %+v", p.Status)
		}
	}
	return poll.Unless(len(n.Nodes) == 2 && len(n.Partitions) > 0, "not all is told")
}
