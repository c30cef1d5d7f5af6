package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// formers tells what is wrong with the logs of a container's partitions that were split. The doctor does not know of
// snapshots, so it does not know whether a child needs such a log; one whose own log was trimmed does not.
func (p *patient) formers(r *Report, info *store.ContainerInfo) {
	for i := range info.Former {
		f := &info.Former[i]
		log := feed.Partition{Container: info.ID, Number: f.Number}
		what := fmt.Sprintf("log %s of %s/%s, of a partition that was split", log, info.Database, info.Name)
		stream := p.streams[log]
		if stream == nil && p.silent[log] != nil {
			p.noLog(r, what, log)
			continue
		}
		needing := p.needing(info, f)
		missing, damaged, remedy := Warning, Warning, "nothing, a store that runs forgets it: its children do not need it"
		if len(needing) > 0 {
			missing, damaged, remedy = Missing, Damaged, fmt.Sprintf("a store that runs forgets it when partitions %s have snapshots of their own; if it stays, restore the stream from a backup that is not older: "+
				"without those they are made from it, and readers may not have come to its end", strings.Join(needing, " and "))
		}
		if stream == nil {
			r.add(missing, what, fmt.Sprintf("stream %s is not there", log.Stream()), remedy)
			continue
		}
		if id, ok := feed.LogOf(stream); !ok || id != f.Log {
			r.add(damaged, what, fmt.Sprintf("stream %s holds another log than the catalog names", stream.Config.Name), remedy)
		}
		if stream.State.LastSeq < uint64(f.Last) {
			r.add(damaged, what, fmt.Sprintf("it ends at LSN %d, and the partition was split at LSN %d", stream.State.LastSeq, f.Last), remedy)
		}
		if shape := p.shapes[log]; shape != nil && shape.Lacks() != "" {
			r.add(damaged, what, "the log lacks "+shape.Lacks(), remedy)
		}
	}
}

// needing returns the children of a partition that was split of whose logs nothing was trimmed, so that they may have no
// snapshot of their own.
func (p *patient) needing(info *store.ContainerInfo, f *store.FormerPartition) (numbers []string) {
	for _, child := range info.Partitions {
		stream := p.streams[feed.Partition{Container: info.ID, Number: child.Number}]
		if stream != nil && slices.Contains(f.Children, child.Number) && stream.State.FirstSeq <= uint64(f.First) {
			numbers = append(numbers, strconv.FormatUint(uint64(child.Number), 10))
		}
	}
	return numbers
}

// unsplit is nil if no log of a container tells of a split. The partitions of one that was split have other ranges than its
// number of logs says, some logs may be gone that nobody needs, and no log tells all of that: its labels do.
func (f *fixer) unsplit(ctx context.Context, l *lost) error {
	for _, p := range l.logs {
		stream := f.p.streams[p]
		if stream == nil || stream.State.LastSeq == 0 {
			continue // readLogs says what is wrong with it
		}
		says, err := f.splitSays(ctx, p)
		if err != nil {
			return fmt.Errorf("read the log %s: %w", p, err)
		}
		if says != "" {
			return fmt.Errorf("container %s was split: log %s %s. It can be made again from a label (%s in the metadata of a log's stream) only, and no stream that is there has one that can be read: "+
				"restore one with its metadata from a backup", l.id, p, says, store.LabelContainer)
		}
	}
	return nil
}

// splitSays is what a log says of a split; "" if it says nothing.
func (f *fixer) splitSays(ctx context.Context, p feed.Partition) (string, error) {
	log, err := feed.OpenLog(ctx, f.js, p, f.cfg.Log)
	if err != nil {
		return "", err
	}
	defer log.Close()
	first, last, err := log.Bounds(ctx)
	if err != nil {
		return "", err
	}
	if first > last {
		return fmt.Sprintf("was made for what begins at LSN %d, and is empty", first), nil
	}
	c, err := log.Read(ctx, first)
	if err == nil && first > 1 {
		for i := range c.Transactions {
			var parent store.Parent
			control := c.Transactions[i].Control
			if control == nil || control.Kind != store.ControlParent || json.Unmarshal(control.Data, &parent) != nil || parent.Range == nil {
				continue // one without a range is a restored log's
			}
			return fmt.Sprintf("goes on from LSN %d of partition %s", parent.LSN, parent.Partition), nil
		}
	}
	if err == nil {
		c, err = log.Read(ctx, last)
	}
	if errors.Is(err, feed.ErrNotFound) {
		return "", nil // readLog says what it lacks
	}
	if err != nil {
		return "", err
	}
	split, err := feed.SplitOf(c)
	if split == nil || err != nil {
		return "", err
	}
	return fmt.Sprintf("ends with a split into %d and %d", split.Children[0].Number, split.Children[1].Number), nil
}
