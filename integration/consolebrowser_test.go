package integration_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// browser is somebody who looks at a console, without running its script.
type browser struct {
	t    *testing.T
	http http.Client
	url  string
}

func newBrowser(t *testing.T, at string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, url: at, http: http.Client{Jar: jar}}
}

func (b *browser) do(r *http.Request) (status int, page string) {
	b.t.Helper()
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (b *browser) request(method, path string, form url.Values) *http.Request {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

// sees opens a page and fails the test unless it has the texts.
func (b *browser) sees(path string, texts ...string) string {
	b.t.Helper()
	status, page := b.do(b.request(http.MethodGet, path, nil))
	if status != http.StatusOK {
		b.t.Fatalf("%s: %d\n%s", path, status, page)
	}
	for _, text := range texts {
		if !strings.Contains(page, text) {
			b.t.Errorf("%s lacks %q:\n%s", path, text, page)
		}
	}
	return page
}

// answered sends a form and fails the test unless the answer has the status and the text.
func (b *browser) answered(path string, form url.Values, status int, text string) string {
	b.t.Helper()
	got, page := b.do(b.request(http.MethodPost, path, form))
	if got != status || !strings.Contains(page, text) {
		b.t.Errorf("%s: %d, want %d with %q\n%s", path, got, status, text, page)
	}
	return page
}

func (b *browser) signIn(key gateway.Key) {
	b.t.Helper()
	b.answered("/sign-in", url.Values{"key": {string(key)}, "to": {"/"}}, http.StatusOK, "<h1>Overview</h1>")
}
