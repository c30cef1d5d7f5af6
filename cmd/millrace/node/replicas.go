package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/configs"
)

// AdoptReplicas takes over the number of replicas of a Millrace that is there
// already, so that a command, or a process with an older configuration, does not
// take replicas away.
func AdoptReplicas(ctx context.Context, js jetstream.JetStream, cfg *configs.Config) error {
	stream, err := js.Stream(ctx, "KV_millrace_catalog")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for Millrace's catalog: %w", err)
	}
	if n := stream.CachedInfo().Config.Replicas; n > cfg.Replicas() {
		cfg.Feed.Log.Replicas, cfg.Leases.Replicas = n, n
		cfg.Store.Log = cfg.Feed.Log
	}
	return nil
}
