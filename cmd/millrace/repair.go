package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

func newRepair(a *app) *cobra.Command {
	var settle time.Duration
	var list int
	cmd := &cobra.Command{
		Use:   "repair [PIPELINE...]",
		Short: "Repair what verify lists as drift",
		Long: `Repair recomputes every copy from its source, as verify does, and repairs those that
differ, while writes and pipelines go on. Each is repaired by a write that is
carried out only if what was seen is still there; nothing else is touched. What
a pipeline has not come to within --settle is left to it. References whose source
is not there stay as they are.

First the dead letters of the pipelines are tried once more, for up to --settle, and
those that were dropped. The dead letter of a change that an aggregate still cannot fold
goes then, for the repair adds what it means, and no retry will.

It exits with 1 unless all copies are equal then.`,
		Example: "  millrace repair\n  millrace repair customer-totals -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				report, err := a.repair(ctx, s, verify.Config{Timeout: settle, ListMax: list}, a.pipelines(args))
				if err != nil {
					return err
				}
				return a.tell(report, func(w io.Writer) error { return printRepair(w, report) })
			})
		},
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().DurationVar(&settle, flagSettle, 30*time.Second, "how long to wait for what is in flight; below 0 is not at all")
	cmd.Flags().IntVar(&list, "list", 100, "differences to list of each pipeline and kind; all are counted")
	return cmd
}

// repair repairs copies and shows how far it is on standard error.
func (a *app) repair(ctx context.Context, s *session, cfg verify.Config, names []spec.Metadata) (*verify.Report, error) {
	bar := newProgress(a.err, "repairing", "items")
	defer bar.done()
	return verify.NewRepairer(s.js, s.registry, s.client, a.watched(s, cfg, bar)).Repair(ctx, names...)
}

func printRepair(w io.Writer, report *verify.Report) error {
	return printFound(w, report, map[verify.Verdict]string{
		verify.VerdictBehind: "see millrace status, and repair again when the pipeline has caught up",
		verify.VerdictDrift:  "the reasons why the rest could not be repaired are listed above",
	})
}
