package gateway_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/gateway"
)

// The vector of the protocol's documentation.
func TestSign_Vector(t *testing.T) {
	const key = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw=="
	got := authorization(t, key, "GET", "dbs", "dbs/ToDoList", "Thu, 27 Apr 2017 00:51:12 GMT")
	want := url.QueryEscape("type=master&ver=1.0&sig=c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c=")
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func now() string { return time.Now().UTC().Format(http.TimeFormat) }

// Clients sign in several forms; all of them count.
func TestAuthorize_FormsOfSignatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"a b+ü","pk":"a"}`, keyHeader, `["a"]`).is(201)
	info, err := w.catalog.Get(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	ridText := info.RID().String()
	// Until the gateway follows the catalog it does not know containers by their rid.
	for range 500 {
		date := now()
		r := newRequest(t, w, "GET", "/dbs/shop/colls/things/pkranges", date, authorization(t, w.key, "GET", "pkranges", strings.ToLower(ridText), date))
		if w.send(r).status == 200 {
			break
		}
		w.ask("GET", "/dbs", "").is(200)
	}
	date := now()
	for name, c := range map[string]struct{ path, kind, link string }{
		"ranges by names":           {"/dbs/shop/colls/things/pkranges", "pkranges", "dbs/shop/colls/things"},
		"ranges by rid":             {"/dbs/shop/colls/things/pkranges", "pkranges", strings.ToLower(ridText)},
		"names in lower case":       {"/dbs/shop", "dbs", "dbs/shop"},
		"an item that is escaped":   {"/dbs/shop/colls/things/docs/a%20b%2B%C3%BC", "docs", "dbs/shop/colls/things/docs/a b+ü"},
		"the link as it was sent":   {"/dbs/shop/colls/things/docs/a%20b%2B%C3%BC", "docs", "dbs/shop/colls/things/docs/a%20b%2B%C3%BC"},
		"a slash behind the path":   {"/dbs/shop/colls/things/", "colls", "dbs/shop/colls/things"},
		"the account":               {"/", "", ""},
		"an offer in lower case":    {"/offers/AbCd", "offers", "abcd"},
		"a logical partition":       {"/dbs/shop/colls/things/operations/partitionkeydelete", "colls", "dbs/shop/colls/things"},
		"a type in capital letters": {"/dbs/shop", "dbs", "dbs/shop"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []gateway.Key{w.keys.Primary, w.keys.Secondary, w.keys.PrimaryReadOnly, w.keys.SecondaryReadOnly} {
				encoded := authorization(t, key, "GET", c.kind, c.link, date)
				plain, err := url.QueryUnescape(encoded)
				if err != nil {
					t.Fatal(err)
				}
				for _, header := range []string{encoded, plain, strings.ToLower(encoded[:20]) + encoded[20:], url.PathEscape(plain)} {
					r := newRequest(t, w, "GET", c.path, date, header)
					r.Header.Set(keyHeader, `["a"]`)
					if a := w.send(r); a.status == 401 || a.status == 403 {
						t.Errorf("%s: %d %s", header, a.status, a.body)
					}
				}
			}
		})
	}
}

func newRequest(t *testing.T, w *world, method, path, date, authorization string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.web.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if date != "" {
		r.Header.Set("x-ms-date", date)
	}
	if authorization != "" {
		r.Header.Set("authorization", authorization)
	}
	return r
}

func TestAuthorize_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	date := now()
	good := authorization(t, w.key, "GET", "dbs", "", date)
	stranger := gateway.NewKeys().Primary
	late := time.Now().Add(-16 * time.Minute).UTC().Format(http.TimeFormat)
	early := time.Now().Add(16 * time.Minute).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		date, header string
		status       int
	}{
		"nothing":                 {date, "", 401},
		"another key":             {date, authorization(t, stranger, "GET", "dbs", "", date), 401},
		"another verb":            {date, authorization(t, w.key, "POST", "dbs", "", date), 401},
		"another type":            {date, authorization(t, w.key, "GET", "colls", "", date), 401},
		"another link":            {date, authorization(t, w.key, "GET", "dbs", "dbs/shop", date), 401},
		"another date":            {now(), authorization(t, w.key, "GET", "dbs", "", late), 401},
		"no date":                 {"", authorization(t, w.key, "GET", "dbs", "", ""), 401},
		"a date that is none":     {"yesterday", authorization(t, w.key, "GET", "dbs", "", "yesterday"), 401},
		"too late":                {late, authorization(t, w.key, "GET", "dbs", "", late), 403},
		"too early":               {early, authorization(t, w.key, "GET", "dbs", "", early), 403},
		"a resource token":        {date, strings.Replace(good, "master", "resource", 1), 401},
		"a version that is none":  {date, strings.Replace(good, "1.0", "9.0", 1), 401},
		"a short signature":       {date, "type%3Dmaster%26ver%3D1.0%26sig%3DAAAA", 401},
		"a signature of nothing":  {date, "type%3Dmaster%26ver%3D1.0%26sig%3D", 401},
		"a header of rubbish":     {date, "%zz&&==", 401},
		"a signature with spaces": {date, "type=master&ver=1.0&sig=c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu c c=", 401},
	} {
		t.Run(name, func(t *testing.T) {
			w.send(newRequest(t, w, "GET", "/dbs", c.date, c.header)).is(c.status)
		})
	}
	w.send(newRequest(t, w, "GET", "/dbs", date, good)).is(200)
}

// A read-only key reads all and writes nothing.
func TestAuthorize_ReadOnlyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	item := w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
	for _, key := range []gateway.Key{w.keys.PrimaryReadOnly, w.keys.SecondaryReadOnly} {
		w.key = key
		w.ask("GET", "/", "").is(200)
		w.ask("GET", docs, "").is(200)
		w.ask("POST", "/dbs", `{"query":"SELECT * FROM c"}`, isQuery, "true").is(200)
		w.ask("POST", "/dbs", `{"id":"more"}`).is(403)
		w.ask("DELETE", "/dbs/shop", "").is(403)
		w.ask("POST", "/dbs/shop/colls", `{"id":"more","partitionKey":{"paths":["/a"]}}`).is(403)
		w.ask("DELETE", "/dbs/shop/colls/things", "").is(403)
		w.ask("POST", docs, `{"id":"2","pk":"a"}`, keyHeader, `["a"]`).is(403)
		w.ask("PUT", docs+"/1", `{"id":"1","pk":"a","n":1}`, keyHeader, `["a"]`).is(403)
		w.ask("PATCH", docs+"/1", `[{"op":"set","path":"/n","value":1}]`, keyHeader, `["a"]`).is(403)
		w.ask("DELETE", docs+"/1", "", keyHeader, `["a"]`).is(403)
		w.ask("POST", docs, `[{"operationType":"Read","id":"1"}]`, keyHeader, `["a"]`, isBatch, "True", atomic, "True").is(403)
		if a := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200); !bytes.Equal(a.body, item.body) {
			t.Errorf("the item was %s and is %s", item.body, a.body)
		}
	}
}

// Keys are made once, readable for their owner alone; a rotated one replaces the one
// before while the others stay.
func TestKeys_MadeKeptAndRotated(t *testing.T) {
	dir := t.TempDir()
	cfg := &gateway.Config{Dir: filepath.Join(dir, "gateway")}
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	if _, err := gateway.OpenKeys(cfg, log); err != nil {
		t.Fatal(err)
	}
	first, err := gateway.ReadKeys(cfg.KeyPath())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(cfg.KeyPath())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has mode %v, %v", info.Mode(), err)
	}
	if _, err := gateway.OpenKeys(cfg, log); err != nil {
		t.Fatal(err)
	}
	if again, err := gateway.ReadKeys(cfg.KeyPath()); err != nil || again != first {
		t.Errorf("the keys changed at the second start: %v", err)
	}
	for _, name := range gateway.KeyNames {
		before, err := gateway.ReadKeys(cfg.KeyPath())
		if err != nil {
			t.Fatal(err)
		}
		after, err := gateway.RotateKey(cfg.KeyPath(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range gateway.KeyNames {
			if same := before.Named(other) == after.Named(other); same != (other != name) {
				t.Errorf("rotating %s: %s stayed: %v", name, other, same)
			}
		}
	}
	if _, err := gateway.RotateKey(cfg.KeyPath(), "tertiary"); err == nil {
		t.Error("a key that is none was rotated")
	}
	log.Info("keys", "keys", first, "key", first.Primary)
	for _, name := range gateway.KeyNames {
		if strings.Contains(logged.String(), string(first.Named(name))) {
			t.Errorf("key %s is in the log: %s", name, logged.String())
		}
	}
}

func TestKeys_BadFiles(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON": "{", "a key too short": `{"primary":"AAAA"}`, "no base64": `{"primary":"?"}`, "no key": `{}`, "a field that is none": `{"first":""}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := gateway.OpenKeys(&gateway.Config{KeyFile: path}, quiet); err == nil {
				t.Error("it was taken")
			}
		})
	}
}

// Whoever configures a key for Prometheus alone is told that applications cannot write any more.
func TestNew_WarnsWithoutAKeyThatWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	all := gateway.NewKeys()
	for _, c := range []struct {
		keys gateway.Keys
		want bool
	}{
		{gateway.Keys{PrimaryReadOnly: all.PrimaryReadOnly}, true},
		{gateway.Keys{PrimaryReadOnly: all.PrimaryReadOnly, Secondary: all.Secondary}, false},
	} {
		var logged strings.Builder
		cfg := gateway.Config{Keys: c.keys, Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&logged, nil))}
		ring, err := gateway.OpenKeys(&cfg, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.New(w.client, ring, cfg); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(logged.String(), "gateway.keys.primary"); got != c.want {
			t.Errorf("a key that writes: %t, a warning: %t\n%s", !c.want, got, logged.String())
		}
	}
}

// A key that is rotated while the server runs is taken without a restart; the other
// one works all the while.
func TestKeys_RotatedWhileRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	path := filepath.Join(t.TempDir(), "keys.json")
	ring, err := gateway.OpenKeys(&gateway.Config{KeyFile: path}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	before, err := gateway.ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	server, err := gateway.New(w.client, ring, gateway.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	old := w.web
	w.web = web
	defer func() { w.web = old }()
	status := func(key gateway.Key) int {
		w.key = key
		return w.ask("GET", "/dbs", "").status
	}
	if got := status(before.Primary); got != 200 {
		t.Fatalf("the primary key: %d", got)
	}
	after, err := gateway.RotateKey(path, gateway.KeyPrimary)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for status(after.Primary) != 200 {
		if got := status(before.Secondary); got != 200 {
			t.Fatalf("the secondary key: %d", got)
		}
		if time.Now().After(deadline) {
			t.Fatal("the new key is not taken")
		}
	}
	if got := status(before.Primary); got != 401 {
		t.Errorf("the key of before: %d", got)
	}
}
