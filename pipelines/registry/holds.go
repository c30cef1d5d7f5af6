package registry

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
)

// Hold says how much of a partition's log a pipeline still needs.
type Hold struct {
	// Pipeline is its name, with its database unless that is the default.
	Pipeline string
	// After is the last LSN that it has read: what is behind it, it needs.
	After feed.LSN
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
			for _, reader := range g.Readers(&b) {
				from := g.LogBehind(reader, at.Of(g, reader.Role, reader.Partition).FinishedBelow())
				holds[reader.Partition] = append(holds[reader.Partition], Hold{records[i].Name, from})
			}
		}
	}
	return holds, nil
}
