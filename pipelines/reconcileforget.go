package pipelines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// forgetMax bounds how long one round forgets dead letters: the other duties wait for it, and the
// lease of a reconciler that says nothing for long is another's.
const forgetMax = 10 * time.Second

// forget removes the leases of processors whose pipeline or generation is gone, or
// whose partition is, once nobody has held or renewed them for a while, before them
// the dead letters, which nobody could try again, and behind them the pins of their
// snapshots. Their names never come back: ids of pipelines and containers are new each
// time, and generations only grow.
func (s *reconciler) forget(ctx context.Context, w *registry.World, held []leases.Lease) error {
	now, round := time.Now(), map[string]bool{}
	var due []*leases.Lease
	for i := range held {
		l := &held[i]
		if wants(w, l) {
			continue
		}
		// A revision that does not change says that nobody renews it.
		if s.idle.see(fmt.Sprintf("lease %s at %d", l.Resource, l.Revision), now, round) >= s.cfg.Grace {
			due = append(due, l)
		}
	}
	s.idle.keep("lease ", round)
	if len(due) == 0 {
		return nil
	}
	fresh, err := s.registry.World(ctx)
	if err == nil {
		err = s.registry.Sound(ctx) // what was lost is not gone
	}
	if err != nil {
		return err
	}
	deadLetters, err := processors.OpenDeadLetters(ctx, s.client)
	if err != nil {
		return err
	}
	// A gone pipeline may have had millions of dead letters. What is left goes in the next rounds.
	bounded, cancel := context.WithTimeout(ctx, forgetMax)
	defer cancel()
	var errs []error
	var over []processors.Resource
	for _, l := range due {
		r, err := processors.ParseResource(l.Resource)
		if err != nil || wants(&fresh, l) {
			continue
		}
		over = append(over, r)
		err = deadLetters.Forget(bounded, r)
		if bounded.Err() != nil && ctx.Err() == nil {
			s.tidied = time.Time{}
			break
		}
		if err == nil {
			err = leases.Forget(ctx, s.registry.JetStream, s.bucket, l.Group, l.Resource)
		}
		errs = append(errs, err)
	}
	s.registry.ReleaseEnded(ctx, over, fresh.Containers)
	return errors.Join(errs...)
}

// wants tells whether a lease can still be of use, in general because it is none of
// a processor's; also while its pipeline is paused.
func wants(w *registry.World, l *leases.Lease) bool {
	r, err := processors.ParseResource(l.Resource)
	if err != nil {
		return true
	}
	runs := slices.ContainsFunc(w.Pipelines, func(rec registry.Record) bool {
		return rec.ID == r.Pipeline && rec.GenerationRecord(r.Generation) != nil
	})
	for i := range w.Containers {
		if w.Containers[i].ID == r.Partition.Container {
			return runs && has(&w.Containers[i], r.Partition.Number)
		}
	}
	return false
}

// has tells whether a container has a partition, or is about to have it, or has the log of one that was split. While it has
// that, the lease of that one says that it has ended: without it a worker would have to ask its children's. And those have
// their checkpoints as soon as the parent has been read to its end, before the catalog lists them, which may take as long as
// nobody owns the parent.
func has(c *store.ContainerInfo, number uint32) bool {
	return slices.ContainsFunc(c.Named(), func(p store.PartitionInfo) bool { return p.Number == number })
}

// firstSeen remembers since when something was seen in each round.
type firstSeen map[string]time.Time

// see notes that name was seen in a round, and returns for how long it has been.
func (s firstSeen) see(name string, now time.Time, round map[string]bool) time.Duration {
	round[name] = true
	if _, seen := s[name]; !seen {
		s[name] = now
	}
	return now.Sub(s[name])
}

// keep forgets the names with a prefix that were not seen in a round.
func (s firstSeen) keep(prefix string, round map[string]bool) {
	maps.DeleteFunc(s, func(name string, _ time.Time) bool { return strings.HasPrefix(name, prefix) && !round[name] })
}
