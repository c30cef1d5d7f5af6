package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/backup"
)

func newRestore(a *app) *cobra.Command {
	var id, at, scratch string
	var flags placeFlags
	cmd := &cobra.Command{
		Use:   "restore PLACE",
		Short: "Make a store of a backup",
		Long: `Restore makes containers, items and pipelines of a backup, which is in a directory or
in a bucket (s3://BUCKET/PREFIX, see millrace backup --help), in an empty store: in the
directory of a millrace up that is not running, named with --dir, or over the NATS
servers that --server names, before stores and workers are started. All of the backup is
read, and nothing is changed if any of it is damaged or the store is not empty.

Without --at it restores the newest backup to its end. A time to which it can be
restored is one that millrace backup list shows: each partition then has all commits
up to that time, and none behind it.

Items keep their etags. Each log begins where the former one was left, so what readers
of change feeds know of the former ones is answered with 410: they begin anew. Every
pipeline begins a new generation. One that writes files or PostgreSQL tables is
paused until millrace resume: the store that was copied may still write them.

If it is stopped, the store cannot be used, and the same command goes on.`,
		Example: "  millrace restore /mnt/backup/shop --dir /var/lib/millrace\n  millrace restore s3://backups/shop --dir /var/lib/millrace\n  millrace restore /mnt/backup/shop --at 2026-11-23T04:05:06Z --server nats://a:4222",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := flags.open(args[0])
			if err != nil {
				return err
			}
			if _, err := time.Parse(time.RFC3339, at); err != nil && at != backup.Latest {
				return &usageError{fmt.Errorf("--at %s: a time such as 2026-11-23T04:05:06Z, or %s, is expected", at, backup.Latest)}
			}
			// All of the backup is read before a server is asked for anything: a damaged backup
			// must not leave half a store.
			bar := newProgress(a.err, "verifying the backup", unitBytes)
			plan, err := backup.Choose(cmd.Context(), place, id, at, bar.copied)
			bar.done()
			if err != nil {
				return err
			}
			inDir := cmd.Flags().Changed("dir") && !cmd.Flags().Changed("server")
			return a.restore(cmd.Context(), plan, inDir, scratch)
		},
	}
	cmd.Flags().StringVar(&at, "at", backup.Latest, "time to restore to, or "+backup.Latest)
	cmd.Flags().StringVar(&id, "backup", "", "id of a backup; default the first that reaches --at, or the newest")
	cmd.Flags().StringVar(&scratch, "scratch", "", "directory with room for the largest partition while it is made (default that of the system for temporary files)")
	flags.add(cmd)
	cmd.Flags().String("dir", configs.DirDefault, "directory of millrace up, to restore into without it")
	return cmd
}

// restoredStore is what restore prints.
type restoredStore struct {
	*backup.Restored
	Pipelines []registry.Restored `json:"pipelines"`
}

// restore opens the store and restores into it. With inDir it opens the directory's own server,
// which nobody else can reach meanwhile.
func (a *app) restore(ctx context.Context, plan *backup.Plan, inDir bool, scratch string) error {
	cfg, err := a.quietConfig()
	if err != nil {
		return err
	}
	if inDir {
		if err := os.MkdirAll(cfg.NATS.Dir, 0o700); err != nil {
			return err
		}
	}
	nc, end, err := a.connectOrOpen(ctx, cfg, inDir)
	if err != nil {
		return err
	}
	defer end()
	t, pipelines, err := a.restoreTarget(ctx, nc, cfg)
	if err != nil {
		return err
	}
	t.Scratch = scratch
	result := restoredStore{Pipelines: []registry.Restored{}}
	// It may be called again, and then begins with an empty list.
	t.Pipelines = func(ctx context.Context, records []backup.Record) error {
		result.Pipelines = result.Pipelines[:0]
		for i := range records {
			p, err := pipelines.Restore(ctx, records[i].Key, records[i].Value)
			if err != nil {
				return err
			}
			result.Pipelines = append(result.Pipelines, *p)
		}
		return nil
	}
	bar := newProgress(a.err, "restoring", unitBytes)
	t.Progress = bar.copied
	result.Restored, err = plan.Restore(ctx, t)
	bar.done()
	if err != nil {
		return err
	}
	return a.print(result, func(w io.Writer) error { return printRestored(w, &result) })
}

// restoreTarget opens the catalog and the registry for a restore.
func (a *app) restoreTarget(ctx context.Context, nc *nats.Conn, cfg *configs.Config) (*backup.Target, *registry.Registry, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, fmt.Errorf("JetStream: %w", err)
	}
	if err := node.AdoptReplicas(ctx, js, cfg); err != nil {
		return nil, nil, err
	}
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: cfg.Replicas(), Log: cfg.Feed.Log, Restoring: true})
	if err != nil {
		return nil, nil, err
	}
	client := store.NewClient(nc, catalog, a.clientConfig(false))
	pipelines, err := registry.Open(ctx, js, client, registry.Config{Replicas: cfg.Replicas(), Log: cfg.Feed.Log, SinkRoot: cfg.Sinks.Roots[0], SinkVariables: cfg.Sinks.Variables})
	if err != nil {
		return nil, nil, err
	}
	// A store is empty if it has neither logs nor pipelines. The text names what was found.
	empty := func(ctx context.Context) (string, error) {
		names, err := feed.StreamNames(ctx, js)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			if _, isLog := feed.ParseStream(name); isLog {
				return "the log " + name, nil
			}
		}
		return pipelines.Empty(ctx)
	}
	return &backup.Target{Catalog: catalog, Empty: empty, Logger: a.logger(cfg)}, pipelines, nil
}

func printRestored(w io.Writer, r *restoredStore) error {
	entries, latest := uint64(0), time.Time{}
	for i := range r.Partitions {
		entries += r.Partitions[i].Entries
		if t := r.Partitions[i].Time; t.After(latest) {
			latest = t
		}
	}
	fmt.Fprintf(w, "backup %s restored: %s, %s with %s; the last commit is of %s\n", r.Backup,
		format.Plural(len(r.Containers), "container", "containers"), format.Plural(len(r.Partitions), "partition", "partitions"),
		format.Plural(entries, "entry", "entries"), latest.Format(time.RFC3339Nano))
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(w, "made after that time, and left out: %s\n", strings.Join(r.LeftOut, ", "))
	}
	for i := range r.Pipelines {
		fmt.Fprintln(w, pipelineLine(&r.Pipelines[i]))
	}
	_, err := fmt.Fprintln(w, "next: start the store; millrace status shows how far pipelines are")
	return err
}

// pipelineLine describes what a restored pipeline does next, and what its operator must do.
func pipelineLine(p *registry.Restored) string {
	name := fmt.Sprintf("pipeline %s/%s", p.Database, p.Name)
	if p.Lacks {
		return name + " does not begin: a container of it was not restored; make it and apply the pipeline, or delete the pipeline"
	}
	line := fmt.Sprintf("%s begins generation %d when a worker runs", name, p.Generation)
	if p.KeepsExpired {
		line = fmt.Sprintf("%s begins generation %d with millrace apply --discard-expired: rows of items that have expired are not in what was restored", name, p.Generation)
	}
	if p.Paused {
		line += "; it is paused until millrace resume"
	}
	return line
}
