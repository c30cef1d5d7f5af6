package pipelines_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/processors"
)

// TestStatus_AProcessorNotesItsRate in the checkpoint, so that one look tells it.
func TestStatus_AProcessorNotesItsRate(t *testing.T) {
	n := rooted(t, t.TempDir())
	var noted atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() {
		watched <- leases.Watch(ctx, n.js, "", func(l leases.Lease) {
			if !strings.Contains(l.Resource, "sales") {
				return
			}
			if cp, err := processors.DecodeCheckpoint(l.Checkpoint); err == nil && cp.Rate > 0 && cp.Saved > 0 {
				noted.Store(true)
			}
		})
	}()
	n.apply(t, decode(t, saleRows("./sales")))
	n.idle(t)
	eventually(t, func() string {
		if !noted.Load() {
			return "no checkpoint has a rate"
		}
		return ""
	})
	cancel()
	if err := <-watched; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// TestStatus_OneLookTellsTheCopiesOfNow although no checkpoint has them yet.
func TestStatus_OneLookTellsTheCopiesOfNow(t *testing.T) {
	n := newIdleNode(t)
	n.apply(t, decode(t, saleContainer))
	n.put(t, "sale", `{"id":"s1","customerId":"k1"}`, `{"id":"s2","customerId":"k2"}`, `{"id":"s3","customerId":"k3"}`)
	n.workEvery(t, n.client, compile.SinkLimits{Roots: []string{t.TempDir()}}, time.Hour)
	n.apply(t, decode(t, saleRows("./sales")))
	eventually(t, func() string {
		once := status.NewMonitor(n.js, n.registry, status.MonitorConfig{})
		defer once.Close()
		s, err := once.Read(t.Context())
		if err != nil {
			return err.Error()
		}
		if rows := s.Pipelines[0].Counts.Rows; rows != 3 {
			return fmt.Sprintf("status tells of %d rows, not 3", rows)
		}
		return ""
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
