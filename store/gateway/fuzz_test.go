package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// fuzzed is a container without a store behind it.
func fuzzed(t testing.TB, paths ...string) *collection {
	t.Helper()
	info := store.ContainerInfo{Database: "shop", Name: "things", ID: feed.NewResourceID(), Spec: store.ContainerSpec{PartitionKey: paths}}
	for i, r := range feed.EvenRanges(3) {
		info.Partitions = append(info.Partitions, store.PartitionInfo{Number: uint32(i), Range: r})
	}
	c, err := newCollection(store.NewClient(nil, nil, store.ClientConfig{}), info)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What is not a signature is refused with 401 and never panics.
func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{
		"", "type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D",
		"type=master&ver=1.0&sig=c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c=", "type=resource&ver=1&sig=x", "%zz", "&&==", "type=aad&ver=1.0&sig=a.b.c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		signature, token, err := parseAuthorization(header)
		if err == nil && token == nil && len(signature) != 32 {
			t.Errorf("%q gives a signature of %d bytes", header, len(signature))
		}
		if err != nil && translate(err).status != http.StatusUnauthorized {
			t.Errorf("%q: status %d", header, translate(err).status)
		}
	})
}

// A key that is read prints a form that reads as the same key.
func FuzzPartitionKeyHeader(f *testing.F) {
	for _, s := range []string{`["a"]`, `[1]`, `[null]`, `[{}]`, `[true]`, `["a","b"]`, `[]`, ``, `["Zo\u00eb"]`, `[1e400]`, `[[1]]`, `{}`, `"a"`, `["\ud800"]`} {
		f.Add(s)
	}
	c := fuzzed(f, "/a")
	f.Fuzz(func(t *testing.T, header string) {
		key, given, err := c.parseKey(header)
		if err != nil {
			if translate(err).status != http.StatusBadRequest {
				t.Errorf("%q: status %d", header, translate(err).status)
			}
			return
		}
		if !given {
			return
		}
		again, _, err := c.parseKey(key.String())
		if err != nil || again != key {
			t.Errorf("%q is %s, which reads as %s, %v", header, key, again, err)
		}
	})
}

// A continuation that was not given out is refused, whatever it is; one that was
// says where to go on.
func FuzzContinuation(f *testing.F) {
	c := fuzzed(f, "/a")
	f.Add(c.encodeToken(feedToken{partition: 1, cursor: []byte("x")}, 7), []byte("x"))
	f.Add("", []byte{})
	f.Add("AAAA", []byte{0xFF})
	f.Fuzz(func(t *testing.T, text string, cursor []byte) {
		if token, err := c.decodeToken(text, 7); err == nil && c.encodeToken(token, 7) != strings.TrimSpace(text) {
			t.Errorf("%q was taken and is no continuation", text)
		}
		given := c.encodeToken(feedToken{partition: 2, cursor: cursor}, 9)
		token, err := c.decodeToken(given, 9)
		if err != nil || token.partition != 2 || string(token.cursor) != string(cursor) {
			t.Errorf("%x came back as %x, %v", cursor, token.cursor, err)
		}
		if _, err := c.decodeToken(given, 8); err == nil {
			t.Error("a continuation of another scope was taken")
		}
	})
}

// A patch that is read can be compiled or is refused, and never breaks an item.
func FuzzPatch(f *testing.F) {
	for _, s := range []string{
		`[{"op":"add","path":"/n","value":1}]`, `{"condition":"from c where c.n > 1","operations":[{"op":"move","from":"/a","path":"/b"}]}`,
		`[{"op":"remove","path":"/tags/-"}]`, `[{"op":"set","path":"/a~1b/0","value":null}]`, `[]`, `{`, `[{"op":"incr","path":"","value":1}]`,
	} {
		f.Add(s)
	}
	item := []byte(`{"id":"1","n":1,"tags":["a",{"id":"x"}],"a":{"b":[1,2]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		ops, _, err := parsePatch([]byte(body))
		if err != nil {
			return
		}
		patch, err := document.CompilePatch(ops)
		if err != nil {
			return
		}
		after, _, err := patch.Apply(item)
		if err != nil {
			return
		}
		if err := document.Check(after); err != nil {
			t.Errorf("%s makes %s: %v", body, after, err)
		}
		if id, _ := document.ID(after); id != "1" {
			t.Errorf("%s changes the id: %s", body, after)
		}
	})
}

// A path of a container's declaration that is read is shown as one that reads alike.
func FuzzContainerPath(f *testing.F) {
	for _, s := range []string{"/a", `/"a b"/c`, "/a/[]/b", "/", "", "a", `/"`, `/""`, "/a~b/c", `/"x/y"`, `/'x/y'/'"'/"'"`, `/'`, `/a"b'`, `/'a"'b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		pointer, err := pointerOf(path)
		if err != nil {
			return
		}
		if again, err := pointerOf(pathOf(pointer)); err != nil || again != pointer {
			t.Errorf("%q is %q, shown as %q, which reads as %q, %v", path, pointer, pathOf(pointer), again, err)
		}
	})
}

// No path and no method finds anything but what the table has.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/", "/dbs/a/colls/b/docs/c", "//dbs//", "/dbs/%2F/colls/%zz", "/offers/x", "/dbs/a/colls/b/pkranges/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse("http://x/" + strings.TrimPrefix(path, "/"))
		if err != nil {
			return
		}
		target, err := parseTarget(u)
		if err != nil && translate(err).status != http.StatusBadRequest {
			t.Errorf("%q: status %d", path, translate(err).status)
		}
		if target.noun == nounItem && (target.id == "" && !strings.HasSuffix(u.EscapedPath(), "/") || target.container == "") && err == nil && !strings.Contains(path, "//") {
			t.Errorf("%q is %+v", path, target)
		}
	})
}
