package integration_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestItems_GetPutDelete does what items does, over NATS and over the Cosmos DB protocol: both
// know the same etags.
func TestItems_GetPutDelete(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	e.must("import", "things", "/dev/null", "--partition-key", "/pk")
	overNATS := func(stdin string, args ...string) (out, errs string, exit int) {
		return command(t, stdin, nil, append(args, "--server", e.server, "--dir", e.dir)...)
	}
	for name, run := range map[string]func(stdin string, args ...string) (out, errs string, exit int){"NATS": overNATS, "the protocol": e.run} {
		t.Run(name, func(t *testing.T) {
			hold := func(stdin string, exit int, want string, args ...string) (out string) {
				t.Helper()
				out, errs, got := run(stdin, append([]string{"items"}, args...)...)
				if got != exit || !strings.Contains(out+errs, want) {
					t.Errorf("items %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), got, exit, want, out, errs)
				}
				return out
			}
			etag := func(id, key string) string {
				t.Helper()
				var v struct {
					ETag         string
					PartitionKey []string
					Item         map[string]any
				}
				out := hold("", 0, id, "get", "things", id, "--key", key, "-o", "json")
				if err := json.Unmarshal([]byte(out), &v); err != nil || v.ETag == "" || v.PartitionKey[0] != key || v.Item["id"] != id {
					t.Fatalf("%v\n%s", err, out)
				}
				return v.ETag
			}
			hold(`{"id": "1", "pk": "a", "n": 1.50}`, 0, `item 1 of ["a"] written to things, etag `, "put", "things")
			first := etag("1", "a")
			if out, want := hold("", 0, "", "get", "things", "1"), "{\n  \"id\": \"1\",\n  \"pk\": \"a\",\n  \"n\": 1.50\n}\n"; out != want {
				t.Errorf("the item is\n%s, want\n%s", out, want)
			}
			file := filepath.Join(t.TempDir(), "item.json")
			writeFile(t, file, "\n"+`{"id": "1", "pk": "a", "n": 2}`+"\n")
			if out := hold("", 0, `"n": 2`, "put", "things", file, "--if-match", first, "-o", "json"); strings.Contains(out, first) {
				t.Errorf("it has the etag that it had\n%s", out)
			}
			hold(`{"id": "1", "pk": "a", "n": 3}`, 1, "was written since it had the etag "+first+"; nothing was changed\nnext: ", "put", "things", "--if-match", first)
			hold("", 1, "was written since", "delete", "things", "1", "-k", "a", "--if-match", first)
			hold("", 0, `"n": 2`, "get", "things", "1", "-k", "a")

			// The same id in another logical partition is another item.
			hold(`{"id": "1", "pk": "b"}`, 0, `item 1 of ["b"]`, "put", "things", "-")
			hold("", 1, "several items 1, with the partition keys ", "get", "things", "1")
			hold("", 2, "partition key, /pk: --key is expected", "delete", "things", "1")
			hold("", 0, `item 1 of ["a"] deleted from things`, "delete", "things", "1", "-k", "a", "--if-match", `"`+etag("1", "a")+`"`)
			hold("", 0, `"action": "deleted"`, "delete", "things", "1", "-k", "b", "-o", "json")

			for _, key := range []string{"a", "b"} {
				hold("", 1, "there is no item 1 in the logical partition", "get", "things", "1", "-k", key)
				hold("", 1, "there is no item 1 in the logical partition", "delete", "things", "1", "-k", key)
			}
			hold("", 1, "there is no item 1 in things", "get", "things", "1")
			hold(`{"id": "1", "pk": "a"}`, 1, "without --if-match it is made", "put", "things", "--if-match", first)
			hold(`{"id": "1", "pk": "a"}`, 2, "--if-match is empty", "put", "things", "--if-match", "")
			hold("", 1, "standard input is empty", "put", "things")
			hold(`{"id": "1"} {"id": "2"}`, 1, "many are taken by millrace import", "put", "things")
			hold(`[1]`, 1, "object", "put", "things")
			hold(`{"pk": "a"}`, 1, "id", "put", "things")
			hold("", 2, "no such file", "put", "things", file+".none")
			hold("", 2, "usage: millrace items get CONTAINER ID", "get", "things")
			hold("", 2, "has 2 components", "get", "things", "1", "-k", `["a", "b"]`)
			hold("", 1, "does not exist", "get", "nothing", "1")
		})
	}
}

// TestItems_KeyIsTheID leaves out --key where it would say the same again.
func TestItems_KeyIsTheID(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	e.must("import", "things", "/dev/null", "--partition-key", "/id")
	if out, errs, exit := e.run(`{"id": "x"}`, "items", "put", "things"); exit != 0 {
		t.Fatalf("put: exit %d\n%s%s", exit, out, errs)
	}
	if out := e.must("items", "delete", "things", "x"); out != "item x of [\"x\"] deleted from things\n" {
		t.Errorf("delete says %s", out)
	}
}
