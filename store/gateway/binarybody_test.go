package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// The SDK for Rust sends items in the binary form of JSON, and takes text for an answer.
func TestItem_BinaryBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	// item is {"id": "1", "pk": "a", "n": n}, n up to 31.
	item := func(n byte) string {
		const members = "\x82id\x811\x82pk\x81a\x81n"
		return "\x80\xed" + string([]byte{byte(len(members) + 1), 3}) + members + string([]byte{n})
	}
	key := []string{keyHeader, `["a"]`, "x-ms-cosmos-supported-serialization-formats", "CosmosBinary"}
	w.ask("POST", docs, item(1), key...).is(201)
	w.ask("POST", docs, item(2), append([]string{upsert, "true"}, key...)...).is(200)
	w.ask("PUT", docs+"/1", item(3), key...).is(200)
	got := w.ask("GET", docs+"/1", "", key...).is(200).object()
	if got["id"] != "1" || got["pk"] != "a" || fmt.Sprint(got["n"]) != "3" {
		t.Errorf("the item is %v", got)
	}
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"cut", item(4)[:8], 400, "binary JSON"},
		{"a form that only the service writes", "\x80\xe9\x20\x01", 400, "0x20"},
		{"two members of one name", "\x80\xed\x06\x02\x81a\x01\x81a\x02", 400, ""},
		// Each byte of the string takes six in the text.
		{"a text that is too large", "\x80\xc2\x00\x00\x08\x00" + strings.Repeat("\x01", 8<<16), 413, ""},
	} {
		if a := w.ask("POST", docs, c.body, key...).is(c.status); !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s: %s", c.name, a.body)
		}
	}
	if rows := w.query("SELECT VALUE c.n FROM c"); len(rows) != 1 || rows[0] != "3" {
		t.Errorf("there are %v", rows)
	}
}
