package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/pipelines/status"
)

func newStatus(a *app) *cobra.Command {
	var watch, wide bool
	var every time.Duration
	var at endpointFlags
	cmd := &cobra.Command{
		Use:   "status [PIPELINE]",
		Short: "Tell where every pipeline stands",
		Long: `Status tells of each pipeline its state, its lag in changes and the age of the
oldest of them, the copies changed or rows written, and its backfill and fan-outs
with per cent and ETA. With --wide it tells of each physical partition, and who owns
it. A lag with ~ is estimated from some of the commits; one with + or ? is not known
as a whole, because a log or a checkpoint could not be read.

The states: idle, behind, backfilling (what was there when it began is being read),
switching (it has caught up, and is not in force in every partition yet),
uninitialised (no worker has taken it yet), stuck, halted, paused.

Warnings stand before them, such as of logs that have fewer replicas than durability
asks for; millrace doctor tells more. So does what helps a partition that is too hot;
millrace top tells more of that. The last lines tell how many logs were read as a whole
by the scrub of their owners, and what is damaged.

What cannot be read is named first, and the rest is told. A log that does not answer,
such as one whose replicas have no majority, is waited for as long as --timeout says,
once for all such logs: the pipelines that read it are stuck for that reason. With
--watch the looks after that do not wait for it until it has answered.

It exits with 1 if a pipeline is stuck, which means that it has something to do and
makes no progress, or halted at a change that cannot be processed, if a log or an
engine is damaged, and if not all could be read; with 2 if nothing could.`,
		Example: "  millrace status --watch",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 100*time.Millisecond {
				return &usageError{fmt.Errorf("--every %s: at least 100ms is expected", every)}
			}
			tell := func(ctx context.Context, read func() (*status.Status, error)) error {
				if watch {
					return a.watchStatus(ctx, every, wide, read)
				}
				status, err := read()
				if err != nil {
					return err
				}
				if err := a.print(status, func(w io.Writer) error { return status.Print(w, wide) }); err != nil {
					return err
				}
				if !status.Healthy() {
					return &badNews{errTold}
				}
				return nil
			}
			return a.withOperator(cmd, &at, func(ctx context.Context, c *operator.Client) error {
				return tell(ctx, func() (*status.Status, error) { return c.Status(ctx, a.named(args)...) })
			}, func(ctx context.Context, s *session) error {
				read, end := a.statusReader(ctx, s, args)
				defer end()
				return tell(ctx, read)
			})
		},
	}
	a.addOperator(cmd, &at)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "tell again and again, until interrupted")
	cmd.Flags().BoolVar(&wide, "wide", false, "tell of each physical partition")
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two looks with --watch")
	return cmd
}

// statusReader returns what reads where all pipelines stand, and how storage is; or where one pipeline stands. The first
// reading waits for whoever is silent, for --timeout, and the later ones do not wait again. Callers call end.
func (a *app) statusReader(ctx context.Context, s *session, args []string) (read func() (*status.Status, error), end func()) {
	how := s.inspected()
	how.AnswerTimeout = a.timeout
	inspector := inspect.New(how)
	lookout := inspect.NewLookout(inspector, a.timeout)
	if len(args) > 0 {
		lookout = inspect.NewLookout(replicasAlone{inspector}, a.timeout)
	}
	ctx, cancel := context.WithCancel(ctx)
	read = func() (*status.Status, error) {
		st, err := inspect.Read(ctx, inspector, lookout)
		if err != nil || len(args) == 0 {
			return st, err
		}
		database, name := a.splitName(args[0])
		rec, err := s.registry.Get(ctx, database, name)
		if err != nil {
			return nil, err
		}
		st.Pipelines = slices.DeleteFunc(st.Pipelines, func(p status.Pipeline) bool { return p.ID != rec.ID })
		return st, nil
	}
	return read, func() {
		cancel()
		lookout.Wait()
		inspector.Close()
	}
}

// replicasAlone is what a reading of one pipeline asks beside it.
type replicasAlone struct{ *inspect.Inspector }

// Storage implements inspect.Surroundings: nobody asked.
func (replicasAlone) Storage(context.Context) (*status.Storage, error) { return nil, nil }

// watchStatus shows the status until ctx ends: in place on a terminal, elsewhere one after the
// other. A page is written in one piece, so that a terminal does not flicker.
func (a *app) watchStatus(ctx context.Context, every time.Duration, wide bool, read func() (*status.Status, error)) error {
	_, onTerminal := terminal(a.out)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		status, err := read()
		if ctx.Err() != nil { // an interrupt is how a watch ends
			return nil
		}
		if err != nil {
			return err
		}
		var page bytes.Buffer
		if a.output == "table" {
			fmt.Fprintf(&page, "%s\n\n", status.Time.Format("15:04:05"))
			if err := status.Print(&page, wide); err != nil {
				return err
			}
			if onTerminal {
				// Home, the page with each line cleared to its end, and what is below.
				fmt.Fprintf(a.out, "\x1b[H%s\x1b[J", bytes.ReplaceAll(page.Bytes(), []byte("\n"), []byte("\x1b[K\n")))
			} else {
				fmt.Fprintf(a.out, "%s\n", page.Bytes())
			}
		} else if err := a.print(status, nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
