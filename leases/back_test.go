package leases_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
)

// TestServerComesBackWithAnEarlierState stops the server, and starts it with the files that it had some writes ago. The
// processes live on, and hold all leases again in greater epochs.
func TestServerComesBackWithAnEarlierState(t *testing.T) {
	t.Parallel()
	opts := &server.Options{
		JetStream: true, StoreDir: t.TempDir(), Host: "127.0.0.1", Port: ports.Free(t), NoLog: true, NoSigs: true,
	}
	run := func() *server.Server {
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(poll.Most) {
			t.Fatal("server not ready")
		}
		return s
	}
	end := func(s *server.Server) {
		s.Shutdown()
		s.WaitForShutdown()
	}
	s := run()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	cfg := fast("a")
	cfg.TTL = 5 * time.Second // the server answers within it, while there is one
	a := start(t, js, cfg, names(4)...)
	a.waitCount(t, 4)
	end(s)
	earlier := t.TempDir()
	if err := os.CopyFS(earlier, os.DirFS(opts.StoreDir)); err != nil {
		t.Fatal(err)
	}
	s = run()
	poll.Until(t, func() error { // a request that finds no JetStream gets no answer
		_, err := js.KeyValue(t.Context(), leases.DefaultBucket)
		return err
	})
	cfg.Node = "b"
	b := start(t, js, cfg, names(4)...)
	b.waitCount(t, 2)
	a.waitCount(t, 2)
	poll.Until(t, func() error { // each lease is written in the part that is lost
		for _, name := range names(4) {
			held := [...]*leases.Held{a.get(name), b.get(name)}
			i := slices.IndexFunc(held[:], func(h *leases.Held) bool { return h != nil && h.Valid() })
			if i < 0 {
				return fmt.Errorf("nobody holds %s", name)
			}
			if err := held[i].Save(t.Context(), nil); err != nil {
				return err
			}
		}
		return nil
	})
	before := map[string]uint64{}
	all, err := leases.List(t.Context(), js, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range all {
		before[lease.Resource] = lease.Epoch
	}
	kv, err := js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // the lost part is longer than what is written soon
		if _, err := kv.PutString(t.Context(), "other", "x"); err != nil {
			t.Fatal(err)
		}
	}
	end(s)
	opts.StoreDir = earlier
	s = run()
	defer end(s)
	for _, p := range []*process{a, b} {
		p.wait(t, "hold its share anew", func(held map[string]*leases.Held) bool {
			for name, h := range held {
				if h.Epoch() <= before[name] {
					return false
				}
			}
			return len(held) == 2
		})
	}
	a.end(t)
	b.waitCount(t, 4)
	b.end(t)
}
