package integration_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed/natsd"
)

// forgetUser takes the user of these tests away, so that processes and commands
// have the credentials that nodes make.
func forgetUser(t *testing.T) {
	t.Helper()
	for name := range natsUser {
		t.Setenv(name, "")
	}
}

// guarded is millrace up with its own secrets and some items.
func guarded(t *testing.T) (dir, server string) {
	t.Helper()
	forgetUser(t)
	t.Setenv("MILLRACE_CONNECT_SILENCE_MAX", "30s") // a busy machine is silent for long, and commands warn of it
	dir = t.TempDir()
	port := strconv.Itoa(freePort(t))
	server = "nats://127.0.0.1:" + port
	spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off")
	mustRun(t, server, "apply", "-f", "../configs/webstore", "--dir", dir)
	if out, errs, exit := command(t, `{"id": "c1", "type": "category", "name": "Bikes"}`, nil, "import", "productMeta", "-", "--server", server, "--dir", dir); exit != 0 {
		t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
	}
	return dir, server
}

func TestNATS_UpTakesNobodyWithoutItsSecret(t *testing.T) {
	dir, server := guarded(t)
	if nc, err := nats.Connect(server, nats.Timeout(time.Minute)); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Fatalf("connect without a secret: %v, want %v", err, nats.ErrAuthorization)
	}
	admin, other := filepath.Join(dir, "credentials", natsd.FileAdmin), filepath.Join(t.TempDir(), "other.json")
	if err := natsd.WriteCredentials(other, natsd.NewCredentials(natsd.UserAdmin)); err != nil {
		t.Fatal(err)
	}
	secret, err := natsd.ReadCredentials(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		exit int
		want []string
	}{
		{"no directory", nil, nil, 2, []string{"asks for credentials, and ", "admin.json is not there", "next: name the directory of the server's node with --dir or MILLRACE_DIR"}},
		{"another directory", nil, []string{"--dir", filepath.Dir(other)}, 2, []string{"admin.json is not there"}},
		{"other credentials", nil, []string{"--creds", other}, 2, []string{"does not accept the credentials of " + other}},
		{"a file that is not there", nil, []string{"--creds", other + "x"}, 2, []string{other + "x", "no such file"}},
		{"a wrong password", []string{"MILLRACE_CONNECT_USER=millrace", "MILLRACE_CONNECT_PASSWORD=x"}, nil, 2, []string{"does not accept user millrace of connect.user"}},
		{"the directory", nil, []string{"--dir", dir}, 0, nil},
		{"the directory of the environment", []string{"MILLRACE_DIR=" + dir}, nil, 0, nil},
		{"a file", nil, []string{"--creds", admin}, 0, nil},
		{"a file of the environment", []string{"MILLRACE_CONNECT_CREDS=" + admin}, nil, 0, nil},
		{"a user and a password", []string{"MILLRACE_CONNECT_USER=" + secret.User, "MILLRACE_CONNECT_PASSWORD=" + secret.Password}, nil, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, exit := command(t, "", c.env, append([]string{"get", "containers", "--server", server}, c.args...)...)
			if exit != c.exit {
				t.Errorf("exit %d, want %d\n%s%s", exit, c.exit, out, errs)
			}
			for _, want := range c.want {
				if !strings.Contains(errs, want) {
					t.Errorf("it does not say %q:\n%s", want, errs)
				}
			}
			if strings.Contains(out+errs, secret.Password) {
				t.Error("it prints the secret")
			}
		})
	}
	// The directory tells where its node listens, too.
	if out, errs, exit := command(t, "", nil, "get", "containers", "--dir", dir); exit != 0 {
		t.Errorf("the directory alone: exit %d\n%s%s", exit, out, errs)
	}
	// A process of another directory is let in with the file.
	spawn(t, "worker", "--server", server, "--dir", t.TempDir(), "--listen", "off", "--creds", admin)
}

func TestNATS_ReadOnlyCredentialsShowEverythingAndChangeNothing(t *testing.T) {
	dir, server := guarded(t)
	creds := filepath.Join(dir, "credentials", natsd.FileReadOnly)
	another := t.TempDir() // of a store that could be drained
	spawn(t, "store", "--server", server, "--dir", another, "--listen", "off", "--creds", filepath.Join(dir, "credentials", natsd.FileAdmin))
	node, err := os.ReadFile(filepath.Join(another, "node-id"))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"status"},
		{"status", "--wide"},
		{"get", "containers"},
		{"get", "pipelines", "-o", "yaml"},
		{"describe", "container", "productMeta"},
		{"describe", "pipeline", "category-names"},
		{"query", "productMeta", "--key", "category"},
		{"items", "get", "productMeta", "c1"},
		{"query", "SELECT c.name FROM productMeta c"},
		{"feed", "productMeta"},
		{"export", "productMeta"},
		{"dead-letters", "list", "category-names"},
		{"plan", "-f", "../configs/webstore"},
		{"verify"},
	} {
		out, exit := run(t, server, append(args, "--creds", creds)...)
		if exit != 0 || strings.Contains(out, "WARN") {
			t.Errorf("millrace %s: exit %d\n%s", strings.Join(args, " "), exit, out)
		}
		if strings.Contains(strings.Join(args, " "), "query") && !strings.Contains(out, "Bikes") {
			t.Errorf("millrace %s does not show the item:\n%s", strings.Join(args, " "), out)
		}
	}
	file := filepath.Join(t.TempDir(), "items.json")
	if err := os.WriteFile(file, []byte(`{"id": "c2", "type": "category", "name": "Boats"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(changed, []byte("apiVersion: millrace/v1\nkind: Container\nmetadata: {name: more}\nspec: {partitionKey: [/a]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"import", "productMeta", file},
		{"items", "put", "productMeta", file},
		{"items", "delete", "productMeta", "c1", "--key", "category"},
		{"apply", "-f", changed},
		{"pause", "category-names"},
		{"delete", "pipeline", "category-names", "--yes"},
		{"backfill", "category-names"},
		{"rewind", "category-names", "--to", "beginning"},
		{"drain", strings.TrimSpace(string(node))},
	} {
		out, exit := run(t, server, append(args, "--creds", creds)...)
		if exit == 0 || !strings.Contains(out, "for reading only") {
			t.Errorf("millrace %s: exit %d\n%s", strings.Join(args, " "), exit, out)
		}
	}
	if items := mustRun(t, server, "export", "productMeta", "--dir", dir); !strings.Contains(items, "Bikes") || strings.Contains(items, "Boats") {
		t.Errorf("the items are %s", items)
	}
	if out := mustRun(t, server, "get", "pipelines", "--dir", dir); !strings.Contains(out, "category-names") {
		t.Errorf("the pipelines are %s", out)
	}
}

func TestCredentials_RotateReplacesOne(t *testing.T) {
	dir, server := guarded(t)
	mustRun(t, server, "status", "--dir", dir)
	former := filepath.Join(t.TempDir(), "former.json")
	data, err := os.ReadFile(filepath.Join(dir, "credentials", natsd.FileAdmin))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(former, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, exit := command(t, "", nil, "credentials", "rotate", "admin", "--dir", dir); exit != 0 {
		t.Fatalf("rotate: exit %d\n%s%s", exit, out, errs)
	}
	mustRun(t, server, "status", "--dir", dir)
	if out, exit := run(t, server, "status", "--creds", former); exit != 2 || !strings.Contains(out, "does not accept the credentials of "+former) {
		t.Errorf("status with the former ones: exit %d\n%s", exit, out)
	}
}
