package registry

import (
	"context"
	"fmt"
	"iter"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Hold says how much of a partition's log a pipeline still needs.
type Hold struct {
	// Pipeline is its name, with its database unless that is the default.
	Pipeline string
	// After is the last LSN that it has read: what is behind it, it needs.
	After feed.LSN
	// Walks says that it is reading the items of a snapshot, which it adds up. The partition must not be split before it
	// is done with them: its children's items are others, in another order. Before its record is there, the pin of that
	// snapshot says the same.
	Walks bool
}

// Holds returns, by partition, how much of the logs the pipelines need, one for each reader:
// those that are paused, and of former generations, too. bucket is that of the leases. What
// cannot be read is an error: whoever trims logs must not miss one.
//
// A reader needs what is behind its checkpoint, and behind what its open fan-outs came from.
// The commit of the checkpoint itself, of which its next holder compares the checksum, is no
// need: a log that begins right behind it has lost nothing of what the reader reads.
func (r *Registry) Holds(ctx context.Context, bucket string) (map[feed.Partition][]Hold, error) {
	// The checkpoints are read first: a pipeline that is registered meanwhile is among the
	// records, and has none yet; a checkpoint that has moved since holds less than it did.
	at, unreadable, err := ReadCheckpoints(ctx, r.JetStream, bucket)
	if err == nil {
		err = unreadable
	}
	if err != nil {
		return nil, fmt.Errorf("what pipelines have read: %w", err)
	}
	// Of a pipeline whose record is lost nothing is known, and of a container that is not in the catalog only that it is
	// not. Neither says that nobody reads.
	containers, records, err := r.soundWorld(ctx)
	if err != nil {
		return nil, fmt.Errorf("what pipelines read: %w", err)
	}
	holds := map[feed.Partition][]Hold{}
	for i := range records {
		for _, g := range records[i].Generations() {
			b, gone := g.Bound(containers)
			if gone != "" {
				continue // a container that it reads was deleted, so it reads nothing
			}
			for p, hold := range g.holds(&b, at) {
				hold.Pipeline = records[i].Name
				holds[p] = append(holds[p], hold)
			}
		}
	}
	return holds, nil
}

// holds yields what each reader of a generation needs of the log that it reads.
func (r *Record) holds(b *Bound, at Checkpoints) iter.Seq2[feed.Partition, Hold] {
	return func(yield func(feed.Partition, Hold) bool) {
		for _, reader := range r.Readers(b, at) {
			cp := at.Of(r, reader.Role, reader.Partition)
			h := Hold{After: r.LogBehind(reader, cp.FinishedBelow()), Walks: r.ItemsLeft(reader, cp.Position) > 0}
			if f := former(b, reader.Partition); f != nil {
				// Its last commit tells where the children go on, until they have begun. And for as long as a change is
				// given up, or tried again, the partition must be remembered: its lease and its dead letters go with it.
				h.After = min(h.After, f.Last-1)
			}
			if !yield(reader.Partition, h) {
				return
			}
		}
		for _, w := range r.waitsFor(b, at) {
			if !yield(w.Partition, Hold{After: w.after}) {
				return
			}
		}
	}
}

// former returns what the catalog says of a partition that was split; nil of others.
func former(b *Bound, p feed.Partition) *store.FormerPartition {
	for _, c := range []*store.ContainerInfo{b.Source, b.Target} {
		if c != nil && c.ID == p.Container {
			return c.FormerOf(p.Number)
		}
	}
	return nil
}
