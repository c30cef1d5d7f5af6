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

// compile compiles what a record declares. Callers close it.
func (s *Supervisor) compile(rec *Record, b *bound) (c compiled, err error) {
	switch rec.Spec.Kind() {
	case CascadeKind:
		c.cascade, err = compileCascade(s.client, rec, b.source, b.target, s.cfg.Cascade)
	case AggregateKind:
		c.aggregate, err = compileAggregate(s.client, rec, b)
	case ProjectKind:
		c.projection, err = compileProject(s.client, rec, b, s.rowLimits())
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

// compileCascade returns the cascade that a record declares between two
// containers.
func compileCascade(client *store.Client, rec *Record, source, target *store.ContainerInfo, limits cascade.Limits) (*cascade.Cascade, error) {
	cfg := cascadeConfig(&rec.Spec)
	cfg.Pipeline, cfg.Generation, cfg.Limits = rec.ID, rec.Generation, limits
	cfg.Fill = rec.FillScope.request(rec.Fills)
	var err error
	if cfg.Source, err = client.Open(*source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if cfg.Target, err = client.Open(*target); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	return cascade.Compile(cfg)
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

// rowLimits bound a projection and its sink.
type rowLimits struct {
	project project.Limits
	sinks   SinkLimits
}

func (s *Supervisor) rowLimits() rowLimits { return rowLimits{s.cfg.Project, s.cfg.Sinks} }

// compileProject returns the projection that a record declares, with its sink.
func compileProject(client *store.Client, rec *Record, b *bound, limits rowLimits) (*project.Projection, error) {
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
