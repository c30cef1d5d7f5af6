package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// equalPass is a pass of the continuous verification that found all copies of a pipeline equal.
type equalPass struct {
	revision uint64     // of the record
	ends     []feed.LSN // of the logs, before the pass began; see logEnds
	ended    time.Time
}

// unchanged reports whether another pass would look at what this one has looked at. The items
// of a container are a function of its logs, so where these end as they did, they hold what they
// held. What a sink holds and what lies on a disk can change beside the logs: so another pass
// comes at least every interval, and damage of the disk is looked for by the scrub.
func (e *equalPass) unchanged(rec *registry.Record, ends []feed.LSN, interval time.Duration) bool {
	return e != nil && ends != nil && e.revision == rec.Revision && slices.Equal(e.ends, ends) && time.Since(e.ended) < interval
}

// logEnds returns the LSNs up to which the partitions of a pipeline's source are applied, and
// then those of its target or tables; nil if one of them is not there.
func (a *Continuous) logEnds(ctx context.Context, w *registry.World, rec *registry.Record) ([]feed.LSN, error) {
	b, gone := rec.Bound(w.Containers)
	if gone != "" {
		return nil, nil
	}
	containers := append([]*store.ContainerInfo{b.Source}, b.Tables...)
	if b.Target != nil {
		containers = append(containers, b.Target)
	}
	var ends []feed.LSN
	for _, info := range containers {
		container, err := a.verifier.client.Open(*info)
		if err != nil {
			return nil, err
		}
		for _, p := range container.Partitions() {
			status, err := container.Status(ctx, p)
			if err != nil {
				return nil, fmt.Errorf("partition %s: %w", p, err)
			}
			ends = append(ends, status.Applied)
		}
	}
	return ends, nil
}
