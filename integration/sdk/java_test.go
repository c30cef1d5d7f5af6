package sdk_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// fetchMax is how long Maven may fetch, some 25 MB at the first time.
const fetchMax = 4 * time.Minute

// javaProgram is the class path of the program of java.
var javaProgram = sync.OnceValues(func() (string, error) { return compile("java") })

// compile returns the class path of the program in a directory, compiled with what its pom.xml names and with sources of other
// directories. The error says why there is none: an *absentError, or that it does not compile.
func compile(dir string, others ...string) (string, error) {
	for _, program := range []string{"mvn", "javac", "java", "keytool"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", &absentError{program + " is not installed; apt-get install maven default-jdk-headless"}
		}
	}
	list, classes := filepath.Join(scratch, dir+".classpath"), filepath.Join(scratch, dir+".classes")
	fetching, cancel := context.WithTimeout(context.Background(), fetchMax)
	defer cancel()
	// By the plugin alone: the phases of a build need more of them.
	cmd := exec.CommandContext(fetching, "mvn", "-q", "-B", "-f", filepath.Join(dir, "pom.xml"), "org.apache.maven.plugins:maven-dependency-plugin:build-classpath",
		"-Dmdep.includeScope=runtime", "-Dmdep.outputFile="+list)
	if out, err := cmd.CombinedOutput(); err != nil {
		if fetching.Err() != nil {
			return "", &absentError{fmt.Sprintf("Maven has not fetched it after %s", fetchMax)}
		}
		if bytes.Contains(out, []byte("Could not transfer")) || bytes.Contains(out, []byte("offline mode")) {
			return "", &absentError{"Maven's registry is not reached"}
		}
		return "", fmt.Errorf("fetch what %s needs: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	jars, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "src", "main", "java", "millrace", "*.java"))
	if err != nil {
		return "", err
	}
	args := slices.Concat([]string{"--release", "17", "-proc:none", "-Xlint:all", "-Werror", "-cp", string(jars), "-d", classes}, sources, others)
	if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w: %s", dir, err, bytes.TrimSpace(out))
	}
	return classes + ":" + string(jars), nil
}

// absentError says what a machine lacks for a test.
type absentError struct{ reason string }

func (e *absentError) Error() string { return e.reason }

// pathOf is the class path of a program for a test, which is skipped where it cannot be had.
func pathOf(t *testing.T, program func() (string, error)) string {
	t.Helper()
	path, err := program()
	if absent, ok := errors.AsType[*absentError](err); ok {
		t.Skipf("what it is compiled with cannot be had: %v", absent)
	}
	must(t, err)
	return path
}

// trustStore is a file of the certificates that Java trusts: the server's authority.
func trustStore(t *testing.T, s *server) string {
	t.Helper()
	store := filepath.Join(t.TempDir(), "trust.p12")
	cmd := exec.CommandContext(t.Context(), "keytool", "-importcert", "-noprompt", "-alias", "millrace", "-file", s.certificate(), "-keystore", store,
		"-storetype", "PKCS12", "-storepass", "changeit")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("keytool: %v: %s", err, out)
	}
	return store
}

// java is the command that runs a class of a class path against a server over TLS.
func java(t *testing.T, s *server, path, class string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "java", slices.Concat([]string{
		"-Djavax.net.ssl.trustStore=" + trustStore(t, s), "-Djavax.net.ssl.trustStorePassword=changeit",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Xmx512m", "-cp", path, class,
	}, args)...)
	cmd.Env = append(os.Environ(), "MILLRACE_ENDPOINT="+s.endpoint, "MILLRACE_KEY="+masterKey, "MILLRACE_READ_ONLY_KEY="+readOnlyKey,
		"MILLRACE_PARTITIONS="+strconv.Itoa(partitions), "MILLRACE_QUERIES="+filepath.Join("testdata", "queries.json"))
	return cmd
}

// reportJava makes a test of each case of a class, and again where the gateway is as strict as Cosmos DB. Java's SDK speaks TLS alone.
func reportJava(t *testing.T, path, class string, least int) {
	t.Helper()
	for _, strict := range []string{"false", "true"} {
		t.Run("strict="+strict, func(t *testing.T) {
			cmd := java(t, start(t, true, "MILLRACE_GATEWAY_STRICT="+strict), path, class)
			cmd.Env = append(cmd.Env, "MILLRACE_STRICT="+strict)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("java: %v\n%s%s", err, out, stderr.String())
			}
			report(t, out, least)
		})
	}
}

// TestJava runs the cases of java, each as a test of its own.
func TestJava(t *testing.T) {
	reportJava(t, pathOf(t, javaProgram), "millrace.Run", 100)
}

// A Java program writes, queries and processes changes while a range is split and the process that owns all of them is killed and started
// again: it goes on by itself, and everything that it wrote comes by the change feed processor.
func TestJava_SplitAndKilled(t *testing.T) {
	jars := pathOf(t, javaProgram)
	s := start(t, true)
	splitAndKill(t, s, java(t, s, jars, "millrace.Run", "going"))
}

// splitAndKill splits a range while a program goes on in rounds, of each of which it prints a line, and kills the server and starts it again. The program
// ends when its input does.
func splitAndKill(t *testing.T, s *server, cmd *exec.Cmd) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	input, err := cmd.StdinPipe()
	must(t, err)
	output, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(output)
	// next reads lines up to one that holds, and fails where there is none.
	type line struct {
		Database    string
		Round, Done int
	}
	next := func(holds func(line) bool) line {
		t.Helper()
		for lines.Scan() {
			var l line
			must(t, json.Unmarshal(lines.Bytes(), &l))
			if holds(l) {
				return l
			}
		}
		t.Fatalf("the program ended: %v\n%s", cmd.Wait(), stderr.String())
		return line{}
	}
	database := next(func(l line) bool { return l.Database != "" }).Database
	more := func() {
		t.Helper()
		at := next(func(l line) bool { return l.Round > 0 }).Round
		next(func(l line) bool { return l.Round >= at+3 })
	}
	more()
	s.command(t, "split", database+"/items", "0")
	more()
	s.Kill()
	must(t, s.start())
	more()
	must(t, input.Close())
	if done := next(func(l line) bool { return l.Done > 0 }); done.Done < 9 {
		t.Errorf("%d rounds", done.Done)
	}
	_, err = io.Copy(io.Discard, output)
	must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}
