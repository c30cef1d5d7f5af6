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

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// deadLettersMax bounds what one command lists or acts on.
const deadLettersMax = 10_000

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

// deadLetterView is a dead letter as commands print it.
type deadLetterView struct {
	Database string `json:"database"`
	Name     string `json:"pipeline"`
	processors.DeadLetter
	Position string `json:"position"`
	// Change is what was given up, as the dead letter keeps it or the log holds it; only
	// shown of one dead letter.
	Change *changeView `json:"change,omitempty"`
	// Missing says why it cannot be shown.
	Missing string `json:"missing,omitempty"`
}

func viewDeadLetter(rec *registry.Record, l *processors.DeadLetter) deadLetterView {
	return deadLetterView{Database: rec.Database, Name: rec.Name, DeadLetter: *l, Position: l.Position.String()}
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
func (a *app) readDeadLetters(ctx context.Context, s *session, args []string) ([]deadLetterView, error) {
	deadLetters, err := processors.OpenDeadLetters(ctx, s.client)
	if err != nil {
		return nil, err
	}
	records, err := a.recordsOf(ctx, s, args)
	if err != nil {
		return nil, err
	}
	views := []deadLetterView{}
	for i := range records {
		all, err := deadLetters.List(ctx, records[i].ID, deadLettersMax)
		if err != nil {
			return nil, err
		}
		for j := range all {
			views = append(views, viewDeadLetter(&records[i], &all[j]))
		}
	}
	return views, nil
}

func (a *app) recordsOf(ctx context.Context, s *session, args []string) ([]registry.Record, error) {
	if len(args) == 0 {
		return s.registry.List(ctx)
	}
	database, name := a.splitName(args[0])
	return s.pipelines(ctx, database, name)
}

func printDeadLetters(w io.Writer, views []deadLetterView) error {
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
				rec, l, err := a.readDeadLetter(ctx, s, args)
				if err != nil {
					return err
				}
				view := viewDeadLetter(rec, l)
				if view.Change, err = changeOf(ctx, s, l); err != nil {
					view.Missing = err.Error()
				}
				return a.print(&view, func(w io.Writer) error { return printDeadLetter(w, &view) })
			})
		},
	}
}

// readDeadLetter reads the dead letter that args name: pipeline and id.
func (a *app) readDeadLetter(ctx context.Context, s *session, args []string) (*registry.Record, *processors.DeadLetter, error) {
	deadLetters, err := processors.OpenDeadLetters(ctx, s.client)
	if err != nil {
		return nil, nil, err
	}
	records, err := a.recordsOf(ctx, s, args[:1])
	if err != nil {
		return nil, nil, err
	}
	l, err := deadLetters.Get(ctx, records[0].ID, args[1])
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, bad("pipeline %s has no dead letter %s\nnext: millrace dead-letters list %s", records[0].Name, args[1], records[0].Name)
	}
	return &records[0], l, err
}

// changeOf reads the change of a dead letter: the one that it keeps, else that of the log.
func changeOf(ctx context.Context, s *session, l *processors.DeadLetter) (*changeView, error) {
	partition, err := feed.ParsePartition(l.Partition)
	if err != nil {
		return nil, err
	}
	deadLetters, err := processors.OpenDeadLetters(ctx, s.client)
	if err != nil {
		return nil, err
	}
	commit, err := deadLetters.ReadChange(ctx, l)
	if err == nil {
		t := &commit.Transactions[0]
		return newChangeView(partition, commit, t, l.Position, &t.Changes[0], true)
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return loggedChange(ctx, s, l, partition)
}

// loggedChange reads the change of a dead letter from the log.
func loggedChange(ctx context.Context, s *session, l *processors.DeadLetter, partition feed.Partition) (*changeView, error) {
	log, err := feed.OpenLog(ctx, s.js, partition, s.cfg.Feed.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	commit, err := log.Read(ctx, l.Position.LSN)
	if errors.Is(err, feed.ErrNotFound) {
		return nil, errors.New("it is not in the log any more, and the dead letter does not keep it")
	}
	if err != nil {
		return nil, err
	}
	// An index counts the changes of a commit, through all of its transactions.
	index := int(l.Position.Index)
	for i := range commit.Transactions {
		t := &commit.Transactions[i]
		if index < len(t.Changes) {
			return newChangeView(partition, commit, t, l.Position, &t.Changes[index], true)
		}
		index -= len(t.Changes)
	}
	return nil, fmt.Errorf("commit %s has no change %d", l.Position.LSN, l.Position.Index)
}

func printDeadLetter(w io.Writer, l *deadLetterView) error {
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
	return newDeadLettersAct(a, "retry", "Try dead letters again, in the order of their changes",
		`Retry asks the worker that gave a change up to try it again, within a second or
two. A dead letter that succeeds is gone; one that fails again tells the new reason.`,
		(*processors.DeadLetters).Retry, "will be tried again")
}

func newDeadLettersDrop(a *app) *cobra.Command {
	return newDeadLettersAct(a, "drop", "Forget dead letters",
		`Drop forgets a dead letter. What it was about stays undone: millrace verify lists it,
and millrace repair sets it right.`,
		(*processors.DeadLetters).Drop, "dropped")
}

// newDeadLettersAct is a command that does something with one dead letter, or with all.
func newDeadLettersAct(a *app, verb, short, long string, act func(*processors.DeadLetters, context.Context, string, string) error, done string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: verb + " PIPELINE ID|--all", Short: short, Long: long,
		Example: "  millrace dead-letters " + verb + " category-names --all",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 1) {
				return &usageError{errors.New("name one dead letter, or all of the pipeline's with --all")}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				deadLetters, err := processors.OpenDeadLetters(ctx, s.client)
				if err != nil {
					return err
				}
				var ids []string
				records, err := a.recordsOf(ctx, s, args[:1])
				if err != nil {
					return err
				}
				if all {
					list, err := deadLetters.List(ctx, records[0].ID, deadLettersMax)
					if err != nil {
						return err
					}
					for i := range list {
						ids = append(ids, list[i].ID)
					}
				} else {
					_, l, err := a.readDeadLetter(ctx, s, args)
					if err != nil {
						return err
					}
					ids = []string{l.ID}
				}
				for _, id := range ids {
					// One that is gone has been tried again by its worker meanwhile.
					if err := act(deadLetters, ctx, records[0].ID, id); err != nil && !errors.Is(err, store.ErrNotFound) {
						return err
					}
				}
				result := map[string]any{"pipeline": records[0].Name, "action": verb, "letters": ids}
				return a.printText(result, "%s %s\n", format.Plural(len(ids), "dead letter", "dead letters"), done)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the pipeline")
	return cmd
}
