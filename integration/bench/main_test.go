//go:build linux

package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/integration/netns/hosts"
	server "github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/integration/raced"
)

func TestWrongFlagsExitWith2(t *testing.T) {
	for _, args := range [][]string{
		{"-products", "10"}, {"-rounds", "0"}, {"-run", "("}, {"-nonsense"}, {"extra"}, {"-run", "nothing", "-postgres", "off", "-dir", t.TempDir()},
	} {
		var out, said strings.Builder
		if status := command(args, &out, &said); status != 2 {
			t.Errorf("%v exits with %d: %s", args, status, said.String())
		}
	}
}

func TestListNamesTheCases(t *testing.T) {
	var out, said strings.Builder
	if status := command([]string{"-list"}, &out, &said); status != 0 {
		t.Fatalf("exits with %d: %s", status, said.String())
	}
	if got := strings.Count(out.String(), "\n"); got != len(cases) {
		t.Errorf("%d lines for %d cases:\n%s", got, len(cases), out.String())
	}
}

// The smallest run there is: it loads, renames, verifies and reports.
func TestSmallRun(t *testing.T) {
	notRaced(t)
	smallRun(t, []string{"rename", "traffic", "freshness", "console"}, "off", 2)
}

// The shop, beside PostgreSQL: triggers, sinks and what is written by hand do the
// same work, which each case verifies.
func TestSmallShop(t *testing.T) {
	notRaced(t)
	peer := server.Start(t)
	smallRun(t, []string{"verify", "orders", "flatten", "lag", "backfill", "age"}, peer.Database(t), 1)
}

// A store of a few hundred items that is left alone for moments, its backup, and writes
// beside its snapshots.
func TestSmallYears(t *testing.T) {
	notRaced(t)
	smallRun(t, []string{"years", "years-backup", "years-writes"}, "off", 1)
}

// A move, a worker that is killed, and writes with a standby.
func TestSmallFleet(t *testing.T) {
	notRaced(t)
	smallRun(t, []string{"move", "worker", "standby"}, "off", 1, "-times", "1")
}

// A restart of eight processes, each of which waits until all is well, takes minutes.
func TestSmallRolling(t *testing.T) {
	notRaced(t)
	long(t)
	smallRun(t, []string{"rolling"}, "off", 1, "-times", "1", "-products", "4000")
}

// Hosts that fall silent, where network namespaces can be made.
func TestSmallCut(t *testing.T) {
	notRaced(t)
	long(t)
	network, err := hosts.Open(t.Context())
	if err != nil {
		t.Skip(err)
	}
	if err := network.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	smallRun(t, []string{"cut"}, "off", 1, "-times", "1", "-products", "4000")
}

var longToo = flag.Bool("long", false, "also run what takes minutes")

// long skips a test of what takes minutes, unless -long is given.
func long(t *testing.T) {
	t.Helper()
	if !*longToo {
		t.Skip("it takes minutes; make chaos runs it (-long)")
	}
}

// notRaced skips a test of what measures where the race detector runs.
func notRaced(t *testing.T) {
	t.Helper()
	if raced.Detector {
		t.Skip("make test runs it without the race detector, beside")
	}
}

// smallRun runs cases with little data, and more flags, and looks at the report and the page.
func smallRun(t *testing.T, cases []string, database string, rounds int, more ...string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := measure.Inspect(dir); err != nil {
		t.Skip(err)
	}
	page := filepath.Join(dir, "benchmarks.md")
	var out, said strings.Builder
	status := command(append([]string{
		"-products", "1000", "-customers", "50", "-orders", "300", "-items", "300", "-times", "10", "-rounds", strconv.Itoa(rounds), "-write-time", "100ms", "-warmup", "0s", "-rest", "0s", "-still", "2s",
		"-renames", "5", "-foreground", "2", "-postgres", database, "-dir", filepath.Join(dir, "data"),
		"-run", "^(" + strings.Join(cases, "|") + ")$", "-json", "-docs", page,
	}, more...), &out, &said)
	if status != 0 {
		t.Fatalf("exits with %d: %s", status, said.String())
	}
	var r measure.Report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			for column, s := range row.Values {
				if len(s) != rounds {
					t.Errorf("%s, %s, %s has %d samples, want %d", table.ID, row.Name, column, len(s), rounds)
				}
			}
		}
	}
	if len(r.Tables) != len(cases) {
		t.Errorf("%d tables, want %d", len(r.Tables), len(cases))
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range append([]string{"machine"}, cases...) {
		if !strings.Contains(string(data), "<!-- bench:"+id+" -->") {
			t.Errorf("the page has no table %s", id)
		}
	}
}
