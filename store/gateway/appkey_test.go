package gateway_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/script"
)

// serveApplications puts a gateway before the store that knows the keys of applications of a folder. It returns their path.
func (w *world) serveApplications() (path string, ring *gateway.KeyRing) {
	w.t.Helper()
	cfg := gateway.Config{Keys: w.keys, Dir: w.t.TempDir(), Logger: quiet, Engine: w.scripts}
	ring, err := gateway.OpenKeys(&cfg, quiet)
	if err != nil {
		w.t.Fatal(err)
	}
	server, err := gateway.New(w.client, ring, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	web := httptest.NewServer(server)
	w.t.Cleanup(web.Close)
	w.web = web
	return cfg.ApplicationKeyPath(), ring
}

// create makes the key of an application for a container of database shop.
func create(t *testing.T, path, name, container string, writes bool) gateway.Key {
	t.Helper()
	k, err := gateway.CreateApplicationKey(path, gateway.ApplicationKey{Name: name, Database: "shop", Container: container, Writes: writes})
	if err != nil {
		t.Fatal(err)
	}
	return k.Key
}

// statusBecomes asks until an answer has a status: the key file is looked at once a second.
func (w *world) statusBecomes(status int, path string) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); w.ask("GET", path, "").status != status; {
		if time.Now().After(deadline) {
			w.ask("GET", path, "").is(status)
		}
	}
}

// Every operation that the gateway has, with a key to read and one for all of a container.
func TestApplicationKey_EveryOperation(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("p", "function () {}")
	w.container("other", byPK)
	w.user("ann")
	w.permit("ann", "key Read", "Read", things, keyA)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, keyA).is(201)
	path, ring := w.serveApplications()
	admin := w.key
	keys := map[rune]gateway.Key{'r': create(t, path, "reader", "things", false), 'a': create(t, path, "writer", "things", true)}
	fresh := 0
	for letter, key := range keys {
		w.key = key
		w.statusBecomes(200, docs)
		for name, r := range requests {
			open := strings.ContainsRune(opens[name], letter) && name != "container PUT" && name != "container DELETE"
			fresh++
			fill := func(text string) string { return strings.ReplaceAll(text, "%s", fmt.Sprint("new", fresh)) }
			a := w.ask(r.method, strings.ReplaceAll(fill(r.path), " ", "%20"), fill(r.body), r.with...)
			if !open && a.status != 403 || open && a.status >= 400 && a.status != 501 {
				t.Errorf("%s with %c: %d %s", name, letter, a.status, a.body)
			}
			if (name == "item DELETE" || name == "key deletion POST") && open {
				w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, keyA).is(201)
			}
		}
		if read, write := ring.Allows(string(key)); read || write {
			t.Errorf("key %c signs in: %t, %t", letter, read, write)
		}
	}
	if read, write := ring.Allows(string(admin)); !read || !write {
		t.Error("the master key does not sign in")
	}
}

// Links by resource id lead to the container that has the name now, also where it was made anew.
func TestApplicationKey_ByRID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.container("other", byPK)
	path, _ := w.serveApplications()
	admin, key := w.key, create(t, path, "writer", "things", true)
	other := selfOf(t, w.ask("GET", "/dbs/shop/colls/other", "").is(200).body)
	mine := selfOf(t, w.ask("GET", "/"+things, "").is(200).body)
	w.key = key
	w.statusBecomes(200, docs)
	w.follow("GET", mine, "").is(200)
	w.follow("POST", mine.in("docs"), `{"id":"1","pk":"a"}`).is(201)
	w.follow("GET", other, "").is(403)
	w.follow("GET", other.in("docs"), "").is(403)
	w.follow("DELETE", mine, "").is(403)
	w.key = admin
	w.ask("DELETE", "/"+things, "").is(204)
	w.key = key
	w.follow("GET", mine, "").is(403)
	w.ask("GET", "/"+things, "").is(404)
	w.ask("GET", docs, "").is(404, "1003")
	w.key = admin
	w.container("things", byPK)
	anew := selfOf(t, w.ask("GET", "/"+things, "").is(200).body)
	w.key = key
	w.follow("GET", mine, "").is(403)
	w.follow("GET", anew.in("docs"), "").is(200)
}

// Keys of applications are made, replaced and deleted while the gateway runs, and lie in a file that its owner alone reads.
func TestApplicationKey_MadeRotatedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	path, _ := w.serveApplications()
	list := func() []gateway.ApplicationKey {
		t.Helper()
		keys, err := gateway.ReadApplicationKeys(path)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if keys := list(); len(keys) != 0 {
		t.Errorf("without a file there are %d", len(keys))
	}
	first := create(t, path, "reader", "things", false)
	second := create(t, path, "another", "things", false)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if keys := list(); len(keys) != 2 || keys[0].Name != "another" || keys[1].Key != first {
		t.Errorf("the keys are %+v", keys)
	}
	w.key = second
	w.statusBecomes(200, docs)
	w.key = first
	w.statusBecomes(200, docs)
	rotated, err := gateway.RotateApplicationKey(path, "reader")
	if err != nil || rotated.Key == first || rotated.Container != "things" {
		t.Fatalf("rotated: %+v, %v", rotated, err)
	}
	w.statusBecomes(401, docs)
	w.key = rotated.Key
	w.statusBecomes(200, docs)
	if err := gateway.DeleteApplicationKey(path, "reader"); err != nil {
		t.Fatal(err)
	}
	w.statusBecomes(401, docs)
	w.key = second
	w.ask("GET", docs, "").is(200)
	// A file that cannot be read leaves the keys as they are; one that is gone has none.
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ask("GET", docs, "").is(200)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.statusBecomes(401, docs)
}

func TestApplicationKey_Refusals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "application-keys.json")
	create(t, path, "reader", "things", false)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]gateway.ApplicationKey{
		"a name that is taken":    {Name: "reader", Database: "shop", Container: "other"},
		"a master key's name":     {Name: "primary", Database: "shop", Container: "things"},
		"no name":                 {Database: "shop", Container: "things"},
		"a name that is no plain": {Name: "a b", Database: "shop", Container: "things"},
		"no container":            {Name: "a", Database: "shop"},
		"no database":             {Name: "a", Container: "things"},
		"a resource id":           {Name: "a", Database: "AQAAAA==", Container: "things"},
		"the system's, to write":  {Name: "a", Database: "system", Container: "deadLetters", Writes: true},
	} {
		if _, err := gateway.CreateApplicationKey(path, k); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := gateway.RotateApplicationKey(path, "none"); !errors.Is(err, gateway.ErrNoApplicationKey) {
		t.Errorf("rotated what is not there: %v", err)
	}
	if err := gateway.DeleteApplicationKey(path, "none"); !errors.Is(err, gateway.ErrNoApplicationKey) {
		t.Errorf("deleted what is not there: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("a refusal has changed the file: %s", diff)
	}
	for i := 1; i < gateway.ApplicationKeysMax; i++ {
		create(t, path, fmt.Sprint("k", i), "things", false)
	}
	if _, err := gateway.CreateApplicationKey(path, gateway.ApplicationKey{Name: "more", Database: "shop", Container: "things"}); err == nil {
		t.Error("there are more than are allowed")
	}
	good := `{"version":1,"keys":[{"name":"a","key":"AAAAAAAAAAAAAAAAAAAAAAAA","database":"shop","container":"things","writes":false,"created":"2026-01-01T00:00:00Z"}]}`
	for name, content := range map[string]string{
		"no JSON": "{", "another version": strings.Replace(good, `"version":1`, `"version":2`, 1), "a limit that is not known": strings.Replace(good, `"writes"`, `"items":[],"writes"`, 1),
		"a short key": strings.Replace(good, "AAAAAAAAAAAAAAAAAAAAAAAA", "AAAA", 1), "a name twice": strings.Replace(good, `[{`, `[{"name":"a","key":"AAAAAAAAAAAAAAAAAAAAAAAA","database":"shop","container":"x","writes":true,"created":"2026-01-01T00:00:00Z"},{`, 1),
		"no container": strings.Replace(good, "things", "", 1), "too much": good + strings.Repeat(" ", 5<<20),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.OpenKeys(&gateway.Config{Keys: gateway.NewKeys(), Dir: filepath.Dir(path)}, quiet); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err := gateway.ReadApplicationKeys(path); err != nil || len(keys) != 1 || !keys[0].Created.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the good one: %+v, %v", keys, err)
	}
}
