package main

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
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
		{inspect.Heat{Partitions: []inspect.HotPartition{busy}, Unknown: 1}, 0, "1 partition is not answered for\n", "less"},
	} {
		var out strings.Builder
		if err := tellTop(&out, &c.heat, c.left); err != nil || !strings.Contains(out.String(), c.says) || strings.Contains(out.String(), c.saysNot) {
			t.Errorf("%v: %s\n%q is expected", err, out.String(), c.says)
		}
	}
}
