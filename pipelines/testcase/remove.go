package testcase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/pace"
)

// removeMax bounds the removal of what a test has made.
const removeMax = 30 * time.Second

// remove removes what the test has made: its pipelines, and when their work has ended
// and nobody is about to write any more, its containers.
func (run *testRun) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeMax)
	defer cancel()
	world, err := run.registry.World(ctx)
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for i := range world.Pipelines {
		if rec := &world.Pipelines[i]; rec.Database == run.database {
			ids[rec.ID] = true
			if err := run.registry.Delete(ctx, rec.Database, rec.Name); err != nil {
				return err
			}
		}
	}
	var containers []*store.Container
	for i := range world.Containers {
		if world.Containers[i].Database == run.database {
			c, err := run.client.Open(world.Containers[i])
			if err != nil {
				return err
			}
			containers = append(containers, c)
		}
	}
	for {
		quiet, err := run.quiet(ctx, ids, containers)
		if err != nil {
			return err
		}
		if quiet {
			break
		}
		if err := pace.Pause(ctx, run.cfg.PollInterval); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range containers {
		errs = append(errs, run.client.Catalog().Delete(ctx, run.database, c.Info().Name))
	}
	return errors.Join(errs...)
}

// quiet tells whether nobody works for pipelines any more, and no partition keeps their
// rules.
func (run *testRun) quiet(ctx context.Context, ids map[string]bool, containers []*store.Container) (bool, error) {
	held, err := leases.List(ctx, run.js, run.cfg.Bucket)
	if err != nil {
		return false, fmt.Errorf("read the leases: %w", err)
	}
	if slices.ContainsFunc(held, func(l leases.Lease) bool {
		r, err := processors.ParseResource(l.Resource)
		return err == nil && ids[r.Pipeline] && l.Owner != ""
	}) {
		return false, nil
	}
	for _, c := range containers {
		for _, partition := range c.Partitions() {
			status, err := c.Status(ctx, partition)
			if err != nil || len(status.Rules) > 0 {
				return false, err
			}
		}
	}
	return true, nil
}
