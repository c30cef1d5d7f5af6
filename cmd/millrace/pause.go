package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
)

func newPause(a *app) *cobra.Command {
	return a.onPipeline(&cobra.Command{
		Use:     "pause PIPELINE",
		Short:   "End the work of a pipeline until resume",
		Long:    "Pause ends the work of a pipeline. What changes meanwhile is copied after resume.",
		Example: "  millrace pause category-names",
	}, (*registry.Registry).Pause, "paused")
}

// onPipeline completes a command that does one thing to one pipeline.
func (a *app) onPipeline(cmd *cobra.Command, act func(*registry.Registry, context.Context, string, string) (registry.Record, error), done string) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
			database, name := a.splitName(args[0])
			if _, err := act(s.registry, ctx, database, name); err != nil {
				return err
			}
			return a.printDone("pipeline", database, name, done)
		})
	}
	return cmd
}

func newResume(a *app) *cobra.Command {
	return a.onPipeline(&cobra.Command{
		Use:     "resume PIPELINE",
		Short:   "Let a paused pipeline go on where it stood",
		Example: "  millrace resume category-names",
	}, (*registry.Registry).Resume, "resumed")
}

// drainFlags are those of drain.
type drainFlags struct {
	undo, noWait bool
	within       time.Duration
}

func newDrain(a *app) *cobra.Command {
	var flags drainFlags
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Ask a node to give up all that it has, so that it can be stopped",
		Long: `Drain asks a node, by the name that millrace nodes shows, to give up what it has, as a
store and as a worker, and to take nothing, while its process goes on. Partitions and
parts of pipelines move to the other nodes, a few at a time. Those of a container that
wants standbys move only to a store whose copy is ready. Then the process can be stopped
or upgraded, and nobody waits for what it had.

What no other node takes, it keeps and serves: millrace drain says what, and why. The
wish lasts until --undo, also when the node starts again.

Drain waits until the node has nothing, and tells what is left when that changes. A node
that starts again meanwhile is waited for, for a minute. It exits with 1 if the node
cannot be drained, or not --within the time that was given; -o json tells why (error).`,
		Example: `  millrace drain 4kq2m7xd
  millrace drain 4kq2m7xd --within 10m -o json
  millrace drain 4kq2m7xd --undo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.within < 0 {
				return &usageError{fmt.Errorf("--within %s: a time of 0 or more is expected", flags.within)}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				inspector := s.inspector()
				defer inspector.Close()
				if flags.undo {
					return a.undrain(ctx, s, inspector, args[0])
				}
				return a.drain(ctx, s, inspector, args[0], &flags)
			})
		},
	}
	cmd.Flags().BoolVar(&flags.undo, "undo", false, "let the node take its share again")
	cmd.Flags().BoolVar(&flags.noWait, "no-wait", false, "do not wait until the node has nothing")
	cmd.Flags().DurationVar(&flags.within, "within", 0, "wait for so long at most; 0 is as long as it takes")
	return cmd
}

// drainAction is what drain has done.
type drainAction struct {
	*inspect.Drain
	Action string `json:"action"`
	// Error says why it has not done what was asked for.
	Error string `json:"error,omitempty"`
}

// drain asks a node to drain, and waits until it has.
func (a *app) drain(ctx context.Context, s *session, i *inspect.Inspector, node string, flags *drainFlags) error {
	d, err := i.Drain(ctx, node)
	if err != nil {
		return a.notDrained(&inspect.Drain{Node: node, Left: []inspect.Left{}}, "none", err)
	}
	if err := d.May(); err != nil {
		return a.notDrained(d, "none", &badNews{err})
	}
	by, _ := os.Hostname() // for people only
	if _, err := leases.Drain(ctx, s.js, s.cfg.Leases.Bucket, node, by); err != nil {
		return a.notDrained(d, "none", fmt.Errorf("ask node %s to drain: %w", node, err))
	}
	if flags.noWait {
		d.Drains = true
		return a.printText(drainAction{d, "asked", ""}, "node %s drains; millrace nodes tells how far it is\n", node)
	}
	if flags.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, flags.within)
		defer cancel()
	}
	d, err = a.drained(ctx, i, d)
	switch {
	case err != nil:
		return a.notDrained(d, "asked", err)
	case d.Runs() && d.Done():
		return a.printText(drainAction{d, "drained", ""}, "node %s has nothing, and takes nothing until millrace drain %s --undo\n", node, node)
	case d.Runs() && !d.Drains && ctx.Err() == nil:
		return a.notDrained(d, "undone", bad("node %s is not to drain any more: somebody has taken it back", node))
	case ctx.Err() == nil:
		return a.notDrained(d, "ended", bad("node %s does not run any more; others get what it had", node))
	}
	return a.notDrained(d, "asked", bad("not drained within %s: %s; it goes on until millrace drain %s --undo", flags.within, d, node))
}

// notDrained returns err, which in a table is all that there is to say.
func (a *app) notDrained(d *inspect.Drain, action string, err error) error {
	if err := a.print(drainAction{d, action, err.Error()}, func(io.Writer) error { return nil }); err != nil {
		return err
	}
	return err
}

// drained waits until a node has drained, or the time for that is over, and returns how far it is then.
func (a *app) drained(ctx context.Context, i *inspect.Inspector, d *inspect.Drain) (*inspect.Drain, error) {
	var wait inspect.DrainWait
	for said := ""; ; {
		now, err := i.Drain(ctx, d.Node)
		switch {
		case err == nil:
			d = now
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return d, nil
		case ctx.Err() != nil:
			return d, fmt.Errorf("%w\nnext: the node goes on to drain; millrace drain %s waits for it again, and --undo takes it back", context.Cause(ctx), d.Node)
		case !await.Passes(err):
			return d, err
		}
		if err == nil && wait.Over(d, time.Now()) {
			return d, nil
		}
		if d.String() != said {
			said = d.String()
			fmt.Fprintln(a.err, said)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// undrain lets a node take leases again.
func (a *app) undrain(ctx context.Context, s *session, i *inspect.Inspector, node string) error {
	changed, err := leases.Undrain(ctx, s.js, s.cfg.Leases.Bucket, node)
	if err != nil {
		return err
	}
	d, err := i.Drain(ctx, node)
	if err != nil {
		return err
	}
	if !changed {
		if err := d.Known(); err != nil {
			return a.notDrained(d, "none", &badNews{err})
		}
		return a.printText(drainAction{d, "none", ""}, "node %s was not to drain\n", node)
	}
	return a.printText(drainAction{d, "undone", ""}, "node %s takes its share again\n", node)
}
