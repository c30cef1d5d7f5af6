package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// Restored tells what becomes of a pipeline of a backup.
type Restored struct {
	Database string `json:"database"`
	Name     string `json:"name"`
	// Generation is the one that it begins when a worker runs.
	Generation uint32 `json:"generation"`
	// Paused says that it waits for a resume.
	Paused bool `json:"paused,omitempty"`
}

// Restore registers a pipeline as a backup has its record. It may be called again. The
// record is of the containers that were copied; with the first worker it begins a new
// generation for those that were made of them (BeginRestored), which takes their owners.
//
// One whose rows lie outside of the store is paused: where the store that was copied
// still runs, two would write the same files or tables.
func (r *Registry) Restore(ctx context.Context, key string, record []byte) (*Restored, error) {
	rec, err := decodeRecord(key, record, 0)
	if err != nil {
		return nil, err
	}
	if p := rec.Spec.Project; p != nil && p.Sink.Container == nil {
		rec.Paused = true
	}
	rec.InForce = false
	if err := r.put(ctx, &rec, 0); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return nil, err
	}
	return &Restored{rec.Database, rec.Name, rec.Generation + 1, rec.Paused}, nil
}

// IsRestored tells whether a record is of containers that were copied to a backup, and
// others were made of them under their names.
func (r *Record) IsRestored(containers []store.ContainerInfo) bool {
	of := append([]feed.ResourceID{r.Source, r.Target}, r.Tables...)
	return slices.ContainsFunc(containers, func(c store.ContainerInfo) bool {
		return c.Database == r.Database && c.State == store.ContainerReady && c.Origin != nil && slices.Contains(of, c.Origin.ID)
	})
}

// BeginRestored lets a pipeline that IsRestored begin a new generation: the logs that were
// restored hold nothing at the positions of the one before.
func (r *Registry) BeginRestored(ctx context.Context, rec *Record) (Outcome, error) {
	d := rec.Document()
	return r.ApplyPipeline(ctx, &d, &ApplyOptions{Backfill: true})
}

// Empty returns the name of a pipeline that is registered; "" if none is.
func (r *Registry) Empty(ctx context.Context) (string, error) {
	all, err := r.List(ctx)
	if err != nil || len(all) == 0 {
		return "", err
	}
	m := spec.Metadata{Name: all[0].Name, Database: all[0].Database}
	return fmt.Sprintf("the pipeline %s", m), nil
}
