package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store/featurelevel"
)

// restoringKey is the key in the catalog's bucket of the restore that is under way.
const restoringKey = "restore"

// Restoring is a restore that has not ended. Nobody but who restores opens the catalog
// until it has, so that nothing half restored is served.
type Restoring struct {
	Backup string    `json:"backup"`
	At     string    `json:"at"` // as it was asked for
	Began  time.Time `json:"began"`
	// Logs are the partitions, under their new names, whose logs are whole.
	Logs []string `json:"logs,omitempty"`

	revision uint64
}

// RestoringError says that a restore into this store has not ended.
type RestoringError struct{ Restoring }

func (e *RestoringError) Error() string {
	return fmt.Sprintf("the restore (--backup %s --at %s) into this store, which began at %s, has not ended",
		e.Backup, e.At, e.Began.Format(time.RFC3339))
}

// Restoring returns the restore that is under way; nil if none is.
func (c *Catalog) Restoring(ctx context.Context) (*Restoring, error) {
	entry, err := bucket.Get(ctx, c.js, c.kv, restoringKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask the catalog for a restore that has not ended: %w", err)
	}
	r := &Restoring{revision: entry.Revision()}
	if err := json.Unmarshal(entry.Value(), r); err != nil {
		return nil, fmt.Errorf("the catalog's record of a restore cannot be read: %w", err)
	}
	return r, nil
}

// PutRestoring records a restore that begins, or how far it is.
func (c *Catalog) PutRestoring(ctx context.Context, r *Restoring) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// By compare-and-set: of two restores into the same store the one that began first fails here.
	if r.revision == 0 {
		r.revision, err = c.kv.Create(ctx, restoringKey, data)
	} else {
		r.revision, err = c.kv.Update(ctx, restoringKey, data, r.revision)
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok && e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errors.New("another run of this restore has begun since, or has ended it; this run changes nothing more")
	}
	if err != nil {
		return fmt.Errorf("record the restore: %w", err)
	}
	return nil
}

// EndRestoring ends a restore: the store may be used.
func (c *Catalog) EndRestoring(ctx context.Context, r *Restoring) error {
	if err := c.kv.Delete(ctx, restoringKey, jetstream.LastRevision(r.revision)); err != nil {
		return fmt.Errorf("end the restore: %w", err)
	}
	return nil
}

// AdmitRestore refuses a restore into data of an earlier release's feature level, which may be read by a process of it: a
// backup holds whatever this release writes.
func (c *Catalog) AdmitRestore(ctx context.Context) error {
	level, err := featurelevel.Read(ctx, c.js)
	if err != nil || level >= featurelevel.Newest {
		return err
	}
	return Refuse(StatusConflict, "the store is empty, and made by an earlier release: its data has feature level %d, and a backup may hold what is written from %d on; run millrace upgrade --finish on it, when no process of an earlier release is left, or name another one; nothing was changed",
		level, featurelevel.Newest)
}

// Origin is what a container was restored from.
type Origin struct {
	ID     feed.ResourceID `json:"id"` // of the container that the backup is of
	Backup string          `json:"backup"`
}

// RestoreContainer records a container that is being restored, under new identities; one
// that is recorded already is returned as it is. It is as of info otherwise, but
// for the logs that no backup holds: of partitions that were split, and of those into which one was to be split. Their
// numbers are not used again nevertheless: NextPartition stays.
func (c *Catalog) RestoreContainer(ctx context.Context, info ContainerInfo, backup string) (ContainerInfo, error) {
	is, err := c.Get(ctx, info.Database, info.Name)
	if err == nil {
		if is.Origin == nil || *is.Origin != (Origin{info.ID, backup}) {
			return is, Refuse(StatusConflict, "container %s/%s is there already", info.Database, info.Name)
		}
		return is, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return is, err
	}
	if err := AdmitNames(ctx, c.js, info.Database, info.Name); err != nil {
		return is, err
	}
	info.GivenRID = info.RID().String() // clients' links, and their places in read feeds, go on to hold
	info.Origin = &Origin{info.ID, backup}
	info.ID, info.State = feed.NewResourceID(), ContainerCreating
	info.Former, info.Splits = nil, nil
	info.Partitions = slices.Clone(info.Partitions)
	for i := range info.Partitions {
		info.Partitions[i].Log = feed.NewLogID()
	}
	data, err := json.Marshal(info)
	if err != nil {
		return info, fmt.Errorf("container %s/%s: %w", info.Database, info.Name, err)
	}
	if info.Revision, err = c.kv.Create(ctx, CatalogKey(info.Database, info.Name), data); err != nil {
		return info, fmt.Errorf("declare container %s/%s: %w", info.Database, info.Name, err)
	}
	return info, nil
}

// RestoreLog makes the empty log of a partition of a container that is being restored,
// behind LSN after. What an earlier try left of it is dropped.
func (c *Catalog) RestoreLog(ctx context.Context, info *ContainerInfo, p PartitionInfo, after feed.LSN) (*feed.Log, error) {
	partition := feed.Partition{Container: info.ID, Number: p.Number}
	if err := feed.DeleteLog(ctx, c.js, partition); err != nil {
		return nil, err
	}
	ready := *info
	ready.State = ContainerReady
	record, err := json.Marshal(ready)
	if err != nil {
		return nil, fmt.Errorf("container %s/%s: %w", info.Database, info.Name, err)
	}
	cfg := c.cfg.Log
	cfg.After = after
	if cfg.Labels, err = Labels(record, time.Now(), p); err != nil {
		return nil, fmt.Errorf("container %s/%s: %w", info.Database, info.Name, err)
	}
	if err := feed.CreateLog(ctx, c.js, partition, p.Log, cfg); err != nil {
		return nil, err
	}
	return feed.OpenLog(ctx, c.js, partition, c.cfg.Log)
}

// FirstCommit returns the commit with which the log of a partition begins.
func (c *Catalog) FirstCommit(ctx context.Context, p feed.Partition) (*feed.Commit, error) {
	log, err := feed.OpenLog(ctx, c.js, p, c.cfg.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	first, _, err := log.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	return log.Read(ctx, first)
}

// RestoreReady makes a container ready whose logs are whole.
func (c *Catalog) RestoreReady(ctx context.Context, info *ContainerInfo) error {
	_, err := c.modify(ctx, info.Database, info.Name, func(i *ContainerInfo) error {
		i.State = ContainerReady
		return nil
	})
	return err
}

// RestoreDatabase records a database as a backup has it; one that is there stays.
func (c *Catalog) RestoreDatabase(ctx context.Context, name string, record []byte) error {
	if err := AdmitNames(ctx, c.js, name); err != nil {
		return err
	}
	_, err := c.kv.Create(ctx, databaseKey(name), record)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("database %s: %w", name, err)
	}
	c.copy(ctx, name)
	return nil
}
