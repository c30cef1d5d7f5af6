package rid_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/rid"
)

// parts takes a resource id apart as the .NET and Java SDKs do (ResourceId.TryParse): a document is told by
// the high half of the last byte, and so is a range of partition keys.
func parts(t *testing.T, text string) (database, container, inside string, kind byte) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text, "-", "/"))
	if err != nil {
		t.Fatal(err)
	}
	switch len(raw) {
	case 4:
		return text, "", "", 0
	case 8:
		if raw[4]&0x80 == 0 {
			t.Fatalf("%s is that of a user, not of a container", text)
		}
	case 16:
		inside, kind = string(raw[8:]), raw[15]>>4
	default:
		t.Fatalf("%s has %d bytes", text, len(raw))
	}
	encode := func(b []byte) string { return strings.ReplaceAll(base64.StdEncoding.EncodeToString(b), "/", "-") }
	return encode(raw[:4]), encode(raw[:8]), inside, kind
}

func key(t *testing.T, text string) feed.PartitionKey {
	t.Helper()
	k, err := feed.ParsePartitionKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRID_AsClientsTakeItApart(t *testing.T) {
	t.Parallel()
	database := rid.Database{0xff, 1, 2, 3}
	container := rid.NewContainer(database, feed.NewResourceID())
	if container.Database() != database {
		t.Errorf("container %x in %x", container, database)
	}
	for name, c := range map[string]struct {
		of   rid.Inside
		self string
		kind byte
	}{
		"an item": {rid.Item(container, key(t, `["k"]`), "1"), "/docs/", 0},
		"a range": {rid.Range(container, 7), "/pkranges/", 5},
	} {
		d, in, _, kind := parts(t, c.of.String())
		self := c.of.ItemSelf()
		if c.kind == 5 {
			self = c.of.RangeSelf()
		}
		if want := "dbs/" + database.String() + "/colls/" + container.String() + c.self + c.of.String() + "/"; self != want {
			t.Errorf("%s: self %s, want %s", name, self, want)
		}
		if c.of.IsItem() != (kind == 0) {
			t.Errorf("%s: an item's: %v", name, c.of.IsItem())
		}
		if d != database.String() || in != container.String() || kind != c.kind || c.of.Container() != container {
			t.Errorf("%s: %s is in %s, %s and of kind %d", name, c.of, d, in, kind)
		}
	}
	one := rid.Item(container, key(t, `["k"]`), "1")
	for _, other := range []rid.Inside{
		rid.Item(container, key(t, `["k1"]`), ""), rid.Item(container, key(t, `["k"]`), "2"), rid.Item(container, key(t, `["k","1"]`), ""),
		rid.Range(container, 0), rid.Range(container, 1),
	} {
		if one == other {
			t.Errorf("two share the resource id %s", one)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if got, err := rid.ParseDatabase("-wECAw=="); err != nil || got != (rid.Database{0xff, 1, 2, 3}) {
		t.Errorf("got %x, %v", got, err)
	}
	if got, err := rid.ParseContainer("-wECA4AFBgc="); err != nil || got != (rid.Container{0xff, 1, 2, 3, 0x80, 5, 6, 7}) {
		t.Errorf("got %x, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "a name": "shop", "the other alphabet": "/wECAw==", "not padded": "-wECAw", "bits beyond the last byte": "-wECAx==",
		"a line": "-wEC\nAw==", "too short": "-wEC", "a container's": "-wECA4AFBgc=", "another's case": "-WECAW=", "a space": "-wECAw== ",
	} {
		if got, err := rid.ParseDatabase(text); err == nil {
			t.Errorf("%s: %q is taken as %x", name, text, got)
		}
	}
}

// Texts of as many letters as a resource id of 16 bytes has, whose bytes are more, or not all of them whole.
func TestParse_OfAsManyLetters(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no padding":                    strings.Repeat("A", 24),
		"padding for one byte":          strings.Repeat("A", 23) + "=",
		"bits beyond the last byte":     strings.Repeat("A", 21) + "B==",
		"padding in the middle":         strings.Repeat("A", 10) + "==" + strings.Repeat("A", 12),
		"nothing but padding":           strings.Repeat("=", 24),
		"no letters of any resource id": strings.Repeat("/", 22) + "==",
	} {
		if got, err := rid.ParseInside(text); err == nil || got != (rid.Inside{}) {
			t.Errorf("%s: %s is taken as %x", name, text, got)
		}
		if got, err := rid.ParsePermission(text); err == nil || got != (rid.Permission{}) {
			t.Errorf("%s: %s is taken as the permission %x", name, text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("-wECAw==")
	f.Add("-wECA4AFBgc=")
	f.Add("d9RzAJRFKgwBAAAAAAAAAA==")
	f.Add(strings.Repeat("A", 24))
	f.Add(strings.Repeat("A", 23) + "=")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := rid.ParseDatabase(text); err == nil && got.String() != text {
			t.Errorf("%q comes back as %s", text, got)
		}
		if got, err := rid.ParseContainer(text); err == nil && got.String() != text {
			t.Errorf("%q comes back as %s", text, got)
		}
		if got, err := rid.ParseInside(text); err == nil && got.String() != text {
			t.Errorf("%q comes back as %s", text, got)
		}
		if got, err := rid.ParseUser(text); err == nil && got.String() != text {
			t.Errorf("%q comes back as %s", text, got)
		}
		if got, err := rid.ParsePermission(text); err == nil && got.String() != text {
			t.Errorf("%q comes back as %s", text, got)
		}
		if _, err := rid.ParseDatabase(text); (err == nil) != rid.IsDatabase(text) {
			t.Errorf("%q is a database: %t, %v", text, rid.IsDatabase(text), err)
		}
	})
}
