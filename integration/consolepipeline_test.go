package integration_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
)

func TestConsole_RewindVerifyRepair(t *testing.T) {
	t.Parallel()
	at, _, server, keys := consoled(t)
	b, reader := newBrowser(t, at), newBrowser(t, at)
	b.signIn(keys.Primary)
	reader.signIn(keys.PrimaryReadOnly)
	const of = "/pipelines/default/category-names"
	// On a slow machine what is in flight may take longer than the console waits for it.
	verify := func() (path, page string) {
		t.Helper()
		poll.Until(t, func() error {
			path, page = b.work(b.request(http.MethodPost, of+"/verify", url.Values{}))
			return poll.Unless(!strings.Contains(page, ">behind</p>"), page)
		})
		return path, page
	}
	wants := func(page string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(page, text) {
				t.Errorf("the page lacks %q:\n%s", text, page)
			}
		}
	}
	_, equal := verify()
	wants(equal, ">equal</p>", "<dt>Copies compared</dt><dd>1</dd>")
	if strings.Contains(equal, ">Repair category-names<") {
		t.Error("what is equal is to be repaired")
	}
	b.answered(of+"/repair", url.Values{}, http.StatusConflict, "Nothing was repaired")
	for _, act := range []string{"verify", "repair", "rewind"} {
		reader.answered(of+"/"+act, url.Values{"to": {"now"}}, http.StatusForbidden, "Sign in with one that writes")
	}
	b.answered(of+"/rewind", url.Values{"to": {"yesterday"}}, http.StatusBadRequest, "is none of beginning, now")

	// A copy that no change explains: it is written while the pipeline is paused, which then leaves
	// out what it has not done.
	js := dialJetStream(t, server)
	pause := func() {
		t.Helper()
		b.answered(of+"/pause", url.Values{}, http.StatusOK, "Resume")
		awaitReleased(t, js, "category-names")
	}
	pause()
	wrong := `{"id": "p1", "categoryId": "c1", "name": "Mountain", "categoryName": "Wrong"}`
	if out, errs, exit := command(t, wrong, nil, "import", "product", "-", "--server", server); exit != 0 {
		t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
	}
	asked := b.answered(of+"/rewind", url.Values{"to": {"now"}}, http.StatusOK, "Rewind category-names to now?")
	wants(asked, "leaves out what it has not done yet", "generation 2")
	stale := formOf(t, asked)
	b.answered(of+"/resume", url.Values{}, http.StatusOK, "Pause")
	pause()
	b.answered(of+"/rewind", stale, http.StatusConflict, "Nothing was rewound")
	if out, errs, exit := command(t, wrong, nil, "import", "product", "-", "--server", server); exit != 0 {
		t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
	}
	// Workers write the record too, when they tidy up after a generation: then it is asked again.
	rewind := func(to, says string) (path, page string) {
		t.Helper()
		poll.Until(t, func() error {
			form := formOf(t, b.answered(of+"/rewind", url.Values{"to": {to}}, http.StatusOK, says))
			answer, err := b.http.Do(b.request(http.MethodPost, of+"/rewind", form))
			if err != nil {
				return err
			}
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusConflict {
				return poll.Unless(false, "the pipeline has changed since that was asked")
			}
			path = answer.Request.URL.Path
			page = b.over(path)
			return poll.Unless(!strings.Contains(page, "nothing was rewound"), page)
		})
		return path, page
	}
	path, page := rewind("now", "Do nothing")
	wants(page, "was rewound to now: generation 2")
	wants(b.sees(path+"?o=json"), `"action": "rewound"`, `"generation": 2`)
	b.sees(of, "generation 2")
	b.answered(of+"/resume", url.Values{}, http.StatusOK, "Pause")
	path, page = verify()
	wants(page, ">drift</p>", "<dt>Drift</dt><dd>1</dd>", "&#34;Wrong&#34;", ">Repair category-names<")
	var report struct{ Verdict string }
	if err := json.Unmarshal([]byte(b.sees(path+"?o=json")), &report); err != nil || report.Verdict != "drift" {
		t.Errorf("its JSON says %q, %v", report.Verdict, err)
	}
	verified := url.Values{"verified": {hidden(t, page, "verified")}}
	b.answered("/pipelines/default/tag-names/repair", verified, http.StatusConflict, "Nothing was repaired")
	_, page = b.work(b.request(http.MethodPost, of+"/repair", verified))
	wants(page, ">equal</p>", "<dt>Repaired</dt><dd>1</dd>")
	_, page = verify()
	wants(page, ">equal</p>")
	b.sees("/containers/default/product/item?key=c1&id=p1", "Bikes")

	// To the beginning, as the command says it.
	printed := mustRun(t, server, "rewind", "category-names", "--to", "beginning", "--dry-run")
	says := []string{"of the log of container productMeta again", "generation 3, and sets its copies again"}
	wants(printed, append(says, "nothing was changed")...)
	_, page = rewind("beginning", says[1])
	wants(page, "generation 3")
	poll.Until(t, func() error {
		return poll.Unless(strings.Contains(b.sees(of), "state idle"), "the pipeline is not idle")
	})

	// What is foretold is what becomes of it, whatever the kind.
	for _, c := range []struct{ name, to, says string }{
		{"analytics", "beginning", "builds its rows beside those that are there"},
		{"category-sales", "beginning", "so nothing is counted twice"},
		{"tag-names", "now", "leaves out what it has not done yet"},
	} {
		var foretold, done struct {
			Generation int
			Says       []string
		}
		read := func(into any, args ...string) {
			t.Helper()
			if err := json.Unmarshal([]byte(mustRun(t, server, append([]string{"rewind", c.name, "--to", c.to, "-o", "json"}, args...)...)), into); err != nil {
				t.Fatal(err)
			}
		}
		read(&foretold, "--dry-run")
		read(&done)
		if foretold.Generation != done.Generation || !strings.Contains(strings.Join(foretold.Says, "\n"), c.says) {
			t.Errorf("%s to %s: foretold %+v, done %+v", c.name, c.to, foretold, done)
		}
	}
}
