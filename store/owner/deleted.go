package owner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/pace"
	"github.com/millrace/millrace/store/snapshot"
)

// dropLoop drops what is left of containers that were deleted, after each change of the catalog and, while
// something is left, now and then: an owner may still be at its last requests, and the store of snapshots
// away. It is beside the watch of the catalog, which such a store must not hold up.
func (s *Server) dropLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.CheckInterval)
	defer t.Stop()
	told := ""
	for left := false; ; {
		var again <-chan time.Time
		if left {
			again = t.C
		}
		select {
		case <-ctx.Done():
			return
		case <-s.relisted:
		case <-again:
		}
		// None while the engine is made anew: what the next one holds is looked at when it is there.
		h := s.enter()
		if h == nil {
			left = true
			continue
		}
		err := s.within(ctx, h, func(ctx context.Context) (err error) {
			left, err = s.dropUnlisted(ctx, h.db)
			return err
		})
		h.users.Done()
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			left, text = true, err.Error()
		}
		// Once for each text. A store of snapshots that is away fails each round, for as long as it is.
		if text != "" && text != told {
			s.cfg.Logger.Error("drop what is left of containers that were deleted", "error", err)
		}
		told = text
	}
}

// dropUnlisted drops snapshots, lease records and state of the partitions whose containers were deleted, and says whether
// something is left that may go later. State goes last: it is what names them.
func (s *Server) dropUnlisted(ctx context.Context, db *engine.DB) (left bool, err error) {
	kept, err := db.Partitions()
	if err != nil {
		return true, fmt.Errorf("partitions of the engine: %w", err)
	}
	var errs []error // a store of snapshots that refuses those of one keeps the others from nothing
	for _, id := range kept {
		if !s.unlisted(id) {
			errs = append(errs, s.noteUnopened(ctx, db, id))
			continue
		}
		// Its owner has not seen yet that the container is gone, and may still answer by that state.
		if s.inUse(id) {
			left = true
			continue
		}
		why, opened, err := s.undeleted(ctx, db, id)
		if why != "" || err != nil {
			s.tellKept(id, why)
			errs = append(errs, err)
			continue
		}
		if opened {
			err = s.dropSnapshots(ctx, id)
		}
		if err == nil {
			err = s.leases.Forget(ctx, LeaseResource(id))
		}
		if err == nil {
			err = db.DropPartition(id)
		}
		errs = append(errs, err)
	}
	return left, errors.Join(errs...)
}

// tellKept says once why the state of a partition stays that the catalog does not list.
func (s *Server) tellKept(id feed.Partition, why string) {
	if why == "" || s.told[id] == why {
		return
	}
	s.told[id] = why
	s.cfg.Logger.Warn("the catalog does not list the container of a partition of which this engine has a state, which is kept",
		"partition", id.String(), "why", why)
}

// unlisted says whether a partition's container is not in the catalog, or does not name it any more.
func (s *Server) unlisted(id feed.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed == nil || !s.listed[id.Container] {
		return s.listed != nil
	}
	info, ready := s.containers[id.Container]
	return ready && !slices.ContainsFunc(info.Named(), func(p store.PartitionInfo) bool { return p.Number == id.Number })
}

// inUse says whether this process serves a partition, opens it, follows it, or makes it ready.
func (s *Server) inUse(id feed.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUseLocked(id)
}

func (s *Server) inUseLocked(id feed.Partition) bool {
	_, serving := s.open[id]
	_, followed := s.followed[id]
	return serving || followed || s.heirs[id] != nil || s.leases.Has(LeaseResource(id))
}

// undeleted says why a partition's state has to stay though the catalog does not list its container; "" if that was
// deleted. That a record and a log are not there is no proof: both may have been lost, or this may be another NATS system
// than the one whose container it was, because an address is wrong or a volume is not mounted. What proves it is that
// this very catalog listed the container when the partition was opened here last.
//
// opened is false where it was never opened here, and its state holds nothing. Snapshots are no such place's to drop.
func (s *Server) undeleted(ctx context.Context, db *engine.DB, id feed.Partition) (why string, opened bool, err error) {
	// The log first: where it is there, no catalog says more. A deletion removes it before the record goes.
	_, err = feed.StreamOf(ctx, s.js, id)
	if err == nil {
		return "its log is there", true, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", false, fmt.Errorf("partition %s: %w", id, err)
	}
	lists, err := store.CatalogIdentity(ctx, s.js)
	if err != nil {
		return "", false, fmt.Errorf("partition %s: %w", id, err)
	}
	listed, err := db.CatalogOf(id)
	if err != nil {
		return "", false, fmt.Errorf("partition %s: %w", id, err)
	}
	if listed == "" {
		if nothing, err := holdsNothing(db, id); nothing || err != nil {
			return "", false, err
		}
		return "an earlier release opened it last, which did not note of which catalog it was", true, nil
	}
	if listed != lists {
		return fmt.Sprintf("the catalog that listed it was made at %s, this one at %s", listed, lists), true, nil
	}
	return "", true, nil
}

// noteListed notes for the engine that the catalog lists a partition, once the log that it names is there: a list may be
// one of before all was lost.
func (s *Server) noteListed(db *engine.DB, id feed.Partition, is, want feed.LogID) error {
	s.mu.Lock()
	lists := s.lists
	s.mu.Unlock()
	if is != want || lists == "" {
		return nil // opening says what is wrong
	}
	if err := db.SetCatalogOf(id, lists); err != nil {
		return fmt.Errorf("partition %s: %w", id, err)
	}
	return nil
}

// noteUnopened is noteListed for a partition that nobody may open here: another store owns it now, or the catalog was made
// again under an owner. It looks at the log only where the note is of another catalog.
func (s *Server) noteUnopened(ctx context.Context, db *engine.DB, id feed.Partition) error {
	s.mu.Lock()
	lists := s.lists
	s.mu.Unlock()
	want, ready := s.logOf(id)
	listed, err := db.CatalogOf(id)
	// Mostly it is noted already. To ask NATS for each log at each change of the catalog would be much.
	if err != nil || !ready || listed == lists {
		return err
	}
	log, err := feed.OpenLog(ctx, s.js, id, s.cfg.Log)
	if errors.Is(err, feed.ErrNoLog) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("partition %s: %w", id, err)
	}
	defer log.Close()
	return s.noteListed(db, id, log.ID(), want)
}

// holdsNothing says whether nothing of a partition was ever applied in an engine: it was being opened when its container
// was deleted.
func holdsNothing(db *engine.DB, id feed.Partition) (bool, error) {
	p, err := db.Partition(id)
	if err != nil {
		return false, fmt.Errorf("partition %s: %w", id, err)
	}
	state, err := p.State()
	if err != nil {
		return false, fmt.Errorf("partition %s: %w", id, err)
	}
	// State alone does not do: after an unclean stop it is what was synced, which may be nothing of a
	// partition that was written to. Found tells of that.
	return state.Applied == 0 && p.Found().Applied == 0, nil
}

// dropSnapshots removes the snapshots of a partition whose container was deleted.
func (s *Server) dropSnapshots(ctx context.Context, id feed.Partition) error {
	var errs []error
	for _, from := range s.cfg.snapshotStores() {
		if err := snapshot.Remove(ctx, from, id); err != nil {
			errs = append(errs, fmt.Errorf("drop the snapshots of partition %s in %s: %w", id, from, err))
		}
	}
	return errors.Join(errs...)
}

// formerLoop looks now and then whether the logs of partitions that were split are needed. It is a loop of its own: before one
// is dropped, snapshots are read whole, in a share of the time.
func (s *Server) formerLoop(ctx context.Context) {
	t := time.NewTicker(formerInterval)
	defer t.Stop()
	read := map[string]error{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.forgetFormer(ctx, read)
		}
	}
}

// forgetFormer drops the logs of partitions that were split and that nobody needs any more. For each of them one process
// looks: the one that serves the first of its keys. read is as of ownSnapshot.
func (s *Server) forgetFormer(ctx context.Context, read map[string]error) {
	s.mu.Lock()
	infos := slices.Collect(maps.Values(s.containers))
	s.mu.Unlock()
	for i := range infos {
		info := &infos[i]
		for k := range info.Former {
			f := &info.Former[k]
			heir := slices.IndexFunc(info.Partitions, func(p store.PartitionInfo) bool { return p.Range.Contains(f.Range.Min) })
			if heir < 0 || !s.serves(feed.Partition{Container: info.ID, Number: info.Partitions[heir].Number}) {
				continue
			}
			id := feed.Partition{Container: info.ID, Number: f.Number}
			why, err := s.formerNeeded(ctx, info, f)
			if err == nil && why == "" {
				// The parent's log and the seeds are all that could make the children again.
				why, err = s.childrenLack(ctx, info, f, read)
			}
			// Asked again: to read the snapshots may have taken hours.
			if err == nil && why == "" {
				why, err = s.formerNeeded(ctx, info, f)
			}
			if err == nil && why == "" {
				err = s.dropFormer(ctx, info, id)
			}
			if err != nil && ctx.Err() == nil {
				s.cfg.Logger.Warn("the log of a partition that was split could not be dropped; trying again", "partition", id.String(), "error", err)
			}
		}
	}
}

func (s *Server) serves(id feed.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[id]
	return o != nil && o.p.closedFor.Load() == nil
}

// formerNeeded says why the log of a partition that was split has to stay; "" if it may go.
//
//	its children's states     begin with it, until each has a snapshot of its own log
//	readers                   end it before they begin with its children
//	retention                 is for those of whom nobody knows
func (s *Server) formerNeeded(ctx context.Context, info *store.ContainerInfo, f *store.FormerPartition) (why string, err error) {
	if s.cfg.snapshots == nil || info.Spec.ChangeFeed.Kept() == store.RetentionForever {
		return "it is kept for ever", nil
	}
	for _, child := range info.Partitions {
		if !slices.Contains(f.Children, child.Number) {
			continue
		}
		own, err := s.ownSnapshots(ctx, info, &child)
		if err != nil {
			return "", err
		}
		if len(own) == 0 {
			return fmt.Sprintf("partition %d has no snapshot of its own yet", child.Number), nil
		}
	}
	id := feed.Partition{Container: info.ID, Number: f.Number}
	log, err := feed.OpenLog(ctx, s.js, id, s.cfg.Log)
	if errors.Is(err, feed.ErrNoLog) {
		return "", nil // somebody was at it
	}
	if err != nil {
		return "", err
	}
	defer log.Close()
	ended, err := log.Time(ctx, f.Last)
	if err != nil {
		return "", err
	}
	if kept := time.Duration(info.Spec.ChangeFeed.Kept()); time.Since(ended) < kept {
		return fmt.Sprintf("changeFeed.retention keeps %s", kept), nil
	}
	if s.cfg.Holds == nil {
		return "", nil
	}
	holds, barred, err := s.cfg.Holds(ctx)
	if err != nil || barred != "" {
		return barred, err
	}
	if held := holds[id]; len(held) > 0 {
		return held[0].why(), nil
	}
	return "", nil
}

// ownSnapshots returns the snapshots of a child that are of its own log, the newest first.
func (s *Server) ownSnapshots(ctx context.Context, info *store.ContainerInfo, child *store.PartitionInfo) ([]*snapshot.Manifest, error) {
	all, _, err := snapshot.Newest(ctx, s.cfg.snapshots, feed.Partition{Container: info.ID, Number: child.Number})
	return slices.DeleteFunc(all, func(m *snapshot.Manifest) bool { return m.Log != child.Log }), err
}

// childrenLack says which child of a partition that was split has no snapshot of its own log that is whole; "" if all have.
// A manifest is no proof of that: a part may have been lost since it was read back. read is what was found of those that
// were read here, by their partitions and ids, so that none is read twice.
func (s *Server) childrenLack(ctx context.Context, info *store.ContainerInfo, f *store.FormerPartition, read map[string]error) (why string, err error) {
	pacer := pace.New(float64(s.cfg.Snapshots.SharePercent)/100, func() {})
	for _, child := range info.Partitions {
		if !slices.Contains(f.Children, child.Number) {
			continue
		}
		own, err := s.ownSnapshots(ctx, info, &child)
		if err != nil {
			return "", err
		}
		whole := false
		for _, m := range own {
			if whole, err = s.isWhole(ctx, info, &child, m, read, pacer); whole || err != nil {
				break
			}
		}
		if !whole {
			return fmt.Sprintf("partition %d has no snapshot of its own that is whole", child.Number), err
		}
	}
	return "", nil
}

// isWhole says whether a snapshot of a child is whole.
func (s *Server) isWhole(ctx context.Context, info *store.ContainerInfo, child *store.PartitionInfo, m *snapshot.Manifest, read map[string]error, pacer *pace.Pacer) (bool, error) {
	name := m.Partition.String() + "/" + m.ID()
	if damage, known := read[name]; known {
		return damage == nil, nil
	}
	damage := snapshot.Verify(ctx, s.cfg.snapshots, m, func() error { return pacer.Pace(ctx) })
	if _, damaged := errors.AsType[*snapshot.DamagedError](damage); damage != nil && !damaged {
		return false, damage
	}
	read[name] = damage
	if damage == nil {
		return true, nil
	}
	// Newer ones may have taken its place while it was read: then its parts are gone, and nothing is damaged.
	own, err := s.ownSnapshots(ctx, info, child)
	if err != nil || !slices.ContainsFunc(own, func(is *snapshot.Manifest) bool { return is.ID() == m.ID() }) {
		return false, err
	}
	s.cfg.Logger.Error("a snapshot of a partition that was made by a split cannot be used, so the log of the one that was split stays",
		"partition", m.Partition.String(), "snapshot", m.ID(), "error", damage)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[m.Partition]; o != nil {
		o.p.doubt() // another one is taken
	}
	return false, nil
}

// dropFormer drops the snapshots, the lease's record and the log of a partition that was split, and has the catalog forget
// it. What engines have of it goes when the catalog does not name it any more.
func (s *Server) dropFormer(ctx context.Context, info *store.ContainerInfo, id feed.Partition) error {
	err := s.dropSnapshots(ctx, id)
	if err == nil {
		err = s.leases.Forget(ctx, LeaseResource(id))
	}
	if err == nil {
		err = s.catalog.ForgetFormer(ctx, info.Database, info.Name, id.Number)
	}
	if err == nil {
		s.cfg.Logger.Info("the log of a partition that was split is not needed any more and was dropped", "partition", id.String())
	}
	return err
}
