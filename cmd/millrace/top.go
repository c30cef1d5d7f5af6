package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store/heat"
)

// topKeys bounds the keys that are told of where many partitions have some.
const topKeys = 20

func newTop(a *app) *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Tell which partitions and partition keys have most of the load",
		Long: `Top tells of the physical partitions that were asked for something in the last
minute or two, the hottest first: requests and bytes a second, and the time of
their readers and of their deciders as a part of one processor. Below them are the
partition keys that have one per cent or more of the load or of the requests of
their partition, with the least of the load that they have, and the most where that
is not known exactly.

It says what helps where one partition is busy for more than half of a processor, or has
more than half of its container's load: a split, unless one partition key is the heat.`,
		Example: "  millrace top",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 {
				return &usageError{fmt.Errorf("--partitions %d: at least 1 is expected", most)}
			}
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				inspector := s.inspector()
				defer inspector.Close()
				h, err := inspector.Heat(ctx)
				if err != nil {
					return err
				}
				// Cut before it is printed, so that -o json obeys --partitions too.
				left := max(len(h.Partitions)-most, 0)
				h.Partitions = h.Partitions[:len(h.Partitions)-left]
				return a.print(h, func(w io.Writer) error { return tellTop(w, h, left) })
			})
		},
	}
	cmd.Flags().IntVar(&most, "partitions", 20, "how many partitions are told of, at most")
	return cmd
}

// tellTop tells of the hottest partitions; left is how many others have less.
func tellTop(w io.Writer, h *inspect.Heat, left int) error {
	if len(h.Partitions) == 0 && h.Unknown > 0 {
		_, err := fmt.Fprintf(w, "%s not answered for, so their load is not known; nothing was asked of others in the last minutes\n", unanswered(h.Unknown))
		return err
	}
	if len(h.Partitions) == 0 {
		_, err := fmt.Fprintln(w, "nothing was asked for in the last minutes")
		return err
	}
	var rows, keys [][]string
	for i := range h.Partitions {
		p := &h.Partitions[i]
		rows = append(rows, append([]string{p.Database + "/" + p.Container, strconv.Itoa(int(p.Partition))}, heatRow(p.Heat)...))
	}
	if err := columns(w, append([]string{"CONTAINER", "PARTITION"}, heatColumns...), rows); err != nil {
		return err
	}
	for _, k := range h.Keys(topKeys) {
		keys = append(keys, append([]string{k.Database + "/" + k.Container, strconv.Itoa(int(k.Partition))}, keyRow(k.Heat, &k.Key)...))
	}
	if len(keys) > 0 {
		fmt.Fprintln(w)
		if err := columns(w, append([]string{"CONTAINER", "PARTITION"}, keyColumns...), keys); err != nil {
			return err
		}
	}
	if err := tellAdvice(w, h.Advice); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(w, "\n%s less; --partitions tells of more\n", format.Plural(left, "partition has", "partitions have"))
	}
	if h.Unknown > 0 {
		_, err := fmt.Fprintf(w, "\n%s not answered for\n", unanswered(h.Unknown))
		return err
	}
	return nil
}

func unanswered(n int) string { return format.Plural(n, "partition is", "partitions are") }

var (
	heatColumns = []string{"READS/S", "READ/S", "READING", "WRITES/S", "WRITTEN/S", "DECIDING", "OVER"}
	keyColumns  = []string{"KEY", "OF ITS LOAD", "READS/S", "WRITES/S", "BYTES/S", "BUSY"}
)

func heatRow(h *heat.Report) []string {
	return []string{
		format.Rate(h.PerSecond(h.Reads.Requests)), format.Size(h.PerSecond(h.Reads.Bytes)), format.Percent(h.Busy(h.Reads.Time)),
		format.Rate(h.PerSecond(h.Writes.Requests)), format.Size(h.PerSecond(h.Writes.Bytes)), format.Percent(h.Busy(h.Writes.Time)),
		format.Age(h.Over.Seconds()),
	}
}

func keyRow(h *heat.Report, k *heat.Key) []string {
	total := k.Reads.Plus(k.Writes)
	return []string{
		k.Key, inspect.Share(k), format.Rate(h.PerSecond(k.Reads.Requests)), format.Rate(h.PerSecond(k.Writes.Requests)),
		format.Size(h.PerSecond(total.Bytes)), format.Percent(h.Busy(total.Time)),
	}
}

// tellHeat tells what the partitions of a container were asked for, and by which keys.
func tellHeat(w io.Writer, c *inspect.Container) error {
	var rows, keys [][]string
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.Status == nil || p.Status.Heat == nil || p.Status.Heat.Total().Requests == 0 {
			continue
		}
		number := strconv.Itoa(int(p.Number))
		rows = append(rows, append([]string{number}, heatRow(p.Status.Heat)...))
		for k := range p.Status.Heat.Keys {
			keys = append(keys, append([]string{number}, keyRow(p.Status.Heat, &p.Status.Heat.Keys[k])...))
		}
	}
	for _, table := range []struct {
		header []string
		rows   [][]string
	}{{heatColumns, rows}, {keyColumns, keys}} {
		if len(table.rows) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if err := columns(w, append([]string{"PARTITION"}, table.header...), table.rows); err != nil {
			return err
		}
	}
	return tellAdvice(w, c.Advice())
}

// tellAdvice tells what helps the partitions that are too hot.
func tellAdvice(w io.Writer, all []inspect.Advice) error {
	for i := range all {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintln(w, all[i].Text); err != nil {
			return err
		}
	}
	return nil
}

func newNodes(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "nodes",
		Short: "List the stores and workers, and what each of them has",
		Long: `Nodes lists the processes that share the work: stores, which own partitions, and
workers, which carry out pipelines. It reads what they tell the group, and asks none
of them. A node that runs both has two lines.

  LEASES   the partitions of a store, or the parts of pipelines of a worker, that it has
  WARM     the copies of other stores' partitions that it keeps and that are ready
  LOADING  those that it is to keep and that are not ready yet
  LEVEL    the feature level that it can read; see millrace upgrade
  STATE    up; closed: it begins or ends, and takes nothing; drains: it is to give up
           what it has, see millrace drain; silent: it has not been heard of for the
           lifetime of a lease; left: it has ended

A process that has ended is listed until its record is gone: that of a node with a
directory stays.`,
		Example: "  millrace nodes\n  millrace nodes -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				inspector := s.inspector()
				defer inspector.Close()
				f, err := inspector.Fleet(ctx)
				if err != nil {
					return err
				}
				return a.print(f, func(w io.Writer) error { return tellNodes(w, f) })
			})
		},
	}
}

// stateOf says how a process is. One that drains and lives is closed for that reason, or about to be.
func stateOf(p *leases.Process) string {
	switch {
	case !p.Drains:
		return string(p.State)
	case p.State == leases.ProcessUp, p.State == leases.ProcessClosed:
		return "drains"
	}
	return string(p.State) + ", drains"
}

func tellNodes(w io.Writer, f *inspect.Fleet) error {
	var rows [][]string
	for i := range f.Nodes {
		n := &f.Nodes[i]
		warm, loading := "-", "-" // a worker keeps no copies
		if n.Group == node.GroupStore {
			warm, loading = strconv.Itoa(len(n.Warm)), strconv.Itoa(n.Loading)
		}
		rows = append(rows, []string{
			n.Node, n.Group, cmp.Or(n.Host, "-"), stateOf(&n.Process), strconv.Itoa(n.Level), strconv.Itoa(n.Leases), warm, loading,
			format.Ago(n.Seen.Add(time.Duration(n.Silent*float64(time.Second))), n.Seen),
		})
	}
	if err := columns(w, []string{"NODE", "ROLE", "HOST", "STATE", "LEVEL", "LEASES", "WARM", "LOADING", "SEEN"}, rows); err != nil {
		return err
	}
	if f.Unowned > 0 {
		fmt.Fprintf(w, "\n%s by no store that lives\n", format.Plural(f.Unowned, "partition is owned", "partitions are owned"))
	}
	for _, p := range f.Problems {
		fmt.Fprintln(w, p)
	}
	return nil
}
