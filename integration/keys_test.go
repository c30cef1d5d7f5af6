package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
)

// The key of an application, from its creation to its end: with it the commands, as any client, work with one container.
func TestKeys_OfAnApplication(t *testing.T) {
	t.Parallel()
	e := upEndpoint(t)
	for _, container := range []string{"things", "other"} {
		if out, errs, exit := e.run(`{"id":"1","pk":"a"}`, "import", container, "-", "--partition-key", "/pk"); exit != 0 {
			t.Fatalf("exit %d\n%s%s", exit, out, errs)
		}
	}
	keys := func(exit int, args ...string) (string, string) {
		t.Helper()
		out, errs, got := command(t, "", nil, append(append([]string{"keys"}, args...), "--dir", e.dir)...)
		if got != exit {
			t.Fatalf("millrace keys %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, exit, out, errs)
		}
		return out, errs
	}
	keys(0, "create", "reader", "--container", "things")
	out, _ := keys(0, "create", "writer", "--container", "default/things", "--mode", "all", "-o", "json")
	var made struct{ Name, Container, Mode, Key string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Container != "default/things" || made.Mode != "all" {
		t.Errorf("made: %+v, %v", made, err)
	}
	list, _ := keys(0, "list")
	if lines := strings.Split(strings.TrimSpace(list), "\n"); len(lines) != 3 || strings.Contains(list, made.Key) ||
		!strings.HasPrefix(lines[1], "reader  default/things  read") || !strings.HasPrefix(lines[2], "writer  default/things  all") {
		t.Errorf("the list is\n%s", list)
	}
	works := func(exit int, args ...string) string {
		t.Helper()
		var errs string
		poll.Until(t, func() error { // the node looks at the file once a second
			var got int
			_, errs, got = e.run(`{"id":"2","pk":"a"}`, args...)
			return poll.Unless(got == exit, errs)
		})
		return errs
	}
	shown, _ := keys(0, "show", "reader")
	e.key = strings.TrimSpace(shown)
	works(0, "export", "things")
	works(2, "import", "things", "-")
	if errs := works(2, "export", "other"); !strings.Contains(errs, "default/things") {
		t.Errorf("another container: %s", errs)
	}
	e.key = made.Key
	works(0, "import", "things", "-")
	works(2, "import", "other", "-")
	keys(0, "rotate", "writer")
	works(2, "export", "things")
	shown, _ = keys(0, "show", "writer")
	e.key = strings.TrimSpace(shown)
	works(0, "export", "things")
	keys(0, "revoke", "writer")
	works(2, "export", "things")

	for _, c := range []struct {
		want string
		exit int
		args []string
	}{
		{"name the container", 2, []string{"create", "x"}},
		{"read or all is expected", 2, []string{"create", "x", "--container", "things", "--mode", "write"}},
		{"there is a key reader already", 2, []string{"create", "reader", "--container", "things"}},
		{"a master key has this name", 2, []string{"create", "primary", "--container", "things"}},
		{"is a master key", 2, []string{"delete", "primary"}},
		{"there is no key writer", 2, []string{"delete", "writer"}},
		{"there is no key writer", 2, []string{"rotate", "writer"}},
		{"there is no key writer", 2, []string{"show", "writer"}},
	} {
		if _, errs := keys(c.exit, c.args...); !strings.Contains(errs, c.want) {
			t.Errorf("millrace keys %v: %s", c.args, errs)
		}
	}
}

// With the key of an operator and nothing else four commands work: within its containers, at http.listen.
func TestKeys_OfAnOperator(t *testing.T) {
	t.Parallel()
	dir, listen, port := t.TempDir(), "127.0.0.1:"+strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	up := spawn(t, "up", "--dir", dir, "--port", port, "--listen", listen)
	file := filepath.Join(t.TempDir(), "shop.yaml")
	const declared = "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: a}\nspec: {partitionKey: [/id]}\n---\n" +
		"apiVersion: millrace/v1\nkind: Container\nmetadata: {name: b}\nspec: {partitionKey: [/id]}\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(declared)
	if out, errs, exit := command(t, "", nil, "apply", "-f", file, "--dir", dir); exit != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", exit, out, errs, up.output())
	}
	out, errs, exit := command(t, "", nil, "keys", "create", "ci", "--mode", "operator", "--into", "b", "--from", "a", "-o", "json", "--dir", dir)
	var made struct {
		Key     string
		Expires time.Time
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || exit != 0 || time.Until(made.Expires) < 24*time.Hour {
		t.Fatalf("exit %d, %v\n%s%s", exit, err, out, errs)
	}
	if list, _, _ := command(t, "", nil, "keys", "list", "--dir", dir); !strings.Contains(list, "ci    default/b from default/a  operator") || strings.Contains(list, made.Key) {
		t.Errorf("the list is\n%s", list)
	}
	if _, errs, exit := command(t, "", nil, "keys", "show", "ci", "--dir", dir); exit != 2 || !strings.Contains(errs, "was shown when it was made") {
		t.Errorf("shown again: exit %d\n%s", exit, errs)
	}
	// No directory and no server: the key is all there is.
	works := func(exit int, says string, args ...string) {
		t.Helper()
		poll.Until(t, func() error { // the node looks at the file once a second, and a worker takes the pipeline soon
			out, errs, got := command(t, "", []string{"MILLRACE_OPERATOR_ENDPOINT=http://" + listen, "MILLRACE_OPERATOR_KEY=" + made.Key}, args...)
			return poll.Unless(got == exit && strings.Contains(out+errs, says), fmt.Sprintf("%v: exit %d\n%s%s", args, got, out, errs))
		})
	}
	works(0, "No pipeline is registered", "status")
	pipeline := "---\napiVersion: millrace/v1\nkind: Pipeline\nmetadata: {name: names}\nspec: {source: {container: a}, cascade: {into: b, match: {ref: id}, set: {copied: name}}}\n"
	write(declared + pipeline)
	works(0, "--plan ", "plan", "-f", file)
	works(0, "pipeline default/names", "apply", "-f", file)
	works(0, "names", "status", "names")
	works(0, "equal", "verify", "names")
	works(1, "is not registered", "status", "others")
	write(declared + strings.ReplaceAll(strings.ReplaceAll(pipeline, "container: a", "container: b"), "into: b", "into: a"))
	works(1, "writes to container default/a, and may write to default/b alone\nnext: leave out what is outside", "apply", "-f", file)
	works(2, "--samples is for credentials", "plan", "-f", file, "--samples", "1")
	if out, errs, exit := command(t, "", nil, "keys", "revoke", "ci", "--dir", dir); exit != 0 || !strings.Contains(out, "key ci revoked") {
		t.Errorf("exit %d\n%s%s", exit, out, errs)
	}
	works(2, "next: name the key of an operator in force", "status")
}
