package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// feedFlags are those of feed.
type feedFlags struct {
	from   string
	follow bool
	limit  int64
	before bool
	at     endpointFlags
}

func newFeed(a *app) *cobra.Command {
	var f feedFlags
	cmd := &cobra.Command{
		Use:   "feed CONTAINER",
		Short: "Show the change feed of a container",
		Long: `Feed shows the changes of a container in the order of each physical partition,
from --from on: the beginning, now, or a time, which is an age such as 10m or an
instant such as 2026-01-02T15:04:05Z. With --follow it waits for what comes.

With -o json it prints one change in a line.

An endpoint's feed tells less: each item once, as it is now, with the LSN of its last
write and no position; no deletes; what a pipeline wrote is not marked; a time is in
whole seconds. --before is refused.`,
		Example: "  millrace feed product --from now --follow",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			start, err := parseStart(f.from, time.Now())
			if err != nil {
				return err
			}
			if err := f.at.resolve(cmd); err != nil {
				return err
			}
			database, name := a.splitName(args[0])
			if f.at.url == "" {
				return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
					ct, err := s.client.Container(ctx, database, name)
					if err != nil {
						return err
					}
					return a.showFeed(ctx, s, ct, start.start(), &f)
				})
			}
			if f.before {
				return &usageError{errors.New("--before: the feed of an endpoint does not tell what an item was before; ask the server for it with --server")}
			}
			return a.withRemote(cmd, &f.at, func(ctx context.Context, c *remote.Client) error {
				ct, err := c.Container(ctx, database, name)
				if err != nil {
					return err
				}
				return a.showRemoteFeed(ctx, ct, start, &f)
			})
		},
	}
	cmd.Flags().StringVar(&f.from, "from", "beginning", "where to begin: beginning, now, an age such as 10m, or an instant")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "wait for what comes, until interrupted")
	cmd.Flags().Int64Var(&f.limit, "limit", 0, "changes to show at most (default all)")
	cmd.Flags().BoolVar(&f.before, "before", false, "show the item as it was before, too")
	a.addEndpoint(cmd, &f.at)
	return cmd
}

// feedStart is where a feed begins: now, at a time, or the zero feedStart, which is
// the beginning.
type feedStart struct {
	now   bool
	since time.Time
}

func (s feedStart) start() feed.Start {
	switch {
	case s.now:
		return feed.StartNow()
	case !s.since.IsZero():
		return feed.StartTime(s.since)
	}
	return feed.StartBeginning()
}

// parseStart reads --from.
func parseStart(text string, now time.Time) (feedStart, error) {
	switch text {
	case "beginning":
		return feedStart{}, nil
	case "now":
		return feedStart{now: true}, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return feedStart{since: now.Add(-age)}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return feedStart{since: at}, nil
	}
	return feedStart{}, &usageError{fmt.Errorf("--from %s: beginning, now, an age such as 10m, or an instant such as 2026-01-02T15:04:05Z is expected", text)}
}

// showFeed shows the changes of all partitions.
func (a *app) showFeed(ctx context.Context, s *session, ct *store.Container, start feed.Start, f *feedFlags) error {
	// The first one that has shown enough ends all: its error cancels the context of the others.
	p := &changePrinter{a: a, flags: f}
	g, ctx := errgroup.WithContext(ctx)
	for _, partition := range ct.Partitions() {
		g.Go(func() error { return p.followPartition(ctx, s, partition, start) })
	}
	return f.ended(g.Wait())
}

// ended is the error of a feed that was shown up to its limit, or until it was interrupted.
func (f *feedFlags) ended(err error) error {
	if errors.Is(err, errEnough) || f.follow && isCanceled(err) {
		return nil
	}
	return err
}

// showRemoteFeed shows the change feed of an endpoint.
func (a *app) showRemoteFeed(ctx context.Context, ct *remote.Container, start feedStart, f *feedFlags) error {
	shown := int64(0)
	waits := func(err error) { fmt.Fprintf(a.err, "%v; trying again until it answers\n", err) }
	err := ct.Changes(ctx, remote.Feed{Now: start.now, Since: start.since, Follow: f.follow, Waits: waits}, func(changes []remote.Change) error {
		for i := range changes {
			if f.limit > 0 && shown == f.limit {
				return errEnough
			}
			shown++
			c := &changes[i]
			v := &inspect.Change{LSN: c.LSN, Time: c.Time, Key: json.RawMessage(c.Item.Key.String()), ID: c.Item.ID, Item: c.Item.Body}
			if err := a.printChange(v); err != nil {
				return err
			}
		}
		if f.limit > 0 && shown == f.limit {
			return errEnough // before it waits for another
		}
		return nil
	})
	return f.ended(err)
}

// changePrinter prints changes of several partitions, whole lines.
type changePrinter struct {
	a     *app
	flags *feedFlags

	mu    sync.Mutex
	shown int64
}

func (p *changePrinter) followPartition(ctx context.Context, s *session, partition feed.Partition, start feed.Start) error {
	log, err := feed.OpenLog(ctx, s.js, partition, s.cfg.Feed.Log)
	if err != nil {
		return fmt.Errorf("open the change feed of %s: %w", partition, err)
	}
	defer log.Close()
	after, err := log.Resolve(ctx, start)
	if err != nil {
		return fmt.Errorf("find %s in the change feed of %s: %w", p.flags.from, partition, err)
	}
	// Without --follow the feed ends at what is last now. A reader of an empty rest would
	// wait for it.
	_, last, err := log.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("find the end of the change feed of %s: %w", partition, err)
	}
	if !p.flags.follow && after.LSN >= last {
		return nil
	}
	tail, err := log.Tail(ctx, after.LSN+1, feed.TailOptions{Waits: p.waits})
	if err != nil {
		return fmt.Errorf("read the change feed of %s: %w", partition, err)
	}
	defer tail.Close()
	for {
		commit, err := tail.Next(ctx)
		if err != nil {
			return err
		}
		if err := p.print(partition, commit); err != nil {
			return err
		}
		if !p.flags.follow && commit.LSN >= last {
			return nil
		}
	}
}

// waits says why a feed shows nothing.
func (p *changePrinter) waits(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.a.err, "%v; trying again until there is room\n", err)
}

func (p *changePrinter) print(partition feed.Partition, commit *feed.Commit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := uint32(0)
	for i := range commit.Transactions {
		t := &commit.Transactions[i]
		for j := range t.Changes {
			if p.flags.limit > 0 && p.shown == p.flags.limit {
				return errEnough
			}
			p.shown++
			v, err := inspect.NewChange(partition, commit, t, feed.Position{LSN: commit.LSN, Index: index}, &t.Changes[j], p.flags.before)
			if err != nil {
				return err
			}
			if err := p.a.printChange(v); err != nil {
				return err
			}
			index++
		}
	}
	if p.flags.limit > 0 && p.shown == p.flags.limit {
		return errEnough // before it waits for another
	}
	return nil
}

func (a *app) printChange(v *inspect.Change) error {
	switch a.output {
	case "json":
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case "yaml":
		if _, err := io.WriteString(a.out, "---\n"); err != nil {
			return err
		}
		return declaration.WriteYAML(a.out, v)
	}
	var body bytes.Buffer
	if len(v.Item) > 0 {
		if err := json.Compact(&body, v.Item); err != nil {
			return err
		}
	}
	by := ""
	if v.Pipeline != "" {
		by = " by " + v.Pipeline
	}
	line := fmt.Sprintf("%s %s %s %-7s %s%s %s", v.Time.Format("15:04:05.000"), v.Partition, v.Position, v.Op, v.Key, by, body.String())
	if v.Partition == "" {
		line = fmt.Sprintf("%s lsn %d %s %s", v.Time.Format("15:04:05"), v.LSN, v.Key, body.String())
	}
	if len(v.Item) == 0 {
		line += v.ID
	}
	if width, ok := terminal(a.out); ok {
		line = cut(line, width)
	}
	_, err := fmt.Fprintln(a.out, line)
	return err
}
