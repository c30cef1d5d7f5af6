package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines"
)

func newApply(a *app) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR...",
		Short: "Declare containers and pipelines, or change them",
		Long: `Apply makes containers and pipelines be as the files declare them. To apply the
same again does nothing. If anything is wrong with the declarations, all of it is
told with file, line and column, and nothing is changed.`,
		Example: "  millrace apply -f configs/webstore",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return &usageError{errors.New("name what to apply: millrace apply -f FILE, a directory, or - for standard input")}
			}
			declared, err := pipelines.Load(files...)
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				done, err := s.registry.Apply(ctx, declared)
				if len(done) > 0 {
					if printErr := a.printOutcomes(done); printErr != nil {
						return printErr
					}
				}
				return err
			})
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file or directory of declarations; - is standard input; may be given again")
	return cmd
}

func (a *app) printOutcomes(done []pipelines.Outcome) error {
	return a.print(map[string]any{"applied": done}, func(w io.Writer) error {
		for _, o := range done {
			fmt.Fprintln(w, o)
		}
		return nil
	})
}
