package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

func isAboutItems(r *http.Request) bool { return strings.Contains(r.URL.Path, "/docs") }

// read returns the bodies of a selection, sorted.
func read(t *testing.T, ct *remote.Container, s remote.Selection) []string {
	t.Helper()
	bodies := []string{}
	must(t, ct.Items(t.Context(), s, func(items []store.Item) error {
		for i := range items {
			bodies = append(bodies, string(items[i].Body))
		}
		return nil
	}))
	slices.Sort(bodies)
	return bodies
}

func TestItems_ComeOutAsTheyWentIn(t *testing.T) {
	w := newWorld(t)
	ct := w.container(w.open(), "/a", "/b/c")
	keys := []feed.PartitionKey{}
	bodies := []string{}
	for i, pair := range [][2]any{
		{"text", "x"},
		{`"\/`, "\x00\a\v\x7f"},
		{"é€", "\U0001F600 \u2028"},
		{nil, true},
		{-0.5, 9007199254740991.0},
		{feed.Missing, false},
		{feed.Missing, feed.Missing},
	} {
		key, err := feed.NewPartitionKey(pair[0], pair[1])
		must(t, err)
		members := fmt.Sprintf(`"id": "%d"`, i)
		if pair[0] != feed.Missing {
			members += `, "a": ` + jsonOf(t, pair[0])
		}
		if pair[1] != feed.Missing {
			members += `, "b": {"c": ` + jsonOf(t, pair[1]) + `}`
		}
		body := "{" + members + `, "n": 12345678901234567890.10, "html": "<&>"}`
		must(t, ct.Upsert(t.Context(), []byte(body)))
		keys, bodies = append(keys, key), append(bodies, body)
	}
	for i, key := range keys {
		item, err := ct.Read(t.Context(), key, fmt.Sprint(i))
		must(t, err)
		if string(item.Body) != bodies[i] || item.Key != key || item.ETag == (store.ETag{}) || item.Modified == 0 {
			t.Errorf("item %d is %+v, want key %s and body %s", i, item, key, bodies[i])
		}
		if got := read(t, ct, remote.Selection{Key: key}); len(got) != 1 || got[0] != bodies[i] {
			t.Errorf("logical partition %s has %v", key, got)
		}
	}
	prefix, err := feed.NewPartitionKey(feed.Missing)
	must(t, err)
	if diff := cmp.Diff(bodies[5:], read(t, ct, remote.Selection{Key: prefix})); diff != "" {
		t.Errorf("a prefix of keys, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(bodies[3:4], read(t, ct, remote.Selection{ID: "3"})); diff != "" {
		t.Errorf("an id, -want +got:\n%s", diff)
	}
	slices.Sort(bodies)
	if diff := cmp.Diff(bodies, read(t, ct, remote.Selection{PageMax: 2})); diff != "" {
		t.Errorf("all, in pages of two, -want +got:\n%s", diff)
	}
	if n, err := ct.Count(t.Context()); err != nil || n != len(bodies) {
		t.Errorf("it counts %d, %v, want %d", n, err, len(bodies))
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	key, err := feed.NewPartitionKey(v)
	must(t, err)
	return strings.Trim(key.String(), "[]")
}

func TestUpsert_Refusals(t *testing.T) {
	w := newWorld(t)
	c := w.open()
	ct := w.container(c, "/pk")
	for body, status := range map[string]store.Status{
		`{"pk": "no id"}`:       store.StatusBadRequest,
		`{"id": ".", "pk": ""}`: store.StatusBadRequest,
		`{"id": "1", "pk": "` + strings.Repeat("x", store.ItemBytesMax) + `"}`: store.StatusTooLarge,
	} {
		err := ct.Upsert(t.Context(), []byte(body))
		if refusal, ok := errors.AsType[*store.Error](err); !ok || refusal.Status != status || refusal.RetryAfter != 0 {
			t.Errorf("%.40s…: %v, want status %d", body, err, status)
		}
	}
	if got := read(t, ct, remote.Selection{}); len(got) != 0 {
		t.Errorf("of what was refused there is %v", got)
	}
	// A container that is gone is no fault of the item.
	w.answer(func(rw http.ResponseWriter, r *http.Request) bool {
		if isAboutItems(r) {
			rw.WriteHeader(http.StatusNotFound)
		}
		return isAboutItems(r)
	})
	err := ct.Upsert(t.Context(), []byte(`{"id": "1", "pk": "a"}`))
	if _, isRefusal := errors.AsType[*store.Error](err); isRefusal || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("without its container an upsert says %v", err)
	}
}

func TestQuery_PagesParametersAndRows(t *testing.T) {
	w := newWorld(t)
	ct := w.container(w.open(), "/pk")
	for i := range 20 {
		must(t, ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id": "%d", "pk": "%d", "n": %d, "text": "<%d>"}`, i, i, i, i)))
	}
	all := func(r store.QueryRequest) (rows []string, pages int) {
		t.Helper()
		for {
			page, err := ct.Query(t.Context(), r)
			must(t, err)
			pages++
			for _, row := range page.Rows {
				rows = append(rows, string(row))
			}
			if r.Continuation = page.Continuation; r.Continuation == "" {
				return rows, pages
			}
		}
	}
	params := []store.QueryParam{{Name: "least", Value: []byte("15")}, {Name: "not", Value: []byte(`["17"]`)}}
	rows, pages := all(store.QueryRequest{
		Text: "SELECT VALUE c.text FROM c WHERE c.n >= @least AND NOT ARRAY_CONTAINS(@not, c.id) ORDER BY c.n DESC", Params: params, RowsMax: 2,
	})
	if diff := cmp.Diff([]string{`"<19>"`, `"<18>"`, `"<16>"`, `"<15>"`}, rows); diff != "" || pages < 2 {
		t.Errorf("%d pages, -want +got:\n%s", pages, diff)
	}
	rows, _ = all(store.QueryRequest{Text: "SELECT * FROM c WHERE c.id = '7'"})
	if diff := cmp.Diff([]string{`{"id": "7", "pk": "7", "n": 7, "text": "<7>"}`}, rows); diff != "" {
		t.Errorf("an item, -want +got:\n%s", diff)
	}
	rows, _ = all(store.QueryRequest{Text: "SELECT * FROM c WHERE c.id = '7'", System: true})
	if len(rows) != 1 || !strings.Contains(rows[0], `"_etag"`) {
		t.Errorf("an item with its system properties is %v", rows)
	}
	rows, _ = all(store.QueryRequest{Text: "SELECT c.id, c._rid FROM c WHERE c.id = '7'"})
	if len(rows) != 1 || !strings.Contains(rows[0], `"_rid"`) {
		t.Errorf("a row that names a system property is %v", rows)
	}
	page, err := ct.Query(t.Context(), store.QueryRequest{Text: "SELECT * FROM c WHERE c.pk = '7'", Explain: true})
	if err != nil || page.Rows != nil || !strings.Contains(page.Metrics.Access, "logical partition") {
		t.Errorf("explain says %+v, %v", page, err)
	}
	_, err = ct.Query(t.Context(), store.QueryRequest{Text: "SELECT * FROM c WHERE"})
	if !errors.Is(err, store.ErrBadRequest) || !strings.Contains(err.Error(), "line 1, column") {
		t.Errorf("a wrong query says %v", err)
	}
}

func TestClient_Containers(t *testing.T) {
	w := newWorld(t)
	c := w.open()
	if infos, err := c.Containers(t.Context(), "nowhere"); err != nil || len(infos) != 0 {
		t.Errorf("a database that is not there has %v, %v", infos, err)
	}
	ct := w.container(c, "/a", "/b")
	if err := c.Create(t.Context(), "default", "things", ct.Info().Spec); !errors.Is(err, store.ErrConflict) {
		t.Errorf("made again it says %v", err)
	}
	infos, err := c.Containers(t.Context(), "default")
	if err != nil || len(infos) != 1 || infos[0].Name != "things" || !slices.Equal(infos[0].Spec.PartitionKey, []string{"/a", "/b"}) || infos[0].ID != ct.Info().ID {
		t.Errorf("the containers are %+v, %v", infos, err)
	}
	_, err = c.Container(t.Context(), "default", "other")
	if missing, ok := errors.AsType[*remote.NoContainerError](err); !ok || missing.Name != "other" {
		t.Errorf("a container that is not there says %v", err)
	}
}

func TestClient_TriesAgainWhileTheEndpointIsUnavailable(t *testing.T) {
	w := newWorld(t)
	ct := w.container(w.open(), "/pk")
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusRequestTimeout} {
		asked := w.fail(2, status)
		if err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id": "%d", "pk": "a"}`, status)); err != nil || asked.Load() < 3 {
			t.Errorf("after two answers of %d, asked %d times: %v", status, asked.Load(), err)
		}
		w.fail(2, status)
		if _, err := ct.Query(t.Context(), store.QueryRequest{Text: "SELECT * FROM c"}); err != nil {
			t.Errorf("a query after two answers of %d: %v", status, err)
		}
	}
	// A connection that breaks.
	var asked atomic.Int64
	w.answer(func(http.ResponseWriter, *http.Request) bool {
		if asked.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	must(t, ct.Upsert(t.Context(), []byte(`{"id": "broken", "pk": "a"}`)))
	w.answer(nil)
	if got := read(t, ct, remote.Selection{}); len(got) != 4 {
		t.Errorf("there is %v", got)
	}
}

func TestClient_GivesUpAfterItsTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ct := w.container(w.open(), "/pk")
	w.fail(1<<40, http.StatusServiceUnavailable)
	ct.GiveUpAfter(5 * time.Second) // one answer comes within it
	err := ct.Upsert(t.Context(), []byte(`{"id": "1", "pk": "a"}`))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "503") {
		t.Errorf("while it is unavailable it says %v", err)
	}
	release := make(chan struct{})
	defer close(release)
	ct.GiveUpAfter(300 * time.Millisecond) // no answer comes
	w.answer(func(http.ResponseWriter, *http.Request) bool { <-release; return true })
	err = ct.Upsert(t.Context(), []byte(`{"id": "1", "pk": "a"}`))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "no answer within 300ms") {
		t.Errorf("while it is silent it says %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ct.Upsert(ctx, []byte(`{"id": "1", "pk": "a"}`)); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("cancelled it says %v", err)
	}
}

func TestOpen_SaysWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	w.container(w.open(), "/pk")
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	noPEM := filepath.Join(t.TempDir(), "cert.pem")
	must(t, os.WriteFile(noPEM, []byte("no certificate"), 0o600))
	key := string(w.keys.Primary)
	isConfig := func(err error) bool { _, ok := errors.AsType[*remote.ConfigError](err); return ok }
	isTrust := func(err error) bool { _, ok := errors.AsType[*remote.TrustError](err); return ok }
	isUnreachable := func(err error) bool {
		_, ok := errors.AsType[*remote.UnreachableError](err)
		return ok && errors.Is(err, store.ErrUnavailable)
	}
	for _, c := range []struct {
		what string
		cfg  remote.Config
		is   func(error) bool
		want string
	}{
		{"no scheme", remote.Config{Endpoint: "localhost:8081", Key: key}, isConfig, "a URL such as"},
		{"a path", remote.Config{Endpoint: w.web.URL + "/dbs", Key: key}, isConfig, "a URL such as"},
		{"no key", remote.Config{Endpoint: w.web.URL, Key: "?"}, isConfig, "base64 is expected"},
		{"no such file", remote.Config{Endpoint: w.web.URL, Key: key, CA: noPEM + "x"}, isConfig, "no such file"},
		{"no PEM", remote.Config{Endpoint: w.web.URL, Key: key, CA: noPEM}, isConfig, "no certificate in PEM form"},
		{"a stranger's certificate", remote.Config{Endpoint: secure.URL, Key: key}, isTrust, "unknown authority"},
		{"HTTPS to plain HTTP", remote.Config{Endpoint: strings.Replace(w.web.URL, "http", "https", 1), Key: key}, isUnreachable, "plain HTTP; name it as http://"},
		{"plain HTTP to HTTPS", remote.Config{Endpoint: strings.Replace(secure.URL, "https", "http", 1), Key: key}, isUnreachable, "not of the Cosmos DB protocol"},
		{"another service", remote.Config{Endpoint: other.URL, Key: key}, isUnreachable, "404 Not Found"},
		{"nobody", remote.Config{Endpoint: "http://127.0.0.1:1", Key: key}, isUnreachable, "refused"},
		{"no host of that name", remote.Config{Endpoint: "http://millrace.invalid", Key: key}, isUnreachable, "millrace.invalid"},
		{"silence", remote.Config{Endpoint: "http://" + silent.Addr().String(), Key: key, Timeout: 50 * time.Millisecond}, isUnreachable, "no answer within 50ms"},
	} {
		client, err := remote.Open(t.Context(), c.cfg)
		if err == nil {
			client.Close()
		}
		if !c.is(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %T %v, want %q", c.what, err, err, c.want)
		}
	}
	// A wrong key and one that may not write show at the first request.
	strange := w.openWith("c3RyYW5nZQ==", 0)
	_, err = strange.Container(t.Context(), "default", "things")
	if refused, ok := errors.AsType[*remote.KeyError](err); !ok || refused.Status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %v", err)
	}
	ct, err := w.openWith(w.keys.PrimaryReadOnly, 0).Container(t.Context(), "default", "things")
	must(t, err)
	err = ct.Upsert(t.Context(), []byte(`{"id": "1", "pk": "a"}`))
	if refused, ok := errors.AsType[*remote.KeyError](err); !ok || refused.Status != http.StatusForbidden {
		t.Errorf("a key that reads: %v", err)
	}
}
