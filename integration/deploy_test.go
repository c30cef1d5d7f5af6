package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/readertest"
	"github.com/millrace/millrace/integration/poll"
)

// deployed are the three servers of deploy/nats/nats.conf in this process, each
// at an address of its own, with the secrets that the command makes.
type deployed struct {
	secrets string
	urls    []string
}

// deploy starts them.
func deploy(t *testing.T) *deployed {
	t.Helper()
	dir := t.TempDir()
	d := &deployed{secrets: filepath.Join(dir, "made")}
	// Every address of 127.0.0.0/8 is this machine: nobody else uses these.
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250))
	hosts := []string{net + "1", net + "2", net + "3"}
	if out, errs, exit := command(t, "", nil, "credentials", "new", d.secrets, "--server-names", strings.Join(hosts, ",")); exit != 0 {
		t.Fatalf("credentials new: exit %d\n%s%s", exit, out, errs)
	}
	text, err := os.ReadFile("../deploy/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "nats.conf")
	if err := os.Symlink(filepath.Join(d.secrets, "nats"), filepath.Join(dir, "secrets")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte(strings.ReplaceAll(string(text), "/etc/nats/secrets", d.secrets+"/nats")), 0o600); err != nil {
		t.Fatal(err)
	}
	var servers []*server.Server
	for i, host := range hosts {
		t.Setenv("SERVER_NAME", fmt.Sprintf("nats-%d", i+1))
		options, err := server.ProcessConfigFile(conf)
		if err != nil {
			t.Fatal(err)
		}
		if !options.SyncAlways || options.MaxPayload < 7<<20 || options.StoreDir != "/data" || len(options.Routes) != 3 || options.HTTPPort != 0 {
			t.Errorf("nats.conf asks for sync always %t, payload %d, store %q, %d routes, monitoring at %d",
				options.SyncAlways, options.MaxPayload, options.StoreDir, len(options.Routes), options.HTTPPort)
		}
		// A peer or a client that falls silent is noticed within some seconds.
		clients := options.PingInterval * time.Duration(options.MaxPingsOut+1)
		peers := options.Cluster.PingInterval * time.Duration(options.Cluster.MaxPingsOut+1)
		if clients == 0 || clients > 6*time.Second || peers == 0 || peers > 3*time.Second {
			t.Errorf("nats.conf gives up silent clients after %s and silent servers after %s", clients, peers)
		}
		options.StoreDir, options.Host, options.Cluster.Host = filepath.Join(dir, host), host, host
		options.SyncAlways, options.NoSigs, options.NoLog = false, true, true // of no interest here, and slow
		// A client that gets a ping before the answer to its handshake gives up. With the race
		// detector and a busy machine the servers take more than two seconds to compare a
		// password with its hash, after which the first ping comes whatever the interval is.
		options.PingInterval, options.DisableShortFirstPing = time.Minute, true
		s, err := server.NewServer(options)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
		d.urls = append(d.urls, fmt.Sprintf("tls://%s:%d", host, options.Port))
	}
	poll.Until(t, func() error {
		for _, s := range servers {
			if !s.JetStreamIsCurrent() || s.NumRoutes() == 0 {
				return errors.New("the servers have not found each other")
			}
		}
		return nil
	})
	return d
}

// connect connects to one of the servers as the user of a file.
func (d *deployed) connect(t *testing.T, i int, file string, options ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	c, err := natsd.ReadCredentials(filepath.Join(d.secrets, file))
	if err != nil {
		t.Fatal(err)
	}
	return connectPatiently(d.urls[i], append(options, nats.Timeout(time.Minute), nats.UserInfo(c.User, c.Password), nats.RootCAs(filepath.Join(d.secrets, "nats", "ca.pem")))...)
}

// connectPatiently connects as nats.Connect does, and again where a handshake took so long that the server
// asked in between whether the client is alive: the library then ends with "expected 'PONG', got 'PING'".
func connectPatiently(url string, options ...nats.Option) (*nats.Conn, error) {
	for {
		nc, err := nats.Connect(url, options...)
		if err == nil || !strings.Contains(err.Error(), "got 'PING'") {
			return nc, err
		}
	}
}

func TestDeploy_NATSTakesNobodyAndHoldsReaders(t *testing.T) {
	d := deploy(t)
	ca := nats.RootCAs(filepath.Join(d.secrets, "nats", "ca.pem"))
	patient := nats.Timeout(time.Minute) // a handshake takes seconds on a busy machine
	for _, url := range d.urls {
		for name, option := range map[string]nats.Option{"nobody": ca, "a wrong password": nats.UserInfo(natsd.UserAdmin, "guess")} {
			if nc, err := connectPatiently(url, ca, option, patient); !errors.Is(err, nats.ErrAuthorization) {
				nc.Close()
				t.Errorf("%s at %s: %v, want %v", name, url, err, nats.ErrAuthorization)
			}
		}
		if nc, err := nats.Connect(url, patient); err == nil {
			nc.Close()
			t.Errorf("%s was trusted without its CA", url)
		}
		if nc, err := nats.Connect(strings.Replace(url, "tls://", "nats://", 1), nats.Timeout(10*time.Second)); err == nil {
			nc.Close()
			t.Errorf("%s spoke without TLS", url)
		}
	}
	// One that knows the addresses and has no certificate does not join.
	stranger, err := server.NewServer(&server.Options{
		ServerName: "stranger", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		Cluster: server.ClusterOpts{Name: "millrace", Host: "127.0.0.1", Port: -1},
		Routes:  server.RoutesFromStr("nats://" + strings.TrimSuffix(strings.TrimPrefix(d.urls[0], "tls://"), ":4222") + ":6222"),
	})
	if err != nil {
		t.Fatal(err)
	}
	stranger.Start()
	t.Cleanup(func() { stranger.Shutdown(); stranger.WaitForShutdown() })
	admin, err := d.connect(t, 0, natsd.FileAdmin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	readertest.Hold(t, admin, 3, func(options ...nats.Option) (*nats.Conn, error) {
		return d.connect(t, 1, natsd.FileReadOnly, options...)
	})
	if n := stranger.NumRoutes(); n != 0 {
		t.Errorf("a stranger has %d routes into the cluster", n)
	}
}

func TestDeploy_ProcessesAndCommandsHaveWhatTheyNeed(t *testing.T) {
	d := deploy(t)
	forgetUser(t)
	env, err := os.ReadFile(filepath.Join(d.secrets, "millrace.env"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(env)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	t.Setenv("MILLRACE_CONNECT_CA", filepath.Join(d.secrets, "nats", "ca.pem"))
	t.Setenv("MILLRACE_DURABILITY", "replicas")
	t.Setenv("MILLRACE_CONNECT_SILENCE_MAX", "30s") // three servers and what uses them share a busy machine
	servers := strings.Join(d.urls, ",")
	spawn(t, "store", "--server", servers, "--dir", t.TempDir(), "--listen", "off")
	spawn(t, "worker", "--server", servers, "--dir", t.TempDir(), "--listen", "off")
	forgetUser(t)
	admin, reader := filepath.Join(d.secrets, natsd.FileAdmin), filepath.Join(d.secrets, natsd.FileReadOnly)
	mustRun(t, servers, "apply", "-f", "../configs/webstore", "--creds", admin)
	if out, errs, exit := command(t, `{"id": "c1", "type": "category", "name": "Bikes"}`, nil, "import", "productMeta", "-", "--server", servers, "--creds", admin); exit != 0 {
		t.Fatalf("import: exit %d\n%s%s", exit, out, errs)
	}
	for _, args := range [][]string{{"status"}, {"feed", "productMeta"}, {"query", "productMeta", "--key", "category"}, {"describe", "container", "product"}} {
		if out, exit := run(t, servers, append(args, "--creds", reader)...); exit != 0 || strings.Contains(out, "WARN") {
			t.Errorf("millrace %s: exit %d\n%s", strings.Join(args, " "), exit, out)
		}
	}
	for _, creds := range [][]string{nil, {"--dir", d.secrets}} {
		if out, exit := run(t, servers, append([]string{"status"}, creds...)...); exit != 2 || !strings.Contains(out, "asks for credentials") {
			t.Errorf("status with %q: exit %d\n%s", creds, exit, out)
		}
	}
}

func TestCredentials_NewKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	read := func() map[string]string {
		t.Helper()
		if out, errs, exit := command(t, "", nil, "credentials", "new", dir); exit != 0 {
			t.Fatalf("exit %d\n%s%s", exit, out, errs)
		}
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files[e.Name()] = string(data)
			info, err := e.Info()
			if public := strings.HasSuffix(e.Name(), ".pem") && !strings.Contains(e.Name(), "key"); err == nil && !public && info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v, want 0600", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	first := read()
	if second := read(); len(first) != 9 || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("%d files, or a second run changed them", len(first))
	}
	for _, name := range []string{"nats/server.pem", "admin.json"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	third := read()
	for _, name := range []string{"server.pem", "server-key.pem", "admin.json", "users.conf", "millrace.env"} {
		if third[name] == first[name] || third[name] == "" {
			t.Errorf("%s follows from what was deleted, and is as it was", name)
		}
	}
	if third["ca.pem"] != first["ca.pem"] || third["read-only.json"] != first["read-only.json"] {
		t.Error("what was not deleted is another")
	}
}
