package pipelines_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// countedKV counts the rounds of a reconciler, which reads the record of a pipeline in each.
type countedKV struct {
	jetstream.KeyValue
	reads atomic.Int64
}

func (c *countedKV) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	c.reads.Add(1)
	return c.KeyValue.Get(ctx, key)
}

// logText is a log that several goroutines write to.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how many lines hold all of some words.
func (l *logText) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		holds := true
		for _, word := range words {
			holds = holds && strings.Contains(line, word)
		}
		if holds {
			n++
		}
	}
	return n
}

// workLogged runs a worker whose log and whose reads of the registry are seen.
func (n *node) workLogged(t testing.TB) (kv *countedKV, log *logText, stop func()) {
	t.Helper()
	own, err := registry.Open(t.Context(), n.js, n.client, registry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	kv, log = &countedKV{KeyValue: own.KV}, &logText{}
	own.KV = kv
	worker := &node{system: &system{nc: n.nc, js: n.js, client: n.client, registry: own}}
	return kv, log, worker.workWith(t, n.client, 10*time.Millisecond, pipelines.SupervisorConfig{
		Verify: verify.ContinuousConfig{Continuous: "off"}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
}

// TestSwap_ThatIsRefusedForGoodIsToldOnce: a sink has rows of a generation that the registry does not know, as after a
// restore of an older one. Each worker warns of it once, and status tells it until another generation is registered.
func TestSwap_ThatIsRefusedForGoodIsToldOnce(t *testing.T) {
	t.Parallel()
	eachSink(t, func(t *testing.T, c *swapCase) {
		t.Helper()
		c.begin(t, nil, func(n noted) bool { return n.Generation == 2 && n.Swapping })
		c.open(t, 3) // nobody has registered it
		const rounds = 30
		for worker := range 2 {
			kv, log, stop := c.workLogged(t)
			poll.Until(t, func() error {
				return poll.Unless(log.count("level=WARN", "order-rows", "given up") > 0, fmt.Sprintf("worker %d does not warn", worker))
			})
			from := kv.reads.Load()
			poll.Until(t, func() error {
				p := c.status(t, "order-rows")
				if p.State != status.Stuck || !strings.Contains(p.Reason, "will never take the place") || !strings.Contains(p.Reason, "generation 3 has begun") {
					return fmt.Errorf("it is %s: %s", p.State, p.Reason)
				}
				return poll.Unless(kv.reads.Load() >= from+rounds, "the reconciler makes no rounds")
			})
			stop()
			if n := log.count("level=WARN", "order-rows", "given up"); n != 1 {
				t.Errorf("worker %d warns %d times", worker, n)
			}
		}
		if rec := c.record(t, "order-rows"); len(rec.Seen()) != 1 || rec.Seen()[0].Generation != 1 {
			t.Errorf("the rows of %d generations may be read: %+v", len(rec.Seen()), rec)
		}
		if _, err := c.registry.Rewind(t.Context(), "default", "order-rows", registry.RewindTo{}, ""); err != nil {
			t.Fatal(err)
		}
		_, log, stop := c.workLogged(t)
		defer stop()
		c.awaitInForce(t, "order-rows", 3)
		if p, rec := c.status(t, "order-rows"), c.record(t, "order-rows"); p.State == status.Stuck || rec.SwapRefused != "" {
			t.Errorf("it is %s: %s; record %+v", p.State, p.Reason, rec)
		}
		if n := log.count("level=WARN", "given up"); n != 0 {
			t.Errorf("it warns %d times still", n)
		}
	})
}
