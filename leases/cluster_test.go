package leases_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
)

// TestReplicatedBucket hands over and survives the loss of a server on a bucket
// with three replicas, whose refusals have another code.
func TestReplicatedBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders")
	}
	t.Parallel()
	three := clustertest.Start(t)
	js := three.JetStream()
	three.Wait(func(ctx context.Context) error { // until there is a leader
		_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: leases.DefaultBucket, Replicas: 3})
		return err
	})
	cfg := fast("a")
	cfg.TTL = 2 * poll.Most              // what passes on was handed over, nothing expires
	cfg.RenewInterval = 10 * time.Second // a release that takes longer is left to expire
	a := start(t, js, cfg, names(6)...)
	a.waitCount(t, 6)
	cfg.Node = "b"
	b := start(t, three.JetStream(), cfg, names(6)...)
	b.waitCount(t, 3)
	a.waitCount(t, 3)
	a.end(t)
	b.waitCount(t, 6)
	cfg.Node = "a"
	again := start(t, three.JetStream(), cfg, names(6)...)
	again.waitCount(t, 3)

	status, err := js.Stream(t.Context(), "KV_"+leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	three.Stop(three.Named(status.CachedInfo().Cluster.Leader))
	// Whatever is lost meanwhile is held again.
	h := func(p *process) *leases.Held {
		for _, name := range names(6) {
			if h := p.get(name); h != nil && h.Valid() {
				return h
			}
		}
		return nil
	}
	poll.Until(t, func() error {
		for _, p := range []*process{b, again} {
			held := h(p)
			if held == nil {
				return fmt.Errorf("%s holds nothing", p.m.Holder())
			}
			if err := held.Save(t.Context(), []byte("after")); err != nil {
				return err
			}
		}
		return nil
	})
	b.end(t)
	again.end(t)
}
