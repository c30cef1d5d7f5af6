package sdk_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/millrace/millrace/integration/process"
)

// natsBinary builds the plain NATS server, once for all tests.
var natsBinary = sync.OnceValues(func() (string, error) { return process.BuildNATS(filepath.Join("..", ".."), scratch) })

// natsServer runs a plain NATS server and returns its URL.
func natsServer(t *testing.T) string {
	t.Helper()
	path, err := natsBinary()
	must(t, err)
	ports, err := process.FreePorts(1)
	must(t, err)
	address, dir := "127.0.0.1:"+ports[0], t.TempDir()
	config := filepath.Join(dir, "nats.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "listen: %q\nmax_payload: 8MB\njetstream { store_dir: %q }\n", address, filepath.Join(dir, "jetstream")), 0o600))
	cmd := exec.Command(path, "-c", config)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nats-server said:\n%s", &log)
		}
	})
	eventually(t, func() (bool, string) {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false, err.Error()
		}
		_ = c.Close()
		return true, ""
	})
	return "nats://" + address
}

// startStores starts stores over one NATS server, each with a gateway of its own, with a certificate of its own.
func startStores(t *testing.T, n int) (stores []*server) {
	t.Helper()
	nats := natsServer(t)
	ports, err := process.FreePorts(n)
	must(t, err)
	for _, port := range ports {
		s := &server{role: "store", dir: t.TempDir(), endpoint: "https://127.0.0.1:" + port, nats: nats}
		s.env = append(os.Environ(),
			"MILLRACE_SERVER="+nats, "MILLRACE_DIR="+s.dir, "MILLRACE_HTTP_LISTEN=off",
			"MILLRACE_GATEWAY_LISTEN=127.0.0.1:"+port, "MILLRACE_GATEWAY_PARTITIONS="+strconv.Itoa(2*partitions),
			"MILLRACE_GATEWAY_KEYS_PRIMARY="+masterKey, "MILLRACE_GATEWAY_KEYS_PRIMARY_READ_ONLY="+readOnlyKey,
		)
		must(t, s.start())
		t.Cleanup(func() {
			s.Kill()
			if t.Failed() {
				t.Logf("the store of port %s said:\n%s", port, &s.log)
			}
		})
		stores = append(stores, s)
	}
	return stores
}

// node is the name of the process in millrace nodes.
func (s *server) node(t *testing.T) string {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(s.dir, "node-id"))
	must(t, err)
	return strings.TrimSpace(string(id))
}

// Clients of both gateways write and read while millrace drain moves all partitions from one store to the other and back. No SDK tells
// an error, and nothing is lost.
func TestSDKs_OwnersMoveUnderLoad(t *testing.T) {
	rounds := 2
	if *long {
		rounds = 10
	}
	stores := startStores(t, 2)
	db := newDatabase(t, stores[0].client(t, masterKey, trusting(t, stores[0].certificate())))
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	w := newWriters(t, db, c, true)
	for i, s := range stores {
		at := fmt.Sprint(" at store ", i)
		w.inRust("Rust"+at, s) // these two first, since they may have to be compiled
		w.inJava("Java"+at, s)
		own, err := s.client(t, masterKey, trusting(t, s.certificate())).NewContainer(db.ID(), "items")
		must(t, err)
		w.inGo("Go"+at, own, keysOf(fmt.Sprint("go", i), 4)...)
		w.inNode("JavaScript"+at, s, keysOf(fmt.Sprint("js", i), 4)...)
		w.inPython("Python"+at, s, "sync", keysOf(fmt.Sprint("py", i), 4)...)
	}
	w.inPython("asynchronous Python", stores[0], "aio", keysOf("aio", 4)...)
	w.goOn()
	taken := func() (n int) {
		for _, s := range stores {
			n += strings.Count(s.log.String(), "lease taken")
		}
		return n
	}
	before := taken()
	for range rounds {
		for _, s := range stores {
			began := time.Now()
			t.Logf("%sin %s", s.command(t, "drain", s.node(t), "--within", "2m"), time.Since(began).Round(time.Millisecond))
			w.goOn()
			s.command(t, "drain", s.node(t), "--undo")
			w.goOn()
		}
	}
	w.end()
	moved := taken() - before
	t.Logf("%d partitions were taken over", moved)
	if least := 2 * partitions * w.containers * rounds; moved < least {
		t.Errorf("%d partitions were taken over, of %d or more: the drains had little to move", moved, least)
	}
}
