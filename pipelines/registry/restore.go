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
	// Lacks says that some of its containers were not restored, so that it does not begin.
	Lacks bool `json:"lacks,omitempty"`
	// KeepsExpired says that its rows of items that have expired are in logs that are not
	// restored, so that it begins only when it is applied without them.
	KeepsExpired bool `json:"keepsExpired,omitempty"`
}

// Restore registers a pipeline as a backup has its record. It may be called again. All
// containers that are restored are ready then. The
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
	containers, err := r.client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	restored := &Restored{Database: rec.Database, Name: rec.Name, Generation: rec.Generation + 1, Paused: rec.Paused}
	restored.Lacks = !rec.IsRestored(containers)
	if source := rec.madeOf(containers, rec.Source); source != nil && !restored.Lacks {
		restored.KeepsExpired = rec.keepsExpired(source)
	}
	return restored, nil
}

// IsRestored tells whether a record is of containers that were copied to a backup, and of
// each of them another one was made. A container that was made after the time that was
// restored is left out, and pipelines from or to it cannot begin.
func (r *Record) IsRestored(containers []store.ContainerInfo) bool {
	of := append([]feed.ResourceID{r.Source}, r.Tables...)
	if r.Target != "" {
		of = append(of, r.Target)
	}
	return !slices.ContainsFunc(of, func(id feed.ResourceID) bool { return r.madeOf(containers, id) == nil })
}

// RestoredNext tells what a pipeline that IsRestored waits for. byItself says that it needs no
// operator.
func (r *Record) RestoredNext(containers []store.ContainerInfo) (next string, byItself bool) {
	if source := r.madeOf(containers, r.Source); source != nil && r.keepsExpired(source) {
		return "rows of items that have expired are not in what was restored: millrace apply --discard-expired begins it without them", false
	}
	return "it begins with the containers that were restored, when a worker runs", true
}

// madeOf returns the container that was made of one that was copied to a backup; nil if
// there is none.
func (r *Record) madeOf(containers []store.ContainerInfo, id feed.ResourceID) *store.ContainerInfo {
	for i := range containers {
		c := &containers[i]
		if c.Database == r.Database && c.State == store.ContainerReady && c.Origin != nil && c.Origin.ID == id {
			return c
		}
	}
	return nil
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
