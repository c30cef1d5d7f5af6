package sdk_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// pythonTests is the directory of the tests that the source distribution of azure-cosmos carries, had once.
// The error says why it cannot be had.
var pythonTests = sync.OnceValues(func() (string, error) {
	python, err := interpreter()
	if err != nil {
		return "", err
	}
	wanted, err := os.ReadFile(filepath.Join("python", "requirements.txt"))
	if err != nil {
		return "", err
	}
	sdk, _, _ := strings.Cut(string(wanted), "\n")
	name, version, _ := strings.Cut(sdk, "==")
	dir := filepath.Join(filepath.Dir(filepath.Dir(python)), "sources")
	root := filepath.Join(dir, strings.ReplaceAll(name, "-", "_")+"-"+version)
	if _, err := os.Stat(filepath.Join(root, "tests", "conftest.py")); err == nil {
		return filepath.Join(root, "tests"), nil
	}
	for _, command := range [][]string{
		{python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "-d", dir, sdk},
		{"tar", "-xzf", root + ".tar.gz", "-C", dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(out))
		}
	}
	return filepath.Join(root, "tests"), nil
})

// TestSuite_Python runs the tests of the source distribution of azure-cosmos that are about items, containers, databases,
// queries and aggregates. They want queries over several partition keys left to plans, and some of them several ranges.
func TestSuite_Python(t *testing.T) {
	list := expected(t, "python.tsv")
	tests, err := pythonTests()
	if err != nil {
		t.Skipf("the tests of azure-cosmos cannot be had: %v", err)
	}
	python, err := interpreter()
	must(t, err)
	stands, err := filepath.Abs(filepath.Join("python", "suite"))
	must(t, err)
	s := startEmulator(t, "MILLRACE_GATEWAY_SCRIPTS_ENABLED=true", "MILLRACE_GATEWAY_STRICT=true", "MILLRACE_GATEWAY_PARTITIONS=2")
	results := filepath.Join(t.TempDir(), "results.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	args := []string{
		"-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:warnings", "-p", "restored", "--junitxml", results,
		// Whether a request takes longer than a bound is a matter of the machine.
		"-k", "not timeout",
	}
	for _, subject := range []string{"crud", "crud_container", "crud_database", "crud_subpartition", "query", "query_cross_partition", "aggregate", "vector_policy", "full_text_policy"} {
		args = append(args, "test_"+subject+".py")
	}
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Dir = tests
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stands, "PYTHONDONTWRITEBYTECODE=1", "REQUESTS_CA_BUNDLE="+s.certificate())
	out, err := cmd.CombinedOutput()
	if _, missing := os.Stat(results); missing != nil {
		t.Fatalf("pytest wrote no results: %v\n%s", err, out)
	}
	list.judgeAll(t, readJUnit(t, results), 100)
}
