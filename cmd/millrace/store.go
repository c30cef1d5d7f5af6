package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/store/gateway"
)

func newStore(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Run a store process over a NATS cluster",
		Long: `Store runs a process that owns physical partitions: it serves reads and writes of
those whose leases it holds. Several of them share the partitions. What it keeps
in its directory is a cache; everything is in the logs, in NATS.`,
		Example: "  millrace store --server nats://a:4222,nats://b:4222 --dir /var/lib/millrace",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), node.Roles{Store: true})
		},
	}
	a.nodeFlags(cmd)
	gatewayFlags(cmd, gateway.Off)
	return cmd
}
