package integration_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
)

// endpoint is the gateway of a process, and how commands reach it.
type endpoint struct {
	t      *testing.T
	url    string
	ca     string // of the certificate that the node made
	key    string
	dir    string
	server string
}

// upEndpoint starts a process with a gateway.
func upEndpoint(t *testing.T) *endpoint {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(freePort(t))
	port := strconv.Itoa(freePort(t))
	e := &endpoint{t: t, url: "https://" + address, dir: filepath.Join(t.TempDir(), "shop"), server: "nats://127.0.0.1:" + port}
	spawn(t, "up", "--dir", e.dir, "--port", port, "--listen", "off", "--gateway", address, "--set", "gateway.partitions=3")
	e.ca = filepath.Join(e.dir, "gateway", "ca.pem")
	out, _, exit := command(t, "", nil, "keys", "show", "primary", "--dir", e.dir)
	if exit != 0 {
		t.Fatalf("keys show: exit %d", exit)
	}
	e.key = strings.TrimSpace(out)
	return e
}

// run runs a command at the endpoint that has nothing but its URL, key and certificate.
func (e *endpoint) run(stdin string, args ...string) (out, errs string, exit int) {
	e.t.Helper()
	return command(e.t, stdin, []string{"MILLRACE_ENDPOINT=" + e.url, "MILLRACE_KEY=" + e.key}, append(args, "--ca", e.ca)...)
}

// must is run for commands that must succeed.
func (e *endpoint) must(args ...string) string {
	e.t.Helper()
	out, errs, exit := e.run("", args...)
	if exit != 0 {
		e.t.Fatalf("millrace %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errs)
	}
	return out
}

// sorted are the lines of a text, in order.
func sorted(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

func TestEndpoint_ImportsQueriesAndExports(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	items := []string{
		`{"id": "1", "pk": "a", "n": 1.50, "text": "<b> & \u00e9"}`,
		`{"id": "2", "pk": "b", "n": 12345678901234567890}`,
		`{"id": "3", "pk": "😀\u0001é", "n": 3}`,
		`{"id": "4", "n": 4}`,
		`{"id": "5", "pk": null, "n": 5}`,
		`{"id": "6", "pk": 12.5, "n": 6}`,
		`{"id": "7", "pk": true, "n": 7}`,
	}
	file := filepath.Join(t.TempDir(), "items.ndjson")
	writeFile(t, file, strings.Join(slices.Insert(slices.Clone(items), 2, `{"id": "broken"`, `{"pk": "no id"}`), "\n")+"\n")
	if out, errs, exit := e.run("", "import", "things", file); exit != 1 || !strings.Contains(errs, "container default/things does not exist at "+e.url+"\nnext: ") {
		t.Errorf("import into nothing: exit %d\n%s%s", exit, out, errs)
	}
	out, errs, exit := e.run("", "import", "things", file, "--partition-key", "/pk")
	if exit != 1 || !strings.Contains(out, "7 items written to things") || !strings.Contains(out, "2 rejected") {
		t.Errorf("import: exit %d\n%s%s", exit, out, errs)
	}
	for _, line := range []int{3, 4} {
		if !strings.Contains(errs, fmt.Sprintf("%s:%d: rejected: ", file, line)) {
			t.Errorf("line %d is not told of:\n%s", line, errs)
		}
	}
	slices.Sort(items)
	exported := filepath.Join(t.TempDir(), "out.ndjson")
	e.must("export", "things", "--file", exported)
	data, err := os.ReadFile(exported)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(items, sorted(string(data))); diff != "" {
		t.Errorf("export over the protocol, -imported +exported:\n%s", diff)
	}
	if diff := cmp.Diff(items, sorted(mustRun(t, e.server, "export", "things"))); diff != "" {
		t.Errorf("export over NATS of what was imported over the protocol:\n%s", diff)
	}

	for _, c := range []struct {
		what string
		args []string
		want string
	}{
		{"parameters, over all partitions, in order", []string{"SELECT c.id, c.n FROM c WHERE c.n >= @least AND c.n < 8 ORDER BY c.n", "-p", "least=3", "-o", "csv"}, "id,n\n3,3\n4,4\n5,5\n6,6\n7,7\n"},
		{"a table", []string{"SELECT c.id, c.pk FROM c WHERE c.id IN ('1', '2') ORDER BY c.id", "-c", "things"}, "ID  PK\n1   a\n2   b\n"},
		{"an item as it was written", []string{"SELECT * FROM things t WHERE t.n = 1.5", "-o", "ndjson"}, `{"id":"1","pk":"a","n":1.50,"text":"<b> & \u00e9"}` + "\n"},
		{"JSON", []string{"SELECT VALUE COUNT(1) FROM things", "-o", "json"}, "[\n  7\n]\n"},
		{"a key", []string{"SELECT VALUE c.id FROM c", "-k", "12.5", "-o", "ndjson"}, "\"6\"\n"},
		{"no more rows than asked for", []string{"SELECT VALUE c.n FROM c WHERE c.n < 8 ORDER BY c.n DESC", "--limit", "2", "-o", "ndjson"}, "7\n6\n"},
		{"system properties by name", []string{"SELECT IS_STRING(c._etag) AND c._ts > 0 AS there FROM c WHERE c.id = '1'", "-o", "ndjson"}, `{"there":true}` + "\n"},
		{"an item", []string{"things", "--key", "😀\x01é", "--id", "3"}, `{"id":"3","pk":"😀\u0001é","n":3}` + "\n"},
		{"an item without its key", []string{"things", "--id", "4"}, `{"id":"4","n":4}` + "\n"},
		{"a logical partition", []string{"things", "--key", "b"}, `{"id":"2","pk":"b","n":12345678901234567890}` + "\n"},
	} {
		if got := e.must(append([]string{"query"}, c.args...)...); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.what, got, c.want)
		}
	}
	if got := e.must("query", "things", "--limit", "6"); strings.Count(got, "\n") != 7 || !strings.Contains(got, "and more") {
		t.Errorf("six of seven items:\n%s", got)
	}
	if got := e.must("query", "things", "--limit", "7"); strings.Count(got, "\n") != 7 || strings.Contains(got, "and more") {
		t.Errorf("seven of seven items:\n%s", got)
	}
	if got := e.must("query", "SELECT * FROM things t WHERE t.pk = 'a'", "--explain"); !strings.Contains(got, "partition") && !strings.Contains(got, "index") {
		t.Errorf("explain says %q", got)
	}
	var view struct{ Items []itemShown }
	if err := json.Unmarshal([]byte(e.must("query", "things", "--id", "2", "-o", "json")), &view); err != nil || len(view.Items) != 1 {
		t.Fatalf("%v, %d items", err, len(view.Items))
	}
	var local struct{ Items []itemShown }
	if err := json.Unmarshal([]byte(mustRun(t, e.server, "query", "things", "--id", "2", "-o", "json")), &local); err != nil || len(local.Items) != 1 {
		t.Fatalf("%v, %d items", err, len(local.Items))
	}
	if view.Items[0].ETag == "" || view.Items[0] != local.Items[0] {
		t.Errorf("over the protocol the item is %+v, over NATS %+v", view.Items[0], local.Items[0])
	}
}

// itemShown is what both clients know of an item, to the second.
type itemShown struct {
	ID, ETag string
}

func TestREADME_CommandsAtAnEndpoint(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	if _, errs, exit := e.run(`{"id": "p1", "categoryId": "c1", "name": "Racer", "price": 899}`, "import", "product", "-", "--partition-key", "/categoryId"); exit != 0 {
		t.Fatalf("exit %d\n%s", exit, errs)
	}
	_, address, _ := strings.Cut(e.url, "127.0.0.1:")
	script := strings.ReplaceAll(fences(t, "sh endpoint")[0], "localhost:8081", "localhost:"+address)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = filepath.Dir(e.dir)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(millrace(t))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if want := "NAME   PRICE\nRacer  899\n"; err != nil || string(out) != want {
		t.Errorf("%v, it says\n%s, want\n%s", err, out, want)
	}
}

func TestEndpoint_ExportEqualsWhatWasImportedInManyPages(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	var lines []string
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf(`{"id":"%d","eu":["x%d"],"tenant":"t%d","user":%d}`, i, i, i%3, i%50))
	}
	file := filepath.Join(t.TempDir(), "many.ndjson")
	writeFile(t, file, strings.Join(lines, "\n")+"\n")
	e.must("import", "many", file, "--partition-key", "/tenant,/user")
	slices.Sort(lines)
	if diff := cmp.Diff(lines, sorted(e.must("export", "many"))); diff != "" {
		t.Errorf("-imported +exported:\n%s", diff)
	}
	if got := e.must("query", "SELECT VALUE COUNT(1) FROM c", "-c", "many", "-k", `["t1", 4]`, "-o", "ndjson"); got != "34\n" {
		t.Errorf("a hierarchical key has %s", got)
	}
	if got := e.must("query", "SELECT VALUE c.id FROM c", "-c", "many", "-k", `["t1"]`, "-o", "ndjson"); strings.Count(got, "\n") != 1667 {
		t.Errorf("the beginning of a key has %d items, want 1667", strings.Count(got, "\n"))
	}
}

func TestEndpoint_FeedTails(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	if _, errs, exit := e.run(`{"id":"old","pk":"a"}`, "import", "things", "-", "--partition-key", "/pk"); exit != 0 {
		t.Fatalf("exit %d\n%s", exit, errs)
	}
	cmd := exec.Command(millrace(t), "feed", "things", "--from", "now", "--follow", "-o", "json", "--endpoint", e.url, "--ca", e.ca)
	cmd.Env = append(os.Environ(), "MILLRACE_KEY="+e.key)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended already
	type change struct {
		ID   string
		LSN  uint64
		Item json.RawMessage
	}
	came := make(chan change, 1000)
	go func() {
		defer close(came)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var c change
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Errorf("%v: %s", err, lines.Text())
			}
			came <- c
		}
	}()
	// It begins when it has asked for the first time; until then what is written is old.
	n := 0
	var first change
	poll.Until(t, func() error {
		n++
		if _, errs, exit := e.run(fmt.Sprintf(`{"id":"knock%d","pk":"a"}`, n), "import", "things", "-"); exit != 0 {
			t.Fatalf("exit %d\n%s", exit, errs)
		}
		select {
		case first = <-came:
			return nil
		default:
			return errors.New("nothing came")
		}
	})
	if !strings.HasPrefix(first.ID, "knock") || first.LSN == 0 {
		t.Errorf("the first change is %+v", first)
	}
	var lines strings.Builder
	want := map[string]bool{}
	for i := range 20 {
		id := fmt.Sprintf("new%d", i)
		want[id] = true
		fmt.Fprintf(&lines, "{\"id\":%q,\"pk\":\"%d\"}\n", id, i)
	}
	if _, errs, exit := e.run(lines.String(), "import", "things", "-"); exit != 0 {
		t.Fatalf("exit %d\n%s", exit, errs)
	}
	poll.Until(t, func() error {
		select {
		case c := <-came:
			if strings.Contains(string(c.Item), "_rid") {
				t.Errorf("%s shows system properties: %s", c.ID, c.Item)
			}
			delete(want, c.ID)
		default:
		}
		return poll.Unless(len(want) == 0, fmt.Sprintf("%d creates did not come", len(want)))
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for c := range came {
		if c.ID == "old" {
			t.Error("what was there before came")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted, it ends with %v", err)
	}
	if got := e.must("feed", "things"); !strings.Contains(got, `{"id":"old","pk":"a"}`) || strings.Count(got, "\n") != 21+n {
		t.Errorf("from the beginning there are %d changes, want %d:\n%s", strings.Count(got, "\n"), 21+n, got)
	}
	if got := e.must("feed", "things", "--from", "1h", "--limit", "3"); strings.Count(got, "\n") != 3 {
		t.Errorf("three changes of the last hour:\n%s", got)
	}
	if got := e.must("feed", "things", "--from", "now"); got != "" {
		t.Errorf("from now on, without waiting:\n%s", got)
	}
}

func TestEndpoint_ErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	if _, errs, exit := e.run(`{"id":"1","pk":"a"}`, "import", "things", "-", "--partition-key", "/pk"); exit != 0 {
		t.Fatalf("exit %d\n%s", exit, errs)
	}
	readOnly, _, _ := command(t, "", nil, "keys", "show", "primary-read-only", "--dir", e.dir)
	keyFile := filepath.Join(t.TempDir(), "key")
	writeFile(t, keyFile, readOnly)
	wrong := base64.StdEncoding.EncodeToString([]byte("another key than that of the node"))
	gone := "https://127.0.0.1:" + strconv.Itoa(freePort(t))
	with := func(args ...string) []string { return args }
	for _, c := range []struct {
		what string
		env  []string
		args []string
		exit int
		want []string
	}{
		{"no key", nil, with("export", "things", "--endpoint", e.url, "--ca", e.ca), 2, with("its key is expected in MILLRACE_KEY, or in a file named with --key-file")},
		{"a wrong key", with("MILLRACE_KEY=" + wrong), with("export", "things", "--endpoint", e.url, "--ca", e.ca), 2, with("does not take the key", "next: name a key in force")},
		{"no key at all", with("MILLRACE_KEY=what is this"), with("export", "things", "--endpoint", e.url, "--ca", e.ca), 2, with("the key is not one of an account: base64")},
		{"a key that reads", nil, with("import", "things", "-", "--endpoint", e.url, "--ca", e.ca, "--key-file", keyFile), 2, with("read-only key", "next: name a key")},
		{"a certificate that is not trusted", with("MILLRACE_KEY=" + e.key), with("feed", "things", "--endpoint", e.url), 2, with("the certificate of "+e.url+" is not trusted", "next: name the authority to trust with --ca")},
		{"no certificate", with("MILLRACE_KEY=" + e.key), with("feed", "things", "--endpoint", e.url, "--ca", keyFile), 2, with("holds no certificate")},
		{"nobody there", with("MILLRACE_KEY=" + e.key), with("query", "things", "--endpoint", gone), 2, with(gone+" cannot be reached", "connection refused", "next: start a node")},
		{"plain HTTP to HTTPS", with("MILLRACE_KEY=" + e.key), with("query", "things", "--endpoint", strings.Replace(e.url, "https", "http", 1)), 2, with("not of the Cosmos DB protocol", "HTTPS")},
		{"no URL", with("MILLRACE_KEY=" + e.key), with("query", "things", "--endpoint", "localhost:8081"), 2, with("a URL such as https://localhost:8081 is expected")},
		{"both clients", with("MILLRACE_KEY=" + e.key), with("query", "things", "--endpoint", e.url, "--server", e.server), 2, with("--endpoint and --server: one of them")},
		{"a key for nothing", nil, with("export", "things", "--key-file", keyFile), 2, with("name that with --endpoint")},
		{"before", with("MILLRACE_KEY=" + e.key), with("feed", "things", "--endpoint", e.url, "--ca", e.ca, "--before"), 2, with("--before: ")},
		{"partitions", with("MILLRACE_KEY=" + e.key), with("import", "more", "-", "--endpoint", e.url, "--ca", e.ca, "--partition-key", "/k", "--partitions", "2"), 2, with("--partitions: ", "gateway.partitions")},
		{"a query that is wrong", with("MILLRACE_KEY=" + e.key), with("query", "SELECT * FROM c WHERE", "-c", "things", "--endpoint", e.url, "--ca", e.ca), 2, with("line 1, column")},
		{"an item that is not there", with("MILLRACE_KEY=" + e.key), with("query", "things", "-k", "a", "--id", "2", "--endpoint", e.url, "--ca", e.ca), 1, with("there is no item 2")},
		{"the server of the command line before the endpoint of the environment", with("MILLRACE_ENDPOINT=" + gone), with("export", "things", "--server", e.server), 0, nil},
		{"its directory before that", with("MILLRACE_ENDPOINT=" + gone), with("export", "things", "--dir", e.dir), 0, nil},
		{"its directory for a deletion", with("MILLRACE_ENDPOINT=" + gone), with("items", "delete", "things", "there is none", "--key", "a", "--dir", e.dir), 1, with("there is none")},
	} {
		out, errs, exit := command(t, `{"id":"2","pk":"b"}`, c.env, c.args...)
		if exit != c.exit {
			t.Errorf("%s: exit %d, want %d\n%s%s", c.what, exit, c.exit, out, errs)
		}
		for _, want := range c.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: %q is not in\n%s", c.what, want, errs)
			}
		}
		for _, key := range []string{e.key, strings.TrimSpace(readOnly), wrong, "what is this"} {
			if strings.Contains(out+errs, key) {
				t.Errorf("%s: the key is shown:\n%s%s", c.what, out, errs)
			}
		}
	}
}

func TestEndpoint_ImportGoesOnWhereItWasStopped(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	const items = 20_000
	importInTwo(t, items, []string{"MILLRACE_KEY=" + e.key}, "--endpoint", e.url, "--ca", e.ca)
	if got := e.must("query", "SELECT VALUE COUNT(1) FROM c", "-c", "many", "-o", "ndjson"); got != fmt.Sprintf("%d\n", items) {
		t.Errorf("the container holds %s", got)
	}
}
