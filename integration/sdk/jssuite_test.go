package sdk_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// seenAhead is the test of TestSuite_JS_SessionToken.
const seenAhead = "lsn not caught up"

// TestSuite_JS runs the tests that @azure/cosmos 2.0.0 carries in its package, functional and integration, in one
// process: most remove all databases first. One wants two partitions. Its unit tests want no server.
func TestSuite_JS(t *testing.T) {
	list := expected(t, "js.tsv")
	// Whether an answer takes longer than five milliseconds is a matter of the machine.
	outcomes := mocha(t, []string{"MILLRACE_GATEWAY_PARTITIONS=2", "MILLRACE_GATEWAY_SCRIPTS_ENABLED=true"},
		"--invert", "--grep", "request timeout|"+seenAhead, suiteOfJS+"functional", suiteOfJS+"integration")
	list.judgeAll(t, outcomes, 99)
}

// TestSuite_JS_SessionToken runs the one of them that wants a read refused by its session token, as gateway.strict does. The token
// names range 0, wherever the item is, so there is one partition.
func TestSuite_JS_SessionToken(t *testing.T) {
	outcomes := mocha(t, []string{"MILLRACE_GATEWAY_PARTITIONS=1", "MILLRACE_GATEWAY_STRICT=true"}, "--grep", seenAhead, suiteOfJS+"integration")
	if len(outcomes) != 1 || outcomes[0].failure != "" {
		t.Errorf("one test is to pass: %+v", outcomes)
	}
}

// suiteOfJS is where the package has its tests.
const suiteOfJS = "node_modules/@azure/cosmos/lib/test/"

// mocha runs tests of that package, at a server with what env sets.
func mocha(t *testing.T, env []string, args ...string) []outcome {
	t.Helper()
	if err := install("jssuite"); err != nil {
		t.Skipf("the tests of @azure/cosmos cannot be had: %v", err)
	}
	s := start(t, true, env...)
	results := filepath.Join(t.TempDir(), "results.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", slices.Concat([]string{
		"node_modules/mocha/bin/_mocha", "--exit", "--recursive", "--require", "./tls.js",
		"--timeout", "100000", "--reporter", "xunit", "--reporter-options", "output=" + results,
	}, args)...)
	cmd.Dir = "jssuite"
	// Of localhost they verify no certificate.
	cmd.Env = append(os.Environ(), "ACCOUNT_HOST="+strings.Replace(s.endpoint, "127.0.0.1", "localhost", 1), "ACCOUNT_KEY="+masterKey,
		"MOCHA_TIMEOUT=120000", "NODE_NO_WARNINGS=1")
	out, err := cmd.CombinedOutput()
	if _, missing := os.Stat(results); missing != nil {
		t.Fatalf("mocha wrote no results: %v\n%s", err, out)
	}
	return readJUnit(t, results)
}
