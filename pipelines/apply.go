package pipelines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// Action is what Apply did with a resource.
type Action string

// What Apply does.
const (
	Created   Action = "created"
	Changed   Action = "changed"
	Unchanged Action = "unchanged"
)

// Outcome tells what Apply did with one resource.
type Outcome struct {
	Kind     string `json:"kind"`
	Database string `json:"database"`
	Name     string `json:"name"`
	Action   Action `json:"action"`
	// Generation of a pipeline; 0 for a container.
	Generation uint32 `json:"generation,omitempty"`
	// Notes say what follows from it.
	Notes []string `json:"notes,omitempty"`
}

// String returns a line such as "pipeline default/tag-names created".
func (o Outcome) String() string {
	kind := "container"
	if o.Kind == KindPipeline {
		kind = "pipeline"
	}
	s := fmt.Sprintf("%s %s/%s %s", kind, o.Database, o.Name, o.Action)
	if len(o.Notes) > 0 {
		s += ": " + strings.Join(o.Notes, "; ")
	}
	return s
}

// Apply makes containers and pipelines be as declared, containers first. To apply
// the same again does nothing. The error is Findings if the declarations are
// wrong; then nothing was changed. After another error what stands in the
// outcomes was done; apply again to do the rest.
func (r *Registry) Apply(ctx context.Context, declared *Resources) ([]Outcome, error) {
	world, err := r.World(ctx)
	if err != nil {
		return nil, err
	}
	if err := declared.Check(world); err != nil {
		return nil, err
	}
	var done []Outcome
	for i := range declared.Containers {
		o, err := r.applyContainer(ctx, &declared.Containers[i], world)
		if err != nil {
			return done, err
		}
		done = append(done, o)
	}
	for i := range declared.Pipelines {
		o, err := r.applyPipeline(ctx, &declared.Pipelines[i])
		if err != nil {
			return done, err
		}
		done = append(done, o)
	}
	return done, nil
}

// applyContainer makes a container be as declared.
func (r *Registry) applyContainer(ctx context.Context, d *Container, w World) (Outcome, error) {
	catalog := r.client.Catalog()
	o := Outcome{Kind: KindContainer, Database: d.Metadata.Database, Name: d.Metadata.Name, Action: Unchanged}
	info, err := catalog.Get(ctx, o.Database, o.Name)
	if errors.Is(err, store.ErrNotFound) {
		o.Action = Created
		_, err = catalog.Create(ctx, o.Database, o.Name, d.Spec)
		return o, err
	}
	if err != nil {
		return o, err
	}
	if !sameSpec(&info.Spec, &d.Spec) {
		o.Action = Changed
		if info, err = catalog.Update(ctx, o.Database, o.Name, d.Spec); err != nil {
			return o, err
		}
		if err := r.keepIndexes(ctx, &info, w.Pipelines); err != nil {
			return o, err
		}
	}
	if info.State == store.ContainerCreating {
		o.Action = Created
		_, err = catalog.Create(ctx, o.Database, o.Name, d.Spec)
	}
	return o, err
}

// sameSpec compares as the catalog would write them.
func sameSpec(a, b *store.ContainerSpec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// keepIndexes asks again for the indexes that pipelines need in a container whose
// declaration has changed: it may have named one of them that is gone now.
func (r *Registry) keepIndexes(ctx context.Context, target *store.ContainerInfo, records []Record) error {
	for i := range records {
		rec := &records[i]
		if rec.Target != target.ID {
			continue
		}
		source, err := r.client.Catalog().Get(ctx, rec.Database, rec.Spec.Source.Container)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := r.wantIndex(ctx, rec, &source, target); err != nil {
			return err
		}
	}
	return nil
}

// wantIndex asks for the index that the fan-outs of rec need, and returns it, ""
// if they need none.
func (r *Registry) wantIndex(ctx context.Context, rec *Record, source, target *store.ContainerInfo) (string, error) {
	c, err := compileCascade(r.client, rec, source, target, cascade.Limits{})
	if err != nil || c.Index() == "" {
		return "", err
	}
	return c.Index(), r.client.Catalog().WantIndex(ctx, target.Database, target.Name, c.Index())
}

// applyPipeline registers a pipeline, or changes it.
func (r *Registry) applyPipeline(ctx context.Context, d *Pipeline) (Outcome, error) {
	o := Outcome{Kind: KindPipeline, Database: d.Metadata.Database, Name: d.Metadata.Name}
	source, err := r.client.Catalog().Get(ctx, o.Database, d.Spec.Source.Container)
	if err != nil {
		return o, fmt.Errorf("pipeline %s: source: %w", d.Metadata, err)
	}
	target, err := r.client.Catalog().Get(ctx, o.Database, d.Spec.target())
	if err != nil {
		return o, fmt.Errorf("pipeline %s: into: %w", d.Metadata, err)
	}
	for {
		there, err := r.Get(ctx, o.Database, o.Name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return o, err
		}
		var next Record
		next, o.Action, o.Notes = there.next(d, source.ID, target.ID)
		o.Generation = next.Generation
		index, err := r.wantIndex(ctx, &next, &source, &target)
		if err != nil {
			return o, err
		}
		if index != "" && next.Generation != there.Generation && !hasIndex(&target, index) {
			o.Notes = append(o.Notes, fmt.Sprintf("index %s is added to container %s", index, target.Name))
		}
		if o.Action == Unchanged {
			return o, nil
		}
		if next.Generation != there.Generation {
			if next.Starts, err = r.starts(ctx, &target); err != nil {
				return o, fmt.Errorf("pipeline %s: %w", d.Metadata, err)
			}
		}
		err = r.put(ctx, &next, there.Revision)
		if err == nil || !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return o, err
		}
	}
}

// next returns the record that follows r, zero if there is none, when d is
// applied.
func (r *Record) next(d *Pipeline, source, target feed.ResourceID) (Record, Action, []string) {
	next := *r
	next.Spec = d.Spec.clone()
	next.Source, next.Target = source, target
	switch {
	case r.ID == "":
		next.ID, next.Database, next.Name, next.Created = newID(d.Metadata.Name), d.Metadata.Database, d.Metadata.Name, now()
		next.Generation, next.Changed = 1, next.Created
		return next, Created, nil
	case r.Source == source && r.Target == target && r.Spec.sameText(&next.Spec):
		return next, Unchanged, nil
	case r.Source == source && r.Target == target && r.Spec.sameMeaning(&next.Spec):
		return next, Changed, []string{"it means the same, so nothing is copied anew"}
	}
	next.Generation++
	next.Changed = now()
	return next, Changed, []string{fmt.Sprintf("generation %d: every copy is set again where it differs", next.Generation)}
}

func hasIndex(c *store.ContainerInfo, path string) bool {
	return slices.Contains(c.Spec.Indexes, path) || slices.Contains(c.IndexesWanted, path)
}

// starts returns the ends of the target's logs.
func (r *Registry) starts(ctx context.Context, target *store.ContainerInfo) ([]Start, error) {
	starts := make([]Start, 0, len(target.Partitions))
	for _, p := range target.Partitions {
		partition := feed.Partition{Container: target.ID, Number: p.Number}
		log, err := feed.OpenLog(ctx, r.js, partition, r.cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("open the log of %s: %w", partition, err)
		}
		after, err := log.Resolve(ctx, feed.StartNow())
		log.Close()
		if err != nil {
			return nil, fmt.Errorf("find the end of the log of %s: %w", partition, err)
		}
		starts = append(starts, Start{p.Number, after})
	}
	return starts, nil
}

// put writes a record if its revision, 0 for none, is still the present one;
// otherwise the error is jetstream.ErrKeyExists or
// jetstream.ErrKeyRevisionMismatch.
func (r *Registry) put(ctx context.Context, rec *Record, revision uint64) error {
	key, err := registryKey(rec.Metadata()), error(nil)
	if revision == 0 {
		_, err = r.kv.Create(ctx, key, rec.encode())
	} else {
		_, err = r.kv.Update(ctx, key, rec.encode(), revision)
	}
	if err != nil {
		return fmt.Errorf("register pipeline %s: %w", rec.Metadata(), err)
	}
	return nil
}
