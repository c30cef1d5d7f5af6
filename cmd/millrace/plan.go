package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
)

func newPlan(a *app) *cobra.Command {
	var files []string
	var opts registry.ApplyOptions
	var cfg plan.Config
	var at endpointFlags
	cmd := &cobra.Command{
		Use:   "plan -f FILE|DIR...",
		Short: "Tell what apply would do, and touch nothing",
		Long: `Plan tells what apply would do with the same files and flags: which containers and
pipelines it would make or change, which indexes it would add, how many items or rows
would not be as they are, with some of them before and after, which field decides
which, and about how long it would take. It reads, and writes nothing.

What would change is counted on the data as it is now. What a pipeline of the plan
would write for another one to read is not there yet, and a note says so.

If a pipeline changes its meaning, apply asks for --backfill or --from-now; without
either, plan counts as with --backfill.

The hash at the end is of definitions, generations and indexes, not of counts:
millrace apply --plan HASH does nothing if one of them has changed since.

It exits with 1 if apply would refuse the declarations.`,
		Example: "  millrace plan -f configs/webstore\n  millrace plan -f orders.yaml --backfill -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDeclare("plan", files, opts); err != nil {
				return err
			}
			if cfg.WritesPerSecond < 0 {
				return &usageError{fmt.Errorf("--rate %d: a number above 0 is expected", cfg.WritesPerSecond)}
			}
			if cfg.SamplesMax == 0 {
				cfg.SamplesMax = -1 // zero is the default of plan.Config
			}
			texts, err := spec.ReadTexts(files...)
			if err != nil {
				return err
			}
			declared, err := spec.LoadTexts(texts)
			if err != nil {
				return err
			}
			return a.withOperator(cmd, &at, func(ctx context.Context, c *operator.Client) error {
				if cmd.Flags().Changed("samples") {
					return &usageError{errors.New("--samples is for credentials of NATS: the key of an operator shows nothing of items")}
				}
				d := operator.Declare(texts, opts)
				d.WritesPerSecond = cfg.WritesPerSecond
				p, err := c.Plan(ctx, d)
				if err != nil {
					return err
				}
				return a.printPlan(p, files)
			}, func(ctx context.Context, s *session) error {
				return a.plan(ctx, s, declared, files, opts, cfg)
			})
		},
	}
	a.addOperator(cmd, &at)
	flags := cmd.Flags()
	flags.StringArrayVarP(&files, "file", "f", nil, "file or directory of declarations; - is standard input; may be given again")
	flags.BoolVar(&opts.Backfill, "backfill", false, "plan as for apply --backfill")
	flags.BoolVar(&opts.FromNow, "from-now", false, "plan as for apply --from-now")
	flags.IntVar(&cfg.SamplesMax, "samples", 3, "items or rows to show of each pipeline; 0 is none")
	flags.IntVar(&cfg.WritesPerSecond, "rate", 0, "writes per second to estimate the time by (default one for each kind of pipeline and sink)")
	return cmd
}

// plan makes a plan and prints it.
func (a *app) plan(ctx context.Context, s *session, declared *spec.Resources, files []string, opts registry.ApplyOptions, cfg plan.Config) error {
	bar := newProgress(a.err, "planning", "items")
	cfg.Progress = func(p plan.Progress) {
		bar.set(p.Items, p.Total, format.Plural(p.Changes, "change", "changes"))
	}
	p, err := plan.New(s.js, s.registry, s.client, cfg).Plan(ctx, declared, opts)
	bar.done()
	if err != nil {
		// A plan that is refused for a cycle comes with the graph, which shows it best.
		if p != nil && len(p.Graph.Cycles) > 0 && a.output == "table" {
			if printErr := plan.PrintGraph(a.out, &p.Graph, planStyle(a.out)); printErr != nil {
				return printErr
			}
		}
		return err
	}
	return a.printPlan(p, files)
}

func (a *app) printPlan(p *plan.Plan, files []string) error {
	return a.print(p, func(w io.Writer) error {
		if err := p.Print(w, planStyle(w)); err != nil {
			return err
		}
		return printPlanNext(w, p, files)
	})
}

// planStyle returns how to print on w.
func planStyle(w io.Writer) plan.Style {
	var style plan.Style
	style.Width, style.Color = colored(w)
	return style
}

// printPlanNext prints the command that carries the plan out.
func printPlanNext(w io.Writer, plan *plan.Plan, files []string) error {
	if !plan.Changes() {
		_, err := fmt.Fprintln(w, "\nApply would change nothing.")
		return err
	}
	var apply strings.Builder
	apply.WriteString("millrace apply")
	for _, f := range files {
		apply.WriteString(" -f " + quoted(f))
	}
	option := ""
	switch {
	case plan.Backfill, plan.Choice:
		option = " --backfill"
	case plan.FromNow:
		option = " --from-now"
	}
	_, err := fmt.Fprintf(w, "next: %s%s --plan %s\n", apply.String(), option, plan.Hash)
	if plan.Choice && err == nil {
		_, err = fmt.Fprintln(w, "      or with --from-now in place of --backfill, where what is there may stay as it is")
	}
	return err
}

// quoted returns an argument as a shell needs it: in single quotes if it has other characters
// than plain ones.
func quoted(arg string) string {
	if arg != "" && !strings.ContainsAny(arg, " \t\n\"'`$&|;<>()*?[]#~!\\{}") {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
