package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store/backup"
)

func newBackupPrune(a *app) *cobra.Command {
	var flags placeFlags
	var keep backup.Keep
	var yes bool
	cmd := &cobra.Command{
		Use:   "prune PLACE",
		Short: "Delete old backups, and what no other backup needs",
		Long: `Prune deletes the backups that are not among the newest --keep and are older than
--older-than, if both are given; one of them must be. The newest backup stays always.
What other backups need stays; what a create that was cut off has left goes too.

Without --yes it tells what it would delete, and deletes nothing. It may be stopped at
any moment, and the next prune goes on. A create may run beside it in a bucket: it
notices, and sends again what went. Do not prune what is being restored or verified.`,
		Example: "  millrace backup prune /mnt/backup/shop --keep 7\n  millrace backup prune s3://backups/shop --older-than 720h --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// There is no default: each would delete backups that somebody relies on.
			if keep.Last < 0 || keep.Within < 0 || keep.Last == 0 && keep.Within == 0 {
				return &usageError{errors.New("which backups stay? give --keep N, or --older-than a duration such as 720h, or both")}
			}
			place, err := flags.open(args[0])
			if err != nil {
				return err
			}
			// Looking changes nothing, so it needs no lock and may run beside a create.
			if yes {
				unlock, err := place.lock()
				if err != nil {
					return err
				}
				defer unlock()
			}
			bar := newProgress(a.err, "pruning", unitBytes)
			r, err := backup.Prune(cmd.Context(), place, keep, !yes, nil)
			bar.done()
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) error { return printPruned(w, r) })
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&keep.Last, "keep", 0, "keep so many of the newest backups")
	cmd.Flags().DurationVar(&keep.Within, "older-than", time.Duration(0), "delete only backups that are older, such as 720h")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete them")
	return cmd
}

// printPruned prints what was deleted, or would be, and how to do it.
func printPruned(w io.Writer, r *backup.Pruned) error {
	verb := "would be deleted"
	if r.Done {
		verb = "deleted"
	}
	for _, id := range r.Backups {
		fmt.Fprintf(w, "backup %s %s\n", id, verb)
	}
	fmt.Fprintf(w, "%s %s, with %s; %s\n", format.Plural(len(r.Backups), "backup", "backups"), verb,
		format.Plural(r.Objects, "object", "objects"), format.Plural(len(r.Kept), "backup stays", "backups stay"))
	if !r.Done && r.Objects > 0 {
		fmt.Fprintln(w, "next: the same with --yes")
	}
	return nil
}
