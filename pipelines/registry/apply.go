package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/pipelines/spec"
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
	if o.Kind == spec.KindPipeline {
		kind = "pipeline"
	}
	s := fmt.Sprintf("%s %s/%s %s", kind, o.Database, o.Name, o.Action)
	if len(o.Notes) > 0 {
		s += ": " + strings.Join(o.Notes, "; ")
	}
	return s
}

// ApplyOptions say what Apply may do beyond what surprises nobody.
type ApplyOptions struct {
	// Backfill lets pipelines change their meaning. They begin anew with all that is
	// there. New pipelines do so without it.
	Backfill bool
	// FromNow lets pipelines, new ones too, begin with what changes from now on.
	// What was written before stays as it is. Not for aggregates.
	FromNow bool
	// DiscardExpired lets a projection that keeps the rows of items that have expired begin
	// without them, where the log that knew those items was trimmed.
	DiscardExpired bool
	// Plan, unless it is "", is the hash of the plan that was looked at: nothing is
	// done if the plan would be another one now. See PlanHash.
	Plan string
	// Bounds, unless it is nil, are the containers within which everything that is declared lies, else
	// nothing is done.
	Bounds *Bounds
	// Await, unless it is nil, does each step of Apply, named for what it needs: again
	// where an error may pass by itself. Every step may be done again after any error.
	// Without it the first error ends Apply, with a part of the declarations in force.
	Await func(ctx context.Context, what string, step func(ctx context.Context) error) error
}

// await does a step.
func (o *ApplyOptions) await(ctx context.Context, what string, step func(ctx context.Context) error) error {
	if o.Await == nil {
		return step(ctx)
	}
	return o.Await(ctx, what, step)
}

// Apply makes containers and pipelines be as declared, containers first. To apply
// the same again does nothing.
//
// A new pipeline begins with all that is there: it reads the log of its source, or,
// where that is long or was trimmed, the items. So does one whose containers were made again. One that
// changes its meaning, so that what it has written does not hold any more, is
// refused with *RefusedError unless opts say how it begins.
//
// The error is Findings if the declarations are wrong, *OutsideError if they are beyond the
// bounds of opts, and *PlanError if the plan is not the one of opts; then, and after
// *RefusedError, nothing was changed.
// After another error what stands in the outcomes was done; apply again to do the
// rest.
func (r *Registry) Apply(ctx context.Context, declared *spec.Resources, opts ...ApplyOptions) ([]Outcome, error) {
	var o ApplyOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	var world World
	err := o.await(ctx, "the catalog", func(ctx context.Context) (err error) {
		world, err = r.World(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Before anything else: who is outside is to learn nothing of what lies there.
	if err := o.Bounds.Check(declared, world); err != nil {
		return nil, err
	}
	placed, err := r.Place(ctx, declared, world)
	if err != nil {
		return nil, err
	}
	if err := placed.Check(); err != nil {
		return nil, err
	}
	declared = placed.Resources
	if err := o.CheckPlan(declared, world); err != nil {
		return nil, err
	}
	if err := o.Refuse(declared, world); err != nil {
		return nil, err
	}
	var done []Outcome
	for i := range declared.Containers {
		d := &declared.Containers[i]
		outcome, err := o.apply(ctx, "container "+d.Metadata.String(), func(ctx context.Context) (Outcome, error) {
			return r.applyContainer(ctx, d, world, o.Bounds)
		})
		if err != nil {
			return done, err
		}
		done = append(done, outcome)
	}
	for i := range declared.Pipelines {
		d := &declared.Pipelines[i]
		outcome, err := o.apply(ctx, "pipeline "+d.Metadata.String(), func(ctx context.Context) (Outcome, error) {
			return r.ApplyPipeline(ctx, d, &o)
		})
		if err != nil {
			return done, err
		}
		outcome.Notes = append(outcome.Notes, placed.Notes(&declared.Pipelines[i])...)
		done = append(done, outcome)
	}
	return done, nil
}

// apply applies one declaration. A try whose answer was lost counts too: the one after it
// finds nothing left to do, and the outcome still says what was done.
//
//	try 1  container created, the answer was lost
//	try 2  unchanged                                told: created
func (o *ApplyOptions) apply(ctx context.Context, what string, one func(ctx context.Context) (Outcome, error)) (outcome Outcome, err error) {
	var tried Outcome
	err = o.await(ctx, "what "+what+" needs", func(ctx context.Context) (err error) {
		if outcome, err = one(ctx); err != nil {
			tried = outcome
		}
		return err
	})
	if err == nil && outcome.Action == Unchanged && tried.Action != "" {
		outcome.Action, outcome.Notes = tried.Action, tried.Notes
	}
	return outcome, err
}

// applyContainer makes a container be as declared.
func (r *Registry) applyContainer(ctx context.Context, d *spec.Container, w World, bounds *Bounds) (Outcome, error) {
	catalog := r.client.Catalog()
	o := Outcome{Kind: spec.KindContainer, Database: d.Metadata.Database, Name: d.Metadata.Name, Action: Unchanged}
	info, err := catalog.Get(ctx, o.Database, o.Name)
	gone := errors.Is(err, store.ErrNotFound)
	if bounds != nil && (err == nil || gone) { // it may have changed since Apply looked
		there := &info
		if gone {
			there = nil
		}
		if err := outsideError(bounds.container(d, there)); err != nil {
			return o, err
		}
	}
	if gone {
		o.Action = Created
		_, err = catalog.Create(ctx, o.Database, o.Name, d.Spec)
		return o, err
	}
	if err != nil {
		return o, err
	}
	if !SameSpec(&info.Spec, &d.Spec) {
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

// SameSpec compares as the catalog would write them.
func SameSpec(a, b *store.ContainerSpec) bool {
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
		if _, err := r.wantIndex(ctx, rec, &Bound{Source: &source, Target: target}); err != nil {
			return err
		}
	}
	return nil
}
