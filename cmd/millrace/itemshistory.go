package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// historyFlags are those of items history.
type historyFlags struct {
	key    string
	limit  int
	before string
}

func newItemsHistory(a *app) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history CONTAINER ID",
		Short: "Show the last versions of an item, and what changed",
		Long: `History shows the last versions of an item, the newest first: position, time, what was
done, who did it, the trace if it is known, and each field that changed, before and
after. It goes as far back as the log reaches, and says where that ends. It works for
an item that is gone too, while the log has it; then --key is needed.

` + keyHelp,
		Example: "  millrace items history product p1 --key c1\n  millrace items history product p1 --key c1 --limit 50 -o json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request()
			if err != nil {
				return err
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.splitName(args[0])
				ct, err := s.client.Container(ctx, database, name)
				if err != nil {
					return err
				}
				ref := store.ItemRef{ID: args[1]}
				if ref.Key, err = keyOfHistory(ctx, ct, args[1], f.key); err != nil {
					return err
				}
				inspector := inspect.New(s.inspected())
				defer inspector.Close()
				h, err := inspector.History(ctx, ct, ref, r)
				if err != nil {
					return err
				}
				if err := a.print(h, func(w io.Writer) error { return printHistory(w, h) }); err != nil {
					return err
				}
				if len(h.Versions) == 0 && h.Ends == inspect.EndsWithLog {
					return errTold // there never was such an item
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&f.key, "key", "k", "", "partition key of the item")
	cmd.Flags().IntVar(&f.limit, "limit", inspect.HistoryDefault, fmt.Sprintf("versions to show at most, up to %d", inspect.HistoryMax))
	cmd.Flags().StringVar(&f.before, "before", "", "show what is older than this position, as the output before names it")
	return cmd
}

func (f *historyFlags) request() (inspect.HistoryRequest, error) {
	r := inspect.HistoryRequest{Versions: f.limit}
	if f.limit < 1 || f.limit > inspect.HistoryMax {
		return r, &usageError{fmt.Errorf("--limit %d: 1 to %d is expected", f.limit, inspect.HistoryMax)}
	}
	if f.before != "" {
		at, err := feed.ParsePosition(f.before)
		if err != nil {
			return r, &usageError{fmt.Errorf("--before: %w", err)}
		}
		r.Before = at
	}
	return r, nil
}

// keyOfHistory is the partition key of an item. Without --key one that is there is looked for.
func keyOfHistory(ctx context.Context, ct *store.Container, id, text string) (feed.PartitionKey, error) {
	local := localContainer{ct}
	key, err := keyOfItem(local, id, text)
	if err != nil || !key.IsZero() {
		return key, err
	}
	item, err := findItem(ctx, local, id, "")
	if news, ok := errors.AsType[*badNews](err); ok {
		return key, bad("%w\nnext: name its partition key with --key, by which one that is gone is found too", news)
	}
	if err != nil {
		return key, err
	}
	return item.Key, nil
}

// printHistory prints versions, each with its fields below it.
func printHistory(w io.Writer, h *inspect.History) error {
	out := &explainer{w: w, width: widthOf(w)}
	if note := h.Note(); note != "" {
		out.line("%s", note)
	}
	for i := range h.Versions {
		v := &h.Versions[i]
		line := fmt.Sprintf("%s  %s  %s  by %s", v.Position, v.Time.Format("2006-01-02 15:04:05.000"), v.Op, v.Writer)
		if v.Together > 0 {
			line += fmt.Sprintf(", with %d other changes in one transaction", v.Together)
		}
		if v.Trace != "" {
			line += ", trace " + v.Trace
		}
		out.line("%s", plain(line))
		for j := range v.Fields {
			f := &v.Fields[j]
			out.line("    %s", plain(fmt.Sprintf("%s: %s -> %s", f.Field, f.Before, f.After)))
		}
		switch {
		case v.More > 0:
			out.line("    and %d more fields", v.More)
		case len(v.Fields) == 0:
			out.line("    nothing changed")
		}
	}
	out.line("%s", h.Says())
	if h.Before != "" {
		out.line("next: the same with --before %s", h.Before)
	}
	return out.err
}
