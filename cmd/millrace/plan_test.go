package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/poll"
)

// command carries out one command line and returns what it wrote and its exit code.
func command(t *testing.T, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, streams{strings.NewReader(in), &o, &e})
	return o.String(), e.String(), code
}

// mustRun is command where anything but success ends the test.
func mustRun(t *testing.T, in string, args ...string) string {
	t.Helper()
	out, errs, code := command(t, in, args...)
	if code != codeOK {
		t.Fatalf("millrace %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// up runs everything in this process until the test ends, and returns the flag that
// names its server. more are flags.
func up(t *testing.T, more ...string) string {
	t.Helper()
	port := strconv.Itoa(ports.Free(t))
	dir := t.TempDir()            // removed after the process has stopped
	t.Setenv("MILLRACE_DIR", dir) // where commands find the secret
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, writes := net.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"up", "--dir", dir, "--port", port, "--listen", "off", "--gateway", "off", "--log-level", "error", "--set", "drainTimeout=5m"}, more...), streams{strings.NewReader(""), writes, os.Stderr})
	}()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != codeOK {
			t.Errorf("up: exit %d", code)
		}
	})
	first := make([]byte, len("millrace is ready"))
	if err := ready.SetReadDeadline(time.Now().Add(poll.Most)); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(first); err != nil {
		t.Fatalf("up is not ready: %v", err)
	}
	go func() { // what follows
		for {
			if _, err := ready.Read(first); err != nil {
				return
			}
		}
	}()
	if err := ready.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return "--server=nats://127.0.0.1:" + port
}

// TestPlanAndApply plans a change of a cascade, applies what was planned, and is held
// to it.
func TestPlanAndApply(t *testing.T) {
	server, dir := up(t), t.TempDir()
	const webstore = "../../configs/webstore/"
	file := filepath.Join(dir, "names.yaml")
	declare := func(field string) {
		t.Helper()
		text, err := os.ReadFile(webstore + "category-names.yaml")
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("{categoryName: name}"), []byte("{"+field+": name}"), 1)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []string{"product", "productMeta"} {
		mustRun(t, "", "apply", server, "-f", webstore+c+".yaml")
	}
	mustRun(t, `{"id":"c1","type":"category","name":"Bikes"}`, "import", server, "productMeta", "-")
	var products strings.Builder
	for i := range 5 {
		products.WriteString(`{"id":"p` + strconv.Itoa(i) + `","categoryId":"c1"}` + "\n")
	}
	mustRun(t, products.String(), "import", server, "product", "-")

	declare("categoryName")
	out := mustRun(t, "", "plan", server, "-f", file)
	for _, part := range []string{
		"+ pipeline category-names is created", "5 items of product would change: 5 changed, 0 equal", `categoryName: absent -> "Bikes"`,
		"and 2 more", "productMeta.name\n", "└▶ product.categoryName   category-names", "No path leads back", "next: millrace apply -f " + file + " --plan ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("nothing of %q in\n%s", part, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("a pipe was written to as to a terminal: %q", out)
	}
	mustRun(t, "", "apply", server, "-f", file, "--plan", planOf(t, server, file).Hash)

	declare("label")
	plan := planOf(t, server, file)
	if !plan.Choice || plan.Resources[0].Effect.Changed != 5 {
		t.Errorf("%+v", plan)
	}
	if _, _, code := command(t, "", "apply", server, "-f", file, "--plan", plan.Hash); code != codeBad {
		t.Errorf("without a choice: exit %d", code)
	}
	mustRun(t, "", "rewind", server, "category-names", "--to", "beginning")
	if _, errs, code := command(t, "", "apply", server, "-f", file, "--plan", plan.Hash, "--backfill"); code != codeBad || !strings.Contains(errs, "is not what would be done now") {
		t.Errorf("a generation came between: exit %d, %s", code, errs)
	}
	mustRun(t, "", "apply", server, "-f", file, "--plan", planOf(t, server, file).Hash, "--backfill")
	if out := mustRun(t, "", "plan", server, "-f", file); !strings.Contains(out, "Apply would change nothing.") {
		t.Errorf("nothing is left to do:\n%s", out)
	}
}

// TestPlanRefuses exits as apply does.
func TestPlanRefuses(t *testing.T) {
	server := up(t)
	mustRun(t, "", "apply", server, "-f", "../../configs/webstore/product.yaml")
	cycle := filepath.Join(t.TempDir(), "cycle.yaml")
	if err := os.WriteFile(cycle, []byte(`
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: round}
spec:
  source: {container: product}
  cascade: {into: product, match: {categoryId: categoryId, of: id}, set: {name: name}}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, code := command(t, "", "plan", server, "-f", cycle)
	if code != codeBad || !strings.Contains(out, "These paths lead back") || !strings.Contains(errs, "a cycle of fields") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, args := range [][]string{{}, {"-f", cycle, "--backfill", "--from-now"}, {"-f", cycle, "--rate", "-1"}} {
		if _, _, code := command(t, "", append([]string{"plan", server}, args...)...); code != codeNotAsked {
			t.Errorf("plan %v: exit %d", args, code)
		}
	}
}

// planned is what of a plan the tests look at.
type planned struct {
	Hash      string
	Choice    bool
	Resources []struct{ Effect struct{ Changed int } }
}

func planOf(t *testing.T, server, file string) (p planned) {
	t.Helper()
	if err := json.Unmarshal([]byte(mustRun(t, "", "plan", server, "-f", file, "-o", "json")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
