package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pipelines/spec"
)

// Restored tells what became of a pipeline of a backup.
type Restored struct {
	Outcome
	// Paused says that it waits for a resume.
	Paused bool `json:"paused,omitempty"`
}

// Restore registers a pipeline as a backup has its record, in a new generation: logs that
// were restored hold nothing at the positions of the former ones. It may be called again.
//
// One whose rows lie outside of the store begins paused: where the store that was copied
// still runs, two would write the same files or tables.
func (r *Registry) Restore(ctx context.Context, key string, record []byte) (*Restored, error) {
	rec, err := decodeRecord(key, record, 0)
	if err != nil {
		return nil, err
	}
	if p := rec.Spec.Project; p != nil && p.Sink.Container == nil {
		rec.Paused = true
	}
	// First as it was: what follows is what apply does when containers were made again.
	if err := r.put(ctx, &rec, 0); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return nil, err
	}
	d := rec.Document()
	outcome, err := r.ApplyPipeline(ctx, &d, &ApplyOptions{Backfill: true})
	if err != nil {
		return nil, err
	}
	return &Restored{outcome, rec.Paused}, nil
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
