package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

// world is a store in this process with a Server before it.
type world struct {
	t        *testing.T
	registry *registry.Registry
	server   *Server
	web      *httptest.Server
	path     string // of the keys
	log      bytes.Buffer
}

const containers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: a}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: b}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: c}
spec: {partitionKey: [/id]}
`

// copies declares a cascade.
func copies(name, from, into string) string {
	return strings.NewReplacer("NAME", name, "FROM", from, "INTO", into).Replace(`
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: NAME}
spec:
  source: {container: FROM}
  cascade: {into: INTO, match: {ref: id}, set: {copied: name}}
`)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	below := storetest.Start(t)
	w := &world{t: t, path: filepath.Join(t.TempDir(), "operator-keys.json")}
	var err error
	w.registry, err = registry.Open(t.Context(), below.JS, below.Client, registry.Config{})
	must(t, err)
	keys, err := OpenKeys(w.path, storetest.Quiet())
	must(t, err)
	w.server = New(&Config{
		Inspect: inspect.Config{JetStream: below.JS, Client: below.Client, Registry: w.registry}, Keys: keys,
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	w.web = httptest.NewServer(w.server)
	t.Cleanup(w.web.Close)
	declared, err := spec.Decode("containers.yaml", []byte(containers))
	must(t, err)
	_, err = w.registry.Apply(t.Context(), declared)
	must(t, err)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key makes a key, and waits until the server has read it.
func (w *world) key(name string, mode Mode, life time.Duration) string {
	w.t.Helper()
	k := Key{Name: name, Mode: mode}
	if mode == ModeOperator {
		k.Bounds = &registry.Bounds{Targets: []spec.Metadata{{Name: "b", Database: "default"}}, Sources: []spec.Metadata{{Name: "a", Database: "default"}}}
	}
	_, secret, err := CreateKey(w.path, k, life)
	must(w.t, err)
	w.known(secret, true)
	return secret
}

// known waits until the server knows a key, or does not know it any more.
func (w *world) known(secret string, want bool) {
	w.t.Helper()
	poll.Until(w.t, func() error {
		return poll.Unless((w.server.cfg.Keys.find(secret) != nil) == want, "the file was not read again")
	})
}

func (w *world) client(secret string) *Client {
	w.t.Helper()
	c, err := NewClient(ClientConfig{Endpoint: w.web.URL, Key: secret, Timeout: time.Minute})
	must(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// ask sends a request as it is, and returns the status.
func (w *world) ask(method, path, authorization, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.web.URL+path, strings.NewReader(body))
	must(w.t, err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(r)
	must(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return resp.StatusCode, string(text)
}

// bodies are what is sent to each route, and what it answers to each kind of key. A new route without a line fails.
var bodies = map[string]struct {
	body             string
	status, operator int
}{
	"GET " + pathStatus:  {"", 200, 200},
	"POST " + pathVerify: {`{"settle":-1}`, 200, 200},
	"POST " + pathPlan:   {`{"texts":[{"name":"x","data":"DOC"}]}`, 403, 200},
	"POST " + pathApply:  {`{"texts":[{"name":"x","data":"DOC"}]}`, 403, 200},
}

func TestServer_EveryRouteWithEveryKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	looks, operates := w.key("looks", ModeStatus, 0), w.key("operates", ModeOperator, time.Hour)
	doc, err := json.Marshal(copies("names", "a", "b"))
	must(t, err)
	_, digest := newSecret()
	other, _ := newSecret()
	routes := w.server.routes()
	if len(routes) != len(bodies) {
		t.Errorf("%d routes are served, and %d are told here", len(routes), len(bodies))
	}
	for _, r := range routes {
		name := r.method + " " + r.path
		want, ok := bodies[name]
		if !ok {
			t.Errorf("%s has no line here", name)
			continue
		}
		body := strings.Replace(want.body, `"DOC"`, string(doc), 1)
		for _, c := range []struct {
			who, authorization string
			status             int
		}{
			{"nobody", "", 401},
			{"another key", "Bearer " + other, 401},
			{"a digest", "Bearer " + digest, 401},
			{"another scheme", "Basic " + operates, 401},
			{"a key to look", "Bearer " + looks, want.status},
			{"a key to operate", "bearer " + operates, want.operator},
		} {
			if status, answer := w.ask(r.method, r.path, c.authorization, body); status != c.status || strings.Contains(answer, operates) {
				t.Errorf("%s with %s: %d, want %d\n%s", name, c.who, status, c.status, answer)
			}
		}
	}
	for _, path := range []string{"/operator/", "/operator/v1/items", "/"} {
		if status, answer := w.ask("GET", path, "Bearer "+operates, ""); status != 404 {
			t.Errorf("%s: %d\n%s", path, status, answer)
		}
	}
	if status, _ := w.ask("POST", pathApply, "Bearer "+operates, `{"texts":[],"force":true}`); status != 400 {
		t.Errorf("an option that is not known: %d", status)
	}
	if log := w.log.String(); !strings.Contains(log, "not in force") || strings.Contains(log, other) || strings.Contains(log, operates) {
		t.Errorf("the log is\n%s", log)
	}
}

// What lies outside of a key's containers is refused in words that name it, and nothing is changed.
func TestServer_AppliesWithinTheKeysContainersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(w.key("ci", ModeOperator, time.Hour))
	declare := func(text string) *Declaration {
		return Declare([]spec.Text{{Name: "x.yaml", Data: []byte(text)}}, registry.ApplyOptions{})
	}
	foreign, err := spec.Decode("y.yaml", []byte(copies("foreign", "a", "c")))
	must(t, err)
	_, err = w.registry.Apply(t.Context(), foreign)
	must(t, err)
	before := w.hash()
	for name, declared := range map[string]struct{ text, says string }{
		"a target outside":                {copies("x", "a", "c"), "x.yaml:7:19: pipeline default/x writes to container default/c, and may write to default/b alone"},
		"a source outside":                {copies("x", "c", "b"), "reads container default/c, and those that may be read are default/b, default/a"},
		"a target that may only be read":  {copies("x", "b", "a"), "writes to container default/a"},
		"another database":                {strings.Replace(copies("x", "a", "b"), "name: x", "name: x, database: other", 1), "reads container other/a"},
		"a pipeline that is outside":      {copies("foreign", "a", "b"), "pipeline default/foreign is registered already, and that one writes to container default/c"},
		"a good one beside a bad one":     {copies("x", "a", "b") + "---" + copies("y", "a", "c"), "pipeline default/y writes"},
		"a container outside":             {strings.Split(containers, "---")[2], "container default/c is none of default/b, default/a"},
		"a container that would change":   {strings.Replace(strings.Split(containers, "---")[0], "partitionKey: [/id]", "partitionKey: [/id], indexes: [/x]", 1), "containers may not be changed"},
		"files":                           {strings.Replace(copies("x", "a", "b"), "cascade: {into: b, match: {ref: id}, set: {copied: name}}", "project: {sink: {parquet: {path: out}}, tables: {t: {key: [id], columns: {id: id}}}}", 1), "which is no container"},
		"rows in containers, one outside": {strings.Replace(copies("x", "a", "b"), "cascade: {into: b, match: {ref: id}, set: {copied: name}}", "project: {sink: {container: {rejects: c}}, tables: {b: {key: [id], columns: {id: id}}}}", 1), "writes to container default/c"},
	} {
		for verb, do := range map[string]func(*Declaration) error{
			"plan":  func(d *Declaration) error { _, err := c.Plan(t.Context(), d); return err },
			"apply": func(d *Declaration) error { _, err := c.Apply(t.Context(), d); return err },
		} {
			err := do(declare(declared.text))
			if outside, ok := errors.AsType[*registry.OutsideError](err); !ok || !strings.Contains(outside.Error(), declared.says) {
				t.Errorf("%s, %s: %v", name, verb, err)
			}
		}
	}
	if after := w.hash(); after != before {
		t.Error("a refusal has changed something")
	}
	good := strings.Join(strings.Split(containers, "---")[:2], "---") + "---" + copies("names", "a", "b")
	p, err := c.Plan(t.Context(), declare(good))
	if err != nil || !p.Changes() || len(p.Graph.Fields) != 0 {
		t.Fatalf("the plan is %+v, %v", p, err)
	}
	stale := declare(good)
	stale.Plan = "0123456789abcdef"
	if _, err := c.Apply(t.Context(), stale); !isType[*registry.PlanError](err) {
		t.Errorf("another plan: %v", err)
	}
	now := declare(good)
	now.Plan = p.Hash
	done, err := c.Apply(t.Context(), now)
	if err != nil || len(done) != 3 || done[2].Action != registry.Created || done[0].Action != registry.Unchanged {
		t.Errorf("applied: %v, %v", done, err)
	}
	if _, err := c.Apply(t.Context(), declare("kind: Nothing")); !isType[spec.Findings](err) {
		t.Errorf("a declaration that is wrong: %v", err)
	}
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// hash is of everything that is registered.
func (w *world) hash() string {
	w.t.Helper()
	all, err := w.registry.World(w.t.Context())
	must(w.t, err)
	return registry.PlanHash(&spec.Resources{}, all)
}

func TestServer_StatusAndVerifyShowNoItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(w.key("looks", ModeStatus, 0))
	declared, err := spec.Decode("y.yaml", []byte(copies("names", "a", "b")))
	must(t, err)
	_, err = w.registry.Apply(t.Context(), declared)
	must(t, err)
	// No worker runs, so the copy stays as it is.
	client := w.server.cfg.Inspect.Client
	for container, body := range map[string]string{"a": `{"id":"secret-item","name":"secret-name"}`, "b": `{"id":"secret-copy","ref":"secret-item","copied":"x"}`} {
		ct, err := client.Container(t.Context(), "default", container)
		must(t, err)
		_, err = ct.Upsert(t.Context(), []byte(body))
		must(t, err)
	}
	report, err := c.Verify(t.Context(), VerifyRequest{Settle: -1})
	must(t, err)
	st, err := c.Status(t.Context(), spec.Metadata{Name: "names", Database: "default"})
	must(t, err)
	all, err := json.Marshal([]any{report, st})
	must(t, err)
	if report.Verdict != verify.VerdictBehind && report.Verdict != verify.VerdictDrift || report.Pipelines[0].Behind+report.Pipelines[0].Drift != 1 {
		t.Errorf("the difference is not counted: %s", all)
	}
	if len(st.Pipelines) != 1 || strings.Contains(string(all), "secret") {
		t.Errorf("shown: %s", all)
	}
	if _, err := c.Status(t.Context(), spec.Metadata{Name: "nome", Database: "default"}); !isType[*registry.NoPipelineError](err) || !strings.Contains(err.Error(), "did you mean names?") {
		t.Errorf("a pipeline that is not there: %v", err)
	}
}

// Keys are replaced, revoked and expire while the server runs, and lie in a file that holds none of them.
func TestKeys_FromTheirMakingToTheirEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.key("k", ModeStatus, time.Hour)
	if text, err := os.ReadFile(w.path); err != nil || strings.Contains(string(text), first) {
		t.Errorf("the file holds the key, or %v", err)
	}
	if info, err := os.Stat(w.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	rotated, second, err := RotateKey(w.path, "k")
	if err != nil || second == first || rotated.Expires.Sub(rotated.Created) != time.Hour {
		t.Fatalf("rotated: %+v, %v", rotated, err)
	}
	w.known(second, true)
	if _, err := w.client(first).Status(t.Context()); !isType[*KeyError](err) {
		t.Errorf("the key before: %v", err)
	}
	if _, err := w.client(second).Status(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, keys.Change(w.path, "k", func(k *Key) { k.Expires = k.Created.Add(-time.Minute) }))
	poll.Until(t, func() error {
		_, err := w.client(second).Status(t.Context())
		return poll.Unless(isType[*KeyError](err) && strings.Contains(err.Error(), "key k has expired at"), "it is not said that the key has expired")
	})
	must(t, RevokeKey(w.path, "k"))
	w.known(second, false)
	if err := RevokeKey(w.path, "k"); !errors.Is(err, ErrNoKey) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestKeys_Refusals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "operator-keys.json")
	_, _, err := CreateKey(path, Key{Name: "k", Mode: ModeStatus}, 0)
	must(t, err)
	before, err := os.ReadFile(path)
	must(t, err)
	in := func(database, name string) *registry.Bounds {
		return &registry.Bounds{Targets: []spec.Metadata{{Name: name, Database: database}}}
	}
	for name, k := range map[string]Key{
		"a name that is taken":         {Name: "k", Mode: ModeStatus},
		"a master key's name":          {Name: "primary", Mode: ModeStatus},
		"a name that is not plain":     {Name: "a b", Mode: ModeStatus},
		"no mode":                      {Name: "x"},
		"another mode":                 {Name: "x", Mode: "root"},
		"no container":                 {Name: "x", Mode: ModeOperator},
		"containers, to look":          {Name: "x", Mode: ModeStatus, Bounds: in("d", "c")},
		"no database":                  {Name: "x", Mode: ModeOperator, Bounds: in("", "c")},
		"the system's":                 {Name: "x", Mode: ModeOperator, Bounds: in("system", "deadLetters")},
		"a container that cannot be":   {Name: "x", Mode: ModeOperator, Bounds: in("d", "a/b")},
		"a source and no target of it": {Name: "x", Mode: ModeOperator, Bounds: &registry.Bounds{Sources: in("d", "c").Targets}},
	} {
		if _, _, err := CreateKey(path, k, 0); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a refusal has changed the file: %v", err)
	}
	for name, text := range map[string]string{
		"no JSON": "{", "a later version": strings.Replace(string(before), `"version": 1`, `"version": 2`, 1),
		"a limit that is not known": strings.Replace(string(before), `"mode"`, `"rows": [], "mode"`, 1),
		"a digest that is none":     strings.Replace(string(before), `"digest": "`, `"digest": "x`, 1),
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := OpenKeys(path, storetest.Quiet()); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// A key is not sent where it could be read on the way.
func TestClient_SendsNoKeyReadably(t *testing.T) {
	t.Parallel()
	for endpoint, ok := range map[string]bool{
		"http://127.0.0.1:8082": true, "http://localhost:8082": true, "https://store-1:8082": true, "http://store-1:8082": false, "http://127.0.0.1.example:8082": false, "store-1": false,
	} {
		if _, err := NewClient(ClientConfig{Endpoint: endpoint, Key: "k"}); (err == nil) != ok {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
