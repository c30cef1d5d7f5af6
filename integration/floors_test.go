package integration_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/millrace/millrace"

// floors says what each folder may import of the module, beside itself. A folder
// that is not named may import nothing. depguard holds the same in editors.
var floors = map[string][]string{
	"feed":        {},
	"leases":      {},
	"store":       {"feed", "leases"},
	"processors":  {"feed", "leases", "store"},
	"pipelines":   {"feed", "leases", "store", "processors"},
	"configs":     {"feed", "leases", "store", "processors", "pipelines"},
	"cmd":         {"feed", "leases", "store", "processors", "pipelines", "configs"},
	"integration": {"feed", "leases", "store", "processors", "pipelines", "configs", "cmd"},
}

// stairs are the rooms of the floor pipelines, from the ground up: a room imports only
// those before it.
var stairs = []string{
	"pipelines/format", "pipelines/internal/roots", "pipelines/internal/live", "pipelines/spec", "pipelines/registry", "pipelines/compile",
	"pipelines/verify", "pipelines/status", "pipelines/plan", "pipelines/testcase", "pipelines/doctor", "pipelines",
}

// walls are rules for parts of a floor: who may not import what.
var walls = []struct{ who, what, why string }{
	{"feed/document", "", "JSON as bytes stands beneath everything"},
	{"feed/meter", "", "feed and leases both measure with it"},
	{"processors", "store/owner", "owners are asked, through store.Client"},
	{"processors", "store/engine", "owners are asked, through store.Client"},
	{"pipelines", "store/owner", "owners are asked, through store.Client"},
	{"pipelines", "store/engine", "owners are asked, through store.Client"},
	{"store/query", "", "the query language stands on the reading of JSON alone"},
	{"store/accumulator", "store/engine", "what an aggregate means touches no disk; state is kept by Records"},
	{"store/accumulator", "store/owner", "what an aggregate means touches no disk; state is kept by Records"},
	{"store/accumulator", "leases", "what an aggregate means knows no owners"},
	{"store/tombstone", "store/engine", "what a tombstone means touches no disk"},
	{"store/tombstone", "store/owner", "what a tombstone means touches no disk"},
	{"store/tombstone", "leases", "what a tombstone means knows no owners"},
	{"store/snapshot", "store/owner", "when a snapshot is taken, and whether it may be loaded, is the owner's to know"},
	{"store/snapshot", "leases", "who may write is the owner's to know"},
	{"store/owner", "store/standby", "an owner knows of standbys that they yield, and no more"},
	{"store/standby", "store/engine", "a standby's state is made by the owner's code"},
	{"store/heat", "store", "what is hot is counted beneath all that is asked for"},
	{"store/heat", "leases", "what is hot is counted, whoever owns it"},
	{"store/s3", "", "a bucket knows nothing of what lies in it"},
	{"store/clientplan", "", "a plan knows a query and nothing of where it runs"},
	{"store/queryplan", "store/owner", "how items are reached is chosen by what is given"},
	{"store/queryplan", "leases", "how items are reached is chosen by what is given"},
	{"store/queryrun", "store/owner", "a query reads a snapshot and decides nothing"},
	{"store/queryrun", "leases", "a query reads a snapshot; who may read it is the owner's to know"},
}

// doors are what a floor or a wall lets through: who may import what in spite of it.
var doors = map[string]string{
	"feed/document":    "feed/document",
	"leases":           "feed/meter",
	"store/query":      "feed/document",
	"store/clientplan": "store/query",
}

// homes are dependencies that are named in one place. Benchmarks of the whole
// system name its peers and parts.
var homes = map[string][]string{
	"github.com/dgraph-io/badger":           {"store/engine", "integration/bench"},
	"github.com/jackc/pgx":                  {"processors/project/pgsink", "integration"},
	"github.com/parquet-go/parquet-go":      {"processors/project/parquetsink", "integration"},
	"github.com/minio/minio-go":             {"store/s3", "integration"},
	"github.com/dop251/goja":                {"store/script"},
	"github.com/golang/geo":                 {"store/query/internal/spatial"},
	"go.opentelemetry.io/otel/sdk":          {"cmd/millrace/node"},
	"go.opentelemetry.io/otel/exporters":    {"cmd/millrace/node"},
	"go.opentelemetry.io/contrib/exporters": {"cmd/millrace/node"},
	"github.com/nats-io/nats-server":        {"feed/natsd", "integration/bench"},
	"github.com/Azure/azure-sdk-for-go":     {"cmd/millrace/internal/remote"},
}

type listed struct {
	ImportPath, Name, Dir string
	GoFiles, Imports      []string
}

func TestFloors_EachFolderImportsOnlyWhatStandsBelow(t *testing.T) {
	t.Parallel()
	packages := list(t)
	if len(packages) == 0 {
		t.Fatal("go list found no packages")
	}
	for _, p := range packages {
		who := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, path := range p.Imports {
			if what, ours := strings.CutPrefix(path, module+"/"); ours {
				checkFloor(t, who, what)
				continue
			}
			for dependency, home := range homes {
				if within(path, dependency) && !slices.ContainsFunc(home, func(h string) bool { return within(who, h) }) {
					t.Errorf("%s imports %s, which only %s may name", who, path, strings.Join(home, ", "))
				}
			}
		}
	}
}

func checkFloor(t *testing.T, who, what string) {
	t.Helper()
	from, _, _ := strings.Cut(who, "/")
	to, _, _ := strings.Cut(what, "/")
	below, known := floors[from]
	if !known {
		t.Errorf("%s: folder %s has no floor; name it in floors", who, from)
		return
	}
	door, ok := doors[from]
	if from != to && !slices.Contains(below, to) && (!ok || !within(what, door)) {
		t.Errorf("%s imports %s; below %s stand only %s", who, what, from, strings.Join(below, ", "))
	}
	if from == "pipelines" && to == "pipelines" {
		above, below := slices.Index(stairs, who), slices.Index(stairs, what)
		if above < 0 || below < 0 || below >= above {
			t.Errorf("%s imports %s, which does not stand below it in stairs", who, what)
		}
	}
	for _, wall := range walls {
		if door, ok := doors[wall.who]; ok && within(what, door) || within(who, wall.who) && within(what, wall.who+"/internal") {
			continue
		}
		if within(who, wall.who) && (wall.what == "" || within(what, wall.what)) {
			t.Errorf("%s imports %s: %s", who, what, wall.why)
		}
	}
}

// within says whether path is folder or lies in it.
func within(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, folder)
	return ok && (rest == "" || rest[0] == '/')
}

// list returns the packages of the module with what they import outside tests.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,GoFiles,Imports", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, failed.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// root returns the folder of go.mod.
func root(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// api are the packages that programs may import; see
// docs/decisions/2026-11-22-what-a-program-may-import.md.
var api = []string{"store", "store/rid", "feed", "feed/document"}

func TestFloors_WhatIsNoAPISaysSo(t *testing.T) {
	for _, p := range list(t) {
		who := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.Name == "main" || slices.Contains(api, who) || slices.Contains(strings.Split(who, "/"), "internal") || within(who, "integration") {
			continue
		}
		if !saysNoAPI(t, p) {
			t.Errorf("the package comment of %s does not say that it is no API", who)
		}
	}
}

// saysNoAPI reads the comments above the package clauses of p.
func saysNoAPI(t *testing.T, p listed) bool {
	t.Helper()
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(file.Doc.Text(), "is no API") {
			return true
		}
	}
	return false
}
