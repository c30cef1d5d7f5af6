package integration_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
)

// madeUp writes n dead letters of a generation that no worker runs.
func madeUp(t *testing.T, server, pipeline string, n int) {
	t.Helper()
	var described struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(mustRun(t, server, "describe", "pipeline", pipeline, "-o", "json")), &described); err != nil {
		t.Fatal(err)
	}
	var items strings.Builder
	for i := range n {
		fmt.Fprintf(&items, `{"id":"source-x.0-99-%d.0","version":1,"pipeline":%q,"generation":99,"role":"source","partition":"x/0","time":%q,"item":"[\"k\"]/i%d","position":"%d.0","reason":"it is bad"}`+"\n",
			i+1, described.ID, time.UnixMilli(int64(i)).UTC().Format(time.RFC3339Nano), i, i+1)
	}
	file := filepath.Join(t.TempDir(), "letters.jsonl")
	if err := os.WriteFile(file, []byte(items.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, server, "import", "system/deadLetters", file)
}

// askedAgain returns how many dead letters of a pipeline there are, page by page, and of how many a retry
// was asked for.
func askedAgain(t *testing.T, server, pipeline string) (all, asked int) {
	t.Helper()
	next := regexp.MustCompile(`--after '([^']+)'`)
	for after := ""; ; {
		out, errs, exit := command(t, "", nil, "dead-letters", "list", pipeline, "-o", "json", "--after", after, "--server", server)
		if exit != 0 {
			t.Fatalf("list: exit %d\n%s", exit, errs)
		}
		var letters []struct{ Retry time.Time }
		if err := json.Unmarshal([]byte(out), &letters); err != nil {
			t.Fatal(err)
		}
		for i := range letters {
			if all++; !letters[i].Retry.IsZero() {
				asked++
			}
		}
		m := next.FindStringSubmatch(errs)
		if m == nil {
			return all, asked
		}
		after = m[1]
	}
}

// More dead letters than are listed at a time are listed page by page, and all of them tried again.
func TestDeadLetters_MoreThanAPage(t *testing.T) {
	t.Parallel()
	const n = processors.DeadLetterPageMax + 7
	_, _, server, _ := consoled(t)
	madeUp(t, server, "category-names", n)
	if out := mustRun(t, server, "dead-letters", "retry", "category-names", "--all"); !strings.Contains(out, "10,007 dead letters will be tried again") {
		t.Errorf("a retry of all says %q", out)
	}
	if all, asked := askedAgain(t, server, "category-names"); all != n || asked != n {
		t.Errorf("%d are listed, of which a retry of %d was asked for; there are %d", all, asked, n)
	}
	_, errs, _ := command(t, "", nil, "dead-letters", "list", "--server", server)
	if !strings.Contains(errs, "category-names has 10,007 dead letters, of which 7 are not listed yet\nnext: millrace dead-letters list category-names --after '") {
		t.Errorf("a list of some says %q", errs)
	}
	for _, args := range [][]string{{"--limit", "0"}, {"--limit", "10001"}, {"--after", "yesterday", "category-names"}, {"--after", "2026-11-24T12:00:00Z,x"}} {
		if _, errs, exit := command(t, "", nil, append([]string{"dead-letters", "list", "--server", server}, args...)...); exit != 2 {
			t.Errorf("list %v: exit %d, %s", args, exit, errs)
		}
	}
}

// Nobody tries the dead letters of a paused pipeline: who asks for it is told.
func TestDeadLetters_OfAPausedPipeline(t *testing.T) {
	t.Parallel()
	_, _, server, _ := consoled(t)
	madeUp(t, server, "category-names", 2)
	mustRun(t, server, "pause", "category-names")
	const says = "will be tried again when the pipeline is resumed: millrace resume category-names\n"
	for _, which := range []string{"source-x.0-99-1.0", "--all"} {
		if out := mustRun(t, server, "dead-letters", "retry", "category-names", which); !strings.HasSuffix(out, says) {
			t.Errorf("retry %s says %q", which, out)
		}
	}
	if out := mustRun(t, server, "dead-letters", "drop", "category-names", "--all"); out != "2 dead letters dropped\n" {
		t.Errorf("drop says %q", out)
	}
}

// In the console many dead letters are a piece of work, and are shown page by page.
func TestConsole_ManyDeadLetters(t *testing.T) {
	t.Parallel()
	const of, n = "/dead-letters/default/category-names", 207
	at, _, server, keys := consoled(t)
	b := newBrowser(t, at)
	b.signIn(keys.Primary)
	madeUp(t, server, "category-names", n)
	poll.Until(t, func() error { // as soon as they are read again
		return poll.Unless(strings.Contains(b.sees(of), "and 7 more"), "207 dead letters are not there")
	})
	next := regexp.MustCompile(`<a href="([^"]+)">the next</a>`).FindStringSubmatch(b.sees(of, "category-names</a>: 207", "i199<"))
	if next == nil {
		t.Fatal("nothing leads to the next dead letters")
	}
	if page := b.sees(html.UnescapeString(next[1]), "category-names</a>: 207", "i200<", "i206<", "From the first on"); strings.Contains(page, "i199<") || strings.Contains(page, "more:") {
		t.Error("the page behind the first shows what is on it, or says that there are more")
	}
	if status, page := b.do(b.request(http.MethodGet, of+"?after=yesterday", nil)); status != http.StatusBadRequest || !strings.Contains(page, "no place among dead letters") {
		t.Errorf("behind what is no place: %d\n%s", status, page)
	}

	act := func(form url.Values, says string) {
		t.Helper()
		if path, page := b.work(b.request(http.MethodPost, of, form)); !strings.Contains(page, says) {
			t.Errorf("%s lacks %q:\n%s", path, says, page)
		}
	}
	act(url.Values{"act": {"retry"}}, "will be tried again")
	if all, asked := askedAgain(t, server, "category-names"); all != n || asked != n {
		t.Errorf("%d are listed, of which a retry of %d was asked for; there are %d", all, asked, n)
	}
	act(formOf(t, b.answered(of, url.Values{"act": {"drop"}}, http.StatusOK, "Drop all 207")), "were dropped")
	b.sees(of, "There are no dead letters")
}
