package integration_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

// tooLarge makes a dead letter: a product with almost as many bytes as an item may have, and then a
// longer name of its category.
func tooLarge(t *testing.T, server, category, product string) {
	t.Helper()
	write := func(container, item string) {
		if out, errs, exit := command(t, item+"\n", nil, "import", container, "-", "--server", server); exit != 0 {
			t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
		}
	}
	write("product", fmt.Sprintf(`{"id":%q,"categoryId":%q,"pad":%q}`, product, category, strings.Repeat("x", store.ItemBytesMax-500)))
	poll.Until(t, func() error { // else its check meets the long name too, and makes a dead letter of its own
		var st status.Status
		runJSON(t, server, &st, "status", "category-names")
		return poll.Unless(len(st.Pipelines) == 1 && st.Pipelines[0].Lag.None(), fmt.Sprintf("%+v", st.Pipelines))
	})
	write("productMeta", fmt.Sprintf(`{"id":%q,"type":"category","name":%q}`, category, strings.Repeat("long ", 200)))
}

// formOf returns the hidden fields of the form on a page that asks whether somebody is sure.
func formOf(t *testing.T, page string) url.Values {
	t.Helper()
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		form.Add(m[1], html.UnescapeString(m[2]))
	}
	if form.Get("sure") == "" {
		t.Fatalf("nobody is asked whether they are sure:\n%s", page)
	}
	return form
}

func TestConsole_DeadLetters(t *testing.T) {
	t.Parallel()
	at, _, server, keys := consoled(t)
	b, reader := newBrowser(t, at), newBrowser(t, at)
	b.signIn(keys.Primary)
	reader.signIn(keys.PrimaryReadOnly)
	const of = "/dead-letters/default/category-names"
	b.sees("/dead-letters", "There are no dead letters.")
	b.sees(of, "There are no dead letters of this pipeline.")

	tooLarge(t, server, "c8", "p8")
	link := regexp.MustCompile(`<a href="(` + of + `/[^"]+)">`)
	letters := func() (paths []string) {
		for _, m := range link.FindAllStringSubmatch(b.sees("/dead-letters"), -1) {
			paths = append(paths, m[1])
		}
		return paths
	}
	await := func(n int) []string {
		poll.Until(t, func() error {
			return poll.Unless(len(letters()) == n, fmt.Sprintf("there are not %d dead letters", n))
		})
		return letters()
	}
	letter := await(1)[0]
	id := letter[strings.LastIndexByte(letter, '/')+1:]
	b.sees("/dead-letters", "category-names</a>: 1", "p8", "at most 2097152 are allowed")
	b.sees(of, "p8")
	b.sees(letter, "Source item", "productMeta", "<h3>After</h3>", "Attempts", "/containers/default/productMeta/item?item=%5b%22category%22%5d%2fc8")
	poll.Until(t, func() error { // as soon as the pipeline is in a sample
		return poll.Unless(strings.Contains(b.sees("/pipelines/default/category-names"), `href="`+letter+`"`), "the pipeline's page has no dead letter")
	})
	var listed, printed any
	decode(t, b.sees("/dead-letters?o=json"), &listed)
	decode(t, mustRun(t, server, "dead-letters", "list", "-o", "json"), &printed)
	differ(t, "the list of the console is not that of the command", printed, listed)
	decode(t, b.sees(letter+"?o=json"), &listed)
	decode(t, mustRun(t, server, "dead-letters", "show", "category-names", id, "-o", "json"), &printed)
	differ(t, "the dead letter of the console is not that of the command", printed, listed)

	if page := reader.sees(letter, "reads only"); strings.Contains(page, ">Drop") || strings.Contains(page, ">Retry") {
		t.Error("who may only read is offered to change something")
	}
	reader.answered(of, url.Values{"act": {"drop"}, "sure": {"yes"}, "id": {id}}, http.StatusForbidden, "Sign in with one that writes")
	foreign := b.request(http.MethodPost, of, url.Values{"act": {"drop"}, "sure": {"yes"}, "id": {id}})
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	if status, page := b.do(foreign); status != http.StatusForbidden {
		t.Errorf("a form of another site: %d %s", status, page)
	}
	b.answered(of, url.Values{"act": {"mend"}, "id": {id}}, http.StatusBadRequest, "tried again and dropped")
	formOf(t, b.answered(of, url.Values{"act": {"drop"}, "id": {id}}, http.StatusOK, "does not come back"))
	b.answered(of, url.Values{"act": {"drop"}, "id": {id}, "sure": {"of another"}}, http.StatusConflict, "Nothing was dropped")
	await(1)

	// A letter is an item of Millrace's own, which is seen and not written: one that somebody makes up
	// or deletes hides what was not done.
	const system = "/containers/system/deadLetters"
	items := regexp.MustCompile(`href="(` + system + `/item\?item=[^"]+)"`).FindStringSubmatch(b.sees(system, "Id", id))
	if items == nil {
		t.Fatal("the page of the container leads to no dead letter")
	}
	if pages := b.sees(system) + b.sees(items[1], id); strings.Contains(pages, "New item") || strings.Contains(pages, "<textarea") {
		t.Errorf("there is a form to write dead letters with:\n%s", pages)
	}
	b.answered(system+"/item", url.Values{"act": {"create"}, "text": {`{"id":"x","pipeline":"p","version":9}`}}, http.StatusForbidden, "Millrace&#39;s own")
	ref, err := url.Parse(items[1])
	if err != nil {
		t.Fatal(err)
	}
	b.answered(system+"/item", url.Values{"act": {"delete"}, "item": {ref.Query().Get("item")}, "etag": {`"1"`}, "sure": {"yes"}}, http.StatusForbidden, "Millrace&#39;s own")
	await(1)

	// The item has room again, so what was given up can be done.
	if out, errs, exit := command(t, `{"id": "p8", "categoryId": "c8"}`, nil, "import", "product", "-", "--server", server); exit != 0 {
		t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
	}
	b.answered(of, url.Values{"act": {"retry"}, "id": {id}}, http.StatusOK, "Dead letters of category-names")
	await(0)
	if status, page := b.do(b.request(http.MethodGet, letter, nil)); status != http.StatusNotFound || !strings.Contains(page, "tried again, and is done") {
		t.Errorf("a dead letter that is done: %d\n%s", status, page)
	}

	// What is dropped is what was shown, not what came since.
	tooLarge(t, server, "c7", "p7")
	first := await(1)
	all := formOf(t, b.answered(of, url.Values{"act": {"drop"}}, http.StatusOK, "1 dead letter of category-names"))
	tooLarge(t, server, "c6", "p6")
	await(2)
	b.answered(of, all, http.StatusOK, "p6")
	if left := await(1); left[0] == first[0] {
		t.Errorf("%s was shown and is left", left)
	}
	b.answered(of, all, http.StatusConflict, "Nothing was dropped")
	last := await(1)[0]
	one := url.Values{"act": {"drop"}, "id": {last[strings.LastIndexByte(last, '/')+1:]}}
	b.answered(of, formOf(t, b.answered(of, one, http.StatusOK, "Drop it")), http.StatusOK, "There are no dead letters")
	b.answered(of, url.Values{"act": {"retry"}}, http.StatusOK, "There are no dead letters")
}
