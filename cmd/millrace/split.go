package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

// splitFlags are those of split.
type splitFlags struct {
	at          string
	dry, noWait bool
	cancel      bool
	within      time.Duration
}

func newSplit(a *app) *cobra.Command {
	var flags splitFlags
	cmd := &cobra.Command{
		Use:   "split CONTAINER PARTITION",
		Short: "Split a partition in two while it is served",
		Long: `Split divides a partition of a container, by its number, into two new ones, each with
a log of its own: what is written to one does not wait for the other. The partition is
served meanwhile. Its children are copied beside the writes; in the end writes wait for
about a tenth of a second. Clients, pipelines and change feeds go on through it.

The boundary is a hash of partition keys, about the middle of what the partition holds
unless --at names it: up to 32 hexadecimal digits, zeros follow. A logical partition,
all items of one partition key, is never divided. millrace describe container shows the
ranges, and millrace top where the heat is.

Split waits until the children serve, and tells how far it is. The split goes on when
the command is interrupted, or its stores start again; --cancel gives it up. It takes as
much room again as the partition holds, until the log of the partition is not needed.`,
		Example: `  millrace split orders 0
  millrace split orders 3 --at 2A --dry-run
  millrace split shop/orders 0 --no-wait -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil {
				return &usageError{fmt.Errorf("partition %q: a number is expected, as millrace describe container shows it", args[1])}
			}
			at, err := boundary(flags.at)
			if err != nil {
				return &usageError{err}
			}
			if flags.within < 0 {
				return &usageError{fmt.Errorf("--within %s: a time of 0 or more is expected", flags.within)}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				database, name := a.splitName(args[0])
				return a.split(ctx, s, database, name, uint32(number), store.SplitPartition{At: at, Dry: flags.dry, Cancel: flags.cancel}, &flags)
			})
		},
	}
	cmd.Flags().StringVar(&flags.at, "at", "", "the first hash of the upper partition, in hexadecimal (default about the middle)")
	cmd.Flags().BoolVar(&flags.dry, "dry-run", false, "only say what the partition would become")
	cmd.Flags().BoolVar(&flags.cancel, "cancel", false, "give up the split of the partition that is under way")
	cmd.MarkFlagsMutuallyExclusive("cancel", "at")
	cmd.MarkFlagsMutuallyExclusive("cancel", "dry-run")
	cmd.Flags().BoolVar(&flags.noWait, "no-wait", false, "do not wait until the new partitions serve")
	cmd.Flags().DurationVar(&flags.within, "within", 0, "wait for so long at most; 0 is as long as it takes")
	return cmd
}

// boundary reads the digits of a hash, behind which zeros follow; "" for none.
func boundary(digits string) (feed.EPK, error) {
	if digits == "" {
		return "", nil
	}
	const most = 2 * store.BoundaryBytes
	b, err := hex.DecodeString(digits + strings.Repeat("0", max(most-len(digits), 0)))
	if err != nil || len(b) != store.BoundaryBytes {
		return "", fmt.Errorf("--at %s: 1 to %d hexadecimal digits are expected", digits, most)
	}
	return feed.EPK(b), nil
}

// splitAction is what split has done.
type splitAction struct {
	Container string                `json:"container"`
	Partition uint32                `json:"partition"`
	ID        string                `json:"id,omitempty"`
	Children  []store.PartitionInfo `json:"children"`
	// Action is "none" if it was asked for dry, "planned" while it goes on, "split", or "cancelled".
	Action string `json:"action"`
	// Last is the LSN of the last commit of the partition, First the first of its children.
	Last  feed.LSN `json:"last,omitempty"`
	First feed.LSN `json:"first,omitempty"`
}

// split asks for a split, and waits until the children serve.
func (a *app) split(ctx context.Context, s *session, database, name string, number uint32, r store.SplitPartition, flags *splitFlags) error {
	ct, err := s.client.Container(ctx, database, name)
	if err != nil {
		return err
	}
	info := ct.Info()
	did := splitAction{Container: database + "/" + name, Partition: number, Action: "none"}
	p := feed.Partition{Container: info.ID, Number: number}
	switch f := info.FormerOf(number); {
	case f != nil:
		return bad("partition %d of %s was split already, into %d and %d", number, did.Container, f.Children[0], f.Children[1])
	case !slices.Contains(ct.Partitions(), p):
		return bad("container %s has no partition %d; millrace describe container %s shows which it has", did.Container, number, name)
	}
	planned, err := ct.Split(ctx, p, r)
	if err != nil {
		return err
	}
	did.ID, did.Children = planned.ID, planned.Children
	if r.Cancel {
		did.Action = "cancelled"
		return a.printText(did, "partition %d of %s is not split\n", number, did.Container)
	}
	becomes := fmt.Sprintf("%d with %s and %d with %s", did.Children[0].Number, did.Children[0].Range, did.Children[1].Number, did.Children[1].Range)
	if r.Dry {
		return a.printText(did, "partition %d of %s would become %s\n", number, did.Container, becomes)
	}
	did.Action = "planned"
	if flags.noWait {
		return a.printText(did, "partition %d of %s becomes %s; millrace describe container %s tells how far it is\n", number, did.Container, becomes, name)
	}
	fmt.Fprintf(a.err, "partition %d of %s becomes %s\n", number, did.Container, becomes)
	if flags.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, flags.within)
		defer cancel()
	}
	former, err := a.awaitSplit(ctx, s, ct, p, did.ID)
	if err != nil {
		return err
	}
	if former == nil {
		if err := a.printText(did, ""); err != nil {
			return err
		}
		return bad("not split within %s; it goes on", flags.within)
	}
	did.Action, did.Last, did.First = "split", former.Last, former.First
	return a.printText(did, "partition %d of %s was split at LSN %s\n", number, did.Container, format.Count(uint64(former.Last)))
}

// awaitSplit waits until the catalog names the children of a partition and each has an owner. It returns nil when the
// time for that is over.
func (a *app) awaitSplit(ctx context.Context, s *session, ct *store.Container, p feed.Partition, id string) (*store.FormerPartition, error) {
	const pause = 200 * time.Millisecond
	info, said := ct.Info(), ""
	for {
		now, err := s.client.Container(ctx, info.Database, info.Name)
		if err == nil {
			is := now.Info()
			if f := is.FormerOf(p.Number); f != nil {
				return f, nil
			}
			status, failed := now.Status(ctx, p)
			if plan := is.PlannedOf(p.Number); plan == nil || plan.ID != id {
				return nil, givenUp(p, id, status, failed)
			}
			if failed == nil && status.Splitting != said && status.Splitting != "" {
				said = status.Splitting
				fmt.Fprintln(a.err, said)
			}
		}
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w\nnext: the split goes on; millrace describe container tells how far it is", context.Cause(ctx))
		case err != nil && !await.Passes(err):
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// givenUp is the error of a split that the catalog does not plan any more. The status of its partition, unless that could
// not be had, says why.
func givenUp(p feed.Partition, id string, status *store.PartitionStatus, failed error) error {
	switch {
	case failed != nil:
		return bad("the split of partition %d was given up; why is not known: %w", p.Number, failed)
	case status.AbandonedSplit == nil || status.AbandonedSplit.ID != id:
		return bad("the split of partition %d was given up, and another one was begun since", p.Number)
	}
	return bad("the split of partition %d was given up: %s", p.Number, status.AbandonedSplit.Why)
}
