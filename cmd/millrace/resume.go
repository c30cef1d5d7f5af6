package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newResume(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "resume PIPELINE",
		Short:   "Let a paused pipeline go on where it stood",
		Example: "  millrace resume category-names",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.split(args[0])
				if _, err := s.registry.Resume(ctx, database, name); err != nil {
					return err
				}
				return a.printDone("pipeline", database, name, "resumed")
			})
		},
	}
}
