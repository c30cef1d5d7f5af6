//go:build linux

package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// TestChaosJudge_FindsWhatIsWrong judges histories of one register, each with one thing wrong.
func TestChaosJudge_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	at := func(lsn feed.LSN) store.ETag { return store.ETag{LSN: lsn} }
	write := func(client int, value string, lsn feed.LSN, from, to int) registerOp {
		return registerOp{client: client, kind: opWrite, key: "k", value: value, etag: at(lsn), from: time.Duration(from), to: time.Duration(to)}
	}
	read := func(client int, value string, lsn feed.LSN, from, to int) registerOp {
		op := write(client, value, lsn, from, to)
		op.kind = opRead
		return op
	}
	set := func(value, want string, lsn feed.LSN, refused, unknown bool, from, to int) registerOp {
		op := write(3, value, lsn, from, to)
		op.kind, op.want, op.refused, op.unknown = opSet, want, refused, unknown
		return op
	}
	look := func(session bool, least feed.LSN, value string, lsn feed.LSN, standby bool, from, to int) registerLook {
		return registerLook{
			client: 1, key: "k", session: session, least: least, value: value, etag: at(lsn), standby: standby, from: time.Duration(from), until: time.Duration(to),
		}
	}
	a, b := write(1, "a", 5, 0, 10), write(2, "b", 7, 20, 30)
	changes := []registerChange{{"k", "a", at(5)}, {"k", "b", at(7)}}
	for _, c := range []struct {
		name    string
		ops     []registerOp
		looks   []registerLook
		changes []registerChange
		want    string // "": nothing is wrong
	}{
		{"all is well", []registerOp{a, b, read(1, "b", 7, 40, 50)}, []registerLook{
			look(true, 5, "a", 5, true, 40, 50), look(true, 7, "b", 7, true, 60, 70), look(false, 0, "a", 5, true, 80, 90),
		}, changes, ""},
		{"a read while a write is under way may see either", []registerOp{a, b, read(1, "a", 5, 22, 24), read(1, "b", 7, 25, 26)}, nil, changes, ""},
		{"a stale read", []registerOp{a, b, read(3, "a", 5, 40, 50)}, nil, changes, "not linearizable"},
		{"a stale read of an owner that a standby might have answered", []registerOp{a, b}, []registerLook{look(false, 0, "a", 5, false, 40, 50)}, changes, "not linearizable"},
		{"nothing is read after a write", []registerOp{a, read(3, "", 0, 40, 50)}, nil, changes, "not linearizable"},
		{"two that expect one value", []registerOp{a, set("x", "a", 8, false, false, 20, 30), set("y", "a", 9, false, false, 40, 50)}, nil, []registerChange{
			changes[0], {"k", "x", at(8)}, {"k", "y", at(9)},
		}, "not linearizable"},
		{"refused for no reason", []registerOp{a, set("x", "a", 0, true, false, 20, 30)}, nil, changes[:1], "not linearizable"},
		{"what is unknown may have happened", []registerOp{a, set("x", "a", 0, false, true, 20, 30), read(1, "x", 8, 40, 50)}, nil, append(changes[:1:1], registerChange{"k", "x", at(8)}), ""},
		{"what is unknown may not have happened", []registerOp{a, set("x", "a", 0, false, true, 20, 30), read(1, "a", 5, 40, 50)}, nil, changes[:1], ""},
		{"a lost write", []registerOp{a, b}, nil, changes[:1], "is not in the feed"},
		{"a write that was made twice", []registerOp{a}, nil, []registerChange{changes[0], {"k", "a", at(6)}}, "the value \"a\" was written"},
		{"a write at another place", []registerOp{write(1, "a", 6, 0, 10)}, nil, changes[:1], "tells the etag"},
		{"a refused write that is there", []registerOp{a, b, set("x", "a", 0, true, false, 40, 50)}, nil, append(changes[:2:2], registerChange{"k", "x", at(8)}), "was refused, and is in the feed"},
		{"a standby older than the session's state", []registerOp{a, b}, []registerLook{look(true, 7, "a", 5, true, 40, 50)}, changes, "whose session has LSN 7"},
		{"a standby that lacks what the session wrote", []registerOp{b, write(1, "a", 9, 40, 50)}, []registerLook{look(true, 0, "b", 7, true, 60, 70)}, []registerChange{
			changes[1], {"k", "a", at(9)},
		}, "whose session has LSN 0"},
		{"a standby with nothing, that has the session's state", []registerOp{a}, []registerLook{look(true, 6, "", 0, true, 40, 50)}, changes[:1], "whose session has LSN 6"},
		{"a standby with what nobody wrote", []registerOp{a}, []registerLook{look(false, 0, "z", 6, true, 40, 50)}, changes[:1], "which nobody wrote"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &registers{ops: c.ops, looks: c.looks}
			all := strings.Join(r.judge(c.changes).wrong, "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("what is wrong: %q, want %q", all, c.want)
			}
		})
	}
}
