package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/deadletters"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// reasonMax is how much of a reason, in characters, a list shows.
const reasonMax = 80

func newDeadLetters(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead-letters list|show|retry|drop",
		Aliases: []string{"deadletters"},
		Short:   "Look after changes that a pipeline gave up",
		Long: `A change that cannot be processed is tried again, then given up, so that others
go on: it becomes a dead letter. Dead letters are items of the container
system/deadLetters and can be queried as any other.`,
	}
	cmd.AddCommand(newDeadLettersList(a), newDeadLettersShow(a), newDeadLettersRetry(a), newDeadLettersDrop(a))
	return cmd
}

func newDeadLettersList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list [PIPELINE]",
		Short:   "List the dead letters of a pipeline, or of all",
		Example: "  millrace dead-letters list category-names",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				views, err := a.readDeadLetters(ctx, s, args)
				if err != nil {
					return err
				}
				return a.print(views, func(w io.Writer) error { return printDeadLetters(w, views) })
			})
		},
	}
}

// readDeadLetters reads the dead letters of the pipeline that args name, of all without.
func (a *app) readDeadLetters(ctx context.Context, s *session, args []string) ([]deadletters.DeadLetter, error) {
	desk := deadletters.Open(s.inspected())
	records, err := a.recordsOf(ctx, s, args)
	if err != nil {
		return nil, err
	}
	all := []deadletters.DeadLetter{}
	for i := range records {
		letters, err := desk.List(ctx, &records[i])
		if err != nil {
			return nil, err
		}
		all = append(all, letters...)
	}
	return all, nil
}

func (a *app) recordsOf(ctx context.Context, s *session, args []string) ([]registry.Record, error) {
	if len(args) == 0 {
		return s.registry.List(ctx)
	}
	database, name := a.splitName(args[0])
	return s.pipelines(ctx, database, name)
}

func printDeadLetters(w io.Writer, views []deadletters.DeadLetter) error {
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, "no dead letters")
		return err
	}
	var rows [][]string
	for i := range views {
		l := &views[i]
		rows = append(rows, []string{
			l.Name, l.ID, l.Item, l.Target, time.Since(l.Time).Round(time.Second).String(), strconv.Itoa(l.Attempts), cut(plain(l.Reason), reasonMax),
		})
	}
	if err := columns(w, []string{"PIPELINE", "ID", "ITEM", "TARGET", "AGE", "ATTEMPTS", "REASON"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "next: millrace dead-letters show PIPELINE ID, then retry or drop")
	return err
}

func newDeadLettersShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "show PIPELINE ID",
		Short:   "Show one dead letter with the change that was given up",
		Example: "  millrace dead-letters show category-names source-c7k2x4ab.0-1-12.3",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				view, err := a.readDeadLetter(ctx, s, args)
				if err != nil {
					return err
				}
				return a.print(view, func(w io.Writer) error { return printDeadLetter(w, view) })
			})
		},
	}
}

// readDeadLetter reads the dead letter that args name: pipeline and id.
func (a *app) readDeadLetter(ctx context.Context, s *session, args []string) (*deadletters.DeadLetter, error) {
	desk := deadletters.Open(s.inspected())
	records, err := a.recordsOf(ctx, s, args[:1])
	if err != nil {
		return nil, err
	}
	l, err := desk.Show(ctx, &records[0], args[1])
	if errors.Is(err, store.ErrNotFound) {
		return nil, bad("pipeline %s has no dead letter %s\nnext: millrace dead-letters list %s", records[0].Name, args[1], records[0].Name)
	}
	return l, err
}

func printDeadLetter(w io.Writer, l *deadletters.DeadLetter) error {
	var rows [][]string
	line := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	line("pipeline", fmt.Sprintf("%s/%s (generation %d)", l.Database, l.Name, l.Generation))
	line("item", l.Item)
	line("change", fmt.Sprintf("%s of %s", l.Position, l.Partition))
	line("target", l.Target)
	line("given up", l.Time.Format(time.RFC3339))
	line("attempts", strconv.Itoa(l.Attempts))
	line("reason", l.Reason)
	if l.Status != 0 {
		line("status", strconv.Itoa(l.Status))
	}
	line("trace", l.Trace)
	if !l.Retry.IsZero() {
		line("retry", "asked for at "+l.Retry.Format(time.RFC3339))
	}
	if err := columns(w, rows[0], rows[1:]); err != nil {
		return err
	}
	if l.Change == nil {
		_, err := fmt.Fprintf(w, "the change cannot be shown: %s\n", l.Missing)
		return err
	}
	for _, part := range []struct {
		name string
		body json.RawMessage
	}{{"before", l.Change.Before}, {"after", l.Change.Item}} {
		if part.body != nil {
			fmt.Fprintf(w, "%s  %s\n", part.name, part.body)
		}
	}
	return nil
}

func newDeadLettersRetry(a *app) *cobra.Command {
	return newDeadLettersAct(a, deadletters.Retry, "Try dead letters again, in the order of their changes",
		`Retry asks the worker that gave a change up to try it again, within a second or
two. A dead letter that succeeds is gone; one that fails again tells the new reason.`,
		"will be tried again")
}

func newDeadLettersDrop(a *app) *cobra.Command {
	return newDeadLettersAct(a, deadletters.Drop, "Forget dead letters",
		`Drop forgets a dead letter. What it was about stays undone: millrace verify lists it,
and millrace repair sets it right.`,
		"dropped")
}

// newDeadLettersAct is a command that does something with one dead letter, or with all.
func newDeadLettersAct(a *app, act deadletters.Act, short, long, done string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: string(act) + " PIPELINE ID|--all", Short: short, Long: long,
		Example: "  millrace dead-letters " + string(act) + " category-names --all",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 1) {
				return &usageError{errors.New("name one dead letter, or all of the pipeline's with --all")}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				letters, err := a.named(ctx, s, args)
				if err != nil {
					return err
				}
				desk := deadletters.Open(s.inspected())
				records, err := a.recordsOf(ctx, s, args[:1])
				if err != nil {
					return err
				}
				ids := deadletters.IDs(letters)
				if err := desk.Do(ctx, &records[0], act, ids); err != nil {
					return err
				}
				result := map[string]any{"pipeline": records[0].Name, "action": act, "letters": ids}
				return a.printText(result, "%s %s\n", format.Plural(len(ids), "dead letter", "dead letters"), done)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the pipeline")
	return cmd
}

// named returns the dead letter that args name, or all of a pipeline.
func (a *app) named(ctx context.Context, s *session, args []string) ([]deadletters.DeadLetter, error) {
	if len(args) == 1 {
		return a.readDeadLetters(ctx, s, args)
	}
	l, err := a.readDeadLetter(ctx, s, args)
	if err != nil {
		return nil, err
	}
	return []deadletters.DeadLetter{*l}, nil
}
