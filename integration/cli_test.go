package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// command runs the binary to its end and tells its two outputs apart.
func command(t *testing.T, stdin string, env []string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	cmd := invocation(t, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// upOnce starts the one process on an empty directory.
func upOnce(t *testing.T) (server string) {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	spawn(t, "up", "--dir", t.TempDir(), "--port", port, "--listen", "off")
	return "nats://127.0.0.1:" + port
}

// shopFiles writes a small generated shop as files, one an array and one of lines.
func shopFiles(t *testing.T) (dir string, s *webstore.Store) {
	t.Helper()
	s = webstore.New(webstore.Config{Seed: 9, Categories: 6, Tags: 12, Products: 60, Customers: 5})
	dir = t.TempDir()
	var metas, products []string
	for c := range 6 {
		metas = append(metas, string(webstore.JSON(s.Category(c+1, nil))))
	}
	for n := range 12 {
		metas = append(metas, string(webstore.JSON(s.Tag(n+1, nil))))
	}
	for p := range 60 {
		products = append(products, string(webstore.JSON(s.Product(p+1, nil))))
	}
	writeFile(t, filepath.Join(dir, "productMeta.json"), "[\n"+strings.Join(metas, ",\n")+"\n]\n")
	writeFile(t, filepath.Join(dir, "product.ndjson"), strings.Join(products, "\n")+"\n")
	return dir, s
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCLI_DemoShowsAndVerifies(t *testing.T) {
	t.Parallel()
	args := []string{"demo", "--products", "80", "--customers", "40", "--renames", "12"}
	out, errs, exit := command(t, "", nil, append(args, "-o", "json")...)
	var report struct {
		Renames int
		Copies  int
		Verify  struct{ Verdict string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || exit != 0 {
		t.Fatalf("exit %d, %v\n%s%s", exit, err, out, errs)
	}
	if report.Verify.Verdict != "equal" || report.Renames < 12 || report.Copies == 0 {
		t.Errorf("the report is %+v", report)
	}
	out, errs, exit = command(t, "", nil, args...)
	if exit != 0 || strings.Contains(out, "\x1b") || strings.Contains(errs, "\x1b") {
		t.Errorf("exit %d, or a pipe was written to as to a terminal:\n%q%q", exit, out, errs)
	}
	for _, part := range []string{"Before", "After", "Verify", "Try", "millrace up"} {
		if !strings.Contains(out, part) {
			t.Errorf("the demo says nothing of %s:\n%s", part, out)
		}
	}
}

func TestCLI_DemoDoesTheSameOnWebStoreFiles(t *testing.T) {
	t.Parallel()
	dir := webStoreDir(t)
	out, errs, exit := command(t, "", nil, "demo", "--data", dir, "-o", "json")
	var report struct {
		Products int
		Verify   struct {
			Verdict   string
			Pipelines []struct {
				Name   string
				Copies int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || exit != 0 {
		t.Fatalf("exit %d, %v\n%s%s", exit, err, out, errs)
	}
	copies := map[string]int{}
	for _, p := range report.Verify.Pipelines {
		copies[p.Name] = p.Copies
	}
	if report.Verify.Verdict != "equal" || report.Products != 295 || copies["category-names"] != 295 || copies["tag-names"] != 767 {
		t.Errorf("the report is %+v", report)
	}
}

// webStoreDir finds the sample files, which are not part of the repository.
func webStoreDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MILLRACE_WEBSTORE")
	if dir == "" {
		dir = filepath.Join(root(t), "..", "shared", "data", "webstore")
	}
	if _, err := os.Stat(filepath.Join(dir, "product.json")); err != nil {
		t.Skipf("no WebStore files: %v; name their directory with MILLRACE_WEBSTORE", err)
	}
	return dir
}

func TestCLI_ImportApplyRenameVerify(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	dir, s := shopFiles(t)
	mustRun(t, server, "import", "productMeta", filepath.Join(dir, "productMeta.json"), "--partition-key", "/type")
	mustRun(t, server, "import", "product", filepath.Join(dir, "product.ndjson"), "--partition-key", "/categoryId", "--partitions", "4")
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	verify := func() string { return mustRun(t, server, "verify", "-o", "json") }
	verify()
	var names webstore.Names
	for _, r := range []webstore.Rename{{Number: 1}, {Tag: true, Number: 3}} {
		names.Apply(r)
		body := string(webstore.JSON(s.Meta(r, &names)))
		if out, errs, exit := command(t, body, nil, "import", "productMeta", "-", "--server", server); exit != 0 {
			t.Fatalf("exit %d\n%s%s", exit, out, errs)
		}
	}
	report := verify()
	for p := 1; p <= 60; p++ {
		want := s.Product(p, &names)
		out := mustRun(t, server, "query", "product", "--key", want.CategoryID, "--id", want.ID)
		if got := strings.TrimSpace(out); got != string(webstore.JSON(want)) {
			t.Errorf("product %d is\n%s, want\n%s\n%s", p, got, webstore.JSON(want), report)
		}
	}
	exported := filepath.Join(dir, "out.ndjson.gz")
	mustRun(t, server, "export", "product", "--file", exported)
	out := mustRun(t, server, "import", "again", exported, "--partition-key", "/categoryId")
	if !strings.Contains(out, "60 items written to again") {
		t.Errorf("import of what was exported says %s", out)
	}
}

func TestCLI_ImportSaysWhatItRejected(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	file := filepath.Join(t.TempDir(), "broken.ndjson")
	writeFile(t, file, `{"id": "a", "type": "tag"}
{"id": "b", "type": }
{"type": "tag"}

{"id": "c", "type": "tag", "id": "d"}
[1]
{"id": "e", "type": "tag"}
`)
	out, errs, exit := command(t, "", nil, "import", "meta", file, "--partition-key", "/type", "--server", server)
	if exit != 1 {
		t.Errorf("exit %d, want 1\n%s%s", exit, out, errs)
	}
	for _, line := range []int{2, 3, 5, 6} {
		if !strings.Contains(errs, fmt.Sprintf("%s:%d: rejected: ", file, line)) {
			t.Errorf("line %d is not told of:\n%s", line, errs)
		}
	}
	if !strings.Contains(out, "2 items written to meta") || !strings.Contains(out, "4 rejected") || !strings.Contains(errs, "4 records were rejected\nnext: ") {
		t.Errorf("the outcome is not told:\n%s%s", out, errs)
	}
	if _, err := os.Stat(file + ".import"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a finished import leaves its state behind: %v", err)
	}
	cut := filepath.Join(t.TempDir(), "cut.json")
	writeFile(t, cut, `[{"id": "f", "type": "tag"}, {"id": "g"`)
	if out, errs, exit := command(t, "", nil, "import", "meta", cut, "--server", server); exit != 2 || !strings.Contains(errs, "the file ends inside the array") {
		t.Errorf("a file that is cut off: exit %d\n%s%s", exit, out, errs)
	}
}

// importInTwo imports items of container many, interrupts that when it has begun, and
// imports them again, which goes on behind what was written. It skips the test if there
// was nothing to interrupt.
func importInTwo(t *testing.T, items int, env []string, at ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "many.ndjson")
	var text strings.Builder
	for i := range items {
		fmt.Fprintf(&text, "{\"id\":\"%d\",\"k\":\"%d\",\"pad\":\"%064d\"}\n", i, i%100, i)
	}
	writeFile(t, file, text.String())
	args := append([]string{"import", "many", file, "--partition-key", "/k"}, at...)
	first := exec.Command(millrace(t), args...)
	first.Env = append(os.Environ(), env...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		_, err := os.Stat(file + ".import")
		return poll.Unless(err == nil, fmt.Sprintf("the import has no state yet: %v", err))
	})
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was interrupted
	if first.ProcessState.ExitCode() == 0 {
		t.Skip("the import was done before it could be interrupted")
	}
	out, errs, exit := command(t, "", env, append(args, "-o", "json")...)
	var report struct {
		Imports []struct{ Resumed, Written int }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || exit != 0 || len(report.Imports) != 1 {
		t.Fatalf("exit %d, %v\n%s%s", exit, err, out, errs)
	}
	if got := report.Imports[0]; got.Resumed == 0 || got.Written != items || !strings.Contains(errs, "going on behind") {
		t.Errorf("the second run reports %+v\n%s", got, errs)
	}
}

func TestCLI_ImportGoesOnWhereItWasStopped(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	const items = 60_000
	importInTwo(t, items, nil, "--server", server)
	described := mustRun(t, server, "describe", "container", "many", "-o", "json")
	var now struct {
		Partitions []struct{ Items int }
	}
	if err := json.Unmarshal([]byte(described), &now); err != nil || len(now.Partitions) != 1 || now.Partitions[0].Items != items {
		t.Errorf("%v, the container is %s", err, described)
	}
}

func TestCLI_EveryVerbTakesEveryOutput(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	dir, s := shopFiles(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	mustRun(t, server, "import", "productMeta", filepath.Join(dir, "productMeta.json"))
	for _, line := range [][]string{
		{"apply", "-f", "../configs/webstore"},
		{"get", "containers"},
		{"get", "pipelines"},
		{"get", "container", "product"},
		{"get", "pipeline", "tag-names"},
		{"describe", "container", "product"},
		{"describe", "pipeline", "tag-names"},
		{"pause", "tag-names"},
		{"resume", "tag-names"},
		{"status"},
		{"status", "tag-names", "--wide"},
		{"verify"},
		{"import", "product", filepath.Join(dir, "product.ndjson")},
		{"query", "productMeta", "--key", "tag"},
		{"query", "productMeta", "--id", s.TagID(1)},
		{"items", "get", "productMeta", s.TagID(1)},
		{"items", "history", "productMeta", s.TagID(1)},
		{"feed", "productMeta", "--limit", "1"},
		{"delete", "pipeline", "tag-names"},
		{"upgrade"},
		{"version"},
	} {
		name := strings.Join(line, " ")
		for _, form := range []string{"json", "yaml", "table"} {
			if line[0] == "delete" && form != "json" {
				mustRun(t, server, "apply", "-f", "../configs/webstore")
			}
			out, errs, exit := command(t, "", nil, append(line, "-o", form, "--server", server)...)
			var v any
			var err error
			switch form {
			case "json":
				err = json.Unmarshal([]byte(out), &v)
			case "yaml":
				err = yaml.Unmarshal([]byte(out), &v)
			}
			if exit != 0 || err != nil || strings.TrimSpace(out) == "" || form != "table" && v == nil {
				t.Errorf("%s -o %s: exit %d, %v\n%s%s", name, form, exit, err, out, errs)
			}
		}
	}
	// What get prints, apply takes.
	declared := mustRun(t, server, "get", "container", "product", "-o", "yaml")
	if out, errs, exit := command(t, declared, nil, "apply", "-f", "-", "--server", server); exit != 0 || !strings.Contains(out, "unchanged") {
		t.Errorf("apply of what get printed: exit %d\n%s%s", exit, out, errs)
	}
}

func TestCLI_ExitCodesAndWhatToDoNext(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	writeFile(t, broken, "apiVersion: millrace/v1\nkind: Pipeline\nmetadata: {name: x}\nspec:\n  source: {contaner: product}\n")
	config := filepath.Join(dir, "config.yaml")
	writeFile(t, config, "store:\n  queue: 7\n")
	nobody := "nats://127.0.0.1:" + strconv.Itoa(freePort(t))
	for name, c := range map[string]struct {
		args []string
		exit int
		want string
	}{
		"an unknown verb":            {[]string{"aply"}, 2, `unknown command "aply"`},
		"an unknown verb of a verb":  {[]string{"backup", "creat", "x"}, 2, "usage: millrace backup"},
		"another one":                {[]string{"keys", "rotat", "primary"}, 2, "usage: millrace keys"},
		"an unknown flag":            {[]string{"get", "pipelines", "--al"}, 2, "see millrace get --help"},
		"too few arguments":          {[]string{"describe", "container"}, 2, "usage: millrace describe container|pipeline NAME"},
		"a file that is no flag":     {[]string{"apply", broken}, 2, "takes no argument and got \"" + broken + "\"; is it a file? Then: --file " + broken},
		"an unknown kind":            {[]string{"get", "tables"}, 2, "container or pipeline is expected"},
		"an unknown output":          {[]string{"get", "pipelines", "-o", "xml"}, 2, "table, json, yaml is expected"},
		"no server":                  {[]string{"status", "--server", nobody, "--wait", "1s"}, 2, "next: start Millrace with millrace up"},
		"no such container":          {[]string{"query", "prodct", "--key", "a"}, 1, "container default/prodct does not exist"},
		"no such pipeline":           {[]string{"pause", "tag-name"}, 1, "did you mean tag-names?"},
		"no such item":               {[]string{"query", "product", "--key", "a", "--id", "b"}, 1, "there is no item b"},
		"a key of too many levels":   {[]string{"query", "product", "--key", `["a","b"]`}, 2, "has 2 components"},
		"a broken declaration":       {[]string{"apply", "-f", broken}, 1, broken + ":5:12: "},
		"no such file":               {[]string{"apply", "-f", filepath.Join(dir, "none.yaml")}, 2, "no such file"},
		"no such input":              {[]string{"import", "product", filepath.Join(dir, "none.json")}, 2, "no such file"},
		"a key that is not known":    {[]string{"status", "--config", config}, 2, config + ":2:3: store: there is no key queue; known are queueMax"},
		"a demo in what is in use":   {[]string{"demo", "--dir", dir}, 2, dir + " is not empty"},
		"a start that is none":       {[]string{"feed", "product", "--from", "yesterday"}, 2, "beginning, now, an age such as 10m"},
		"a container that is in use": {[]string{"delete", "container", "product"}, 1, "is used by the pipelines category-names, skus, tag-names"},
	} {
		out, errs, exit := command(t, "", []string{"MILLRACE_SERVER=" + server}, c.args...)
		if exit != c.exit || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit %d, want %d and %q on standard error\n%s%s", name, exit, c.exit, c.want, out, errs)
		}
	}
}

// refusing is a JetStream that removes no stream.
type refusing struct{ jetstream.JetStream }

func (refusing) DeleteStream(context.Context, string) error { return context.Canceled }

// A deletion that was cut off is ended by asking for it again.
func TestCLI_DeletesWhatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore/product.yaml")
	catalog, err := store.OpenCatalog(t.Context(), refusing{dialJetStream(t, server)}, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := catalog.Delete(t.Context(), "default", "product"); err == nil {
		t.Fatal("the deletion was not cut off")
	}
	mustRun(t, server, "delete", "container", "product")
	if out := mustRun(t, server, "get", "containers"); strings.Contains(out, "product ") {
		t.Errorf("it is still there:\n%s", out)
	}
}

func TestCLI_VerifySaysBehindAndExitsWithOne(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	dir, s := shopFiles(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	mustRun(t, server, "import", "productMeta", filepath.Join(dir, "productMeta.json"))
	mustRun(t, server, "import", "product", filepath.Join(dir, "product.ndjson"))
	mustRun(t, server, "verify", "--settle", "4m")
	mustRun(t, server, "pause", "category-names")
	var names webstore.Names
	r := webstore.Rename{Number: 1}
	names.Apply(r)
	if out, errs, exit := command(t, string(webstore.JSON(s.Meta(r, &names))), nil, "import", "productMeta", "-", "--server", server); exit != 0 {
		t.Fatalf("exit %d\n%s%s", exit, out, errs)
	}
	out, _, exit := command(t, "", nil, "verify", "--settle", "200ms", "--server", server)
	if exit != 1 || !strings.Contains(out, "behind") {
		t.Errorf("verify with a paused pipeline: exit %d\n%s", exit, out)
	}
	mustRun(t, server, "resume", "category-names")
	mustRun(t, server, "verify", "--settle", "4m")
}

func TestCLI_WhatIsInUseIsNamed(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), strconv.Itoa(freePort(t))
	first := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "127.0.0.1:0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"directory": {
			[]string{"up", "--dir", dir, "--port", "-1", "--listen", "off"},
			fmt.Sprintf("directory %s is in use by process %d", dir, first.Cmd.Process.Pid),
		},
		"port":         {[]string{"up", "--dir", t.TempDir(), "--port", port, "--listen", "off"}, "127.0.0.1:" + port},
		"http address": {[]string{"up", "--dir", t.TempDir(), "--port", "-1", "--listen", l.Addr().String()}, l.Addr().String()},
	} {
		out, errs, exit := command(t, "", nil, c.args...)
		if exit != 2 || !strings.Contains(errs, c.want) || !strings.Contains(errs, "next: ") {
			t.Errorf("%s in use: exit %d, want 2 and %q\n%s%s", name, exit, c.want, out, errs)
		}
	}
}

func TestCLI_StopsOnSignalAndStartsAgainAtOnce(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off", "--set", "leases.ttl=5m")
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	if out, errs, exit := command(t, `{"id":"t","type":"tag","name":"T"}`, nil, "import", "productMeta", "-", "--server", server); exit != 0 {
		t.Fatalf("exit %d\n%s%s", exit, out, errs)
	}
	for _, end := range []func(){node.stop, node.kill} {
		end()
		began := time.Now()
		node.start()
		if out := mustRun(t, server, "query", "productMeta", "--key", "tag"); !strings.Contains(out, `"name":"T"`) {
			t.Errorf("after a restart the item is %s", out)
		}
		if took := time.Since(began); took > time.Minute { // nothing has expired
			t.Errorf("a restart took %s; the directory's leases are its own", took)
		}
	}
	node.stop()
	if code := node.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d after SIGTERM\n%s", code, node.output())
	}
}
