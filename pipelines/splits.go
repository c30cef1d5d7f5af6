package pipelines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// splitInterval is the time between two looks at how far the readers are of partitions that were split, while some have not
// ended. The worker whose reader ends looks at once, and so do all when the catalog changes.
const splitInterval = time.Second

// lookAtSplits asks followSplits to look now.
func (s *Supervisor) lookAtSplits() {
	select {
	case s.lineage <- struct{}{}:
	default:
	}
}

// followSplits tells the manager what there is to hold where partitions of containers that pipelines read were split, until
// ctx ends. What a parent's reader has done is in the leases.
func (s *Supervisor) followSplits(ctx context.Context) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lineage:
		case <-again.C:
		}
		open, err := s.publishSplits(ctx)
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "it cannot be seen how far the readers of split partitions are; it is tried again", slog.Any("error", err))
		}
		again.Reset(time.Hour)
		if open || err != nil {
			again.Reset(splitInterval)
		}
	}
}

// publishSplits does so once; open says whether there is more to come.
func (s *Supervisor) publishSplits(ctx context.Context) (open bool, err error) {
	// The leases are read behind the lists: what they lack may be a child of which the lists do not know yet, and then
	// these change.
	w, ready := s.world()
	if !ready {
		return false, nil
	}
	held, err := leases.List(ctx, s.registry.JetStream, s.cfg.Bucket)
	if err != nil {
		return true, err // without all of them a child would seem not to have begun
	}
	at := registry.BegunOf(held)
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if now, _ := s.world(); !sameWorld(&w, &now) {
		s.lookAtSplits()
		return false, nil
	}
	s.setResources(&w, at)
	return registry.Splitting(w.Pipelines, w.Containers, at), nil
}

// sameWorld says whether no record has changed.
func sameWorld(a, b *registry.World) bool {
	return slices.EqualFunc(a.Pipelines, b.Pipelines, func(x, y registry.Record) bool { return x.ID == y.ID && x.Revision == y.Revision }) &&
		slices.EqualFunc(a.Containers, b.Containers, func(x, y store.ContainerInfo) bool { return x.ID == y.ID && x.Revision == y.Revision })
}

// beginChild gives the lease of a child its first checkpoint, unless it has one.
func (s *Supervisor) beginChild(ctx context.Context, child processors.Resource, checkpoint []byte) error {
	return s.manager.Begin(ctx, child.String(), checkpoint)
}

// amendLease changes the checkpoint of a reader, and has this process look at what there is to read where that was done: a
// partition that had ended is read again.
func (s *Supervisor) amendLease(ctx context.Context, reader processors.Resource, amend func([]byte) []byte) error {
	amended := false
	err := s.manager.Amend(ctx, reader.String(), func(checkpoint []byte) []byte {
		next := amend(checkpoint)
		amended = next != nil
		return next
	})
	if err == nil && amended {
		s.lookAtSplits()
	}
	return err
}

var errNotBegun = errors.New("the partition came by a split, and what it was split from is not read to its end")

// checkBegun refuses to work for a partition that came by a split, and of whose lease there is no checkpoint: this worker
// has taken the lease by what it saw of the catalog, which was older than that.
func (s *Supervisor) checkBegun(held *leases.Held, resource processors.Resource, m *instance) error {
	s.mu.Lock()
	containers := s.containers
	s.mu.Unlock()
	if len(held.Checkpoint()) == 0 && !m.record.MayBegin(resource, containers) {
		s.lookAtSplits() // or its record was lost, and then its parent's reader makes it again
		return fmt.Errorf("%s: %w", resource, errNotBegun)
	}
	return nil
}

// partitionsOf returns the partitions of all containers of a generation.
func partitionsOf(b *registry.Bound) []feed.Partition {
	var all []feed.Partition
	for _, c := range append([]*store.ContainerInfo{b.Source, b.Target}, b.Tables...) {
		if c == nil {
			continue
		}
		for i := range c.Partitions {
			all = append(all, feed.Partition{Container: c.ID, Number: c.Partitions[i].Number})
		}
	}
	return all
}

// isSplit says whether a partition of an instance's containers was split since the instance was made. Its terms begin anew
// then, with the children among the partitions that they ask, write to and wait for; what is open goes on from their
// checkpoints, and from what the children have of their parent's. s.mu is held.
func (s *Supervisor) isSplit(m *instance) bool {
	b, gone := m.record.Bound(s.containers)
	return gone == "" && !slices.Equal(m.partitions, partitionsOf(&b))
}
