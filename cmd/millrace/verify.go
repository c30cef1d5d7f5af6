package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

func newVerify(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [PIPELINE...]",
		Short: "Recompute every copy from its source and tell what differs",
		Long: `Verify reads all items and compares each copy with its source: fields with the
items that they are copied from, aggregates with their members, rows with their
items, while writes go on. The answer is equal; behind, if copies differ that the
pipeline has not come to within --settle; or drift, if nothing in flight explains
the difference. References whose source is not there are dangling and told
besides. What cannot be read here, such as a sink whose secret is in no variable of
this shell, is unjudged, with the reason; the other pipelines are judged. So are rows
of items that are gone where the log was trimmed that would tell whether they have
to be there; they are counted.

It exits with 1 if copies are behind or drift, and with 2 if all are equal that
could be judged, and some could not.`,
		Example: "  millrace verify\n  millrace verify category-names -o json",
	}
	var at endpointFlags
	a.addOperator(cmd, &at)
	return a.newComparison(cmd, "verifying", (*session).verifier, &at, map[verify.Verdict]string{
		verify.VerdictUnjudged: "run it where the workers run, or set the variables that it names, and verify again; what was trimmed nobody can judge any more",
		verify.VerdictBehind:   "see millrace status; a paused pipeline goes on with millrace resume, and --settle 5m waits longer for one that is slow",
		verify.VerdictDrift:    "write the source again, or the item that holds the copy, or let millrace repair do it",
	})
}

func (s *session) verifier(cfg verify.Config) compare {
	return verify.New(s.js, s.registry, s.client, cfg).Verify
}

// compare compares the copies of some pipelines, or of all, with their sources.
type compare func(context.Context, ...spec.Metadata) (*verify.Report, error)

// newComparison completes verify and repair, which differ in what they do about a
// difference. next tells what to do after each verdict.
// at is where keys of operators are taken; nil where none is for it.
func (a *app) newComparison(cmd *cobra.Command, doing string, with func(*session, verify.Config) compare, at *endpointFlags, next map[verify.Verdict]string) *cobra.Command {
	var settle time.Duration
	var list int
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names := a.named(args)
		over := func(ctx context.Context, s *session) error {
			bar := newProgress(a.err, doing, "items")
			report, err := with(s, verify.Config{Timeout: settle, ListMax: list, Bucket: s.cfg.Leases.Bucket, Progress: bar.compared})(ctx, names...)
			bar.done()
			if err != nil {
				return err
			}
			return a.printVerdict(report, next)
		}
		if at == nil {
			return a.withSession(cmd.Context(), over)
		}
		return a.withOperator(cmd, at, func(ctx context.Context, c *operator.Client) error {
			if cmd.Flags().Changed("list") {
				return &usageError{errors.New("--list is for credentials of NATS: the key of an operator shows nothing of items")}
			}
			report, err := c.Verify(ctx, operator.VerifyRequest{Pipelines: names, Settle: settle})
			if err != nil {
				return err
			}
			return a.printVerdict(report, next)
		}, over)
	}
	cmd.Flags().DurationVar(&settle, flagSettle, 30*time.Second, "how long to wait for what is in flight; below 0 is not at all")
	cmd.Flags().IntVar(&list, "list", 100, "differences to list of each pipeline and kind; all are counted")
	return cmd
}

// named are the pipelines that arguments name.
func (a *app) named(args []string) (names []spec.Metadata) {
	for _, arg := range args {
		database, name := a.splitName(arg)
		names = append(names, spec.Metadata{Name: name, Database: database})
	}
	return names
}

// compared shows how far a comparison is.
func (p *progress) compared(at verify.Progress) {
	note := format.Plural(at.Copies, "copy", "copies")
	if at.Waiting > 0 {
		note += fmt.Sprintf(", waiting for %s in flight", format.Plural(at.Waiting, "item", "items"))
	}
	p.set(at.Items, max(at.Total, at.Items), note)
}

// printVerdict prints a report, which is bad news unless all is equal.
func (a *app) printVerdict(report *verify.Report, next map[verify.Verdict]string) error {
	if err := a.print(report, func(w io.Writer) error { return printFound(w, report, next) }); err != nil {
		return err
	}
	switch report.Verdict {
	case verify.VerdictEqual:
		return nil
	case verify.VerdictUnjudged:
		return errUnjudged
	default:
		return &badNews{errTold}
	}
}

// printFound prints a report, its sum in one line, and what to do next.
func printFound(w io.Writer, report *verify.Report, next map[verify.Verdict]string) error {
	if err := report.Print(w); err != nil || len(report.Pipelines) == 0 {
		return err
	}
	var copies, groups, repaired, dangling, unjudged int64
	for i := range report.Pipelines {
		p := &report.Pipelines[i]
		copies, groups, repaired, dangling = copies+p.Copies, groups+p.Groups, repaired+p.Repaired, dangling+p.Dangling
		unjudged += p.Unjudged
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
	if unjudged > 0 {
		fmt.Fprintf(w, "; %s unjudged", format.Plural(unjudged, "row", "rows"))
	}
	fmt.Fprintln(w)
	if todo := next[report.Verdict]; todo != "" {
		fmt.Fprintln(w, "next: "+todo)
	}
	return nil
}

func newRepair(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [PIPELINE...]",
		Short: "Repair what verify lists as drift",
		Long: `Repair recomputes every copy from its source, as verify does, and repairs those that
differ, while writes and pipelines go on. Each is repaired by a write that is carried
out only if what was seen is still there; nothing else is touched. What
a pipeline has not come to within --settle is left to it. References whose source
is not there stay as they are.

First the dead letters of the pipelines are tried once more, for up to --settle, and
those that were dropped. The dead letter of a change that an aggregate still cannot fold
goes then, for the repair adds what it means, and no retry will.

It exits with 1 unless all copies are equal then, and with 2 if all are that could be
judged, and some could not: rows whose history was trimmed are left alone.`,
		Example: "  millrace repair\n  millrace repair customer-totals -o json",
	}
	return a.newComparison(cmd, "repairing", (*session).repairer, nil, map[verify.Verdict]string{
		verify.VerdictBehind: "see millrace status, and repair again when the pipeline has caught up",
		verify.VerdictDrift:  "the reasons why the rest could not be repaired are listed above",
	})
}

func (s *session) repairer(cfg verify.Config) compare {
	return verify.NewRepairer(s.js, s.registry, s.client, cfg).Repair
}
