package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
)

func newApply(a *app) *cobra.Command {
	var files []string
	var opts registry.ApplyOptions
	var at endpointFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR...",
		Short: "Declare containers and pipelines, or change them",
		Long: `Apply makes containers and pipelines be as the files declare them. To apply the
same again does nothing. If anything is wrong with the declarations, all of it is
told with file, line and column, and nothing is changed.

A new pipeline begins with all that is there, while it follows what changes: it reads
the log of its source, or, where that is long or was trimmed, the items; millrace plan
says which. If a pipeline changes its meaning,
so that what it has written does not hold any more, apply is refused, unless you
choose how it begins anew: --backfill, with all that is there, or --from-now, with
what changes from now on, which leaves what was written as it is. Then millrace
backfill brings what is there, as a whole or part by part.

What is not there yet, such as a quorum of NATS servers, is waited for, as long as
--wait says, so that apply does not stop half-way through the files.

With --plan HASH, the hash that millrace plan printed, nothing is done if a
definition, generation or index has changed since.`,
		Example: "  millrace apply -f configs/webstore\n  millrace apply -f orders.yaml --backfill",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDeclare("apply", files, opts); err != nil {
				return err
			}
			texts, err := spec.ReadTexts(files...)
			if err != nil {
				return err
			}
			declared, err := spec.LoadTexts(texts)
			if err != nil {
				return err
			}
			// Declarations are carried out one after the other, and an error does not undo those
			// before it. So they are printed first.
			tell := func(done []registry.Outcome, err error) error {
				if len(done) > 0 {
					if printErr := a.printOutcomes(done); printErr != nil {
						return printErr
					}
				}
				return err
			}
			return a.withOperator(cmd, &at, func(ctx context.Context, c *operator.Client) error {
				return tell(c.Apply(ctx, operator.Declare(texts, opts)))
			}, func(ctx context.Context, s *session) error {
				opts.Await = a.await
				return tell(s.registry.Apply(ctx, declared, opts))
			})
		},
	}
	a.addOperator(cmd, &at)
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file or directory of declarations; - is standard input; may be given again")
	cmd.Flags().BoolVar(&opts.Backfill, "backfill", false, "let pipelines change their meaning, and begin anew with all that is there")
	cmd.Flags().BoolVar(&opts.FromNow, "from-now", false, "let pipelines begin with what changes from now on; not for aggregates")
	cmd.Flags().BoolVar(&opts.DiscardExpired, "discard-expired", false, "let projections begin without the rows of items that have expired, where the log that knew them was trimmed")
	cmd.Flags().StringVar(&opts.Plan, "plan", "", "do only what the plan with this hash said")
	return cmd
}

// checkDeclare checks the flags that apply and plan have in common.
func checkDeclare(verb string, files []string, opts registry.ApplyOptions) error {
	if err := checkFiles(verb, files); err != nil {
		return err
	}
	if opts.Backfill && opts.FromNow {
		return &usageError{errors.New("--backfill begins with all that is there, --from-now leaves it out: choose one")}
	}
	return nil
}

// checkFiles returns a usage error if no declarations are named.
func checkFiles(verb string, files []string) error {
	if len(files) == 0 {
		return &usageError{fmt.Errorf("name what to %[1]s: millrace %[1]s -f FILE, a directory, or - for standard input", verb)}
	}
	return nil
}

func (a *app) printOutcomes(done []registry.Outcome) error {
	return a.print(map[string]any{"applied": done}, func(w io.Writer) error {
		for _, o := range done {
			fmt.Fprintln(w, o)
		}
		return nil
	})
}
