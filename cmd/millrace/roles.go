package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
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

func newWorker(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker process over a NATS cluster",
		Long: `Worker runs a process that carries out pipelines. Several of them share the work,
physical partition by physical partition; when one dies the others go on where it
stood, in one or two seconds, and where one hangs within ten.

A worker needs no directory. With --dir it keeps its identity there, and when it
starts again it has its leases at once and does not wait for them to expire.`,
		Example: "  millrace worker --server nats://a:4222,nats://b:4222",
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := cmd.Flags().Changed("dir") || os.Getenv(configs.EnvName("dir")) != "" || a.configFile != ""
			return a.serve(cmd.Context(), node.Roles{Worker: true, Anonymous: !named})
		},
	}
	a.nodeFlags(cmd)
	return cmd
}
