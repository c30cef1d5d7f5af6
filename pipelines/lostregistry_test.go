package pipelines_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
)

// transcript is what a worker logs, read while it does.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestI3_ARegistryThatIsMadeAgainForgetsNothing loses the registry and has it made again, empty at first, while a worker
// runs and an owner may ask how much of its log is needed. That it names no pipeline is no deletion: checkpoints,
// accumulators and logs stay, and the pipeline goes on when its record is entered from its copy.
func TestI3_ARegistryThatIsMadeAgainForgetsNothing(t *testing.T) {
	t.Parallel()
	n := newIdleNode(t)
	said := &transcript{}
	work := func() (stop func()) {
		return n.workWith(t, n.client, 10*time.Millisecond, pipelines.SupervisorConfig{
			Verify: verify.ContinuousConfig{Continuous: "off"}, Logger: slog.New(slog.NewTextHandler(said, nil)),
		})
	}
	stop := work()
	n.apply(t, decode(t, shopContainers))
	n.apply(t, totals(t, countAndSum, "eventual"))
	n.customers(t, 2, 1)
	n.idle(t)
	n.field(t, "c1", "orderCount", "1")
	stop() // its watch would not tell at once
	copies, err := spare.New(n.js, 1).All(t.Context(), registry.RecordSource().Prefix)
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies %v, %v", copies, err)
	}

	if err := n.js.DeleteKeyValue(t.Context(), registry.Bucket); err != nil {
		t.Fatal(err)
	}
	kv, err := n.js.CreateKeyValue(t.Context(), registry.BucketConfig(1))
	if err != nil {
		t.Fatal(err)
	}
	work()
	poll.Until(t, func() error { // it was about to forget
		text := said.String()
		return poll.Unless(strings.Contains(text, "record pipeline.default.customer-totals is lost"), text)
	})
	held := 0
	for _, l := range n.workerLeases(t) {
		if strings.HasPrefix(l.Resource, "pipe/") && len(l.Checkpoint) > 0 {
			held++
		}
	}
	if held == 0 {
		t.Error("no checkpoint is left")
	}
	if rules := n.rules(t, "customer"); len(rules) != 1 {
		t.Errorf("rules %+v are wanted", rules)
	}
	_, err = n.registry.Holds(t.Context(), leases.DefaultBucket)
	if _, damaged := errors.AsType[*store.DamageError](err); !damaged {
		t.Errorf("what is needed of logs: %v", err)
	}

	for key, record := range copies {
		if _, err := kv.Create(t.Context(), key, record); err != nil {
			t.Fatal(err)
		}
	}
	n.customers(t, 2, 2)
	n.field(t, "c1", "orderCount", "2")
}
