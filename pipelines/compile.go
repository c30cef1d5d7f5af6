package pipelines

import (
	"fmt"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// compileCascade returns the cascade that a record declares between two
// containers.
func compileCascade(client *store.Client, rec *Record, source, target *store.ContainerInfo, limits cascade.Limits) (*cascade.Cascade, error) {
	cfg := cascadeConfig(&rec.Spec)
	cfg.Pipeline, cfg.Generation, cfg.Limits = rec.ID, rec.Generation, limits
	var err error
	if cfg.Source, err = client.Open(*source); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	if cfg.Target, err = client.Open(*target); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
	}
	return cascade.Compile(cfg)
}

// newProcessor returns the processor of one role of a cascade on one partition.
func newProcessor(c *cascade.Cascade, r processors.Resource) processors.Processor {
	switch r.Role {
	case processors.RoleSource:
		return c.FanOut(r.Partition)
	case processors.RoleTarget:
		return c.Check(r.Partition)
	}
	panic("pipelines: a resource has the role " + string(r.Role))
}
