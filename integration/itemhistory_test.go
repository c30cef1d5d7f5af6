package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
)

// itemVersions is what is read of an item's versions.
type itemVersions struct {
	Versions []struct {
		Position, Op string
		LSN          uint64
		Writer       struct{ Kind, Pipeline, Container, Item, Position string }
		Fields       []struct {
			Field         string
			Before, After struct{ Value any }
		}
	}
	Ends string
}

// TestItemHistory follows an item, with a copy that a cascade keeps, through the command and the
// console, with credentials that only read.
func TestItemHistory(t *testing.T) {
	t.Parallel()
	at, dir, server, keys := consoled(t)
	reads := []string{"--creds", filepath.Join(dir, "credentials", "read-only.json"), "--server", server}
	// What it says on stderr comes apart: on a busy machine that it waits for the server.
	history := func(exit int, args ...string) (out, errs string) {
		t.Helper()
		var got int
		out, errs, got = command(t, "", nil, append(append([]string{"items", "history", "product"}, args...), reads...)...)
		if got != exit {
			t.Fatalf("items history %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, exit, out, errs)
		}
		return out, errs
	}
	shows := func(args ...string) string {
		t.Helper()
		out, _ := history(0, args...)
		return out
	}
	versions := func() (h itemVersions) {
		t.Helper()
		if err := json.Unmarshal([]byte(shows("p1", "-k", "c1", "-o", "json")), &h); err != nil {
			t.Fatal(err)
		}
		return h
	}
	await := func(value string) {
		t.Helper()
		poll.Until(t, func() error {
			h := versions()
			v := h.Versions[0]
			return poll.Unless(len(v.Fields) == 1 && v.Fields[0].Field == "categoryName" && v.Fields[0].After.Value == value, "the copy is not the newest version")
		})
	}
	await("Bikes")
	if out, errs, exit := command(t, `{"id": "c1", "type": "category", "name": "Cycles"}`, nil, "items", "put", "productMeta", "--server", server); exit != 0 {
		t.Fatalf("put: exit %d\n%s%s", exit, out, errs)
	}
	await("Cycles")
	h := versions()
	w := h.Versions[0].Writer
	if w.Kind != "pipeline" || w.Pipeline != "category-names" || w.Container != "productMeta" || w.Item != `["category"]/c1` || w.Position == "" {
		t.Errorf("the rename was written by %+v", w)
	}
	if last := h.Versions[len(h.Versions)-1]; last.Op != "create" || last.Writer.Kind != "client" || h.Ends != "created" {
		t.Errorf("it began with %+v, and ends with %s", last, h.Ends)
	}

	b := newBrowser(t, at)
	b.signIn(keys.PrimaryReadOnly)
	const item = "/containers/default/product/item"
	const of = item + "/history?item=%5B%22c1%22%5D%2Fp1"
	b.sees(item+"?key=c1&id=p1", "Its last versions", "/item/history?item=%5b%22c1%22%5d%2fp1")
	b.sees(of, `<th scope="row">categoryName</th><td><code>&#34;Bikes&#34;</code></td><td><code>&#34;Cycles&#34;</code></td>`,
		`href="/pipelines/default/category-names"`, "/containers/default/productMeta/item?item=%5b%22category%22%5d%2fc1", "Mountain &lt;b&gt;", "client", "create at ")
	var printed, shown any
	decode(t, shows("p1", "-k", "c1", "-o", "json"), &printed)
	decode(t, b.sees(of+"&o=json"), &shown)
	differ(t, of, printed, shown)
	b.sees(of+"&limit=1", "There are older versions", fmt.Sprintf("before=%d.1&amp;limit=1", h.Versions[1].LSN))
	for _, bad := range []string{"&limit=0", "&limit=101", "&limit=x", "&before=x"} {
		if status, page := b.do(b.request(http.MethodGet, of+bad, nil)); status != http.StatusBadRequest {
			t.Errorf("%s: %d\n%s", bad, status, page)
		}
	}

	// It is deleted: what it was is found by its key alone.
	mustRun(t, server, "items", "delete", "product", "p1", "--key", "c1")
	for _, text := range []string{"There is no such item now", `delete  by client`, `name: "Mountain <b>" -> absent`, "by category-names, generation 1, from"} {
		if out := shows("p1", "-k", "c1"); !strings.Contains(out, text) {
			t.Errorf("what is told of the deleted item lacks %q:\n%s", text, out)
		}
	}
	if _, errs := history(1, "p1"); !strings.Contains(errs, "--key") {
		t.Errorf("it is not said how to find one that is gone:\n%s", errs)
	}
	if out, _ := history(1, "none", "-k", "c1"); !strings.Contains(out, "read to its first commit") {
		t.Errorf("what never was: %s", out)
	}
	history(2, "p1", "--limit", "0")
	history(2, "p1", "--before", "x")
	b.sees(of, "There is no such item now", "delete at ", "<td>absent</td>")
	if status, page := b.do(b.request(http.MethodGet, item+"?key=c1&id=p1", nil)); status != http.StatusNotFound || !strings.Contains(page, "versions of [&#34;c1&#34;]/p1") {
		t.Errorf("the item that is gone: %d\n%s", status, page)
	}
}
