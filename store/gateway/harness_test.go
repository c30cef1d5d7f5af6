package gateway_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/script"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a store in this process with a gateway before it.
type world struct {
	t       testing.TB
	client  *store.Client
	catalog *store.Catalog
	keys    gateway.Keys
	gateway *gateway.Server
	web     *httptest.Server
	js      jetstream.JetStream
	key     gateway.Key // with which requests are signed
	scripts *script.Engine
	// stopOwners ends the store, so that nobody owns a partition.
	stopOwners func()
	// startOwners starts another store, which the gateway reaches over NATS.
	startOwners func()
	nc          *nats.Conn
}

func newWorld(t testing.TB, cfg gateway.Config) *world {
	t.Helper()
	w := &world{t: t, keys: gateway.NewKeys(), scripts: cfg.Engine}
	w.key = w.keys.Primary
	snapshots := owner.SnapshotConfig{Store: owner.SnapshotsStream} // with which the children of a split begin
	below := storetest.StartWith(t, owner.Config{DiskReserve: -1, ExpiryInterval: 10 * time.Millisecond, Scripts: cfg.Engine, Snapshots: snapshots})
	w.js, w.nc, w.catalog, w.stopOwners = below.JS, below.NC, below.Client.Catalog(), below.StopOwner
	// Where nobody owns a partition a client gives up in time.
	w.client = store.NewClient(w.nc, w.catalog, store.ClientConfig{Local: below.Local})
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = quiet
	if w.gateway, err = gateway.New(w.client, ring, cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	w.startOwners = func() {
		next, err := owner.NewServer(w.nc, w.catalog, below.DB, storetest.Manager(t, w.js, "store"), owner.Config{Logger: quiet, DiskReserve: -1, Scripts: w.scripts, Snapshots: snapshots})
		if err != nil {
			t.Error(err)
			return
		}
		storetest.Run(t, next.Run)
	}
	running.Go(func() { w.gateway.Run(ctx) })
	w.web = httptest.NewServer(w.gateway)
	web := w.web
	t.Cleanup(func() {
		web.Close()
		cancel()
		running.Wait()
	})
	return w
}

// answer is what came back.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// headers are pairs of names and values.
type headers []string

const (
	keyHeader   = "x-ms-documentdb-partitionkey"
	upsert      = "x-ms-documentdb-is-upsert"
	isQuery     = "x-ms-documentdb-isquery"
	isBatch     = "x-ms-cosmos-is-batch-request"
	atomic      = "x-ms-cosmos-batch-atomic"
	goesOn      = "x-ms-cosmos-batch-continue-on-error"
	rangeHeader = "x-ms-documentdb-partitionkeyrangeid"
	pageItems   = "x-ms-max-item-count"
	goOn        = "x-ms-continuation"
	acrossKeys  = "x-ms-documentdb-query-enablecrosspartition"
)

// ask sends a signed request. path is percent-encoded.
func (w *world) ask(method, path, body string, with ...string) *answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.web.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(with); i += 2 {
		r.Header.Set(with[i], with[i+1])
	}
	sign(w.t, r, w.key)
	return w.send(r)
}

func (w *world) send(r *http.Request) *answer {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return &answer{w.t, r.Method + " " + r.URL.Path, resp.StatusCode, resp.Header, data}
}

// sign signs a request as the documentation of the protocol says.
func sign(t testing.TB, r *http.Request, key gateway.Key) {
	t.Helper()
	if r.Header.Get("x-ms-date") == "" {
		r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	}
	segments := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i := range segments { // a name may hold an escaped slash
		var err error
		if segments[i], err = url.PathUnescape(segments[i]); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.Join(segments, "/")
	kind, link := "", ""
	if path != "" {
		if n := len(segments); n%2 == 1 {
			kind, link = segments[n-1], strings.Join(segments[:n-1], "/")
		} else {
			kind, link = segments[n-2], path
		}
		if len(segments) == 6 && segments[4] == "operations" { // on a logical partition
			kind, link = "colls", strings.Join(segments[:4], "/")
		}
	}
	if rid, ok := strings.CutPrefix(path, "offers/"); ok {
		link = strings.ToLower(rid)
	}
	r.Header.Set("authorization", authorization(t, key, r.Method, kind, link, r.Header.Get("x-ms-date")))
}

func authorization(t testing.TB, key gateway.Key, method, kind, link, date string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(string(key))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, raw)
	_, _ = io.WriteString(mac, strings.ToLower(method)+"\n"+kind+"\n"+link+"\n"+strings.ToLower(date)+"\n\n")
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// is checks a status; of an error, that it has a body that the SDKs understand.
func (a *answer) is(status int, substatus ...string) *answer {
	a.t.Helper()
	want := ""
	if len(substatus) > 0 {
		want = substatus[0]
	}
	if a.status != status || a.header.Get("x-ms-substatus") != want {
		a.t.Fatalf("%s: status %d/%s, want %d/%s: %s", a.what, a.status, a.header.Get("x-ms-substatus"), status, want, a.body)
	}
	if a.header.Get("x-ms-activity-id") == "" || a.header.Get("x-ms-request-charge") == "" {
		a.t.Errorf("%s: no activity id or charge: %v", a.what, a.header)
	}
	if status < 400 {
		return a
	}
	var body struct{ Code, Message string }
	if err := json.Unmarshal(a.body, &body); err != nil || body.Code == "" || body.Message == "" {
		a.t.Errorf("%s: the error's body is %s", a.what, a.body)
	}
	if a.header.Get("Content-Type") != "application/json" {
		a.t.Errorf("%s: an error of type %s", a.what, a.header.Get("Content-Type"))
	}
	return a
}

// into decodes the body.
func (a *answer) into(v any) *answer {
	a.t.Helper()
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		a.t.Fatalf("%s: %v: %s", a.what, err, a.body)
	}
	return a
}

// object is the body as an object.
func (a *answer) object() map[string]any {
	a.t.Helper()
	var v map[string]any
	a.into(&v)
	return v
}

// container makes a container in database shop.
func (w *world) container(name, body string) {
	w.t.Helper()
	if a := w.ask("POST", "/dbs", `{"id":"shop"}`); a.status != 201 && a.status != 409 {
		w.t.Fatalf("database: %d %s", a.status, a.body)
	}
	w.ask("POST", "/dbs/shop/colls", strings.Replace(body, "{", `{"id":"`+name+`",`, 1)).is(201)
}

const byPK = `{"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`

// usedBy says that pipelines use every container.
func usedBy(names ...string) func(context.Context, string, string) ([]string, error) {
	return func(context.Context, string, string) ([]string, error) { return names, nil }
}

// gatewayPartitions makes a container of several physical partitions.
func (w *world) gatewayPartitions(name string, n int) {
	w.t.Helper()
	if _, err := w.catalog.Create(w.t.Context(), "shop", name, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: n}); err != nil {
		w.t.Fatal(err)
	}
}

func quote(t testing.TB, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// serve puts another gateway before the store. It does not follow the catalog.
func (w *world) serve(cfg gateway.Config) *gateway.Server {
	w.t.Helper()
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		w.t.Fatal(err)
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	server, err := gateway.New(w.client, ring, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	web := httptest.NewServer(server)
	w.t.Cleanup(web.Close)
	w.web = web
	return server
}
