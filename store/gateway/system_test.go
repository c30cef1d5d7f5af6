package gateway_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// An application's key, a master key too, changes nothing in the database that
// Millrace keeps for itself, and reads all of it.
func TestSystem_IsReadOnlyToEveryKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	spec := store.ContainerSpec{PartitionKey: []string{"/pipeline"}, TTL: -1}
	info, err := w.catalog.Create(t.Context(), store.SystemDatabase, "deadLetters", spec)
	if err != nil {
		t.Fatal(err)
	}
	container, err := w.client.Open(info)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := container.Create(t.Context(), []byte(`{"id":"1","pipeline":"p","reason":"true"}`)); err != nil {
		t.Fatal(err)
	}
	const db, coll, items = "/dbs/system", "/dbs/system/colls/deadLetters", "/dbs/system/colls/deadLetters/docs"
	key := []string{keyHeader, `["p"]`}
	before := w.ask("GET", items, "").is(200)
	batch := `[{"operationType":"Delete","id":"1"}]`
	for _, key1 := range []gateway.Key{w.keys.Primary, w.keys.Secondary} {
		w.key = key1
		for _, c := range []struct {
			name, method, path, body string
			with                     []string
		}{
			{"make the database", "POST", "/dbs", `{"id":"system"}`, nil},
			{"delete the database", "DELETE", db, "", nil},
			{"make a container", "POST", db + "/colls", `{"id":"more","partitionKey":{"paths":["/pk"]}}`, nil},
			{"change the container", "PUT", coll, `{"id":"deadLetters","partitionKey":{"paths":["/pipeline"]},"defaultTtl":1}`, nil},
			{"delete the container", "DELETE", coll, "", nil},
			{"forge a letter", "POST", items, `{"id":"2","pipeline":"p"}`, key},
			{"forge a letter by upsert", "POST", items, `{"id":"1","pipeline":"p"}`, append([]string{upsert, "true"}, key...)},
			{"replace a letter", "PUT", items + "/1", `{"id":"1","pipeline":"p"}`, key},
			{"patch a letter", "PATCH", items + "/1", `[{"op":"set","path":"/reason","value":"x"}]`, key},
			{"delete a letter", "DELETE", items + "/1", "", key},
			{"delete in a batch", "POST", items, batch, append([]string{isBatch, "true", atomic, "true"}, key...)},
			{"delete in bulk", "POST", items, batch, []string{isBatch, "true", atomic, "false", rangeHeader, "0"}},
			{"delete with escapes in the path", "DELETE", "/dbs/%73ystem/colls/deadLetters/docs/1", "", key},
		} {
			t.Run(c.name, func(t *testing.T) {
				a := w.ask(c.method, c.path, c.body, c.with...).is(403)
				if !strings.Contains(string(a.body), "read-only for every key") {
					t.Errorf("the reason is %s", a.body)
				}
			})
		}
	}
	// Who goes through all databases does not meet it.
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	for _, a := range []*answer{w.ask("GET", "/dbs", ""), w.ask("POST", "/dbs", `{"query":"SELECT * FROM d"}`, isQuery, "true")} {
		var list struct{ Databases []struct{ ID string } }
		a.is(200).into(&list)
		if len(list.Databases) != 1 || list.Databases[0].ID != "shop" {
			t.Errorf("listed: %s", a.body)
		}
	}
	w.ask("GET", db, "").is(200)
	w.ask("GET", coll, "").is(200)
	w.ask("GET", items+"/1", "", key...).is(200)
	w.ask("POST", items, `{"query":"SELECT * FROM c"}`, isQuery, "true", acrossKeys, "true").is(200)
	if after := w.ask("GET", items, "").is(200); string(after.body) != string(before.body) {
		t.Errorf("before: %s\nafter: %s", before.body, after.body)
	}
}
