package inspect

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// Derived is a field of an item that a pipeline keeps, with where it comes from.
type Derived struct {
	Field    string            `json:"field"`
	Value    json.RawMessage   `json:"value,omitempty"` // absent: the item lacks it
	Pipeline string            `json:"pipeline"`
	Kind     spec.PipelineKind `json:"kind"`
	Source   DerivedSource     `json:"source"`
	Says     json.RawMessage   `json:"says,omitempty"` // of an aggregate, as declared
	// Problem says why the fields of the pipeline cannot be told; Field is "" then.
	Problem string `json:"problem,omitempty"`
}

// DerivedSource is what a field comes from.
type DerivedSource struct {
	Database  string `json:"database"`
	Container string `json:"container"`
	// Item is the source of a copy, as store.ParseItemRef reads it; "" for an aggregate, and
	// for a copy that names no item.
	Item string `json:"item,omitempty"`
	// Field is the source's field, and Value what it is now; "" and absent for an aggregate.
	Field string          `json:"field,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	// Position is the change that made the source what it is; zero if it never was.
	Position feed.Position `json:"position,omitzero"`
	// Verdict is equal; drift, which passes if the pipeline is behind; or dangling.
	Verdict string `json:"verdict,omitempty"`
}

// Derived tells of each field of an item that a pipeline keeps where it comes from: of a copy the
// source as it is now, of an aggregate what is declared. It is told from the item and its sources
// alone, so it is right whatever the logs still hold. What cannot be told of one pipeline, whose source
// may be away, is said in its place, and the rest is told.
func (i *Inspector) Derived(ctx context.Context, info *store.ContainerInfo, item *store.Item) ([]Derived, error) {
	world, err := i.cfg.Registry.World(ctx)
	if err != nil {
		return nil, err
	}
	var all []Derived
	for k := range world.Pipelines {
		rec := &world.Pipelines[k]
		if rec.Target != info.ID {
			continue
		}
		var fields []Derived
		switch rec.Spec.Kind() {
		case spec.CascadeKind:
			fields, err = i.copies(ctx, rec, world.Containers, item)
		case spec.AggregateKind:
			fields, err = aggregated(rec, item)
		case spec.ProjectKind: // keeps no fields
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			fields = []Derived{{
				Pipeline: rec.Name, Kind: rec.Spec.Kind(), Problem: err.Error(),
				Source: DerivedSource{Database: rec.Database, Container: rec.Spec.Source.Container},
			}}
		}
		all = append(all, fields...)
	}
	return all, nil
}

// copies tells of the fields that a cascade keeps in an item.
func (i *Inspector) copies(ctx context.Context, rec *registry.Record, containers []store.ContainerInfo, item *store.Item) ([]Derived, error) {
	b, gone := rec.Bound(containers)
	if gone != "" {
		return nil, nil // it can keep nothing any more
	}
	compiled, err := compile.Pipeline(i.cfg.Client, rec, &b, compile.Limits{})
	if err != nil {
		return nil, err
	}
	references := compiled.Cascade.Expected(item.Body)
	refs := make([]store.ItemRef, 0, len(references))
	for k := range references {
		if references[k].Possible {
			refs = append(refs, references[k].Source)
		}
	}
	origins, err := compiled.Cascade.Origins(ctx, refs)
	if err != nil {
		return nil, err
	}
	var all []Derived
	for k := range references {
		r := &references[k]
		var origin cascade.Origin
		if r.Possible {
			origin, origins = origins[0], origins[1:]
		}
		all = append(all, copied(rec, compiled.Cascade, r, &origin, item.Modified)...)
	}
	return all, nil
}

// copied tells of the fields of one copy.
func copied(rec *registry.Record, c *cascade.Cascade, r *cascade.Reference, origin *cascade.Origin, modified int64) []Derived {
	source := DerivedSource{
		Database: rec.Database, Container: rec.Spec.Source.Container, Position: origin.Position(), Verdict: cascade.Dangling.String(),
	}
	wanted := map[string][]byte{}
	if r.Possible {
		source.Item, source.Verdict = r.Source.String(), c.Compare(r, origin, modified).String()
		for _, f := range c.Wanted(origin) {
			wanted[f.Path] = f.Value
		}
	}
	from := map[string]string{}
	for _, e := range rec.Spec.Cascade.Set {
		from[e.Field.String()] = e.Value.String()
	}
	var all []Derived
	for _, f := range r.Has {
		d := Derived{Field: f.Path, Value: f.Value, Pipeline: rec.Name, Kind: spec.CascadeKind, Source: source}
		if r.Element >= 0 {
			d.Field = fmt.Sprintf("%s[%d].%s", rec.Spec.Cascade.Each, r.Element, f.Path)
		}
		d.Source.Field, d.Source.Value = from[f.Path], wanted[f.Path]
		all = append(all, d)
	}
	return all
}

// aggregated tells of the fields of an aggregate that an item has.
func aggregated(rec *registry.Record, item *store.Item) ([]Derived, error) {
	var all []Derived
	for _, e := range rec.Spec.Aggregate.Set {
		value, ok := document.Get(item.Body, e.Field.Path())
		if !ok {
			continue
		}
		says, err := declaration.JSON(e.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, Derived{
			Field: e.Field.String(), Value: value, Pipeline: rec.Name, Kind: spec.AggregateKind, Says: says,
			Source: DerivedSource{Database: rec.Database, Container: rec.Spec.Source.Container},
		})
	}
	return all, nil
}
