package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/doctor"
	"github.com/millrace/millrace/pipelines/format"
)

func newDoctor(a *app) *cobra.Command {
	var fix bool
	var names []string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what is damaged, missing, unnamed or short of replicas, and repair it",
		Long: `Doctor compares the catalog and the registry of pipelines with the logs that are
there. It tells what is missing or damaged, which logs belong to no container that
is known, and which streams have fewer replicas than durability asks for, each with
what to do. It needs neither stores nor workers, and changes nothing without --fix.

With --fix it makes both buckets again from what the logs' streams tell of their
containers and from the second copies of pipelines' records. Nothing that can be
read is overwritten. Logs that an earlier release made may not tell whose they are:
give them a name with --name RID=DATABASE/CONTAINER; partition key, indexes and all
else are in the logs but changeFeed.retention, which is forever until the container
is applied.

It asks the NATS server that --server names. With --dir it opens the directory of
millrace up itself, while no process uses it: up refuses to start when its catalog
is damaged.

It exits with 0 if nothing is wrong, 1 if something is, 2 if it could not look.`,
		Example: "  millrace doctor\n  millrace doctor --dir /var/lib/millrace --fix\n  millrace doctor --fix --name c7k2x4ab=default/orders",
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := map[feed.ResourceID]doctor.Name{}
			for _, text := range names {
				id, name, err := doctor.ParseName(text)
				if err != nil {
					return &usageError{fmt.Errorf("--name %w", err)}
				}
				named[id] = name
			}
			if len(named) > 0 && !fix {
				return &usageError{errors.New("--name is for --fix")}
			}
			inDir := cmd.Flags().Changed("dir") && !cmd.Flags().Changed("server")
			return a.consult(cmd.Context(), inDir, func(ctx context.Context, d *doctor.Doctor) (*doctor.Report, error) {
				if fix {
					return d.Fix(ctx, named)
				}
				return d.Examine(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "repair what can be repaired")
	cmd.Flags().StringArrayVar(&names, "name", nil, "name of a container that its logs do not tell, RID=DATABASE/CONTAINER; may be given again")
	cmd.Flags().String("dir", configs.DirDefault, "directory of millrace up, to look at without it")
	return cmd
}

// consult connects, lets a doctor examine or fix, and prints the report. It exits with 1 if
// anything is wrong.
func (a *app) consult(ctx context.Context, inDir bool, look func(context.Context, *doctor.Doctor) (*doctor.Report, error)) error {
	cfg, err := a.quietConfig()
	if err != nil {
		return err
	}
	nc, end, err := a.connectOrOpen(ctx, cfg, inDir)
	if err != nil {
		return err
	}
	defer end()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	report, err := look(ctx, doctor.New(js, doctor.Config{Wish: node.ReplicasWish(cfg), Configured: cfg.DurabilityConfigured, Log: cfg.Feed.Log}))
	if err != nil {
		return err
	}
	if err := a.print(report, func(w io.Writer) error { return printDoctor(w, report) }); err != nil {
		return err
	}
	if !report.Well() {
		return &badNews{errTold}
	}
	return nil
}

// connectOrOpen connects to the server, or opens that of a directory which no process
// uses. Callers call end.
func (a *app) connectOrOpen(ctx context.Context, cfg *configs.Config, inDir bool) (nc *nats.Conn, end func(), err error) {
	// Three cases:
	//
	//	no --dir                        connect to --server
	//	--dir, a process has the lock   connect to that process
	//	--dir, nobody has it            take the lock and open its server, for this command alone
	log := a.logger(cfg)
	connect := func() (*nats.Conn, func(), error) {
		login, err := node.FindLogin(cfg)
		if err != nil {
			return nil, nil, err
		}
		nc, err := node.Connect(ctx, cfg, &login, "millrace doctor", log)
		if err != nil {
			return nil, nil, err
		}
		return nc, nc.Close, nil
	}
	if !inDir {
		return connect()
	}
	if _, err := os.Stat(cfg.NATS.Dir); err != nil {
		return nil, nil, fmt.Errorf("no directory of millrace up: %w", err)
	}
	if cfg.NATS.Cluster.Name != "" {
		return nil, nil, &usageError{errors.New("--dir: the server of this directory belongs to a cluster and must not be opened alone; start the servers and name them with --server")}
	}
	lock, err := leases.LockDir(cfg.Dir)
	if _, used := errors.AsType[*leases.DirLockedError](err); used {
		at, unknown := natsd.ReadAddress(cfg.NATS.Credentials)
		if unknown != nil {
			return nil, nil, err // another server that is configured is not that of the directory
		}
		cfg.Server = at
		return connect() // to the process that uses it
	}
	if err != nil {
		return nil, nil, err
	}
	// Not listening: nobody else may use the server while the doctor does.
	cfg.NATS.Log, cfg.NATS.DontListen = log, true
	server, err := natsd.Open(ctx, cfg.NATS)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	nc, err = server.Conn()
	if err != nil {
		server.Close()
		return nil, nil, errors.Join(err, lock.Close())
	}
	return nc, func() {
		nc.Close()
		server.Close()
		_ = lock.Close() // the process ends, and the lock with it
	}, nil
}

func printDoctor(w io.Writer, r *doctor.Report) error {
	for _, line := range r.Done {
		fmt.Fprintln(w, "done: "+line)
	}
	if len(r.Done) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-9s %s: %s\n%10s%s\n", f.Kind, f.What, strings.TrimSpace(f.Problem), "do: ", f.Remedy)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w)
	}
	sum := fmt.Sprintf("%s, %s, %s: ", format.Plural(r.Logs, "log", "logs"), format.Plural(r.Containers, "container", "containers"), format.Plural(r.Pipelines, "pipeline", "pipelines"))
	if r.Well() {
		_, err := fmt.Fprintln(w, sum+"nothing is wrong")
		return err
	}
	wrong := 0
	for _, f := range r.Findings {
		if f.Kind != doctor.Warning {
			wrong++
		}
	}
	_, err := fmt.Fprintln(w, sum+format.Plural(wrong, "thing is wrong", "things are wrong"))
	return err
}
