package store_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/millrace/millrace/store"
)

func TestSystemPropertiesAreAppended(t *testing.T) {
	etag := store.ETag{LSN: 0x2a, Index: 1}
	const system = `"_rid":"r","_self":"s/","_etag":"\"000000000000002a-1\"","_attachments":"attachments/","_ts":1700000000}`
	for name, c := range map[string]struct{ body, want string }{
		"behind the members":               {`{"id":"1","n":9007199254740993}`, `{"id":"1","n":9007199254740993,` + system},
		"to an empty object":               {` { } `, `{` + system},
		"with white space kept inside":     {"{\n \"id\": \"1\"\n}\n", "{\n \"id\": \"1\"," + system},
		"in place of those that came":      {`{"_ts":1,"id":"1","_etag":"x","_rid":"y"}`, `{"id":"1",` + system},
		"where nothing else is there":      {`{"_ts":1}`, `{` + system},
		"beside names with escapes":        {`{"_ts":1,"a\"b\u00e9":[1, 2]}`, `{"a\"bé":[1, 2],` + system},
		"beside names that begin likewise": {`{"_tsx":1,"a":{"_ts":2}}`, `{"_tsx":1,"a":{"_ts":2},` + system},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(store.AppendSystem(nil, []byte(c.body), "r", "s/", etag, 1700000000999)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestItemRIDIsWellFormed(t *testing.T) {
	rid := [8]byte{0xff, 1, 2, 3, 0x80, 5, 6, 7}
	a := store.ItemRID(rid, key(t, "k"), "1")
	data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(a, "-", "/"))
	if err != nil || len(data) != 16 || [8]byte(data[:8]) != rid {
		t.Fatalf("%s: %x, %v; want 16 bytes that begin with the container's", a, data, err)
	}
	for _, other := range []string{store.ItemRID(rid, key(t, "k1"), ""), store.ItemRID(rid, key(t, "k"), "2"), store.ItemRID(rid, key(t, "k", "1"), "")} {
		if a == other {
			t.Errorf("two items share the rid %s", a)
		}
	}
	if got, want := store.ItemSelf(rid, a), "dbs/-wECAw==/colls/-wECA4AFBgc=/docs/"+a+"/"; got != want {
		t.Errorf("self %s, want %s", got, want)
	}
}
