package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/registry"
)

func newRewind(a *app) *cobra.Command {
	var to string
	var discardExpired, dryRun bool
	cmd := &cobra.Command{
		Use:   "rewind PIPELINE --to beginning|now|TIME|LSN",
		Short: "Let a pipeline read its source's feed again",
		Long: `Rewind lets a pipeline read the change feed of its source again from an
earlier position: the beginning, a time (2026-11-21T08:30:00Z, or 2h for two hours ago), or the
LSN of a commit, where the source has one physical partition.

To the beginning is to all that is there: the log of the source, or, where that is long
or was trimmed, its items. A later position must still be in the log. A pipeline that is
cut off, because its source's log was trimmed beyond it, begins anew so by itself, unless
millrace status says otherwise.

A cascade or a projection sets its copies or rows again, in a new generation; from
the beginning, a projection builds its rows anew and then replaces those that are
there, which also fills a sink that was emptied. An aggregate passes over what it
has, so nothing is counted twice; to items it goes back in a new generation.

A projection that keeps the rows of items that have expired, and whose source's log was
trimmed, cannot make these rows anew: --discard-expired says to begin without them.

With --to now a cascade or projection leaves out what it has not done yet. A projection
into a container leaves out what it has yet to remove, and no more: wherever but to the
beginning it goes back, it goes once through all items too, since the container forgets the
rows that wait for a key.

With --dry-run it tells what it would do, and does nothing.`,
		Example: "  millrace rewind category-names --to beginning",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return &usageError{errors.New("say where to begin: --to beginning, now, a time, an age such as 2h, or an LSN")}
			}
			// Parsed before a connection is made. An age such as 2h counts from now.
			start, err := registry.ParseRewindTo(to, time.Now())
			if err != nil {
				return &usageError{fmt.Errorf("--to %w", err)}
			}
			if start.DiscardExpired = discardExpired; discardExpired && start.Kind != (registry.RewindTo{}).Kind {
				return &usageError{errors.New("--discard-expired goes with --to beginning")}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.splitName(args[0])
				if dryRun {
					return a.previewRewind(ctx, s, database, name, start)
				}
				rec, err := s.registry.Rewind(ctx, database, name, start, s.cfg.Leases.Bucket)
				if err != nil {
					return err
				}
				v := map[string]any{
					"kind": "pipeline", "database": database, "name": name, "action": "rewound", "to": start.String(), "generation": rec.Generation,
				}
				return a.printText(v, "pipeline %s/%s rewound to %s, generation %d; see millrace status %s\n", database, name, start, rec.Generation, name)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "where to begin: beginning, now, a time, an age such as 2h, or an LSN")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "tell what it would do, and do nothing")
	cmd.Flags().BoolVar(&discardExpired, "discard-expired", false, "let a projection begin anew without the rows of items that have expired, where the log that knew them was trimmed")
	return cmd
}

// previewRewind prints what a rewind would do, and changes nothing.
func (a *app) previewRewind(ctx context.Context, s *session, database, name string, to registry.RewindTo) error {
	preview, err := s.registry.PreviewRewind(ctx, database, name, to, s.cfg.Leases.Bucket)
	if err != nil {
		return err
	}
	v := map[string]any{
		"kind": "pipeline", "database": database, "name": name, "action": "none", "to": to.String(), "generation": preview.Generation, "says": preview.Says,
	}
	return a.print(v, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "pipeline %s/%s would be rewound to %s:\n  %s\nnothing was changed\n", database, name, to, strings.Join(preview.Says, "\n  "))
		return err
	})
}
