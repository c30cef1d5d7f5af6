package compile

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// Compiled is what a declaration was compiled to: one of the three.
type Compiled struct {
	Cascade    *cascade.Cascade
	Aggregate  *aggregate.Aggregate
	Projection *project.Projection // with its sink
}

// Close frees what the sink of a projection holds.
func (c *Compiled) Close() error {
	if c.Projection == nil {
		return nil
	}
	return c.Projection.Sink().Close()
}

// Pipeline compiles what a record declares. Callers close it.
func Pipeline(client *store.Client, rec *registry.Record, b *registry.Bound, limits Limits) (c Compiled, err error) {
	switch rec.Spec.Kind() {
	case spec.CascadeKind:
		c.Cascade, err = rec.Cascade(client, b, limits.Cascade)
	case spec.AggregateKind:
		c.Aggregate, err = Aggregate(client, rec, b)
	case spec.ProjectKind:
		c.Projection, err = Projection(client, rec, b, limits)
	default:
		err = fmt.Errorf("pipeline %s says nothing that this release knows", rec.Metadata())
	}
	return c, err
}

// Processor returns the processor of one role on one partition.
func (c *Compiled) Processor(r processors.Resource) processors.Processor {
	switch {
	case c.Aggregate != nil && r.Role == processors.RoleSource:
		return c.Aggregate.Fold(r.Partition)
	case c.Projection != nil && r.Role == processors.RoleSource:
		return c.Projection.Rows(r.Partition)
	case c.Cascade != nil && r.Role == processors.RoleSource:
		return c.Cascade.FanOut(r.Partition)
	case c.Cascade != nil && r.Role == processors.RoleTarget:
		return c.Cascade.Check(r.Partition)
	}
	panic("pipelines: nobody runs " + r.String())
}

// Aggregate returns the aggregate that a record declares.
func Aggregate(client *store.Client, rec *registry.Record, b *registry.Bound) (*aggregate.Aggregate, error) {
	cfg := aggregate.Config{Pipeline: rec.ID, Generation: rec.Generation, Spec: *rec.Rule}
	var err error
	if cfg.Source, err = client.Open(*b.Source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if cfg.Target, err = client.Open(*b.Target); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	return aggregate.Compile(cfg)
}

// Limits bound processors and sinks. Zero fields take their defaults.
type Limits struct {
	Cascade cascade.Limits
	Project project.Limits
	Sinks   SinkLimits
}

// Reading returns the limits of a process that reads what sinks hold: to verify, to plan.
func Reading(r *registry.Registry) Limits {
	return Limits{Sinks: SinkLimits{Variables: r.SinkVariables()}}
}

// Projection returns the projection that a record declares, with its sink.
func Projection(client *store.Client, rec *registry.Record, b *registry.Bound, limits Limits) (*project.Projection, error) {
	cfg, err := spec.ProjectConfig(&rec.Spec)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	cfg.Pipeline, cfg.Generation, cfg.Shadow, cfg.Limits = rec.ID, rec.Generation, rec.Shadow, limits.Project
	cfg.SinkKind = rec.Spec.Project.Sink.Kind()
	cfg.Backfill = rec.BackfillScope.Request(rec.Backfills)
	if cfg.Source, err = client.Open(*b.Source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if sink := rec.Spec.Project.Sink.Parquet; sink != nil && sink.CommitInterval > 0 {
		cfg.FlushInterval = time.Duration(sink.CommitInterval)
	}
	if cfg.Sink, err = newSink(client, rec, b, &limits.Sinks); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	p, err := project.Compile(cfg)
	if err != nil {
		return nil, errors.Join(err, cfg.Sink.Close())
	}
	return p, nil
}
