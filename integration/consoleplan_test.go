package integration_test

import (
	"bytes"
	"encoding/json"
	"html"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
)

const titles = `apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-titles}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade:
    into: product
    match: {categoryId: id}
    set: {categoryTitle: name}
`

// work sends a form that begins work and returns where it is and its page when it is over.
func (b *browser) work(r *http.Request) (path, page string) {
	b.t.Helper()
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	_ = answer.Body.Close()
	path = answer.Request.URL.Path
	if !strings.HasPrefix(path, "/work/") {
		b.t.Fatalf("%s led to %s, %s", r.URL, path, answer.Status)
	}
	return path, b.over(path)
}

// over returns the page of work when that is over.
func (b *browser) over(path string) (page string) {
	b.t.Helper()
	poll.Until(b.t, func() error {
		page = b.sees(path)
		return poll.Unless(!strings.Contains(page, "under way for"), "the work is not over")
	})
	return page
}

func (b *browser) plan(form url.Values) (path, page string) {
	b.t.Helper()
	return b.work(b.request(http.MethodPost, "/plan", form))
}

// hidden returns a hidden field of a page.
func hidden(t *testing.T, page, name string) string {
	t.Helper()
	m := regexp.MustCompile(`<input type="hidden" name="` + name + `" value="([^"]*)">`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no field %s:\n%s", name, page)
	}
	return html.UnescapeString(m[1])
}

// planPrinted returns what the command plan prints as JSON, without how long it took.
func planPrinted(t *testing.T, declaration, server string) map[string]any {
	t.Helper()
	out, errs, exit := command(t, declaration, nil, "plan", "-f", "-", "-o", "json", "--server", server)
	if exit != 0 {
		t.Fatalf("plan: exit %d: %s", exit, errs)
	}
	return withoutTime(t, out)
}

func withoutTime(t *testing.T, text string) (plan map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	delete(plan, "seconds")
	return plan
}

func TestConsole_Plan(t *testing.T) {
	t.Parallel()
	at, _, server, keys := consoled(t)
	b, reader := newBrowser(t, at), newBrowser(t, at)
	b.signIn(keys.Primary)
	reader.signIn(keys.PrimaryReadOnly)
	apply := func(page string) *http.Request {
		return b.request(http.MethodPost, "/plan/apply", url.Values{"plan": {hidden(t, page, "plan")}, "hash": {hidden(t, page, "hash")}})
	}
	t.Run("who may read is told that it needs more", func(t *testing.T) {
		if page := reader.sees("/plan", "needs a key that writes"); strings.Contains(page, "textarea") {
			t.Error("there is a form")
		}
		reader.answered("/plan", url.Values{"text": {titles}}, http.StatusForbidden, "Sign in with one that writes")
		reader.answered("/plan/apply", url.Values{}, http.StatusForbidden, "Sign in with one that writes")
	})
	t.Run("findings stand at their lines", func(t *testing.T) {
		b.answered("/plan", url.Values{"text": {" "}}, http.StatusBadRequest, "Paste a declaration")
		path, page := b.plan(url.Values{"text": {strings.Replace(titles, "into: product", "into: produkt", 1)}})
		var listed []struct{ Place, Message string }
		if err := json.Unmarshal([]byte(b.sees(path+"?o=json")), &listed); err != nil || len(listed) != 1 || listed[0].Place != "pasted:7:11" {
			t.Errorf("the findings as JSON are %v, %v", listed, err)
		}
		if page := reader.sees(path, "did you mean product?"); strings.Contains(page, `id="line-`) {
			t.Error("who may only read sees what was pasted")
		}
		for _, want := range []string{`<a href="#line-0-7">pasted:7:11</a>`, "did you mean product?", `id="line-0-7"><span class="at">   7</span>     into: produkt`} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		if strings.Contains(page, "Apply this plan") {
			t.Error("what is wrong can be applied")
		}
		_, page = b.plan(url.Values{"text": {"kind: [\n"}})
		if !strings.Contains(page, "not YAML") {
			t.Errorf("what is no YAML is answered with\n%s", page)
		}
	})
	t.Run("what was planned is applied", func(t *testing.T) {
		// Pipelines that run write meanwhile, and a plan tells how much there is: two plans of one moment are the same.
		var page string
		poll.Until(t, func() error {
			var path string
			path, page = b.plan(url.Values{"text": {titles}})
			diff := cmp.Diff(planPrinted(t, titles, server), withoutTime(t, b.sees(path+"?o=json")))
			return poll.Unless(diff == "", "the console's plan is not the command's:\n"+diff)
		})
		for _, want := range []string{"pipeline category-titles is created", "<code>absent</code>", "<code>&#34;Bikes&#34;</code>", "In all:", "categoryTitle"} {
			if !strings.Contains(page, want) {
				t.Errorf("the plan lacks %q:\n%s", want, page)
			}
		}
		foreign := apply(page)
		foreign.Header.Set("Sec-Fetch-Site", "cross-site")
		if status, page := b.do(foreign); status != http.StatusForbidden {
			t.Errorf("a form of another site: %d %s", status, page)
		}
		b.answered("/plan/apply", url.Values{"plan": {hidden(t, page, "plan")}, "hash": {"0"}}, http.StatusConflict, "Nothing was applied")
		if _, done := b.work(apply(page)); !strings.Contains(done, "category-titles created") {
			t.Errorf("apply says\n%s", done)
		}
		poll.Until(t, func() error {
			page := b.sees("/containers/default/product/item?key=c1&id=p1")
			return poll.Unless(strings.Contains(page, "&#34;categoryTitle&#34;") || strings.Contains(page, `"categoryTitle"`), "the item has no title")
		})
		// The same plan again: the pipeline is there now.
		path, done := b.work(apply(page))
		if !strings.Contains(done, "nothing was applied") || !strings.Contains(done, " data-still>") {
			t.Errorf("a plan that is not true any more was applied:\n%s", done)
		}
		if status, text := b.do(b.request(http.MethodGet, path+"?o=json", nil)); status != http.StatusConflict || !strings.Contains(text, "nothing was applied") {
			t.Errorf("its JSON: %d %s", status, text)
		}
		b.sees("/work", "Apply", "Plan", "nothing was applied")
	})
	t.Run("a change of meaning asks how to begin", func(t *testing.T) {
		_, page := b.plan(url.Values{"text": {strings.Replace(titles, "categoryTitle: name", "categoryTitle: id", 1)}})
		if !strings.Contains(page, "Choose how it begins") || strings.Contains(page, "Apply this plan") {
			t.Errorf("nobody is asked how to begin:\n%s", page)
		}
		_, page = b.plan(url.Values{"again": {hidden(t, page, "again")}, "begin": {"backfill"}})
		// Somebody else was faster.
		if out, errs, exit := command(t, strings.Replace(titles, "categoryTitle: name", "categoryTitle: type", 1), nil, "apply", "--backfill", "-f", "-", "--server", server); exit != 0 {
			t.Fatalf("apply: exit %d\n%s%s", exit, out, errs)
		}
		if _, done := b.work(apply(page)); !strings.Contains(done, "nothing was applied") {
			t.Errorf("a plan that was overtaken was applied:\n%s", done)
		}
		_, page = b.plan(url.Values{"again": {hidden(t, page, "plan")}, "begin": {"backfill"}})
		if _, done := b.work(apply(page)); !strings.Contains(done, "generation 3") {
			t.Errorf("apply says\n%s", done)
		}
		if _, page = b.plan(url.Values{"again": {hidden(t, page, "plan")}}); !strings.Contains(page, "Apply would change nothing") {
			t.Errorf("the plan of what is there says\n%s", page)
		}
	})
	t.Run("files are taken", func(t *testing.T) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for _, name := range []string{"box", "crate"} {
			part, err := form.CreateFormFile("file", "same.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := part.Write([]byte("apiVersion: millrace/v1\nkind: Container\nmetadata: {name: " + name + "}\nspec: {partitionKey: [/id], partitions: no}\n")); err != nil {
				t.Fatal(err)
			}
		}
		if err := form.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/plan", &body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", form.FormDataContentType())
		if _, page := b.work(r); !strings.Contains(page, "same.yaml:4:") || !strings.Contains(page, "same.yaml (2):4:") {
			t.Errorf("findings in files are told so:\n%s", page)
		}
	})
}
