package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines"
)

func newVerify(a *app) *cobra.Command {
	var wait time.Duration
	var list int
	cmd := &cobra.Command{
		Use:   "verify [PIPELINE...]",
		Short: "Recompute every copy from its source and tell what differs",
		Long: `Verify reads every item that holds copies and compares each copy with its source,
while writes go on. The answer is equal; behind, if copies differ that the
pipeline has not come to within --wait; or drift, if nothing in flight explains
the difference. References whose source is not there are dangling and told
besides.

It exits with 1 unless all copies are equal.`,
		Example: "  millrace verify\n  millrace verify category-names -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				var names []pipelines.Metadata
				for _, arg := range args {
					database, name := a.split(arg)
					names = append(names, pipelines.Metadata{Name: name, Database: database})
				}
				report, err := a.verify(ctx, s, pipelines.VerifyConfig{Timeout: wait, ListMax: list}, names)
				if err != nil {
					return err
				}
				if err := a.print(report, func(w io.Writer) error { return printReport(w, report) }); err != nil {
					return err
				}
				if report.Verdict != pipelines.VerdictEqual {
					return &badNews{errTold}
				}
				return nil
			})
		},
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for what is in flight; below 0 is not at all")
	cmd.Flags().IntVar(&list, "list", 100, "differences to list of each pipeline and kind; all are counted")
	return cmd
}

// verify compares copies and shows how far it is on standard error.
func (a *app) verify(ctx context.Context, s *session, cfg pipelines.VerifyConfig, names []pipelines.Metadata) (*pipelines.Report, error) {
	bar := newProgress(a.err, "verifying", "items")
	cfg.Bucket = s.cfg.Leases.Bucket
	cfg.Progress = func(p pipelines.VerifyProgress) {
		note := plural(p.Copies, "copy", "copies")
		if p.Waiting > 0 {
			note += fmt.Sprintf(", waiting for %s in flight", plural(p.Waiting, "item", "items"))
		}
		bar.set(p.Items, p.Total, note)
	}
	report, err := pipelines.NewVerifier(s.js, s.registry, s.client, cfg).Verify(ctx, names...)
	bar.done()
	return report, err
}

func printReport(w io.Writer, report *pipelines.Report) error {
	if err := report.Print(w); err != nil || len(report.Pipelines) == 0 {
		return err
	}
	var copies, dangling int64
	for _, p := range report.Pipelines {
		copies += p.Copies
		dangling += p.Dangling
	}
	fmt.Fprintf(w, "\n%s: %s in %s", report.Verdict, plural(copies, "copy", "copies"), report.Duration.Round(time.Millisecond))
	if dangling > 0 {
		fmt.Fprintf(w, "; %s", plural(dangling, "dangling reference", "dangling references"))
	}
	fmt.Fprintln(w)
	switch report.Verdict {
	case pipelines.VerdictBehind:
		fmt.Fprintln(w, "next: see millrace status; a paused pipeline goes on with millrace resume")
	case pipelines.VerdictDrift:
		fmt.Fprintln(w, "next: write the source again, or the item that holds the copy: its pipeline then compares anew")
	case pipelines.VerdictEqual:
	}
	return nil
}
