package pipelines_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/testcase"
)

func loadTests(t testing.TB, paths ...string) *spec.Resources {
	t.Helper()
	r, err := testcase.Load(paths...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tested runs tests and returns the report and how it is printed, without times.
func (n *node) tested(t testing.TB, r *spec.Resources, cfg testcase.Config) (*testcase.Report, string) {
	t.Helper()
	cfg.Dir, cfg.Timeout = t.TempDir(), cmp.Or(cfg.Timeout, poll.Most)
	var b strings.Builder
	cfg.Progress = func(one *testcase.Result) {
		if err := one.Print(&b); err != nil {
			t.Error(err)
		}
	}
	report, err := testcase.New(n.js, n.registry, n.client, cfg).Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.PrintSum(&b); err != nil {
		t.Fatal(err)
	}
	return report, regexp.MustCompile(`(?:[0-9]+m)?[0-9.]+m?s\b`).ReplaceAllString(b.String(), "TIME")
}

func TestTesterPasses(t *testing.T) {
	n := newNode(t)
	report, text := n.tested(t, loadTests(t, "testdata/tests"), testcase.Config{})
	want := "ok    beside-what-it-tests  (1 step, TIME)\nok    everything-together  (3 steps, TIME)\n2 tests passed in TIME\n"
	if text != want || report.Failed != 0 {
		t.Errorf("%s", text)
	}
	n.leftBehind(t)
}

// leftBehind sees that tests leave nothing.
func (n *node) leftBehind(t testing.TB) {
	t.Helper()
	w, err := n.registry.World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Containers {
		if strings.HasPrefix(c.Database, "test-") {
			t.Errorf("container %s/%s is left", c.Database, c.Name)
		}
	}
	if len(w.Pipelines) != 0 {
		t.Errorf("%d pipelines are left", len(w.Pipelines))
	}
}

func TestTesterFails(t *testing.T) {
	n := newNode(t)
	report, text := n.tested(t, loadTests(t, "testdata/tests/shop.yaml", "testdata/tests-failing"), testcase.Config{})
	storetest.Golden(t, "testdata/tests-failing/report.txt", text)
	report.Duration, report.Seconds = 0, 0
	for i := range report.Tests {
		report.Tests[i].Seconds = 0
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Golden(t, "testdata/tests-failing/report.json", string(data)+"\n")
	n.leftBehind(t)
}

// TestTesterIsDeterministic runs the same tests again and again.
func TestTesterIsDeterministic(t *testing.T) {
	n := newNode(t)
	r := loadTests(t, "testdata/tests/shop.yaml", "testdata/tests-failing")
	_, first := n.tested(t, r, testcase.Config{})
	for range 2 {
		if _, again := n.tested(t, r, testcase.Config{}); again != first {
			t.Fatalf("first\n%s\nthen\n%s", first, again)
		}
	}
}

// TestTesterTellsOfUnrest has no worker, so nothing comes to rest.
func TestTesterTellsOfUnrest(t *testing.T) {
	n := newOwner(t)
	r := decodeTests(t, `
apiVersion: millrace/v1
kind: Container
metadata: {name: author}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: names}
spec:
  source: {container: author}
  cascade: {into: author, match: {of: id}, set: {ofName: name}}
---
apiVersion: millrace/v1
kind: Test
metadata: {name: waits}
spec:
  steps: [{expect: {author: [{id: a1}]}}]
`)
	_, text := n.tested(t, r, testcase.Config{Timeout: 50 * time.Millisecond})
	for _, part := range []string{"FAIL  waits", "what is given", "pipeline names: it has not come to rest", "uninitialised"} {
		if !strings.Contains(text, part) {
			t.Errorf("nothing of %q in\n%s", part, text)
		}
	}
}

func decodeTests(t testing.TB, text string) *spec.Resources {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return loadTests(t, file)
}

// newOwner is a store in this process, without a worker.
func newOwner(t testing.TB) *node {
	t.Helper()
	return &node{system: systemOf(t, storetest.Start(t))}
}

func TestLoadTests(t *testing.T) {
	for _, c := range []struct{ name, file string }{{"form", "broken"}, {"names", "names"}, {"values", "values"}} {
		t.Run(c.name, func(t *testing.T) {
			_, err := testcase.Load("testdata/tests/shop.yaml", "testdata/tests-broken/"+c.file+".yaml")
			if _, ok := errors.AsType[spec.Findings](err); !ok {
				t.Fatal(err)
			}
			storetest.Golden(t, "testdata/tests-broken/"+c.file+".golden", err.Error()+"\n")
		})
	}
	t.Run("apply passes over tests, wrong ones too", func(t *testing.T) {
		r, err := spec.Load("testdata/tests/shop.yaml", "testdata/tests-broken/broken.yaml")
		if err != nil || len(r.Containers) != 3 || len(r.Pipelines) != 4 || len(r.Tests) != 0 {
			t.Fatalf("%d containers, %d pipelines, %d tests, %v", len(r.Containers), len(r.Pipelines), len(r.Tests), err)
		}
	})
	t.Run("there are none", func(t *testing.T) {
		_, err := testcase.Load("testdata/shop")
		if err == nil || !strings.Contains(err.Error(), "no test is declared") {
			t.Error(err)
		}
	})
	t.Run("a folder of tests alone", func(t *testing.T) {
		r, err := testcase.Load("testdata/tests/shop.yaml", "testdata/tests/tests")
		if err != nil || len(r.Tests) != 2 {
			t.Errorf("%d tests, %v", len(r.Tests), err)
		}
	})
	t.Run("twice", func(t *testing.T) {
		_, err := testcase.Load("testdata/tests", "testdata/tests/tests")
		if err != nil {
			t.Errorf("a file that is named twice is read twice: %v", err)
		}
	})
}
