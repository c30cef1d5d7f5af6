package pipelines_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/processors"
)

// TestStatus_AProcessorNotesItsRate in the checkpoint, so that one look tells it.
func TestStatus_AProcessorNotesItsRate(t *testing.T) {
	n := rooted(t, t.TempDir())
	kv, err := n.js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.Watch(t.Context(), "lease.>") // an idle processor's rate is zero again
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Stop() }()
	n.apply(t, decode(t, saleRows("./sales")))
	n.idle(t)
	poll.Until(t, func() error {
		for {
			select {
			case entry := <-watch.Updates():
				if hasRate(entry) {
					return nil
				}
			default:
				return errors.New("no checkpoint has a rate")
			}
		}
	})
}

// hasRate tells whether an entry is the lease of a processor of sales whose checkpoint
// has a rate.
func hasRate(entry jetstream.KeyValueEntry) bool {
	var lease struct {
		Resource   string `json:"resource"`
		Checkpoint []byte `json:"checkpoint"`
	}
	if entry == nil || json.Unmarshal(entry.Value(), &lease) != nil || !strings.Contains(lease.Resource, "sales") {
		return false
	}
	cp, err := processors.DecodeCheckpoint(lease.Checkpoint)
	return err == nil && cp.Rate > 0 && cp.Saved > 0
}

// TestStatus_OneLookTellsTheCopiesOfNow although no checkpoint has them yet.
func TestStatus_OneLookTellsTheCopiesOfNow(t *testing.T) {
	t.Parallel()
	n := newIdleNode(t)
	n.apply(t, decode(t, saleContainer))
	n.put(t, "sale", `{"id":"s1","customerId":"k1"}`, `{"id":"s2","customerId":"k2"}`, `{"id":"s3","customerId":"k3"}`)
	n.workEvery(t, n.client, compile.SinkLimits{Roots: []string{t.TempDir()}}, time.Hour)
	n.apply(t, decode(t, saleRows("./sales")))
	poll.Until(t, func() error {
		once := status.NewMonitor(n.js, n.registry, status.MonitorConfig{})
		defer once.Close()
		s, err := once.Read(t.Context())
		if err != nil {
			return err
		}
		if rows := s.Pipelines[0].Counts.Rows; rows != 3 {
			return fmt.Errorf("status tells of %d rows, not 3", rows)
		}
		return nil
	})
	held, err := leases.List(t.Context(), n.js, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range held {
		if !strings.Contains(held[i].Resource, "sales") {
			continue
		}
		if cp, err := processors.DecodeCheckpoint(held[i].Checkpoint); err != nil || cp.Counts.Rows != 0 {
			t.Errorf("the checkpoint of %s has %d rows, %v; the test needs one that has none yet", held[i].Resource, cp.Counts.Rows, err)
		}
	}
}
