package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store/backup"
)

func newBackup(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Copy the whole store to a directory or a bucket, list, verify and prune the copies",
		Long: `Backup copies containers, their items and logs, and pipelines to a directory, or to a
bucket of an S3-compatible server, while everything goes on. A later backup in the same
place sends what is not there yet. millrace restore makes a store of a backup.

A bucket is named s3://BUCKET/PREFIX. Its keys are read from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, the shared credentials file, or the machine's role. The server
must honour If-Match and If-None-Match on PUT, as AWS, MinIO and R2 do.

Keys of the gateway, credentials and certificates are not copied: keep those apart.
Nor is how far pipelines have come, which means nothing elsewhere.`,
	}
	cmd.AddCommand(newBackupCreate(a), newBackupList(a), newBackupVerify(a), newBackupPrune(a))
	for _, sub := range cmd.Commands() {
		checkArgs(sub)
	}
	return cmd
}

// createdBackup is what create prints.
type createdBackup struct {
	ID         string    `json:"id"`
	Place      string    `json:"place"`
	Containers int       `json:"containers"`
	Partitions int       `json:"partitions"`
	Pipelines  int       `json:"pipelines"`
	Bytes      uint64    `json:"bytes"`
	Sent       uint64    `json:"sent"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`
	Seconds    float64   `json:"seconds"`
	Skipped    []string  `json:"skipped,omitempty"`
	Notes      []string  `json:"notes,omitempty"`
}

func newBackupCreate(a *app) *cobra.Command {
	var flags placeFlags
	cmd := &cobra.Command{
		Use:   "create PLACE",
		Short: "Copy the store to a directory or a bucket",
		Long: `Create copies the store to a directory, which is made if it is not there, or to a
bucket, which must be. Of each partition it takes the newest snapshot and the log behind
it, up to where it ends at that moment. What the place holds already is not sent again. Credentials that may
only read are enough.

It may be stopped at any moment: the backup is there when it is whole, and not
before. What was sent until then stays, and the next create goes on from there.`,
		Example: "  millrace backup create /mnt/backup/shop\n  millrace backup create /mnt/backup/shop --creds DIR/credentials/read-only.json -o json\n  millrace backup create s3://backups/shop --region eu-central-1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := flags.open(args[0])
			if err != nil {
				return err
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				unlock, err := place.lock()
				if err != nil {
					return err
				}
				defer unlock()
				return a.createBackup(ctx, s, place)
			})
		},
	}
	flags.add(cmd)
	return cmd
}

func (a *app) createBackup(ctx context.Context, s *session, place *backupPlace) error {
	bar := newProgress(a.err, "backup", unitBytes)
	r, err := backup.Create(ctx, place, &backup.Source{
		JetStream: s.js, Client: s.client, Log: s.cfg.Feed.Log, Pipelines: registry.Bucket, PipelineKeys: registry.Keys,
		Program: versionText(), Progress: bar.copied,
	})
	bar.done()
	if err != nil {
		return err
	}
	// A note and no error: this backup does not rest on what is damaged.
	for _, d := range r.Damaged {
		fmt.Fprintf(a.err, "an earlier backup cannot be used: %v\n", d)
	}
	c, err := describeBackup(r.Backup)
	if err != nil {
		return err
	}
	c.Place, c.Skipped, c.Notes = place.String(), r.Skipped, r.Notes
	return a.print(c, func(w io.Writer) error {
		fmt.Fprintf(w, "backup %s: %s, %s, %s; %s, of which %s were sent, in %s\n", c.ID,
			format.Plural(c.Containers, "container", "containers"), format.Plural(c.Partitions, "partition", "partitions"),
			format.Plural(c.Pipelines, "pipeline", "pipelines"), megabytes(int64(c.Bytes)), megabytes(int64(c.Sent)),
			time.Duration(c.Seconds*float64(time.Second)).Round(10*time.Millisecond))
		for _, note := range c.Notes {
			fmt.Fprintln(w, note)
		}
		for _, name := range c.Skipped {
			fmt.Fprintf(w, "container %s was being made or deleted and is not in it\n", name)
		}
		return nil
	})
}

// copied shows how far a backup is. The total in bytes is not known.
func (p *progress) copied(at backup.Progress) {
	p.set(int64(at.Bytes), 0, fmt.Sprintf("%d of %s", at.Partitions, format.Plural(at.Of, "partition", "partitions")))
}

// describeBackup returns what create and list print of a backup. Numbers come from its manifest.
func describeBackup(b *backup.Backup) (*createdBackup, error) {
	containers, err := b.Containers()
	if err != nil {
		return nil, err
	}
	bytes, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	c := &createdBackup{
		ID: b.ID, Containers: len(containers), Partitions: len(b.Partitions), Bytes: bytes, Sent: b.Sent, Seconds: b.Ended.Sub(b.Began).Seconds(),
	}
	for i := range b.Records {
		if b.Records[i].Bucket == registry.Bucket {
			c.Pipelines++
		}
	}
	c.Since, c.Until, err = b.Span()
	return c, err
}

func newBackupList(a *app) *cobra.Command {
	var flags placeFlags
	cmd := &cobra.Command{
		Use:   "list PLACE",
		Short: "List the backups of a directory or a bucket",
		Long: `List tells of each backup what it holds and the times to which it can be restored,
in UTC. What it takes is shared with other backups of the place; what was sent for
it is not.`,
		Example: "  millrace backup list /mnt/backup/shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := flags.open(args[0])
			if err != nil {
				return err
			}
			all, damage, err := backup.List(cmd.Context(), place)
			if err != nil {
				return err
			}
			listed := []*createdBackup{}
			for _, b := range all {
				c, err := describeBackup(b)
				if err != nil {
					return fmt.Errorf("backup %s: %w", b.ID, err)
				}
				c.Place = place.String()
				listed = append(listed, c)
			}
			if err := a.print(listed, func(w io.Writer) error { return printBackups(w, listed) }); err != nil {
				return err
			}
			// The backups that can be read are listed before the command fails.
			if len(damage) > 0 {
				return &badNews{errors.Join(damage...)}
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}

func printBackups(w io.Writer, all []*createdBackup) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BACKUP\tCONTAINERS\tPIPELINES\tTAKES\tSENT\tFROM\tUNTIL")
	for _, c := range all {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", c.ID, c.Containers, c.Pipelines, megabytes(int64(c.Bytes)), megabytes(int64(c.Sent)),
			c.Since.Format(time.RFC3339), c.Until.Format(time.RFC3339))
	}
	return t.Flush()
}

func newBackupVerify(a *app) *cobra.Command {
	var flags placeFlags
	var id string
	cmd := &cobra.Command{
		Use:   "verify PLACE",
		Short: "Read all that backups hold and compare checksums and digests",
		Long: `Verify reads every object that the backups of a place name, and computes its
checksum, the chain of the commits in it, and the digests of snapshots anew. It needs no
server.

It exits with 0 if all is whole, 1 if something is damaged or gone or there is no backup
that is complete, 2 if it could not look. Where a store still has what is damaged, remove the object and create a backup:
that sends it again.`,
		Example: "  millrace backup verify /mnt/backup/shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := flags.open(args[0])
			if err != nil {
				return err
			}
			bar := newProgress(a.err, "verifying", unitBytes)
			report, err := backup.Verify(cmd.Context(), place, id, bar.copied)
			bar.done()
			if err != nil {
				return err
			}
			if err := a.print(report, func(w io.Writer) error { return printVerified(w, report) }); err != nil {
				return err
			}
			// The report has named all that is damaged; the error only sets the exit code.
			if len(report.Damaged) > 0 || len(report.Backups) == 0 {
				return &badNews{errTold}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&id, "backup", "", "id of one backup; default all of the place")
	flags.add(cmd)
	return cmd
}

func printVerified(w io.Writer, r *backup.Report) error {
	for i := range r.Damaged {
		d := &r.Damaged[i]
		fmt.Fprintf(w, "damaged: %s %s\n", d.Object, d.Reason)
		if d.Bytes > 0 {
			fmt.Fprintf(w, "%9sbytes 0 to %d of it cannot be used\n", "", d.Bytes-1)
		}
		fmt.Fprintf(w, "%9sbackups that need it: %s\n", "", cmp.Or(strings.Join(d.Backups, ", "), "itself"))
	}
	verdict := "all is whole"
	if n := len(r.Damaged); n > 0 {
		verdict = format.Plural(n, "object is damaged or gone", "objects are damaged or gone")
	} else if len(r.Backups) == 0 {
		verdict = "there is nothing to restore"
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s read: %s\n", format.Plural(len(r.Backups), "backup", "backups"),
		format.Plural(r.Objects, "object", "objects"), megabytes(int64(r.Bytes)), verdict)
	return err
}
