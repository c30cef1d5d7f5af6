package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/registry"
)

func newPause(a *app) *cobra.Command {
	return a.onPipeline(&cobra.Command{
		Use:     "pause PIPELINE",
		Short:   "End the work of a pipeline until resume",
		Long:    "Pause ends the work of a pipeline. What changes meanwhile is copied after resume.",
		Example: "  millrace pause category-names",
	}, (*registry.Registry).Pause, "paused")
}

// onPipeline completes a command that does one thing to one pipeline.
func (a *app) onPipeline(cmd *cobra.Command, act func(*registry.Registry, context.Context, string, string) (registry.Record, error), done string) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
			database, name := a.splitName(args[0])
			if _, err := act(s.registry, ctx, database, name); err != nil {
				return err
			}
			return a.printDone("pipeline", database, name, done)
		})
	}
	return cmd
}

func newResume(a *app) *cobra.Command {
	return a.onPipeline(&cobra.Command{
		Use:     "resume PIPELINE",
		Short:   "Let a paused pipeline go on where it stood",
		Example: "  millrace resume category-names",
	}, (*registry.Registry).Resume, "resumed")
}
