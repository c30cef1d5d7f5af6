package pipelines

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// compiled is what a declaration was compiled to: one of the three.
type compiled struct {
	cascade    *cascade.Cascade
	aggregate  *aggregate.Aggregate
	projection *project.Projection // with its sink
}

// close frees what the sink of a projection holds.
func (c *compiled) close() error {
	if c.projection == nil {
		return nil
	}
	return c.projection.Sink().Close()
}

// compilePipeline compiles what a record declares. Callers close it.
func compilePipeline(client *store.Client, rec *Record, b *bound, limits compileLimits) (c compiled, err error) {
	switch rec.Spec.Kind() {
	case CascadeKind:
		c.cascade, err = rec.cascade(client, b, limits.cascade)
	case AggregateKind:
		c.aggregate, err = compileAggregate(client, rec, b)
	case ProjectKind:
		c.projection, err = compileProject(client, rec, b, limits)
	default:
		err = fmt.Errorf("pipeline %s says nothing that this release knows", rec.Metadata())
	}
	return c, err
}

// processor returns the processor of one role on one partition.
func (c *compiled) processor(r processors.Resource) processors.Processor {
	switch {
	case c.aggregate != nil && r.Role == processors.RoleSource:
		return c.aggregate.Fold(r.Partition)
	case c.projection != nil && r.Role == processors.RoleSource:
		return c.projection.Rows(r.Partition)
	case c.cascade != nil && r.Role == processors.RoleSource:
		return c.cascade.FanOut(r.Partition)
	case c.cascade != nil && r.Role == processors.RoleTarget:
		return c.cascade.Check(r.Partition)
	}
	panic("pipelines: nobody runs " + r.String())
}

// compileAggregate returns the aggregate that a record declares.
func compileAggregate(client *store.Client, rec *Record, b *bound) (*aggregate.Aggregate, error) {
	cfg := aggregate.Config{Pipeline: rec.ID, Generation: rec.Generation, Spec: *rec.Rule}
	var err error
	if cfg.Source, err = client.Open(*b.source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if cfg.Target, err = client.Open(*b.target); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	return aggregate.Compile(cfg)
}

// compileLimits bound processors and sinks. Zero fields take their defaults.
type compileLimits struct {
	cascade cascade.Limits
	project project.Limits
	sinks   SinkLimits
}

// compileProject returns the projection that a record declares, with its sink.
func compileProject(client *store.Client, rec *Record, b *bound, limits compileLimits) (*project.Projection, error) {
	cfg, err := projectConfig(&rec.Spec)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	cfg.Pipeline, cfg.Generation, cfg.Shadow, cfg.Limits = rec.ID, rec.Generation, rec.Shadow, limits.project
	cfg.Fill = rec.FillScope.request(rec.Fills)
	if cfg.Source, err = client.Open(*b.source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if sink := rec.Spec.Project.Sink.Parquet; sink != nil && sink.CommitInterval > 0 {
		cfg.FlushInterval = time.Duration(sink.CommitInterval)
	}
	if cfg.Sink, err = newSink(client, rec, b, &limits.sinks); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	p, err := project.Compile(cfg)
	if err != nil {
		return nil, errors.Join(err, cfg.Sink.Close())
	}
	return p, nil
}
