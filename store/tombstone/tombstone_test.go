package tombstone_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/tombstone"
)

func TestRuleOf(t *testing.T) {
	all, err := tombstone.Compile(tombstone.Wish{Fields: []string{"name"}})
	if err != nil {
		t.Fatal(err)
	}
	some, err := tombstone.Compile(tombstone.Wish{Where: `kind = "a"`, Fields: []string{"name"}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := []byte(`{"kind":"a"}`), []byte(`{"kind":"b"}`)
	undo := func(path string) []document.Splice {
		return []document.Splice{{Path: path, Offset: 9, Len: 1, Old: []byte("a")}}
	}
	for name, c := range map[string]struct {
		rule *tombstone.Rule
		feed.Change
		want tombstone.Outcome
	}{
		"created":                       {some, feed.Change{Op: feed.OpCreate, After: a}, tombstone.Removed},
		"created, not selected":         {some, feed.Change{Op: feed.OpCreate, After: b}, tombstone.Nothing},
		"deleted":                       {some, feed.Change{Op: feed.OpDelete, Before: a}, tombstone.Made},
		"expired":                       {all, feed.Change{Op: feed.OpExpire, Before: b}, tombstone.Made},
		"deleted, not selected":         {some, feed.Change{Op: feed.OpDelete, Before: b}, tombstone.Nothing},
		"turned away":                   {some, feed.Change{Op: feed.OpReplace, Before: a, After: b}, tombstone.Made},
		"turned away by a patch":        {some, feed.Change{Op: feed.OpReplace, After: b, Undo: undo("/kind")}, tombstone.Made},
		"turned back":                   {some, feed.Change{Op: feed.OpReplace, Before: b, After: a}, tombstone.Removed},
		"replaced":                      {some, feed.Change{Op: feed.OpReplace, Before: a, After: a}, tombstone.Nothing},
		"patched elsewhere":             {some, feed.Change{Op: feed.OpReplace, After: b, Undo: undo("/name")}, tombstone.Nothing},
		"replaced where all are chosen": {all, feed.Change{Op: feed.OpReplace, Before: a, After: b}, tombstone.Nothing},
	} {
		got, _, err := c.rule.Of(&c.Change)
		if got != c.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
	for _, bad := range []tombstone.Wish{{Where: "="}, {Fields: []string{"a["}}} {
		if _, err := tombstone.Compile(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	stone := &tombstone.Stone{Position: feed.Position{LSN: 300, Index: 2}, Time: 1700000000000, Values: [][]byte{[]byte(`"a"`), nil, {}}}
	f.Add(stone.Append(nil))
	f.Add([]byte{1, 1, 0, 0, 200})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := tombstone.Decode(data)
		if err != nil {
			return
		}
		again, err := tombstone.Decode(s.Append(nil))
		if diff := cmp.Diff(s, again); err != nil || diff != "" {
			t.Errorf("%v (-first +second):\n%s", err, diff)
		}
	})
}
