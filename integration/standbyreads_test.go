package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// served is a store process with a gateway.
type served struct {
	*child
	dir, url string
}

func serve(t *testing.T, server string) *served {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(freePort(t))
	s := &served{dir: filepath.Join(t.TempDir(), "store"), url: "http://" + address}
	// Nobody takes over from a process that is silent while the test runs.
	s.child = spawn(t, "store", "--server", server, "--dir", s.dir, "--listen", "off", "--gateway", address, "--gateway-tls", "off", "--set", "leases.ttl=10m", "--set", "leases.renewInterval=1s", "--set", "leases.right.trust=1m")
	return s
}

// tell stops a process, or lets it go on.
func tell(t *testing.T, s *served, signal syscall.Signal) {
	t.Helper()
	if err := s.Cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// key is the key of the store's gateway.
func (s *served) key(t *testing.T) string {
	t.Helper()
	out, errs, exit := command(t, "", nil, "keys", "show", "primary", "--dir", s.dir)
	if exit != 0 {
		t.Fatalf("keys show: exit %d: %s", exit, errs)
	}
	return strings.TrimSpace(out)
}

// warmed waits until a member of the group says that it has all of a partition.
func warmed(t *testing.T, js jetstream.JetStream, id feed.Partition, lsn feed.LSN) {
	t.Helper()
	poll.Until(t, func() error {
		members, err := leases.Processes(t.Context(), js, "")
		if err != nil {
			return err
		}
		for i := range members {
			if at, ok := members[i].Warm[owner.LeaseResource(id)]; ok && feed.LSN(at) >= lsn {
				return nil
			}
		}
		return fmt.Errorf("no copy of %s holds LSN %d", id, lsn)
	})
}

// TestStandby_IsReadFrom stops the owner of a container without a word. Commands and an official SDK go on reading, from
// the standby: who said that a state of a moment ago will do, and a session that the standby has caught up with.
func TestStandby_IsReadFrom(t *testing.T) {
	t.Parallel()
	server := natsServer(t)
	nc, err := nats.Connect(server, asTester())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	a := serve(t, server)
	client := dial(t, server)
	if _, err := client.Catalog().Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Standbys: 1}); err != nil {
		t.Fatal(err)
	}
	things := open(t, client, "things")
	item, err := things.Upsert(t.Context(), []byte(`{"id":"x","k":"k1","n":1}`)) // a owns it, for there is no other
	if err != nil {
		t.Fatal(err)
	}
	b := serve(t, server)
	warmed(t, js, things.Partitions()[0], item.ETag.LSN)
	key := b.key(t)
	tell(t, a, syscall.SIGSTOP)

	const eventual = "--consistency=eventual"
	over := func(stdin string, args ...string) (string, string, int) {
		return command(t, stdin, []string{"MILLRACE_ENDPOINT=" + b.url, "MILLRACE_KEY=" + key}, args...)
	}
	for name, run := range map[string]func() (string, string, int){
		"query": func() (string, string, int) {
			return command(t, "", nil, "query", "SELECT * FROM things", "-o", "ndjson", eventual, "--server", server)
		},
		"items get": func() (string, string, int) {
			return command(t, "", nil, "items", "get", "things", "x", "--key", "k1", eventual, "--server", server)
		},
		"query over HTTP": func() (string, string, int) {
			return over("", "query", "SELECT * FROM things", "-o", "ndjson", eventual)
		},
		"items get over HTTP": func() (string, string, int) { return over("", "items", "get", "things", "x", "--key", "k1", eventual) },
	} {
		out, errs, exit := run()
		if exit != 0 || !strings.Contains(strings.ReplaceAll(out, " ", ""), `"n":1`) {
			t.Errorf("%s: exit %d: %s%s", name, exit, out, errs)
		}
	}
	if _, errs, exit := command(t, "", nil, "query", "things", "--consistency", "weak", "--server", server); exit != 2 || !strings.Contains(errs, "eventual is expected") {
		t.Errorf("an unknown consistency: exit %d: %s", exit, errs)
	}

	sdk := sdkContainer(t, b.url, key)
	read := func(token string) (azcosmos.ItemResponse, error) {
		return sdk.ReadItem(t.Context(), azcosmos.NewPartitionKeyString("k1"), "x", &azcosmos.ItemOptions{SessionToken: &token})
	}
	resp, err := read(fmt.Sprintf("0:-1#%d", uint64(item.ETag.LSN)))
	var got struct{ N int }
	if err == nil {
		err = json.Unmarshal(resp.Value, &got)
	}
	if err != nil || got.N != 1 {
		t.Errorf("a session that has seen the item read %s: %v", resp.Value, err)
	}
	if resp, err := read(fmt.Sprintf("0:-1#%d", uint64(item.ETag.LSN)+1000)); err == nil {
		t.Errorf("a session that has seen more than the standby read %s", resp.Value)
	}
	tell(t, a, syscall.SIGCONT)
	poll.Until(t, func() error {
		_, err := things.Read(t.Context(), item.Key, "x")
		return err
	})
}

// sdkContainer is the container as an official SDK sees it, which does not try again what is refused.
func sdkContainer(t *testing.T, url, key string) *azcosmos.ContainerClient {
	t.Helper()
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		t.Fatal(err)
	}
	o := &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{}}}
	o.Retry.MaxRetries = -1
	client, err := azcosmos.NewClientWithKey(url, credential, o)
	if err != nil {
		t.Fatal(err)
	}
	ct, err := client.NewContainer("default", "things")
	if err != nil {
		t.Fatal(err)
	}
	return ct
}
