package main

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/heat"
)

// TestTellTop_TellsWhatIsLeftOut: silent owners are not idle ones, and a cut is told.
func TestTellTop_TellsWhatIsLeftOut(t *testing.T) {
	busy := inspect.HotPartition{Database: "d", Container: "c", Heat: &heat.Report{Over: time.Minute}}
	for _, c := range []struct {
		heat    inspect.Heat
		left    int
		says    string
		saysNot string
	}{
		{inspect.Heat{}, 0, "nothing was asked for in the last minutes\n", "answered"},
		{inspect.Heat{Unknown: 2}, 0, "2 partitions are not answered for", "nothing was asked for"},
		{inspect.Heat{Partitions: []inspect.HotPartition{busy}}, 3, "3 partitions have less; --partitions tells of more\n", "answered"},
		{inspect.Heat{Partitions: []inspect.HotPartition{busy}, Advice: []inspect.Advice{{Text: "split it"}}}, 3, "\n\nsplit it\n\n3 partitions have less", "answered"},
		{inspect.Heat{Partitions: []inspect.HotPartition{busy}, Unknown: 1}, 0, "1 partition is not answered for\n", "less"},
	} {
		var out strings.Builder
		if err := tellTop(&out, &c.heat, c.left); err != nil || !strings.Contains(out.String(), c.says) || strings.Contains(out.String(), c.saysNot) {
			t.Errorf("%v: %s\n%q is expected", err, out.String(), c.says)
		}
	}
}

// TestTellNodes: what does not concern a worker is a dash, and partitions of nobody are told.
func TestTellNodes(t *testing.T) {
	seen := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	f := &inspect.Fleet{Nodes: []inspect.Node{
		{Process: leases.Process{Group: "store", Node: "n1", Host: "h1", Level: 2, State: leases.ProcessUp, Seen: seen, Warm: map[string]uint64{"store/abcdefgh/1": 7}}, Leases: 3, Loading: 2},
		{Process: leases.Process{Group: "worker", Node: "n2", State: leases.ProcessSilent, Seen: seen, Silent: 90}},
		{Process: leases.Process{Group: "worker", Node: "n3", State: leases.ProcessClosed, Drains: true, Seen: seen}, Leases: 1},
		{Process: leases.Process{Group: "worker", Node: "n4", State: leases.ProcessLeft, Drains: true, Seen: seen}},
	}}
	var out strings.Builder
	if err := tellNodes(&out, f); err != nil {
		t.Fatal(err)
	}
	want := `NODE  ROLE    HOST  STATE         LEVEL  LEASES  WARM  LOADING  SEEN
n1    store   h1    up            2      3       1     2        now
n2    worker  -     silent        0      0       -     -        1m30s ago
n3    worker  -     drains        0      1       -     -        now
n4    worker  -     left, drains  0      0       -     -        now
`
	if out.String() != want {
		t.Errorf("%s\n%s is expected", out.String(), want)
	}
	f.Unowned, f.Problems = 1, []string{"a record cannot be read"}
	if err := tellNodes(&out, f); err != nil || !strings.HasSuffix(out.String(), "\n1 partition is owned by no store that lives\na record cannot be read\n") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
