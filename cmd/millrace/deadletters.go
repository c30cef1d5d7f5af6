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
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
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
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "list [PIPELINE]",
		Short: "List the dead letters of a pipeline, or of all",
		Long: `List prints dead letters, those that were given up first before the others. Where
there are more than --limit, or than fit in 8 MiB, it says so on standard error, with
the command that prints the next.`,
		Example: "  millrace dead-letters list category-names\n  millrace dead-letters list -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > deadletters.ListMax {
				return &usageError{fmt.Errorf("--limit %d: 1 to %d is expected; --after lists further", limit, deadletters.ListMax)}
			}
			if _, err := processors.ParseDeadLetterMark(after); err != nil {
				return &usageError{fmt.Errorf("--after: %w", err)}
			}
			if after != "" && len(args) == 0 {
				return &usageError{errors.New("--after is a place among the dead letters of one pipeline: name it")}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				records, err := a.recordsOf(ctx, s, args)
				if err != nil {
					return err
				}
				views, cut, err := deadletters.Open(s.inspected()).List(ctx, records, after, limit)
				if err != nil {
					return err
				}
				if err := a.print(views, func(w io.Writer) error { return printDeadLetters(w, views) }); err != nil {
					return err
				}
				// On standard error, behind the list: what stands on standard output under -o json is JSON alone.
				for i := range cut {
					a.tellCut(&cut[i], limit)
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", deadletters.ListMax, "dead letters to list at most")
	cmd.Flags().StringVar(&after, "after", "", "list those behind the place that an earlier list ended with")
	return cmd
}

// tellCut says that a list does not hold all of a pipeline's.
func (a *app) tellCut(page *deadletters.Page, limit int) {
	of := spec.Metadata{Database: page.Database, Name: page.Name}.Title()
	next := "millrace dead-letters list " + of
	if limit != deadletters.ListMax {
		next += " --limit " + strconv.Itoa(limit)
	}
	if page.After != "" {
		next += fmt.Sprintf(" --after '%s'", page.After)
	}
	fmt.Fprintf(a.err, "%s has %s, of which %s not listed yet\nnext: %s\n",
		of, format.Plural(page.Total, "dead letter", "dead letters"), format.Plural(page.More, "is", "are"), next)
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
				view, _, err := a.readDeadLetter(ctx, s, args)
				if err != nil {
					return err
				}
				return a.print(view, func(w io.Writer) error { return printDeadLetter(w, view) })
			})
		},
	}
}

// readDeadLetter reads the dead letter that args name: pipeline and id.
func (a *app) readDeadLetter(ctx context.Context, s *session, args []string) (*deadletters.DeadLetter, *registry.Record, error) {
	desk := deadletters.Open(s.inspected())
	records, err := a.recordsOf(ctx, s, args[:1])
	if err != nil {
		return nil, nil, err
	}
	l, err := desk.Show(ctx, &records[0], args[1])
	// recordsOf has found the pipeline, so it is the dead letter that is not there.
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, bad("pipeline %s has no dead letter %s\nnext: millrace dead-letters list %s", records[0].Name, args[1], records[0].Name)
	}
	return l, &records[0], err
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
two, and does not wait for it; that of a paused pipeline does so when it is resumed. A
dead letter that succeeds is gone; one that fails again tells the new reason.

With --all it asks for each that is there when it begins, in the order of the changes,
however many there are, and shows how far it is. If it is interrupted, run it again.`,
		"will be tried again")
}

func newDeadLettersDrop(a *app) *cobra.Command {
	return newDeadLettersAct(a, deadletters.Drop, "Forget dead letters",
		`Drop forgets a dead letter. What it was about stays undone: millrace verify lists it,
and millrace repair sets it right.

With --all it drops each that is there when it begins, however many there are, and shows
how far it is. If it is interrupted, run it again. One that is tried meanwhile and given
up for a new reason stays, and is told of.`,
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
				if all {
					return a.actOnAll(ctx, s, args[0], act, done)
				}
				l, rec, err := a.readDeadLetter(ctx, s, args)
				if err != nil {
					return err
				}
				desk := deadletters.Open(s.inspected())
				if act == deadletters.Drop {
					err = desk.Drop(ctx, l)
				} else {
					err = desk.Retry(ctx, rec, l.ID)
				}
				if err != nil {
					return err
				}
				return a.printActed(rec, &acted{Pipeline: rec.Name, Action: act, Count: 1, Letters: []string{l.ID}}, done)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the pipeline")
	return cmd
}

// acted is what was done with dead letters.
type acted struct {
	Pipeline string          `json:"pipeline"`
	Action   deadletters.Act `json:"action"`
	Count    int             `json:"count"`
	// Newer counts those that were given up anew while the others were dropped, and remain.
	Newer int `json:"newer,omitempty"`
	// Letters are their ids; left out where there are more than a list has.
	Letters []string `json:"letters,omitempty"`
}

func (a *app) printActed(rec *registry.Record, done *acted, what string) error {
	if rec.Paused && done.Action == deadletters.Retry {
		what += " when the pipeline is resumed: millrace resume " + rec.Metadata().Title() // nobody tries them before
	}
	if done.Newer > 0 {
		what += fmt.Sprintf("; %s given up anew meanwhile and remain", format.Plural(done.Newer, "was", "were"))
	}
	return a.printText(done, "%s %s\n", format.Plural(done.Count, "dead letter", "dead letters"), what)
}

// actOnAll does something with all dead letters of a pipeline.
func (a *app) actOnAll(ctx context.Context, s *session, pipeline string, act deadletters.Act, what string) error {
	records, err := a.recordsOf(ctx, s, []string{pipeline})
	if err != nil {
		return err
	}
	rec, done := &records[0], acted{Pipeline: records[0].Name, Action: act}
	bar := newProgress(a.err, string(act)+" of "+rec.Name, "dead letters")
	outcome, err := deadletters.Open(s.inspected()).DoAll(ctx, rec, act, func(id string, n, all int) {
		done.Count = n
		// All or none: some of the ids would be taken for all of them.
		if done.Letters = append(done.Letters, id); n > deadletters.ListMax {
			done.Letters = nil
		}
		bar.set(int64(n), int64(all), "of "+format.Count(all))
	})
	bar.done()
	if err != nil {
		return fmt.Errorf("%w\nnext: run the same again; what is done stays done", err)
	}
	done.Newer = outcome.Newer
	return a.printActed(rec, &done, what)
}
