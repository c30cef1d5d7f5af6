package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newPause(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "pause PIPELINE",
		Short:   "End the work of a pipeline until resume",
		Long:    "Pause ends the work of a pipeline. What changes meanwhile is copied after resume.",
		Example: "  millrace pause category-names",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.split(args[0])
				if _, err := s.registry.Pause(ctx, database, name); err != nil {
					return err
				}
				return a.printDone("pipeline", database, name, "paused")
			})
		},
	}
}
