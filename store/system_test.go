package store_test

import (
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
