package owner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
)

var splitHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		if p.planSplit == nil {
			return &store.Response{Err: p.notOwner()}
		}
		return p.planSplit(ctx, r.Split)
	},
}

// planSplit records in the catalog that a partition is to be split.
func (s *Server) planSplit(ctx context.Context, p *Partition, r *store.SplitPartition) *store.Response {
	info := s.containerOf(p.id)
	if info == nil {
		return &store.Response{Err: p.notOwner()}
	}
	if r.Cancel {
		return s.cancelSplit(ctx, p, info)
	}
	if why := s.notSplittable(p); why != "" {
		return &store.Response{Err: store.Refuse(store.StatusConflict, "partition %s cannot be split: %s", p.id, why)}
	}
	at := r.At
	if at == "" {
		var refusal *store.Error
		if at, _, refusal = p.middle(ctx); refusal != nil {
			return &store.Response{Err: refusal}
		}
	}
	planned, err := s.catalog.PlanSplit(ctx, info.Database, info.Name, p.id.Number, at, r.Dry)
	if refusal, ok := errors.AsType[*store.Error](err); ok {
		return &store.Response{Err: refusal}
	}
	if err != nil {
		return &store.Response{Err: &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: err.Error()}}
	}
	result := &store.SplitResult{Children: planned.Children}
	if !r.Dry {
		result.ID = planned.ID
	}
	return &store.Response{Split: result}
}

// cancelSplit gives up the split that is planned of a partition, or under way. The log says so first: then no owner, however
// late, goes on with it.
func (s *Server) cancelSplit(ctx context.Context, p *Partition, info *store.ContainerInfo) *store.Response {
	plan := info.PlannedOf(p.id.Number)
	if plan == nil {
		return &store.Response{Err: store.Refuse(store.StatusConflict, "no split of partition %s is planned", p.id)}
	}
	var wrong error
	err := p.settle(ctx, func(d *decider) {
		switch is := d.split.split; {
		case d.draft.ends != nil:
			wrong = errStopped // too late
		case is != nil && is.ID != plan.ID:
			wrong = fmt.Errorf("another one, %s, is under way", is.ID)
		default:
			wrong = d.abandon(plan.ID, "it was cancelled")
		}
	})
	if err = errors.Join(wrong, err); err == nil && !p.gaveUp(plan.ID) {
		err = errNotAppended
	}
	if err == nil {
		err = s.dropPlan(ctx, p, info, plan)
	}
	if err != nil {
		return &store.Response{Err: &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: fmt.Sprintf("split %s: %v", plan.ID, err)}}
	}
	return &store.Response{Split: &store.SplitResult{ID: plan.ID, Children: plan.Children}}
}

// dropPlan has the catalog forget a split that was given up, and drops what was made for it.
func (s *Server) dropPlan(ctx context.Context, p *Partition, info *store.ContainerInfo, plan *store.PlannedSplit) error {
	for _, child := range plan.Children {
		if err := s.awaitHeir(ctx, feed.Partition{Container: info.ID, Number: child.Number}); err != nil {
			return err
		}
		if err := s.dropSnapshots(ctx, feed.Partition{Container: info.ID, Number: child.Number}); err != nil {
			return err
		}
	}
	if err := s.catalog.AbandonSplit(ctx, info.Database, info.Name, plan.ID); err != nil {
		return err
	}
	p.log.Info("the split was given up", "split", plan.ID)
	p.splitSays.Store(nil)
	return nil
}

// notSplittable says why a partition cannot be split now; "" if it can.
func (s *Server) notSplittable(p *Partition) string {
	shape := p.shape.Load()
	switch level := s.cfg.level.Level(); {
	case level < featurelevel.Splits:
		return fmt.Sprintf("the data has feature level %d, and partitions are split from %d on: millrace upgrade --finish, when no process of an earlier release is left", level, featurelevel.Splits)
	case s.cfg.snapshots == nil:
		return "its children begin with snapshots, and none are taken (store.snapshots.store is off)"
	case !s.cfg.Alone && !s.cfg.Snapshots.Shared(s.cfg.Alone):
		return "its children begin with snapshots, which other stores could not read: set store.snapshots.store to stream or s3"
	case shape != nil && shape.Untrimmable:
		return "its log is about to go on in a new stream; try again when it has"
	case p.closedFor.Load() != nil || p.harm.Load() != nil:
		return "its log is damaged"
	}
	return ""
}

// middle returns a hash that about half of the partition's items lie below, and which part of them lies on the side that
// has less.
func (p *Partition) middle(ctx context.Context) (at feed.EPK, less float64, refusal *store.Error) {
	const sampleMax = 4096
	snap := p.engine.Snapshot()
	defer snap.Close()
	// Each step-th hash. When there are too many, every second of them goes:
	//
	//	4,096 of 4,096 items, then 2,048 of 4,096, 4,096 of 8,192 ...
	var sample []feed.EPK
	items, step := 0, 1
	for key, err := range snap.ItemKeys(engine.Span{}) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", 0, &store.Error{Status: store.StatusUnavailable, RetryAfter: splitRetry, Message: fmt.Sprintf("partition %s: look for its middle: %v", p.id, err)}
		}
		if items++; items%step != 0 {
			continue
		}
		sample = append(sample, feed.EPK(key[1:1+store.BoundaryBytes]))
		if len(sample) == sampleMax {
			for i := range sampleMax / 2 {
				sample[i] = sample[2*i+1]
			}
			sample, step = sample[:sampleMax/2], 2*step
		}
	}
	if len(sample) == 0 {
		return "", 0, store.Refuse(store.StatusConflict, "partition %s has no items, so that it has no middle: say where with --at", p.id)
	}
	at = sample[len(sample)/2]
	below := slices.Index(sample, at) // it is in order
	if below == 0 {
		// One logical partition reaches beyond the middle.
		below = slices.IndexFunc(sample, func(e feed.EPK) bool { return e > at })
	}
	if below > 0 {
		part := float64(below) / float64(len(sample))
		return sample[below], min(part, 1-part), nil
	}
	return "", 0, store.Refuse(store.StatusConflict, "nearly all items of partition %s have one partition key, of hash %s, and a split does not divide these", p.id, at.Hex())
}
