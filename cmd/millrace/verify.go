package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

func newVerify(a *app) *cobra.Command {
	var settle time.Duration
	var list int
	cmd := &cobra.Command{
		Use:   "verify [PIPELINE...]",
		Short: "Recompute every copy from its source and tell what differs",
		Long: `Verify reads all items and compares each copy with its source: fields with the
items that they are copied from, aggregates with their members, rows with their
items, while writes go on. The answer is equal; behind, if copies differ that the
pipeline has not come to within --settle; or drift, if nothing in flight explains
the difference. References whose source is not there are dangling and told
besides. What cannot be read here, such as a sink whose secret is in no variable of
this shell, is unjudged, with the reason; the other pipelines are judged.

It exits with 1 if copies are behind or drift, and with 2 if all are equal that
could be judged, and some could not.`,
		Example: "  millrace verify\n  millrace verify category-names -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, s *session) error {
				report, err := a.verify(ctx, s, verify.Config{Timeout: settle, ListMax: list}, a.pipelines(args))
				if err != nil {
					return err
				}
				return a.tell(report, func(w io.Writer) error { return printReport(w, report) })
			})
		},
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().DurationVar(&settle, flagSettle, 30*time.Second, "how long to wait for what is in flight; below 0 is not at all")
	cmd.Flags().IntVar(&list, "list", 100, "differences to list of each pipeline and kind; all are counted")
	return cmd
}

// pipelines reads the names of pipelines.
func (a *app) pipelines(args []string) []spec.Metadata {
	var names []spec.Metadata
	for _, arg := range args {
		database, name := a.split(arg)
		names = append(names, spec.Metadata{Name: name, Database: database})
	}
	return names
}

// tell prints a report, which is bad news unless all is equal.
func (a *app) tell(report *verify.Report, text func(io.Writer) error) error {
	if err := a.print(report, text); err != nil {
		return err
	}
	switch report.Verdict {
	case verify.VerdictEqual:
	case verify.VerdictUnjudged:
		return errUnjudged
	default:
		return &badNews{errTold}
	}
	return nil
}

// verify compares copies and shows how far it is on standard error.
func (a *app) verify(ctx context.Context, s *session, cfg verify.Config, names []spec.Metadata) (*verify.Report, error) {
	bar := newProgress(a.err, "verifying", "items")
	defer bar.done()
	return verify.New(s.js, s.registry, s.client, a.watched(s, cfg, bar)).Verify(ctx, names...)
}

// watched returns cfg with its progress shown by bar.
func (a *app) watched(s *session, cfg verify.Config, bar *progress) verify.Config {
	cfg.Bucket = s.cfg.Leases.Bucket
	cfg.Progress = func(p verify.Progress) {
		note := format.Plural(p.Copies, "copy", "copies")
		if p.Waiting > 0 {
			note += fmt.Sprintf(", waiting for %s in flight", format.Plural(p.Waiting, "item", "items"))
		}
		bar.set(p.Items, max(p.Total, p.Items), note)
	}
	return cfg
}

func printReport(w io.Writer, report *verify.Report) error {
	return printFound(w, report, map[verify.Verdict]string{
		verify.VerdictUnjudged: "run it where the workers run, or set the variables that it names, and verify again",
		verify.VerdictBehind:   "see millrace status; a paused pipeline goes on with millrace resume, and --settle 5m waits longer for one that is slow",
		verify.VerdictDrift:    "write the source again, or the item that holds the copy, or let millrace repair repair what differs",
	})
}

// printFound prints a report, its sum in one line, and what to do next.
func printFound(w io.Writer, report *verify.Report, next map[verify.Verdict]string) error {
	if err := report.Print(w); err != nil || len(report.Pipelines) == 0 {
		return err
	}
	var copies, groups, repaired, dangling int64
	for i := range report.Pipelines {
		p := &report.Pipelines[i]
		copies, groups, repaired, dangling = copies+p.Copies, groups+p.Groups, repaired+p.Repaired, dangling+p.Dangling
	}
	fmt.Fprintf(w, "\n%s: %s", report.Verdict, format.Plural(copies, "copy", "copies"))
	if groups > 0 {
		fmt.Fprintf(w, " and %s", format.Plural(groups, "group", "groups"))
	}
	fmt.Fprintf(w, " in %s", report.Duration.Round(time.Millisecond))
	if repaired > 0 {
		fmt.Fprintf(w, "; %s repaired", format.Plural(repaired, "difference", "differences"))
	}
	if dangling > 0 {
		fmt.Fprintf(w, "; %s", format.Plural(dangling, "dangling reference", "dangling references"))
	}
	fmt.Fprintln(w)
	if todo := next[report.Verdict]; todo != "" {
		fmt.Fprintln(w, "next: "+todo)
	}
	return nil
}
