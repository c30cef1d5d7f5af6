package sdk_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSuite_JS runs the tests that @azure/cosmos 2.0.0 carries in its package, functional and integration, in one
// process: most remove all databases first. One wants two partitions. Its unit tests want no server.
func TestSuite_JS(t *testing.T) {
	list := expected(t, "js.tsv")
	if err := install("jssuite"); err != nil {
		t.Skipf("the tests of @azure/cosmos cannot be had: %v", err)
	}
	s := start(t, true, "MILLRACE_GATEWAY_PARTITIONS=2", "MILLRACE_GATEWAY_SCRIPTS_ENABLED=true")
	results := filepath.Join(t.TempDir(), "results.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	const tests = "node_modules/@azure/cosmos/lib/test/"
	cmd := exec.CommandContext(ctx, "node", "node_modules/mocha/bin/_mocha", "--exit", "--recursive", "--require", "./tls.js",
		"--timeout", "100000",
		// Whether an answer takes longer than five milliseconds is a matter of the machine.
		"--invert", "--grep", "request timeout", "--reporter", "xunit", "--reporter-options", "output="+results, tests+"functional", tests+"integration")
	cmd.Dir = "jssuite"
	// Of localhost they verify no certificate.
	cmd.Env = append(os.Environ(), "ACCOUNT_HOST="+strings.Replace(s.endpoint, "127.0.0.1", "localhost", 1), "ACCOUNT_KEY="+masterKey,
		"MOCHA_TIMEOUT=120000", "NODE_NO_WARNINGS=1")
	out, err := cmd.CombinedOutput()
	if _, missing := os.Stat(results); missing != nil {
		t.Fatalf("mocha wrote no results: %v\n%s", err, out)
	}
	list.judgeAll(t, readJUnit(t, results), 100)
}
