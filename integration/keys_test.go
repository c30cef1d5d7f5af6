package integration_test

import (
	"encoding/json"
	"strings"
	"testing"

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
	keys(0, "delete", "writer")
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
