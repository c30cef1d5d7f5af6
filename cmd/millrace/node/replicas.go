package node

import (
	"cmp"
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/upkeep"
)

// AdoptReplicas takes over the number of replicas that the stores of a Millrace
// keep which is there already, so that a command, or a process with another
// configuration, makes nothing with fewer. Stores bring what was made before them
// to that number, see package upkeep.
func AdoptReplicas(ctx context.Context, js jetstream.JetStream, cfg *configs.Config) error {
	n, err := upkeep.Wanted(ctx, js)
	if err == nil && n > cfg.Replicas() {
		cfg.Feed.Log.Replicas, cfg.Leases.Replicas = n, max(n, cfg.Leases.Replicas)
		cfg.Store.Log = cfg.Feed.Log
	}
	return err
}

// ReplicasWish is what streams and buckets are to have.
func ReplicasWish(cfg *configs.Config) upkeep.Wish {
	return upkeep.Wish{Replicas: cfg.Replicas(), Leases: cmp.Or(cfg.Leases.Bucket, leases.DefaultBucket), LeaseReplicas: cfg.Leases.Replicas}
}

// openKeeper makes what keeps streams and buckets as they are to be, in a store.
func (n *Node) openKeeper(context.Context) error {
	if n.roles.Store {
		n.keeper = upkeep.NewKeeper(n.js, n.catalog, upkeep.Config{
			Wish: ReplicasWish(n.cfg), Logger: n.log,
			Copies: []spare.Source{store.DatabaseRecords(), registry.RecordSource()},
		})
	}
	return nil
}
