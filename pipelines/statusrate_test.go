package pipelines_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/leases"
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
