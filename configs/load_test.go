package configs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoad_LaterSourcesWin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	write(t, file, "store: {queueMax: 1, pageShare: 1}\nleases: {ttl: 9s}\nengine: {memTableBytes: 128MiB}\n"+
		"nats:\n  cluster: {routes: [nats://a:1, nats://b:2]}\n  port:\n")
	c, err := Load(file, []string{"MILLRACE_STORE_QUEUE_MAX=2", "MILLRACE_STORE_PAGE_SHARE=2", "MILLRACE_SERVICE_HOST=10.0.0.1", "HOME=/"},
		[]string{"store.queueMax=3", "nats.syncInterval=5ms"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"set above variable":  3,
		"variable above file": 2,
		"duration":            9 * time.Second,
		"size":                int64(128 << 20),
		"list":                []string{"nats://a:1", "nats://b:2"},
		"no value":            0,
		"duration by set":     5 * time.Millisecond,
	}
	got := map[string]any{
		"set above variable":  c.Store.QueueMax,
		"variable above file": c.Store.PageShare,
		"duration":            c.Leases.TTL,
		"size":                c.Engine.MemTableBytes,
		"list":                c.NATS.Cluster.Routes,
		"no value":            c.NATS.Port,
		"duration by set":     c.NATS.SyncInterval,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoad_TellsAllThatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	write(t, file, `dir: /tmp/x
colour: red
nats:
  prot: 4222
  port: many
  cluster: east
  cluster: {routes: {a: b}}
leases:
  ttl: 7
durability: hope
store: {queriesBytesMax: -1}
`)
	_, err := Load(file, []string{"MILLRACE_STORE_QUEUE_MAX=lots"}, []string{"store.queueMax", "a.b=1"})
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.ReplaceAll(err.Error(), file, "FILE")
	want := strings.Join([]string{
		"FILE:2:1: at the top: there is no key colour; known are " + strings.Join(topKeys(), ", "),
		"FILE:4:3: nats: there is no key prot; known are dir, name, host, port, dontListen, syncInterval, maxPayload, storeMax, credentials, user, password, monitor, tls, cluster, debug",
		"FILE:5:9: nats.port: \"many\" is not a number, such as 1000 or 64MiB",
		"FILE:6:12: nats.cluster: keys are expected: name, host, port, routes, user, password",
		"FILE:7:3: cluster is there twice",
		"FILE:9:8: leases.ttl: \"7\" is not a duration, such as 5s or 100ms",
		"MILLRACE_STORE_QUEUE_MAX: \"lots\" is not a number, such as 1000 or 64MiB",
		"--set store.queueMax: KEY=VALUE is expected, such as store.queueMax=1000",
		"--set a.b=1: there is no key a.b; configs/millrace.yaml explains all",
		"durability is \"hope\"; disk or replicas is expected",
		"store.queriesBytesMax is -1 bytes; at least 1MiB is expected",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func topKeys() []string {
	return []string{
		"dir", "server", "connect", "durability", "drainTimeout", "memory", "http", "log", "nats", "feed", "leases", "engine", "store", "gateway", "processors", "cascade",
		"project", "sinks", "reconciler", "verify",
	}
}

// The listener of health and metrics is told what is wrong with it, all at once.
func TestLoad_HTTPIsChecked(t *testing.T) {
	_, err := Load("", nil, []string{"http.listen=here", "http.tls=perhaps", "http.cert=a.pem", "http.names=a:1"})
	want := strings.Join([]string{
		"http.listen is \"here\"; host:port, such as 127.0.0.1:8082, or off is expected",
		"http.tls is \"perhaps\"; on or off is expected",
		"http.cert and http.key go together",
		"http.names has \"a:1\"; a name or an address is expected, without a port",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	// Encrypted unless on the loopback, or as it says.
	for tls, want := range map[string][2]bool{"": {false, true}, "on": {true, true}, "off": {false, false}, "true": {true, true}, "false": {false, false}} {
		c, err := Load("", nil, []string{"http.tls=" + tls})
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{c.HTTP.Encrypted(true), c.HTTP.Encrypted(false)}; got != want {
			t.Errorf("http.tls %q: on the loopback and off it %v, want %v", tls, got, want)
		}
	}
}

// A key that has another name now is refused with that name, wherever it is set.
func TestLoad_KeysOfEarlierReleases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	write(t, file, "steward:\n  interval: 1s\n")
	_, err := Load(file, nil, []string{"steward.grace=1m"})
	want := file + ":1:1: at the top: there is no key steward; it is reconciler now\n" +
		"--set steward.grace=1m: there is no key steward.grace; it is reconciler.grace now"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// A variable that was meant to name a key is not passed over in silence; what belongs
// to somebody else is.
func TestLoad_MistypedVariables(t *testing.T) {
	for name, want := range map[string]string{
		"MILLRACE_STORE_QUEU_MAX":   "there is no such variable; did you mean MILLRACE_STORE_QUEUE_MAX?",
		"MILLRACE_STORE_QUEUEMAX":   "there is no such variable; did you mean MILLRACE_STORE_QUEUE_MAX?",
		"MILLRACE_QUEUE_MAX":        "there is no such variable; did you mean MILLRACE_STORE_QUEUE_MAX?",
		"millrace_store_queue_max":  "there is no such variable; did you mean MILLRACE_STORE_QUEUE_MAX?",
		"MILLRACE_DIRR":             "there is no such variable; did you mean MILLRACE_DIR?",
		"MILLRACE_SEVER":            "there is no such variable; did you mean MILLRACE_SERVER?",
		"MILLRACE_DURABILTY":        "there is no such variable; did you mean MILLRACE_DURABILITY?",
		"MILLRACE_ENDPIONT":         "there is no such variable; did you mean MILLRACE_ENDPOINT?",
		"MILLRACE_STORE_COLOUR_MAP": "store has no such key; configs/millrace.yaml explains all",
		"MILLRACE_STEWARD_INTERVAL": "there is no such variable any more; it is MILLRACE_RECONCILER_INTERVAL now",
	} {
		_, err := Load("", []string{name + "=/secret/of/mine"}, nil)
		if err == nil || err.Error() != name+": "+want {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
	for _, entry := range []string{
		"MILLRACE_DSN=postgres://a", "MILLRACE_TEST_DSN=postgres://a", "MILLRACE_WEBSTORE=/data", "MILLRACE_PROJECT_DSN=postgres://a", "MILLRACE_CONFIG=a", "MILLRACE_KEY=a", "MILLRACE_OPERATOR_ENDPOINT=a", "MILLRACE_OPERATOR_KEY=a",
		"MILLRACE_ENDPOINT=a", "HOME=/", "WINDMILLRACE_DIRR=a", "MILLRACE_SERVICE_HOST=10.0.0.1", "MILLRACE_SERVICE_PORT=8081",
		"MILLRACE_SERVICE_PORT_GATEWAY=8081", "MILLRACE_PORT=tcp://10.0.0.1:8081", "MILLRACE_PORT_8081_TCP=tcp://10.0.0.1:8081",
		"MILLRACE_PORT_8081_TCP_ADDR=10.0.0.1", "MILLRACE_NATS_PORT=tcp://10.0.0.1:4222", "MILLRACE_STORE_QUEUE_MAX=",
	} {
		if _, err := Load("", []string{entry}, nil); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

func TestLoad_BrokenFilesNameTheLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"not YAML":       {"dir: [", "FILE:1:1: not YAML near this line: did not find expected node content"},
		"a list":         {"- dir\n", "FILE:1:1: at the top: keys are expected: " + strings.Join(topKeys(), ", ")},
		"two documents":  {"dir: a\n---\ndir: b\n", "FILE:2:1: a second document; a configuration is one"},
		"a list as text": {"dir: [a]\n", "FILE:1:6: dir: a text is expected"},
	} {
		file := filepath.Join(t.TempDir(), "millrace.yaml")
		write(t, file, c.text)
		_, err := Load(file, nil, nil)
		if err == nil || strings.ReplaceAll(err.Error(), file, "FILE") != c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

// TestLoad_EmptyListsOfSinksAreRefused: whoever writes one means none, and the default is more.
func TestLoad_EmptyListsOfSinksAreRefused(t *testing.T) {
	for _, key := range []string{"sinks.variables", "sinks.roots"} {
		file := filepath.Join(t.TempDir(), "millrace.yaml")
		section, name, _ := strings.Cut(key, ".")
		if err := os.WriteFile(file, []byte(section+": {"+name+": []}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, inFile := Load(file, nil, nil)
		_, set := Load("", nil, []string{key + "="})
		for where, err := range map[string]error{"in a file": inFile, "set": set} {
			if err == nil || !strings.Contains(err.Error(), key+" is empty") {
				t.Errorf("%s, %s: %v", key, where, err)
			}
		}
	}
}

// TestIsolate: of the places of another node nothing is left.
func TestIsolate(t *testing.T) {
	dir := t.TempDir()
	c, err := Load("", []string{"MILLRACE_NATS_DIR=/other/nats"}, []string{
		"dir=" + dir, "nats.credentials=/other/credentials", "nats.cluster.name=other", "nats.cluster.routes=nats://other:6222", "nats.cluster.user=u",
		"nats.cluster.password=p", "nats.monitor=127.0.0.1:8222", "store.snapshots.directory=/other/snapshots", "sinks.roots=/other/rows",
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Isolate()
	if text := fmt.Sprintf("%+v", *c); strings.Contains(text, "/other") || c.NATS.Cluster.Name != "" || strings.Contains(text, "8222") || c.NATS.Dir != filepath.Join(dir, "nats") {
		t.Errorf("it has %s", text)
	}
}

func TestLoad_NothingGivesDefaults(t *testing.T) {
	c, err := Load("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Dir != "millrace-data" || c.NATS.Dir != filepath.Join("millrace-data", "nats") || c.HTTP.Listen != "127.0.0.1:8082" || c.Replicas() != 1 {
		t.Errorf("defaults are %+v", c)
	}
}

func TestLoad_ReplicasReachEveryPackage(t *testing.T) {
	c, err := Load("", nil, []string{"durability=replicas"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Replicas() != 3 || c.Leases.Replicas != 3 || c.Store.Log.Replicas != 3 {
		t.Errorf("replicas are %d, %d and %d, want 3", c.Replicas(), c.Leases.Replicas, c.Store.Log.Replicas)
	}
}

func TestEnvName_EachKeyHasItsOwn(t *testing.T) {
	seen := map[string]string{}
	for key := range leaves(&Config{}) {
		name := EnvName(key)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s are both %s", key, other, name)
		}
		seen[name] = key
		if strings.HasSuffix(name, "_DSN") {
			t.Errorf("%s is %s: sinks may name what ends so, see spec.CheckVariable", key, name)
		}
	}
	if got := EnvName("feed.log.appendTimeout"); got != "MILLRACE_FEED_LOG_APPEND_TIMEOUT" {
		t.Errorf("got %s", got)
	}
	if got := EnvName("gateway.publicURL"); got != "MILLRACE_GATEWAY_PUBLIC_URL" { // as the chart sets it
		t.Errorf("got %s", got)
	}
	if got := EnvName("connect.ca"); got != "MILLRACE_CONNECT_CA" {
		t.Errorf("got %s", got)
	}
}

func TestWebStore_HoldsTheDeclarations(t *testing.T) {
	files, err := fs.Glob(WebStore(), "*.yaml")
	if err != nil || len(files) < 5 {
		t.Errorf("the web store has %d files, %v; want three containers and two pipelines", len(files), err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
