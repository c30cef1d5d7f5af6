package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/upkeep"
)

func newDescribe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "describe container|pipeline NAME",
		Short:   "Show one container or pipeline with how it is now",
		Example: "  millrace describe pipeline category-names",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := parseKind(args[0])
			if err != nil {
				return err
			}
			database, name := a.splitName(args[1])
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				if k == kindContainer {
					return a.describeContainer(ctx, s, database, name)
				}
				return a.describePipeline(ctx, s, database, name)
			})
		},
	}
}

func (a *app) describeContainer(ctx context.Context, s *session, database, name string) error {
	inspector := s.inspector()
	defer inspector.Close()
	c, err := inspector.Container(ctx, database, name, true)
	if err != nil {
		return err
	}
	doc, err := declaration.JSON(registry.ContainerDocument(&c.ContainerInfo))
	if err != nil {
		return err
	}
	return a.print(c.JSON(doc), func(w io.Writer) error {
		if err := declaration.WriteYAML(w, doc); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nid %s, %s, created %s, used by %s\n\n", c.ID, c.State, c.Created.Format(time.RFC3339), dash(strings.Join(c.Pipelines, ", ")))
		var rows [][]string
		for i := range c.Partitions {
			rows = append(rows, partitionRow(&c.Partitions[i]))
		}
		if err := columns(w, []string{"PARTITION", "ITEMS", "REPLICAS", "LSN", "EPOCH", "OWNER", "INDEXES", "AGGREGATES", "SCRUBBED", "SNAPSHOT", "LOG FROM", "STANDBY", "NOTE"}, rows); err != nil {
			return err
		}
		if err := tellFormer(w, c.Former); err != nil {
			return err
		}
		if err := tellHeat(w, c); err != nil {
			return err
		}
		if err := tellPins(w, c.Partitions); err != nil {
			return err
		}
		return tellTrims(w, c.Partitions)
	})
}

// tellFormer prints which partitions were split, and whose logs are there.
func tellFormer(w io.Writer, former []store.FormerPartition) error {
	for i := range former {
		f := &former[i]
		if _, err := fmt.Fprintf(w, "\npartition %d was split at LSN %s into %d and %d; its log stays until nobody needs it\n",
			f.Number, format.Count(uint64(f.Last)), f.Children[0], f.Children[1]); err != nil {
			return err
		}
	}
	return nil
}

func partitionRow(p *inspect.Partition) []string {
	row := []string{strconv.Itoa(int(p.Number)), format.Count(p.Items), replicasOf(p.Replicas)}
	if p.Status == nil {
		return append(row, "-", "-", "-", "-", "-", "-", "-", "-", standbysOf(p), strings.Trim(p.Error+"; "+remarksOf(p), "; "))
	}
	ready := 0
	for _, index := range p.Status.Indexes {
		if index.Ready {
			ready++
		}
	}
	inForce := 0
	for _, rule := range p.Status.Rules {
		// Only when it is swept has every target the fields of the rule.
		if rule.Active && rule.Published && rule.Swept {
			inForce++
		}
	}
	note := p.Error
	switch {
	case p.Status.Unreadable:
		note = p.Status.Refusing // which says so
	case p.Status.Refusing != "":
		note = "refuses writes: " + p.Status.Refusing
	case note == "" && remarksOf(p) != "":
		note = remarksOf(p)
	case note == "" && p.Status.Splitting != "":
		note = p.Status.Splitting
	}
	return append(row, format.Count(uint64(p.Status.Applied)), format.Count(p.Status.Epoch), p.Status.Owner,
		fmt.Sprintf("%d of %d ready", ready, len(p.Status.Indexes)), fmt.Sprintf("%d of %d in force", inForce, len(p.Status.Rules)),
		scrubbed(p.Status.Scrub), snapshotOf(p.Status.Snapshot), logFrom(p.Status.Trim), standbysOf(p), note)
}

// remarksOf returns how copies of a partition differ from what the owner holds.
func remarksOf(p *inspect.Partition) string {
	var texts []string
	for _, s := range p.Standbys {
		if s.Remark != "" {
			texts = append(texts, "the copy of "+s.Node+" "+s.Remark)
		}
	}
	return strings.Join(texts, "; ")
}

// standbysOf returns which stores keep a copy of a partition, and how many commits it lacks at most, for a column.
func standbysOf(p *inspect.Partition) string {
	var texts []string
	for _, s := range p.Standbys {
		if s.Applied == 0 {
			texts = append(texts, s.Node+", not ready")
			continue
		}
		if p.Status == nil {
			texts = append(texts, fmt.Sprintf("%s, LSN %s", s.Node, format.Count(uint64(s.Applied))))
			continue
		}
		texts = append(texts, fmt.Sprintf("%s, %s behind", s.Node, format.Count(uint64(max(p.Status.Applied, s.Applied)-s.Applied))))
	}
	return dash(strings.Join(texts, "; "))
}

// logFrom returns the LSN with which the log begins, for a column.
func logFrom(t *store.TrimState) string {
	if t == nil {
		return "-"
	}
	return "LSN " + format.Count(uint64(t.First))
}

// tellPins prints who keeps which snapshot, and until when.
func tellPins(w io.Writer, partitions []inspect.Partition) error {
	for _, p := range partitions {
		if p.Status == nil {
			continue
		}
		for _, pin := range p.Status.Pins {
			if _, err := fmt.Fprintf(w, "\npartition %d: %s keeps the snapshot of LSN %s with %s items, until %s at the latest\n",
				p.Number, pin.Holder, format.Count(uint64(pin.LSN)), format.Count(pin.Items), pin.Until.UTC().Format(time.RFC3339)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellTrims prints for each log with a retention why it is not trimmed further, and which readers
// a later trim will cut off.
func tellTrims(w io.Writer, partitions []inspect.Partition) error {
	for _, p := range partitions {
		if p.Status == nil || p.Status.Trim == nil || p.Status.Trim.Retention == store.RetentionForever.String() {
			continue
		}
		t := p.Status.Trim
		if _, err := fmt.Fprintf(w, "\npartition %d: trimmed up to LSN %s; %s\n", p.Number, format.Count(uint64(t.Point)), t.HeldBy); err != nil {
			return err
		}
		for _, late := range t.Late {
			if _, err := fmt.Fprintf(w, "partition %d: %s has read LSN %s and is cut off from %s on\n",
				p.Number, late.Reader, format.Count(uint64(late.After)), late.CutOff.UTC().Format(time.RFC3339)); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshotOf returns the commit and the age of the newest snapshot, for a column.
func snapshotOf(s *store.SnapshotState) string {
	if s == nil {
		return "-"
	}
	text := "-"
	if s.LSN > 0 {
		text = fmt.Sprintf("LSN %s, %s ago", format.Count(uint64(s.LSN)), time.Since(s.Taken).Round(time.Second))
	}
	if s.Failed != "" {
		text += ", a newer one failed"
	}
	return text
}

// scrubbed returns how long ago a log was last read as a whole, or that it is damaged.
func scrubbed(s *store.ScrubState) string {
	switch {
	case s == nil:
		return "-"
	case s.Finding != "":
		return "damaged"
	}
	return time.Since(s.Ended).Round(time.Second).String() + " ago"
}

// replicasOf says how many replicas a log has, and how many are wanted.
func replicasOf(log *upkeep.Stream) string {
	if log == nil {
		return "-"
	}
	text := fmt.Sprintf("%d of %d", log.Actual, log.Wanted)
	if len(log.Offline) > 0 {
		text += fmt.Sprintf(", %d away", len(log.Offline))
	}
	return text
}

func (a *app) describePipeline(ctx context.Context, s *session, database, name string) error {
	rec, err := s.registry.Get(ctx, database, name)
	if err != nil {
		return err
	}
	monitor := s.monitor(a.timeout)
	defer monitor.Close()
	st, err := monitor.Read(ctx)
	if err != nil {
		return err
	}
	// By id: a pipeline that was deleted and made again has the same name.
	st.Pipelines = slices.DeleteFunc(st.Pipelines, func(p status.Pipeline) bool { return p.ID != rec.ID })
	doc, err := declaration.JSON(rec.Document())
	if err != nil {
		return err
	}
	v := map[string]any{"declaration": doc, "id": rec.ID, "generation": rec.Generation, "created": rec.Created, "changed": rec.Changed, "paused": rec.Paused}
	if len(st.Pipelines) == 1 {
		v["status"] = st.Pipelines[0]
	}
	return a.print(v, func(w io.Writer) error {
		if err := declaration.WriteYAML(w, doc); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nid %s, generation %d of %s\n\n", rec.ID, rec.Generation, rec.Changed.Format(time.RFC3339))
		return st.Print(w, true)
	})
}
