package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// threeServers runs three plain NATS servers that replicate, each a process.
func threeServers(t *testing.T) (urls string, servers []*exec.Cmd) {
	t.Helper()
	binary, err := natsServerBinary()
	if err != nil {
		t.Fatal(err)
	}
	var ports, peers []int
	var routes, all []string
	for range 3 {
		ports, peers = append(ports, freePort(t)), append(peers, freePort(t))
	}
	for i := range 3 {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", peers[i]))
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	for i := range 3 {
		dir := t.TempDir()
		conf := filepath.Join(dir, "nats.conf")
		err := os.WriteFile(conf, fmt.Appendf(nil, `
			server_name: n%d
			listen: "127.0.0.1:%d"
			max_payload: 8MB
			jetstream { store_dir: %q, sync_interval: always }
			cluster { name: millrace, listen: "127.0.0.1:%d", routes: [%s] }
		`, i+1, ports[i], filepath.Join(dir, "jetstream"), peers[i], strings.Join(routes, ", ")), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, startServer(t, binary, conf))
	}
	return strings.Join(all, ","), servers
}

// startServer starts a NATS server with a configuration, and kills it in the end.
func startServer(t *testing.T, binary, conf string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, "-c", conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
	})
	return cmd
}

// stopServer kills a server.
func stopServer(t *testing.T, server *exec.Cmd) {
	t.Helper()
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // it was killed
}

// TestReplicas_OfWhatApplyMadeBeforeTheFirstStore declares with a command that knows nothing of durability, and then starts a
// store that asks for replicas. Then a server is lost with its disk, and replaced as deploy/cluster.md says.
func TestReplicas_OfWhatApplyMadeBeforeTheFirstStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders")
	}
	server, servers := threeServers(t)
	file := filepath.Join(t.TempDir(), "product.yaml")
	writeFile(t, file, "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: product}\nspec: {partitionKey: [/id], partitions: 2}\n")
	mustRun(t, server, "apply", "-f", file)
	replicas := func() (shown []string) {
		t.Helper()
		var is struct {
			Partitions []struct {
				Replicas struct{ Wanted, Actual int }
			}
		}
		out, errs, exit := command(t, "", nil, "describe", "container", "product", "-o", "json", "--timeout", "2s", "--server", server)
		if err := json.Unmarshal([]byte(out), &is); err != nil || exit != 0 {
			return []string{fmt.Sprintf("describe: exit %d, %v\n%s%s", exit, err, out, errs)} // a leader is being elected
		}
		for _, p := range is.Partitions {
			shown = append(shown, fmt.Sprintf("%d of %d", p.Replicas.Actual, p.Replicas.Wanted))
		}
		return shown
	}
	address := "127.0.0.1:" + strconv.Itoa(freePort(t))
	process := spawn(t, "store", "--server", server, "--dir", t.TempDir(), "--listen", address, "--durability", "replicas")
	poll.Until(t, func() error {
		shown := fmt.Sprint(replicas())
		return poll.Unless(shown == "[3 of 3 3 of 3]", shown)
	})
	poll.Until(t, func() error {
		out, _ := run(t, server, "doctor")
		return poll.Unless(strings.Contains(out, "nothing is wrong") && !strings.Contains(out, "replicas"), out)
	})
	if out := mustRun(t, server, "status"); strings.Contains(out, "warning") {
		t.Errorf("all is as it is to be, and status says\n%s", out)
	}
	poll.Until(t, func() error {
		log := process.output()
		return poll.Unless(!strings.Contains(log, "fewer replicas") || strings.Contains(log, "every log and bucket has its replicas"), log)
	})

	// A server is lost: a warning, and nothing else.
	stopServer(t, servers[0])
	poll.Until(t, func() error {
		out, exit := run(t, server, "status")
		return poll.Unless(exit == 0 && strings.Contains(out, "warning: the NATS server n1 cannot be reached"), fmt.Sprintf("exit %d\n%s", exit, out))
	})
	poll.Until(t, func() error {
		shown := fmt.Sprint(replicas())
		return poll.Unless(shown == "[3 of 3 3 of 3]", "a lost server took replicas away: "+shown)
	})
	ready := func() error { // leaders that were at a lost server are elected anew
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var said bytes.Buffer
		_, _ = said.ReadFrom(resp.Body)
		return poll.Unless(resp.StatusCode == http.StatusOK, said.String())
	}
	poll.Until(t, ready)

	// It comes back with its name and an empty directory, as on another machine, and has all again.
	product := open(t, dial(t, server), "product")
	poll.Until(t, func() error {
		_, err := product.Upsert(t.Context(), []byte(`{"id":"a"}`), store.WriteOptions{})
		return err
	})
	conf := servers[0].Args[2]
	if err := os.RemoveAll(filepath.Join(filepath.Dir(conf), "jetstream")); err != nil {
		t.Fatal(err)
	}
	servers[0] = startServer(t, servers[0].Path, conf)
	poll.Until(t, func() error {
		out, _ := run(t, server, "doctor")
		return poll.Unless(strings.Contains(out, "nothing is wrong") && !strings.Contains(out, "replicas"), out)
	})
	stopServer(t, servers[1]) // of the two that are left one is the new one
	poll.Until(t, ready)
	poll.Until(t, func() error {
		_, err := product.Replace(t.Context(), "a", []byte(`{"id":"a","again":true}`), store.WriteOptions{})
		return err
	})
}
