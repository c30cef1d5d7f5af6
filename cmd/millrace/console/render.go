package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/plan"
)

// pageNames are the templates of pages; each stands in layout.html.
var pageNames = []string{
	"sign-in", "overview", "map", "pipeline", "containers", "container", "item", "history", "query", "heat", "nodes", "dead-letters", "dead-letter",
	"plan", "work", "works", "confirm", "error",
}

// partNames are the templates that a page has besides.
var partNames = map[string][]string{
	"overview": {"templates/hot.html"},
	"heat":     {"templates/hot.html"},
	"plan":     {"templates/plan-form.html"},
	"query":    {"templates/explained.html"},
	"work":     {"templates/plan-form.html", "templates/planned.html", "templates/compared.html"},
}

// parsePages parses all templates. They are part of the binary, so a mistake in one shows in the
// first test.
func parsePages() map[string]*template.Template {
	pages := map[string]*template.Template{}
	for _, name := range pageNames {
		pages[name] = template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, append([]string{"templates/layout.html", "templates/" + name + ".html"}, partNames[name]...)...))
	}
	return pages
}

// functions are those of the templates.
var functions = template.FuncMap{
	"age":      format.Age,
	"ago":      func(t time.Time) string { return format.Ago(time.Now(), t) },
	"clip":     func(text string) string { return clip(text, cellMax) },
	"count":    count,
	"json":     highlight,
	"pair":     func(v *view, of any) parted { return parted{v, of} },
	"path":     func(parts ...string) string { return "/" + joinEscaped(parts) },
	"percent":  func(f float64) string { return fmt.Sprintf("%.0f %%", f) },
	"plot":     plot,
	"rows":     rowsOf,
	"short":    short,
	"time":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"value":    plan.Short,
	"writable": writable,
}

// parted is what a part of a page is made of, and the view around it.
type parted struct {
	View *view
	Of   any
}

// shortMax is how many characters of a text have room in a box of the map.
const shortMax = 26

// short cuts a text to what a box of the map has room for.
func short(text string) string {
	if r := []rune(text); len(r) > shortMax {
		return string(r[:shortMax-1]) + "…"
	}
	return text
}

func joinEscaped(parts []string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return strings.Join(escaped, "/")
}

// count prints a number of any type that a template has.
func count(n any) (string, error) {
	switch n := n.(type) {
	case int:
		return format.Count(n), nil
	case int64:
		return format.Count(n), nil
	case uint64:
		return format.Count(n), nil
	case feed.LSN:
		return format.Count(uint64(n)), nil
	case float64:
		return format.Count(int64(n)), nil
	}
	return "", fmt.Errorf("count of %T", n)
}

// view is what the layout shows around a page.
type view struct {
	Title string
	Here  string // the name of the page
	Role  Role
	Live  bool // the page changes while one looks
	Still bool // it did, and is over
	// Healthy and Said tell of the last sample; Said is "" where nobody is signed in.
	Healthy bool
	Said    string
	Page    any
}

// SignedIn tells whether there is somebody to sign out.
func (v *view) SignedIn() bool { return v.Role != RoleNone }

// CanWrite tells whether forms that change something are of use.
func (v *view) CanWrite() bool { return v.Role == RoleWrite }

// show answers with a page, or with the JSON behind it where that is asked for.
func (c *Console) show(x *exchange, name, title string, page, behind any) error {
	if wantsJSON(x.r) && behind != nil {
		return writeJSON(x.w, behind)
	}
	c.write(x.w, x.r, http.StatusOK, name, &view{Title: title, Role: x.role, Page: page, Live: liveNames[name]})
	return nil
}

// liveNames are the pages that change while one looks.
var liveNames = map[string]bool{"overview": true, "map": true, "pipeline": true, "containers": true, "heat": true, "dead-letters": true, "works": true}

// render answers with a page for somebody who is not signed in.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, page any) {
	c.write(w, r, status, name, &view{Title: "Sign in", Page: page})
}

// write writes a page. It is rendered first, so that an error does not end half a page.
func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, name string, v *view) {
	v.Here = name
	if v.SignedIn() {
		v.Healthy, v.Said = c.health()
	}
	var page bytes.Buffer
	block := "layout.html"
	if isPart(r) {
		block = "live"
	}
	if err := c.pages[name].ExecuteTemplate(&page, block, v); err != nil {
		c.log.Error("console: a page cannot be shown", "page", name, "error", err)
		http.Error(w, "the page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // who asked may have gone
}

// showError answers with what went wrong.
func (c *Console) showError(x *exchange, err error) {
	status := statusOf(err)
	if status >= http.StatusInternalServerError {
		c.log.Warn("console: a request failed", "path", x.r.URL.Path, "error", err)
	}
	if wantsJSON(x.r) {
		http.Error(x.w, err.Error(), status)
		return
	}
	c.write(x.w, x.r, status, "error", &view{Title: http.StatusText(status), Role: x.role, Page: err.Error()})
}

// wantsJSON tells whether the JSON behind a page is asked for.
func wantsJSON(r *http.Request) bool { return r.URL.Query().Get("o") == "json" }

// isPart tells whether the script asks for the live parts of a page.
func isPart(r *http.Request) bool { return r.Header.Get("X-Part") == "live" }

// writeJSON answers with JSON. It is indented where it has no more than indentMax, because items
// and rows are what others have written: 16 MiB of them, deep enough, would become gigabytes.
func writeJSON(w http.ResponseWriter, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(indented(out.Bytes())) // who asked may have gone
	return nil
}

// eventTimeout bounds the sending of one event.
const eventTimeout = 10 * time.Second

var errSignedOut = errors.New("signed out")

// untilEnd returns a context that ends with the console too.
func (c *Console) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-c.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// events tells of each sample, as server-sent events, so that pages look again.
func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	if c.sessions.roleOf(r) == RoleNone {
		http.Error(w, "sign in first, at /sign-in", http.StatusUnauthorized)
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := c.untilEnd(r.Context())
	defer cancel()
	tell := func() error {
		if c.sessions.roleOf(r) == RoleNone {
			return errSignedOut
		}
		// A browser that takes nothing must not hold the goroutine for ever.
		if err := out.SetWriteDeadline(time.Now().Add(eventTimeout)); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "data: sample\n\n"); err != nil {
			return err
		}
		return out.Flush()
	}
	if err := c.sampler.join(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer c.sampler.leave()
	if tell() == nil {
		c.sampler.watch(ctx, tell)
	}
}
