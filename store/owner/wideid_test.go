package owner

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// wideIDs are ids that earlier releases refuse.
var wideIDs = []string{"a?b", "a#b", "a/b", "/", "?", "#", `"]/x`, "a%3Fb?", `a\b`, `\`}

// Ids with / \ ? and # are taken once the data's level says that no earlier release shares it: whatever makes an
// item. Then they are ids like others.
func TestWideIDs_FromALevelOn(t *testing.T) {
	t.Parallel()
	n := newWorld(t, byA).start(t.TempDir())
	body := func(id, more string) string {
		return fmt.Sprintf(`{"id":%s,"a":"x"%s}`, document.AppendQuote(nil, id), more)
	}
	for level, want := range map[int]store.Status{0: store.StatusUnavailable, featurelevel.WideIDs - 1: store.StatusBadRequest} {
		n := newWorld(t, byA).start(t.TempDir())
		n.cfg.level.Set(level)
		for _, id := range wideIDs {
			for _, op := range []store.Operation{create(body(id, "")), upsert(body(id, ""))} {
				_, err := n.one(pk(t, "x"), op)
				if refusal, ok := errors.AsType[*store.Error](err); !ok || refusal.Status != want || !strings.Contains(refusal.Message, "feature level") {
					t.Errorf("level %d: item %q is answered %v, want %d", level, id, err, want)
				}
			}
			if got := n.read(pk(t, "x"), id); got != "" { // no such item, and no wrong request
				t.Errorf("level %d: %s is there", level, got)
			}
		}
		if _, err := n.one(pk(t, "x"), create(body("plain", ""))); err != nil {
			t.Errorf("level %d: %v", level, err)
		}
	}
	n.cfg.level.Set(featurelevel.WideIDs)
	for _, id := range wideIDs {
		for i, op := range []store.Operation{
			create(body(id, "")), upsert(body(id, `,"n":1`)),
			{Kind: store.OpReplace, ID: id, Body: []byte(body(id, `,"n":2`))},
			patch(id, set("/n", "3")),
		} {
			if _, err := n.one(pk(t, "x"), op); err != nil {
				t.Fatalf("%q, operation %d: %v", id, i, err)
			}
		}
		if got := n.read(pk(t, "x"), id); got != body(id, `,"n":3`) {
			t.Errorf("%q is %s", id, got)
		}
	}
	// The log makes the same items again.
	lsn := n.state.Load().lsn
	want, err := n.engine.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got := n.w.openAt(t.TempDir(), lsn); got != want {
		t.Errorf("digest of a rebuilt engine is %x, of the owner's %x", got, want)
	}
	for _, id := range wideIDs {
		if _, err := n.one(pk(t, "x"), remove(id)); err != nil {
			t.Errorf("%q is not deleted: %v", id, err)
		}
	}
}

// An aggregate makes no target with such an id below that level, as before. Its accumulator grows meanwhile, and the next
// change of the group makes the target, which is right.
func TestWideIDs_TargetsAreMadeFromALevelOn(t *testing.T) {
	t.Parallel()
	s := newShop(t, ruled(byID(), true, true))
	s.cfg.level.Set(featurelevel.WideIDs - 1)
	const id = "a/b?"
	s.do(id, create(order("o1", id, 1, 100)))
	if s.holds(id, id) {
		t.Fatal("a target was made that an earlier release cannot read")
	}
	s.cfg.level.Set(featurelevel.WideIDs)
	s.do(id, create(order("o2", id, 2, 50)))
	if !s.holds(id, id) {
		t.Fatal("no target was made")
	}
	s.check("with the target")
	s.do(id, remove("o1"))
	s.check("with one order")
}
